"""What the scheduler knows and decides, on streams that are told what to say: no Spark, no clock."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.config import Settings
from transom.engine.cuts import CutOutcome, LoggedCut
from transom.engine.derived import ResultsSource
from transom.engine.estimates import UNSTATED, StreamEstimate
from transom.engine.memory import Shares
from transom.engine.scheduler import Scheduler
from transom.engine.spark.jobs import CutStats
from transom.engine.stream import Stream
from transom.engine.watermarks import WatermarkState
from transom.model.query import LatencyTarget
from transom.model.time import MIN_TIME, Micros
from transom.model.watermark import watermark
from transom.model.window import WindowSpec, tumbling

SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND


class FakeSource:
    """Rows arrive one by one; offset n is reached by the n-th."""

    def __init__(self) -> None:
        self.arrivals: list[Micros] = []
        self.injected: Micros | None = None

    def cut(self, start: int, max_rows: int) -> Any:
        end = min(len(self.arrivals), start + max_rows)
        return SimpleNamespace(end=end, rows=end - start)

    def ingested_at(self, start: int, end: int) -> Micros:
        return max(self.arrivals[start:end], default=0)

    def watermark(self, end: int) -> Micros | None:
        return self.injected


class FakeStream:
    """A stream with queries that each have one window and one limit."""

    def __init__(
        self,
        name: str,
        windows: Sequence[WindowSpec],
        limits: Sequence[Micros | None] = (None,),
        injected: bool = False,
    ) -> None:
        self.name = name
        self.source = FakeSource()
        self.definition = SimpleNamespace(policy=watermark(from_source=injected))
        self.queries = [
            SimpleNamespace(
                name=f"{name}{i}",
                pane_windows=(window,),
                target=None if limit is None else LatencyTarget(limit, 0.99),
            )
            for i, (window, limit) in enumerate(zip(windows, limits, strict=True))
        ]
        self.state = SimpleNamespace(
            offset=0,
            closed=NOON,
            running=lambda: self.queries,
            first_end=lambda query: query.pane_windows[0].first_end(self.state.closed),
            next_early=lambda: None,
            watermark=WatermarkState.start(1, 0),
        )
        self.readers: list[Any] = []
        self.more = False
        self.compiled = name

    @property
    def latest(self) -> int:
        return len(self.source.arrivals)

    def backlog(self) -> int:
        return self.latest - cast(int, self.state.offset)

    def run(self, scheduler: Scheduler, newest: Micros, now: Micros, took: Micros = SECOND // 10) -> None:
        """Read all that waits; its newest event time is `newest`."""
        cut = LoggedCut(1, self.state.offset, self.latest, self.backlog(), MIN_TIME, MIN_TIME, None, now)
        scheduler.looked([fake(self)], now)
        scheduler.started(fake(self), cut, now)
        self.state.offset = self.latest
        self.state.watermark = self.state.watermark.committed((newest,), self.source.injected, now)
        scheduler.finished(fake(self), CutOutcome(cut, stats=CutStats(rows=cut.rows)), now + took)
        self.state.closed = self.state.watermark.advanced(self.definition.policy, now).value
        scheduler.looked([fake(self)], now + took)


def fake(stream: FakeStream) -> Stream:
    return cast(Stream, stream)


def scheduler(*streams: FakeStream, **settings: Any) -> Scheduler:
    return Scheduler({each.name: fake(each) for each in streams}, Settings.of(settings))


def live(stream: FakeStream, decides: Scheduler, seconds: int, lag: Micros, every: Micros = SECOND // 10) -> Micros:
    """Let rows come `lag` after they happened and be read at once; return the time at the end."""
    now = NOON
    for now in range(NOON + every, NOON + seconds * SECOND + 1, every):
        stream.source.arrivals.append(now)
        stream.run(decides, now - lag, now)
    return now


def view(stream: FakeStream, decides: Scheduler, now: Micros) -> Any:
    estimate = decides.of(fake(stream), now)
    return estimate.view(decides._deadlines(estimate, now), 1.0, 0.5, now, False)


def test_lag_of_watermarks_is_learned_from_those_that_came() -> None:
    stream = FakeStream("s", [tumbling("3 seconds")])
    decides = scheduler(stream)
    now = live(stream, decides, 60, lag=400_000)
    end = stream.state.first_end(stream.queries[0])
    expected = view(stream, decides, now).expected
    assert abs(expected - (end + 400_000)) < 20_000


def test_without_a_past_nothing_is_waited_for() -> None:
    stream = FakeStream("s", [tumbling("1 hour")])
    stream.source.arrivals = [NOON]
    decides = scheduler(stream)
    decides.looked([fake(stream)], NOON)
    assert view(stream, decides, NOON).expected == NOON
    assert decides.order(["s"], NOON) == ["s"]


def test_a_stream_is_left_alone_until_its_window_is_near_and_run_when_it_should_be_there() -> None:
    stream = FakeStream("s", [tumbling("10 seconds")])
    decides = scheduler(stream)
    now = live(stream, decides, 61, lag=0)
    stream.source.arrivals.append(now)
    decides.looked([fake(stream)], now)
    assert decides.order(["s"], now) == []
    assert decides.order(["s"], NOON + 70 * SECOND + SECOND // 10) == ["s"]


def test_rows_beyond_a_cut_are_not_waited_for() -> None:
    stream = FakeStream("s", [tumbling("10 seconds")])
    decides = scheduler(stream)
    now = live(stream, decides, 61, lag=0)
    stream.source.arrivals.append(now)
    stream.more = True
    decides.looked([fake(stream)], now)
    assert decides.order(["s"], now) == ["s"]


def test_at_the_end_of_the_input_nothing_is_waited_for() -> None:
    stream = FakeStream("s", [tumbling("10 seconds")])
    decides = scheduler(stream)
    now = live(stream, decides, 61, lag=0)
    stream.source.arrivals.append(now)
    decides.looked([fake(stream)], now)
    decides.once = True
    assert decides.order(["s"], now) == ["s"]


def test_a_replay_leaves_no_lag_behind() -> None:
    """A year of hours that arrived within seconds says nothing of when the next hour comes."""
    stream = FakeStream("s", [tumbling("1 hour")])
    decides = scheduler(stream)
    now = NOON
    for hour in range(100):
        now += 10_000
        stream.source.arrivals.append(now)
        stream.run(decides, NOON - (8_760 - 80 * hour) * 3_600 * SECOND, now)
    assert len(decides.of(fake(stream), now).lags) < 20


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


def test_the_tightest_of_several_queries_decides() -> None:
    stream = FakeStream("s", [tumbling("10 seconds"), tumbling("20 seconds")], [8 * SECOND, SECOND])
    decides = scheduler(stream)
    now = live(stream, decides, 60, lag=0)
    at = now + 1
    early, late = (stream.state.first_end(query) for query in stream.queries)
    seen = view(stream, decides, at)
    wanted = min(early + 8 * SECOND, late + SECOND)
    assert abs(seen.slack + seen.total + at - wanted) < 50_000


def test_a_stream_has_the_deadlines_of_those_that_wait_for_it() -> None:
    child = FakeStream("c", [tumbling("10 seconds")], [SECOND], injected=True)
    parent = FakeStream("p", [tumbling("1 hour")])
    parent.readers = [SimpleNamespace(child=child, behind=2 * SECOND)]
    decides = scheduler(parent, child)
    found = decides._deadlines(decides.of(fake(parent), NOON), NOON)
    below = decides.of(fake(child), NOON).next_run()
    first, second = sorted(found, key=lambda each: each.end)
    end = tumbling("10 seconds").first_end(NOON) + 2 * SECOND
    assert (first.end, first.limit, first.below, first.period) == (end, SECOND, below, 10 * SECOND)
    assert (second.limit, second.below) == (UNSTATED, 0)
    seen = view(parent, decides, NOON)
    assert seen.total >= decides.of(fake(parent), NOON).next_run() + below, "what follows further down is still to do"
    assert seen.slack == seen.expected + seen.limit - NOON - seen.total


@pytest.mark.parametrize("policy", ["klink", "fcfs", "round_robin", "highest_rate", "streambox", "least_slack"])
def test_cuts_fit_into_a_cycle_when_there_are_others(policy: str) -> None:
    one, other = FakeStream("a", [tumbling("1 second")]), FakeStream("b", [tumbling("1 second")])
    decides = scheduler(one, other, policy=policy, cycle="500 ms", max_rows_per_cut=1_000_000)
    bound = decides.max_rows(NOON)[one.name]
    costs = decides.of(fake(one), NOON).costs.costs
    assert 0.45 <= float(costs.job(bound)) <= 0.5
    alone = scheduler(one, policy=policy)
    assert alone.max_rows(NOON)[one.name] == alone._settings.max_rows_per_cut


def test_fair_runs_all_at_once_and_whole() -> None:
    streams = [FakeStream(name, [tumbling("1 second")]) for name in "abcde"]
    decides = scheduler(*streams, policy="fair")
    assert (decides.slots, decides.pools) == (5, True)
    assert decides.max_rows(NOON)[streams[0].name] == 1_000_000
    assert scheduler(*streams).slots == 2


def test_what_was_learned_survives() -> None:
    stream = FakeStream("s", [tumbling("3 seconds")])
    decides = scheduler(stream)
    now = live(stream, decides, 30, lag=100_000)
    again = scheduler(stream)
    again.restore({**decides.learned(), "gone": {"lags": [], "delays": [], "levels": []}}, now)
    assert again.learned() == decides.learned()
    assert len(again.of(fake(stream), now).lags) > 5


@given(st.integers(-(10**15), 10**15), st.integers(1_000, 10**9), st.integers(1, 10**9), st.integers(0, 10**9))
def test_first_end_is_the_first_one(after: int, length: int, slide: int, offset: int) -> None:
    if slide > length or length > 1_000_000 * slide:
        slide = length
    window = WindowSpec(length, slide, offset)
    end = window.first_end(after)
    assert after < end <= after + slide
    assert (end - length - window.offset) % slide == 0


def test_streams_wait_no_longer_than_the_bound() -> None:
    """Of two streams that always have rows, the one that the policy likes less still runs."""
    first, second = FakeStream("a", [tumbling("1 second")]), FakeStream("b", [tumbling("1 second")])
    decides = scheduler(first, second, policy="highest_rate", longest_wait="5 seconds")
    ran: dict[str, list[Micros]] = {"a": [], "b": []}
    for now in range(NOON, NOON + 60 * SECOND, SECOND // 2):
        for stream in (first, second):
            stream.source.arrivals.append(now)
            decides.looked([fake(stream)], now)
        name = decides.order(["a", "b"], now)[0]
        (first if name == "a" else second).run(decides, now, now)
        ran[name].append(now)
    for moments in ran.values():
        gaps = [b - a for a, b in itertools.pairwise(moments)]
        assert moments
        assert max(gaps) <= 6 * SECOND


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


@pytest.mark.parametrize(("once", "more", "told"), [(False, False, 1), (True, False, 0), (False, True, 0)])
def test_a_query_whose_limit_is_out_of_reach_is_named_once(once: bool, more: bool, told: int) -> None:
    """Not while it catches up, nor where all input was there from the start."""
    stream = FakeStream("s", [tumbling("3 seconds")] * 2, [SECOND // 4, 2 * SECOND])
    notes: list[str] = []
    decides = Scheduler({"s": fake(stream)}, Settings.of({}), note=notes.append)
    decides.once, stream.more = once, more
    for number in range(1, 21):
        stream.source.arrivals.append(NOON + number * SECOND)
        stream.run(decides, NOON + number * SECOND, NOON + number * SECOND, took=SECOND // 2)
    assert len(notes) == told
    assert all(note.startswith("s0 has a limit of") and "own_stream" in note for note in notes)


@pytest.mark.parametrize("seconds", [1, 3, 10])
def test_long_cuts_do_not_make_watermarks_seem_late(seconds: int) -> None:
    """100 rows a second arrive on time: the sweeping watermark of a window is there with the row at its end."""
    stream = FakeStream("s", [tumbling("3 seconds")])
    decides = scheduler(stream)
    found: list[tuple[Micros, Micros]] = []
    decides.of(fake(stream), NOON)._learn = lambda end, arrival: found.append((end, arrival))  # type: ignore[method-assign]
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
    assert len(decides.of(fake(stream), now).lags) == 1
    assert view(stream, decides, now).expected == now


def held(stream: FakeStream, rows: int) -> None:
    """Let rows wait in memory."""
    source = ResultsSource("parent", "query")
    source._items = [SimpleNamespace(position=1, rows=rows, table=SimpleNamespace(nbytes=100 * rows))]  # type: ignore[list-item]
    stream.source = cast(Any, source)


def test_while_memory_is_short_what_frees_it_goes_first_and_what_adds_to_it_waits() -> None:
    names = ["file", "held", "more"]
    streams = {name: FakeStream(name, [tumbling("1 second")]) for name in names}
    notes: list[str] = []
    shares = [Shares(driver=0.5)]
    decides = Scheduler(
        {name: fake(stream) for name, stream in streams.items()},
        Settings(policy="fcfs"),
        lambda: shares[0],
        notes.append,
    )
    for name, stream in streams.items():
        estimate = decides.of(fake(stream), NOON)
        estimate.backlog, estimate.waiting_since = 1_000, NOON - names.index(name)
    held(streams["held"], 1_000)
    held(streams["more"], 5_000)
    decides.of(fake(streams["more"]), NOON).backlog = 5_000
    assert decides.order(names, NOON) == ["more", "held", "file"]
    decides.of(fake(streams["more"]), NOON).waiting_since = NOON + 1
    assert decides.order(names, NOON) == ["held", "file", "more"]
    shares[0] = Shares(driver=0.5, heap=0.85)
    assert decides.order(names, NOON + 2 * SECOND) == ["more", "held"]
    assert decides.mode.active
    assert "heap 85%" in notes[0]
    shares[0] = Shares(heap=0.42)
    assert decides.order(names, NOON + 4 * SECOND) == ["held", "file", "more"]
    assert not decides.mode.active
    assert len(notes) == 1


def test_memory_mode_ends_after_its_time_and_can_be_left_out() -> None:
    stream = FakeStream("s", [tumbling("1 second")])
    for bound, modes in ((0.8, [True, True, True, False, False, False, True]), (1.0, [False] * 7)):
        settings = Settings(policy="fcfs", memory_bound=bound)
        decides = Scheduler({"s": fake(stream)}, settings, lambda: Shares(cache=0.95))
        seen = []
        for second in range(7):
            decides.order(["s"], NOON + second * SECOND)
            seen.append(decides.mode.active)
        assert seen == modes


def test_what_only_adds_to_memory_waits_for_what_frees_some_and_no_longer_than_the_bound() -> None:
    adds, frees = FakeStream("adds", [tumbling("1 second")]), FakeStream("frees", [tumbling("1 second")])
    adds.source.arrivals = [NOON]
    shares = [Shares(driver=0.9)]
    settings = Settings(longest_wait=20 * SECOND)
    streams = {"adds": fake(adds), "frees": fake(frees)}
    decides = Scheduler(streams, settings, lambda: shares[0])
    decides.looked([fake(adds)], NOON)
    assert decides.order(["adds"], NOON) == ["adds"], "nothing frees memory, so that waiting would not help"
    held(frees, 1_000)
    decides.of(fake(frees), NOON).backlog = 1_000
    for tenth in range(200):  # the memory mode itself rests half of the time
        assert decides.order(["adds"], NOON + tenth * SECOND // 10) == []
    assert decides.order(["adds"], NOON + 21 * SECOND) == ["adds"]
    shares[0] = Shares(driver=0.7)
    decides.of(fake(adds), NOON).started_at = NOON + 21 * SECOND
    assert decides.order(["adds"], NOON + 31 * SECOND) == ["adds"]


def test_while_memory_is_short_results_on_their_way_to_sinks_are_waited_for() -> None:
    stream = FakeStream("s", [tumbling("1 second")])
    stream.source.arrivals = [NOON]
    decides = Scheduler({"s": fake(stream)}, Settings(), lambda: Shares(driver=0.9))
    decides.looked([fake(stream)], NOON)
    assert decides.order(["s"], NOON, delivering=True) == []
    assert decides.order(["s"], NOON, delivering=False) == ["s"]


def test_what_a_run_frees_is_told_in_bytes() -> None:
    stream, reader = FakeStream("s", [tumbling("1 second")]), FakeStream("r", [tumbling("1 second")])
    estimate = StreamEstimate(fake(stream), NOON)
    estimate.backlog = 1_000
    estimate._kept, estimate._partial_bytes, estimate._partials = 0.1, 50.0, 400.0
    assert estimate.freed(False, 1e9) == pytest.approx(-1_000 * 0.1 * 50), "partials of rows that wait in files"
    assert estimate.freed(True, 1e9) == pytest.approx(400 * 50 - 1_000 * 0.1 * 50)
    held(stream, 1_000)
    assert estimate.freed(False, 1e9) == pytest.approx(1_000 * (100 - 0.1 * 50))
    estimate._kept = 3.0
    assert estimate.freed(False, 1e9) == pytest.approx(1_000 * (100 - 150)), "partials are larger than the rows"
    estimate._kept = 0.1
    assert estimate.freed(True, 1e9) == pytest.approx(1_000 * 100 + 400 * 50), "and the windows that close leave"
    stream.readers = [reader]
    assert estimate.freed(True, 1e9) == pytest.approx(1_000 * (100 - 0.1 * 50)), "unless others read them"


def test_a_stream_without_a_past_is_as_urgent_as_its_oldest_row() -> None:
    """Else it would starve while others, whose watermarks are known to be late, always go first."""
    known, new = FakeStream("known", [tumbling("3 seconds")]), FakeStream("new", [tumbling("3 seconds")])
    decides = scheduler(known, new)
    now = live(known, decides, 30, lag=0)
    new.source.arrivals.append(now)
    decides.looked([fake(new)], now)
    late = now + 6 * SECOND
    known.source.arrivals.append(late)
    decides.looked([fake(known)], late)
    assert decides.order(["known", "new"], late) == ["new", "known"]
