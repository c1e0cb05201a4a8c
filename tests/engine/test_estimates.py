"""What is known of a stream: when its watermarks come, learned from those that came."""

from __future__ import annotations

import pytest
from fake_streams import NOON, SECOND, FakeSeen, FakeSource, FakeStream, fake, live, scheduler, view

from transom.engine.control.estimates import StreamEstimate
from transom.engine.state.absence import Heard, LeftOut
from transom.model.time import Micros
from transom.model.window import tumbling


def test_lag_of_watermarks_is_learned_from_those_that_came() -> None:
    stream = FakeStream("s", [tumbling("3 seconds")])
    decides = scheduler(stream)
    now = live(stream, decides, 60, lag=400_000)
    end = stream.state.first_end(stream.queries[0])
    expected = view(stream, decides, now).expected
    assert abs(expected - (end + 400_000)) < 20_000


def test_a_replay_leaves_no_lag_behind() -> None:
    """A year of hours that arrived within seconds says nothing of when the next hour comes."""
    stream = FakeStream("s", [tumbling("1 hour")])
    decides = scheduler(stream)
    now = NOON
    for hour in range(100):
        now += 10_000
        stream.source.arrivals.append(now)
        stream.run(decides, NOON - (8_760 - 80 * hour) * 3_600 * SECOND, now)
    assert len(decides.of(fake(stream), now).watermarks.lags) < 20


def test_an_injected_watermark_is_known_before_its_rows_are_read() -> None:
    stream = FakeStream("s", [tumbling("3 seconds")], injected=True)
    decides = scheduler(stream)
    stream.source.injected = NOON
    decides.looked([fake(stream)], NOON)
    stream.source.arrivals.append(NOON + 3 * SECOND)
    stream.source.injected = NOON + 3 * SECOND
    decides.looked([fake(stream)], NOON + 3 * SECOND + 50_000)
    end = stream.state.first_end(stream.queries[0])
    assert decides.of(fake(stream), NOON).expected(end, NOON + 4 * SECOND) == NOON + 3 * SECOND + 50_000


class Partials(FakeSource):
    """Parcels of one site."""

    brings_partials = True

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Micros] = []
        """The newest event time with each parcel."""

    def newest(self) -> list[Micros | None]:
        return [self.told[-1] if self.told else None]

    def idle(self, offset: int) -> list[Micros | None]:
        return [None]

    def heard(self, offset: int) -> Heard:
        return Heard(["north"], {}, 0)


def test_a_watermark_that_waits_with_partials_is_not_waited_for() -> None:
    """A site whose clock is 5 s ahead says of each row that it came 5 s later."""
    ahead, every = 5 * SECOND, SECOND // 10
    stream = FakeStream("s", [tumbling("3 seconds")])
    stream.source = source = Partials()
    stream.seen = FakeSeen(source)
    stream.state.missing = {}
    decides = scheduler(stream)
    for now in range(NOON + every, NOON + 60 * SECOND, every):
        source.arrivals.append(now + ahead)
        source.told.append(now - every)
        stream.run(decides, source.told[-1], now)
    end, now = stream.state.first_end(stream.queries[0]), NOON + 60 * SECOND

    def waits(told: Micros) -> tuple[bool, list[str]]:
        source.arrivals.append(now + ahead)
        source.told.append(told)
        decides.looked([fake(stream)], now)
        return view(stream, decides, now).expected > now, decides.order(["s"], now)

    assert waits(end - 1) == (True, [])
    assert waits(end) == (False, ["s"])


def test_a_site_that_is_left_out_holds_no_promised_watermark_back() -> None:
    stream = FakeStream("s", [tumbling("3 seconds")])
    stream.source = source = Partials()
    stream.seen = FakeSeen(source)
    known = StreamEstimate(fake(stream), NOON).watermarks
    source.newest = lambda: [NOON, None]  # type: ignore[method-assign]
    source.idle = lambda offset: [None, None]  # type: ignore[method-assign]
    source.heard = lambda offset: Heard(["north", "south"], {}, 0)  # type: ignore[method-assign]
    stream.state.missing = {}
    assert not known.promised()
    stream.state.missing = {"south": LeftOut(0, True)}
    assert known.promised()
    assert not known.promised()


def test_what_was_learned_survives() -> None:
    stream = FakeStream("s", [tumbling("3 seconds")])
    decides = scheduler(stream)
    now = live(stream, decides, 30, lag=100_000)
    again = scheduler(stream)
    again.restore({**decides.learned(), "gone": {"lags": [], "delays": [], "levels": []}}, now)
    assert again.learned() == decides.learned()
    assert len(again.of(fake(stream), now).watermarks.lags) > 5


def test_a_query_without_rows_has_no_deadline() -> None:
    stream = FakeStream("s", [tumbling("3 seconds")])
    stream.state.first_end = lambda query: None
    assert StreamEstimate(fake(stream), NOON).deadlines() == []


def test_a_watermark_comes_with_the_piece_of_input_that_holds_it() -> None:
    """Files of a quarter of a second: what is at an even pace in between is there when its file is."""
    stream = FakeStream("s", [tumbling("3 seconds")])
    decides = scheduler(stream)
    for number in range(1, 41):
        now = NOON + number * SECOND
        for piece in range(4):
            stream.source.arrivals.append(now - (3 - piece) * SECOND // 4)
        stream.run(decides, now - 100_000, now)
    end = stream.state.first_end(stream.queries[0])
    assert abs(view(stream, decides, now).expected - (end + SECOND // 4)) < 1_000


@pytest.mark.parametrize("seconds", [1, 3, 10])
def test_long_cuts_do_not_make_watermarks_seem_late(seconds: int) -> None:
    """100 rows a second arrive on time: the sweeping watermark of a window is there with the row at its end."""
    stream = FakeStream("s", [tumbling("3 seconds")])
    decides = scheduler(stream)
    found: list[tuple[Micros, Micros]] = []
    decides.of(fake(stream), NOON).watermarks._learn = lambda end, arrival: found.append((end, arrival))  # type: ignore[method-assign]
    for number in range(1, 31):
        now = NOON + number * seconds * SECOND
        stream.source.arrivals += range(now - seconds * SECOND + SECOND // 100, now + 1, SECOND // 100)
        stream.run(decides, now, now)
    assert len(found) >= seconds * 9
    assert max(abs(arrival - end) for end, arrival in found) <= seconds * SECOND // 256 + SECOND // 100


def test_one_lag_tells_nothing() -> None:
    """Data of years ago is replayed at its own pace: the first lag is years, and no sign of what the next one is."""
    stream = FakeStream("s", [tumbling("3 seconds")])
    decides = scheduler(stream)
    years = 3 * 365 * 86_400 * SECOND
    for second in range(4):
        now = NOON + years + second * SECOND
        stream.source.arrivals.append(now)
        stream.run(decides, NOON + second * SECOND, now)
    assert len(decides.of(fake(stream), now).watermarks.lags) == 1
    assert view(stream, decides, now).expected == now
