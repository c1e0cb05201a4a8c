"""What runs next while memory is short."""

from __future__ import annotations

import pytest
from fake_streams import NOON, SECOND, FakeStream, fake, held

from transom.engine.control.estimates import StreamEstimate
from transom.engine.control.memory import Shares
from transom.engine.control.scheduler import VIEWED, Scheduler
from transom.model.window import tumbling
from transom.settings import Settings


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
        estimate.backlog.rows, estimate.backlog.since = 1_000, NOON - names.index(name)
    held(streams["held"], 1_000)
    held(streams["more"], 5_000)
    decides.of(fake(streams["more"]), NOON).backlog.rows = 5_000
    assert decides.order(names, NOON) == ["more", "held", "file"]
    decides.of(fake(streams["more"]), NOON).backlog.since = NOON + 1
    assert decides.order(names, NOON + VIEWED) == ["held", "file", "more"]
    shares[0] = Shares(driver=0.5, heap=0.85)
    assert decides.order(names, NOON + 2 * SECOND) == ["more", "held"]
    assert decides.memory.mode.active
    assert "heap 85%" in notes[0]
    shares[0] = Shares(heap=0.42)
    assert decides.order(names, NOON + 4 * SECOND) == ["held", "file", "more"]
    assert not decides.memory.mode.active
    assert len(notes) == 1


def test_memory_mode_ends_after_its_time_and_can_be_left_out() -> None:
    stream = FakeStream("s", [tumbling("1 second")])
    for bound, modes in ((0.8, [True, True, True, False, False, False, True]), (1.0, [False] * 7)):
        settings = Settings(policy="fcfs", memory_bound=bound)
        decides = Scheduler({"s": fake(stream)}, settings, lambda: Shares(cache=0.95))
        seen = []
        for second in range(7):
            decides.order(["s"], NOON + second * SECOND)
            seen.append(decides.memory.mode.active)
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
    decides.of(fake(frees), NOON).backlog.rows = 1_000
    for tenth in range(200):  # the memory mode itself rests half of the time
        assert decides.order(["adds"], NOON + tenth * SECOND // 10) == []
    assert decides.order(["adds"], NOON + 21 * SECOND) == ["adds"]
    shares[0] = Shares(driver=0.7)
    decides.of(fake(adds), NOON).runs.started_at = NOON + 21 * SECOND
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
    estimate.backlog.rows = 1_000
    estimate.runs.kept, estimate.runs.partial_bytes, estimate.runs.partials = 0.1, 50.0, 400.0
    assert estimate.freed(False, 1e9) == pytest.approx(-1_000 * 0.1 * 50), "partials of rows that wait in files"
    assert estimate.freed(True, 1e9) == pytest.approx(400 * 50 - 1_000 * 0.1 * 50)
    held(stream, 1_000)
    assert estimate.freed(False, 1e9) == pytest.approx(1_000 * (100 - 0.1 * 50))
    estimate.runs.kept = 3.0
    assert estimate.freed(False, 1e9) == pytest.approx(1_000 * (100 - 150)), "partials are larger than the rows"
    estimate.runs.kept = 0.1
    assert estimate.freed(True, 1e9) == pytest.approx(1_000 * 100 + 400 * 50), "and the windows that close leave"
    stream.readers = [reader]
    assert estimate.freed(True, 1e9) == pytest.approx(1_000 * (100 - 0.1 * 50)), "unless others read them"
