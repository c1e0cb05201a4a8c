"""Overload begins before it is too late and ends with time to spare, and what a stream can read is counted by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import overloaded
import pytest
from overloaded import FIXED, NOON, ROW, SECOND, Overloaded, PacedSource, PacedStream

from transom.engine.control.estimates import StreamEstimate
from transom.engine.control.overload import _cut
from transom.engine.control.room import AIM, PART, Others, Room, _arrival, _due, dues_of
from transom.engine.control.runs import RunEstimate
from transom.engine.control.waiting import Delays, Waiting, waiting_of
from transom.engine.state.shares import Stretch
from transom.engine.streams.stream import RunningStream
from transom.model.watermark import watermark
from transom.model.window import tumbling
from transom.scheduling.arrivals import DelayMoments
from transom.scheduling.inflow import Inflow
from transom.scheduling.recent import GROWTH
from transom.scheduling.shedding import Due, Piece
from transom.windows.query import LatencyTarget, WindowedQuery

LIMIT = 3
ABLE = 930
"""Rows a second in runs of half the limit."""


def windows(*seconds: int) -> list[Any]:
    return [tumbling(f"{each} seconds") for each in seconds]


# ---- transcripts


@pytest.mark.parametrize("rate, length", [(950, 3), (1_100, 10), (2_000, 1), (2_000, 10), (10_000, 1), (10_000, 10)])
def test_results_are_in_time_from_the_first_window_on(rate: int, length: int) -> None:
    """The rate is some of the capacity, with noise of a tenth, and from one moment on much more than all of it."""
    seconds = 90
    world = Overloaded({0: 400, 20: rate}, seconds, windows(length), noise=0.1, keep=0.01).run()
    assert world.longest() <= LIMIT
    assert len(world.took) >= (seconds - 2) // length
    assert "pieces are left out" in world.notes[0]
    assert len(world.notes) <= 2  # it ends with the input
    last = seconds - seconds % 10
    assert sum(world.kept[second] for second in range(30, last)) >= 0.95 * ABLE * (last - 30)
    assert world.least(30, last, length) >= 0.65 * ABLE / rate


@pytest.mark.parametrize("length", [1, 10])
@pytest.mark.parametrize("rate", [3_000, 10_000])
def test_results_are_in_time_when_there_is_too_much_from_the_start(rate: int, length: int) -> None:
    world = Overloaded({0: rate}, 40, windows(length), keep=0.01).run()
    assert world.longest() <= LIMIT


@pytest.mark.parametrize("rate, length", [(700, 1), (850, 3), (850, 30)])
def test_nothing_is_left_out_that_can_be_read(rate: int, length: int) -> None:
    world = Overloaded({0: 400, 20: rate}, 120, windows(length), noise=0.1).run()
    assert (world.notes, sum(world.kept.values())) == ([], len(world.source.happened))


@pytest.mark.parametrize("length", [1, 10])
def test_a_burst_that_is_read_in_time_all_the_same_is_not_thinned(length: int) -> None:
    """Five times the capacity for some time: two seconds of it fit into windows of ten."""
    world = Overloaded({0: 300, 21: 5_000 if length == 10 else 2_000, 23 if length == 10 else 22: 300}, 60).run()
    assert world.longest() <= LIMIT
    if length == 1:
        assert world.notes == []


def test_an_hour_is_not_judged_by_some_seconds() -> None:
    world = Overloaded({0: 300, 100: 4_000, 110: 300}, 300, windows(300)).run()
    assert (world.notes, sum(world.kept.values())) == ([], len(world.source.happened))


@pytest.mark.parametrize("length", [1, 10])
def test_it_is_over_once_there_is_time_to_spare(length: int) -> None:
    world = Overloaded({0: 400, 18: 2_000, 38: 400}, 80, windows(length), noise=0.1).run()
    assert len(world.notes) == 2
    assert world.longest() <= LIMIT
    assert all(world.kept[second] == 400 for second in range(50, 79))


def test_windows_of_several_lengths_keep_their_limits() -> None:
    world = Overloaded({0: 400, 8: 2_000}, 60, windows(1, 10)).run()
    assert world.longest() <= LIMIT
    assert len(world.notes) == 1


def test_a_job_without_rows_that_takes_a_quarter_of_the_limit_leaves_time_for_some(monkeypatch: Any) -> None:
    monkeypatch.setattr(overloaded, "FIXED", 800_000)
    monkeypatch.setattr(overloaded, "ROW", 600)
    world = Overloaded({0: 300, 20: 800}, 60, windows(1), noise=0.1, keep=0.05).run()
    assert world.longest(30) <= LIMIT
    assert sum(world.kept[second] for second in range(30, 60)) >= 0.2 * 30 * 800


@pytest.mark.parametrize("length, least", [(1, 0.3), (10, 0.42)])
def test_large_pieces_are_chosen_well_too(length: int, least: float) -> None:
    """A file a second: of some there are only three that wait."""
    world = Overloaded({0: 400, 8: 2_000}, 60, windows(length), every=SECOND, noise=0.1).run()
    assert world.longest() <= LIMIT
    assert world.least(20, 60, length) >= least


@pytest.mark.parametrize("delay, behind", [(SECOND // 2, 0), (0, SECOND), (SECOND, 2 * SECOND)])
def test_rows_that_come_late_and_watermarks_that_wait_for_them(delay: int, behind: int) -> None:
    world = Overloaded({0: 400, 20: 2_000}, 60, windows(3), delay=delay, behind=behind, noise=0.1).run()
    assert world.longest() <= LIMIT
    assert world.least(30, 57, 3) >= 0.4
    assert len(world.notes) <= 2


def test_a_limit_that_is_out_of_reach_does_not_make_runs_tiny() -> None:
    """Half of it is less than a job without rows takes."""
    world = Overloaded({0: 300}, 20, limit=90_000).run()
    assert sum(world.kept.values()) == len(world.source.happened)
    assert world.longest(5) < 1.0


# ---- by hand


def estimate_of(fixed: float = FIXED, row: float = ROW, partial: float = 0.0, partials: float = 0.0) -> RunEstimate:
    runs = RunEstimate(NOON)
    runs.fixed, runs.row, runs.partial, runs.partials = fixed, row, partial, partials
    return runs


def room_of(runs: RunEstimate, others: Others | None = None, *limits: int, keep: float = 0.1) -> Room:
    return Room(runs, others or Others(), [LatencyTarget(each, 0.9, keep) for each in limits or (LIMIT * SECOND,)])


def with_runs(runs: RunEstimate, *took: tuple[int, int]) -> RunEstimate:
    runs._count = 100
    for rows, micros in took:
        runs.last.ran(rows, rows, micros)
    return runs


def test_the_largest_run_and_its_wait_take_half_of_the_least_limit() -> None:
    runs = with_runs(estimate_of(), (1_000, 1_100_000))
    assert room_of(runs, None, 3 * SECOND, 10 * SECOND).most == 1_400
    assert room_of(runs, Others(0.5, 500_000)).most == 900
    assert room_of(runs, Others(0.5, 9 * SECOND)).most == 650  # not less than a quarter of it
    assert room_of(runs, None, 100_000).most == 100  # nor than a job without rows takes
    assert room_of(with_runs(estimate_of(row=0.0), (1_000, 100_000))).most == GROWTH * 1_000


def test_a_run_does_little_for_its_rows_where_it_must_be_short() -> None:
    """A third of the limit is what a job without rows takes, so that two of them and their rows are just in time."""
    assert room_of(with_runs(estimate_of(fixed=SECOND), (9_000, 10 * SECOND))).most == 500
    assert room_of(with_runs(estimate_of(fixed=1_400_000), (9_000, 10_400_000))).most == 350


def test_while_costs_are_not_known_runs_are_short_and_grow_step_by_step() -> None:
    runs = estimate_of(fixed=50_000)
    assert room_of(runs).most == 137
    assert room_of(estimate_of(row=1.0)).most == 1_000
    runs = estimate_of(row=1.0)
    runs.last.ran(700, 700, 1)
    assert room_of(runs).most == 2_800


def test_what_can_be_read_until_some_time() -> None:
    runs = estimate_of(partial=10.0, partials=2_000.0)  # 120 ms close the windows
    assert room_of(runs).until(1_120_000, 1_000, 1_000) == pytest.approx(1_000)
    assert room_of(runs).until(1_120_000, 1_001, 1_000) == pytest.approx(1_000 / 1.1)
    assert room_of(runs, Others(0.5, 120_000)).until(1_120_000, 500, 1_000) == pytest.approx(380)
    assert room_of(runs).until(0, 500, 1_000) == pytest.approx(-120)
    assert room_of(estimate_of(row=0.0)).until(1, 500, 1_000) == math.inf


def test_one_run_may_be_slow_but_many_hardly_are() -> None:
    took = [(1_000, 1_100_000)] * 36 + [(1_000, 1_650_000)] * 4
    runs = with_runs(estimate_of(), *took)
    one = room_of(runs).slow()
    assert one == pytest.approx(1.5)
    assert room_of(runs).slow(100) == pytest.approx(1.0625 + (1.5 - 1.0625) / 10)
    length = PART * LIMIT * SECOND
    assert room_of(runs).until(length, 500, 1_000) == pytest.approx((length / 1.5 - FIXED) / ROW)
    assert room_of(runs).until(100 * length, 500, 1_000) == pytest.approx(
        (100 * length / room_of(runs).slow(100) - FIXED) / ROW
    )


def test_a_run_that_may_be_slow_must_be_in_time_all_the_same() -> None:
    runs = with_runs(estimate_of(), *[(1_000, 1_100_000)] * 36, *[(1_000, 1_650_000)] * 4)
    assert room_of(runs).slow() == pytest.approx(1.5)
    assert room_of(runs).in_time(1_700, 0)
    assert not room_of(runs).in_time(1_701, 0)
    assert room_of(estimate_of(), None, 140_000).helps
    assert not room_of(runs, None, 140_000).helps


def test_the_largest_quantile_of_all_queries_says_how_slow_a_run_may_be() -> None:
    runs = with_runs(estimate_of(), *[(1_000, 1_100_000)] * 36, *[(1_000, 1_650_000)] * 4)
    targets = [LatencyTarget(SECOND, each, 0.1) for each in (0.5, 0.9)]
    assert Room(runs, Others(), targets).slow() == room_of(runs).slow() > Room(runs, Others(), targets[:1]).slow()


@pytest.mark.parametrize(
    "since, rows, wait, fits", [(0, 2_600, 0, True), (0, 2_601, 0, False), (100_000, 2_600, 0, False)]
)
def test_what_waits_is_in_time_up_to_nine_tenths_of_the_limit(since: int, rows: int, wait: int, fits: bool) -> None:
    runs = estimate_of()
    assert room_of(runs).in_time(rows, since) == fits
    assert not room_of(runs, Others(1.0, 1.0)).in_time(2_600, since)


def test_less_to_read_helps_only_if_a_job_without_rows_is_in_time() -> None:
    assert room_of(estimate_of()).helps
    assert not room_of(estimate_of(), None, 100_000).helps
    assert not room_of(estimate_of(partial=1_000.0, partials=3_000.0)).helps


def test_the_largest_share_of_all_queries_is_kept() -> None:
    targets = [LatencyTarget(SECOND, 0.5, 0.2), LatencyTarget(SECOND, 0.5, 0.4), LatencyTarget(SECOND, 0.5, None)]
    assert Room(estimate_of(), Others(), targets).keep == 0.4


def other(fixed: float, row: float, rate: float, period: float, longest: int) -> Any:
    runs = SimpleNamespace(fixed=1e6 * fixed, last=SimpleNamespace(longest=longest))
    return SimpleNamespace(pace=lambda: (fixed, row, 0.0, rate, period), runs=runs)


def test_other_streams_take_their_part_of_the_slots_and_are_waited_for() -> None:
    me = other(9.0, 9.0, 9.0, 1.0, 99 * SECOND)
    one, two = other(0.1, 1e-3, 200.0, 1.0, 400_000), other(0.2, 0.0, 0.0, math.inf, 100_000)
    assert Others.of("a", {"a": me}, 1) == Others()
    # 0.2 for rows and 0.1 for windows; a run is waited for, that of the other is none of ours.
    assert Others.of("a", {"a": me, "b": one}, 1) == Others(pytest.approx(0.7), 400_000)
    assert Others.of("a", {"a": me, "b": one}, 2) == Others(1.0, 0.0)
    # A job without rows is the least that a run takes.
    assert Others.of("a", {"a": me, "b": one, "c": two}, 2) == Others(1.0, 300_000)
    busy = other(0.1, 1e-3, 5_000.0, 1.0, SECOND)
    assert Others.of("a", {"a": me, "b": busy}, 1).free == 0.25
    assert Others.of("a", {"a": me, "b": busy, "c": busy}, 1).free == pytest.approx(1 / 6)


def paced(rates: dict[int, int], seconds: int, *lengths: int, behind: int = 0) -> PacedStream:
    source = PacedSource(rates, seconds, SECOND // 20, 0)
    stream = PacedStream(source, windows(*lengths), LatencyTarget(LIMIT * SECOND, 0.9, 0.1), behind)
    stream.look(NOON + seconds * SECOND)
    return stream


def test_the_backlog_is_divided_and_dated_by_arrivals() -> None:
    stream = paced({0: 640}, 2, 1)
    found = waiting_of(cast(RunningStream, stream), Delays(0, 25_000, 10_000), 0)
    assert [piece.rows for piece in found] == [20] * 64
    assert [piece.needed for piece in found] == [False] * 63 + [True]
    # 32 rows arrive every 20th of a second; a piece of 20 begins where the one before had arrived.
    arrived = [NOON + (20 * (number + 1) - 1) // 32 * 50_000 + 50_000 for number in range(64)]
    begins = [arrived[0], *arrived[:-1]]
    assert [piece.happened for piece in found] == begins
    assert [piece.last for piece in found] == arrived
    assert found[10].first == math.floor(begins[10] - 25_000 - math.sqrt(3) * 10_000)
    allowed = paced({0: 640}, 2, 1, behind=SECOND)
    found = waiting_of(cast(RunningStream, allowed), Delays(10_000, 2 * SECOND, 0), 0)
    assert found[10].happened == begins[10] - SECOND - 10_000


def test_no_row_is_taken_to_be_older_than_the_oldest_open_window() -> None:
    stream = paced({0: 640}, 2, 1)
    stream.state.closed = NOON + SECOND
    found = waiting_of(cast(RunningStream, stream), Delays(0, 25_000, 10_000), 0)
    assert (found[0].first, found[0].last) == (found[0].last, NOON + 50_000)
    assert found[30].first == NOON + SECOND


def due_at(stream: PacedStream, waiting: list[Waiting], delays: Delays = Delays(), **room: Any) -> Any:  # noqa: B008
    estimate = StreamEstimate(cast(RunningStream, stream), NOON)
    estimate.expected = lambda end, now: float(end + 7_000)  # type: ignore[method-assign]
    estimate.runs.fixed, estimate.runs.row = FIXED, ROW
    inflow = Inflow()
    for second in range(11):
        inflow.came(NOON - SECOND + second * SECOND // 10, 100 * second)
    targets = [query.target for query in stream.queries if query.target]
    now = NOON + 500_000
    return dues_of(estimate, waiting, Room(estimate.runs, Others(**room), targets), 10_000, delays, inflow, now, now)


def piece(happened: int, rows: int = 100) -> Waiting:
    return Waiting(0, rows, (), NOON + happened, NOON + happened, NOON + happened, False)


def test_rows_are_due_with_the_first_window_that_holds_them() -> None:
    stream = paced({0: 640}, 2, 1, 10)
    stream.state.shares.add([Stretch(NOON, NOON + SECOND, 30, 20)], SECOND)
    at, dues = due_at(stream, [piece(0), piece(999_999), piece(1_000_000)])
    assert at == [0, 0, 1]
    due = [end * SECOND + 7_000 + AIM * LIMIT * SECOND - 500_000 for end in (1, 2)]
    assert [one.room for one in dues] == [pytest.approx((time - FIXED) / ROW) for time in due]
    assert [(one.kept, one.dropped) for one in dues] == [(30, 20), (0, 0)]
    # 1,000 rows a second came, half a second of the first window is to come.
    assert [one.coming for one in dues] == [pytest.approx(500), pytest.approx(1_000)]


def test_of_many_pieces_time_is_left_for_the_one_that_brings_the_watermark() -> None:
    stream = paced({0: 640}, 2, 1)
    few, many = ([piece(0, 10 * (number + 1)) for number in range(count)] for count in (7, 8))
    assert due_at(stream, few)[1][0].room - due_at(stream, many)[1][0].room == pytest.approx(80)


def test_what_is_coming_comes_as_late_as_other_rows() -> None:
    stream = paced({0: 640}, 2, 1)
    (due,) = due_at(stream, [piece(0)], Delays(200_000, 300_000, 0))[1]
    assert due.coming == pytest.approx(700)


@pytest.mark.parametrize(("room", "rows"), [(30.0, 40), (29.0, 60)])
def test_a_run_ends_before_a_window_that_it_completes_is_due_unless_that_is_too_late(room: float, rows: int) -> None:
    """With the first piece of the next one it completes a window of 30 rows."""
    pieces = [Piece(10, number // 3) for number in range(6)]
    assert _cut([piece(0, 10)] * 6, pieces, [Due(room), Due(1_000.0)], [True] * 6, 100)[0].rows == rows


def test_a_row_of_which_little_goes_on_takes_little_of_the_room() -> None:
    """As a fifth, the twenty rows of the first window take the time of four, which is there until they are due."""
    given = [piece(0, 10)] * 8, [Piece(10, n // 2) for n in range(8)], [Due(4.0), *[Due(1_000.0)] * 3], [True] * 8, 100
    assert [_cut(*given, 4, 0.2)[0].rows, _cut(*given)[0].rows] == [30, 80]


def test_rows_that_are_coming_need_runs_too() -> None:
    """9,800 rows wait and 500 come: more than one run takes, so that each of them costs its part of the next."""
    (due,) = due_at(paced({0: 640}, 2, 1), [piece(0, 9_800)])[1]
    assert due.room == pytest.approx(((1 - 0.5 + 0.007 + 2.7) * SECOND - FIXED) / (ROW + FIXED / 10_000))


def test_rows_of_closed_windows_are_due_with_the_next_one() -> None:
    stream = paced({0: 640}, 2, 1)
    stream.state.closed = NOON + 2 * SECOND
    (due,) = due_at(stream, [piece(0)])[1]
    assert due.room == pytest.approx(((3 - 0.5 + 0.007 + 2.7) * SECOND - FIXED) / ROW)


def test_rows_that_are_late_are_due_with_the_window_that_is_open_also_where_the_watermark_stays_behind() -> None:
    stream = paced({0: 640}, 2, 1, behind=250_000)
    stream.state.shares.add([Stretch(NOON, NOON + SECOND, 30, 20)], SECOND)
    stream.state.shares.add([Stretch(NOON + 2 * SECOND, NOON + 3 * SECOND, 3, 2)], SECOND)
    stream.state.closed = NOON + 2 * SECOND
    (due,) = due_at(stream, [piece(0)])[1]
    assert (due.kept, due.dropped) == (3, 2)


def test_a_query_that_wants_all_rows_says_nothing_of_when_they_are_due() -> None:
    stream = paced({0: 640}, 2, 1)
    estimate = StreamEstimate(cast(RunningStream, stream), NOON)
    estimate.expected = lambda end, now: float(end)  # type: ignore[method-assign]
    stream.queries.append(WindowedQuery("all", 0, (), tuple(windows(1)), (), LatencyTarget(SECOND, 0.9)))
    assert _due(estimate, NOON, Delays(), NOON) == (NOON + (1 + AIM * LIMIT) * SECOND, NOON, NOON + SECOND)


def test_rows_before_a_watermark_that_stays_behind_are_due_with_the_windows_that_it_completes() -> None:
    stream = paced({0: 640}, 2, 1, behind=250_000)
    stream.state.shares.add([Stretch(NOON, NOON + SECOND, 30, 20)], SECOND)
    stream.state.shares.add([Stretch(NOON + SECOND, NOON + 2 * SECOND, 3, 2)], SECOND)
    at, dues = due_at(stream, [piece(0), piece(999_999), piece(1_000_000), piece(1_249_999), piece(1_250_000)])
    assert at == [0, 0, 1, 1, 2]
    assert dues[0].room == dues[1].room < dues[2].room
    assert [(one.kept, one.dropped) for one in dues] == [(30, 20), (3, 2), (0, 0)]
    assert [one.coming for one in dues] == [pytest.approx(500), pytest.approx(250), pytest.approx(750)]


def test_a_window_that_is_due_later_but_ends_sooner_leaves_no_less_room() -> None:
    stream = paced({0: 640}, 2, 1)
    estimate = StreamEstimate(cast(RunningStream, stream), NOON)
    estimate.expected = lambda end, now: float(NOON + (9 if end == NOON + SECOND else 2) * SECOND)  # type: ignore[method-assign]
    targets = [query.target for query in stream.queries if query.target]
    room = Room(estimate.runs, Others(), targets)
    waiting = [piece(0), piece(1_500_000)]
    _, dues = dues_of(estimate, waiting, room, 10_000, Delays(), Inflow(), NOON, NOON)
    assert dues[0].room == dues[1].room


@pytest.mark.parametrize("steady, lags, expected", [(True, 0, 1_040_000), (True, 2, 300_000), (False, 0, 300_000)])
def test_until_watermarks_were_seen_delays_tell_when_they_come(steady: bool, lags: int, expected: int) -> None:
    stream = paced({0: 640}, 2, 1, behind=10_000)
    estimate = StreamEstimate(cast(RunningStream, stream), NOON)
    for _ in range(lags):
        estimate.watermarks.lags.seen(0, DelayMoments())
    estimate.expected = lambda end, now: float(NOON + 300_000)  # type: ignore[method-assign]
    found = _arrival(estimate, NOON + SECOND, Delays(30_000, 40_000, 0, steady), NOON)
    assert found == NOON + expected
    estimate.expected = lambda end, now: float(NOON + 9 * SECOND)  # type: ignore[method-assign]
    assert _arrival(estimate, NOON + SECOND, Delays(30_000, 40_000, 0, steady), NOON) == NOON + 9 * SECOND


def test_delays_do_not_tell_when_a_source_injects_watermarks() -> None:
    stream = paced({0: 640}, 2, 1)
    stream.definition.policy = watermark("10 ms", from_source=True)
    estimate = StreamEstimate(cast(RunningStream, stream), NOON)
    estimate.expected = lambda end, now: float(NOON + 300_000)  # type: ignore[method-assign]
    assert _arrival(estimate, NOON + SECOND, Delays(30_000, 40_000, 0, True), NOON) == NOON + 300_000
