"""Whatever the strategy, each window gets each row once; they differ in waiting, in double work and in remote reads."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.errors import DefinitionError
from transom.model.calendar import CalendarSpec
from transom.model.window import WindowSpec
from transom.placement.balance import Move
from transom.placement.migration import Held, Link, Strategy, plan

MOVE = Move(3, "a", "b", 1.0)
SECOND = 1_000_000
KINDS = st.builds(
    lambda slide, times: WindowSpec(slide * times * SECOND, slide * SECOND), st.integers(1, 5), st.integers(1, 4)
)


def windows_of(spec, moment):
    """All windows that hold the moment."""
    start = spec.last_start(moment)
    while start + spec.length > moment:
        yield start, start + spec.length
        start -= spec.slide


@given(
    kinds=st.sets(KINDS, min_size=1, max_size=3),
    strategy=st.sampled_from(Strategy),
    rows=st.lists(st.integers(0, 60), min_size=1, max_size=40),
    change=st.integers(0, 40),
    late=st.integers(0, 10),
)
def test_every_window_counts_every_row_once(kinds, strategy, rows, change, late) -> None:
    """Rows one a cut, nearly in order; partials are (cut, second); the change comes after so many cuts."""
    times = sorted(rows)
    for place in range(0, len(times) - 1, 3):  # disorder that the watermark's delay allows
        if times[place + 1] - times[place] <= late:
            times[place], times[place + 1] = times[place + 1], times[place]
    cut = min(change, len(times))
    before = times[:cut]
    watermark = (max(before, default=0) - late) * SECOND
    boundary = (max(before, default=0) + 1) * SECOND
    held = [Held(number, time * SECOND, 8) for number, time in enumerate(before)]
    migration = plan(MOVE, strategy, cut, boundary, kinds, held, watermark)
    at = {"a": Counter((h.cut, h.start) for h in held), "b": Counter()}
    for moved in migration.moved:
        at["b"][moved.cut, moved.start] += at["a"].pop((moved.cut, moved.start))
    newest = watermark
    for number, time in enumerate(times[cut:], start=cut):
        if all(spec.late_before(newest) > time * SECOND for spec in kinds):
            continue  # every window of the row is closed
        makers = migration.aggregates(number, time * SECOND)
        assert makers
        assert not (migration.done(newest) and "a" in makers)
        for maker in makers:
            at[maker][number, time * SECOND] += 1
        newest = max(newest, (time - late) * SECOND)
    for spec in kinds:
        for start, end in {window for time in times for window in windows_of(spec, time * SECOND)}:
            if end <= watermark:
                continue  # was computed before the change
            home = migration.computes(spec, end)
            got = Counter({key: n for key, n in at[home].items() if start <= key[1] < end})
            got.update((one.cut, one.start) for one in migration.remote(start, end))
            due = Counter((n, t * SECOND) for n, t in enumerate(times) if start <= t * SECOND < end)
            assert got == due
            if home == "a":
                assert end <= migration.handover


@given(kinds=st.sets(KINDS, min_size=1, max_size=3), times=st.lists(st.integers(0, 30), max_size=20))
def test_only_disruptive_waits_and_only_smooth_works_twice(kinds, times) -> None:
    held = [Held(n, t * SECOND, 100) for n, t in enumerate(times)]
    plans = {s: plan(MOVE, s, len(times), 31 * SECOND, kinds, held, 20 * SECOND) for s in Strategy}
    link = Link(1000, 0.5)
    needed = [h for h in held if any(spec.last_end(h.start) > 20 * SECOND for spec in kinds)]
    assert plans[Strategy.DISRUPTIVE].pause(link) == pytest.approx((0.5 + len(needed) / 10) if needed else 0)
    assert plans[Strategy.INSTANT].pause(link) == plans[Strategy.SMOOTH].pause(link) == 0
    for strategy, migration in plans.items():
        double = [len(migration.aggregates(len(times), t * SECOND)) == 2 for t in range(31, 60)]
        assert strategy is Strategy.SMOOTH or not any(double)


def test_tumbling_windows_that_begin_at_the_boundary_need_no_double_work() -> None:
    migration = plan(MOVE, Strategy.SMOOTH, 5, 60 * SECOND, [WindowSpec(60 * SECOND, 60 * SECOND)], [], 50 * SECOND)
    assert migration.handover == 60 * SECOND
    assert [migration.aggregates(5, t * SECOND) for t in (59, 60)] == [("a",), ("b",)]


def test_sliding_windows_are_aggregated_by_both_for_their_overlap() -> None:
    sliding = WindowSpec(30 * SECOND, 10 * SECOND)
    migration = plan(MOVE, Strategy.SMOOTH, 5, 60 * SECOND, [sliding], [], 50 * SECOND)
    assert migration.handover == 80 * SECOND
    assert [migration.aggregates(5, t * SECOND) for t in (50, 60, 70, 80)] == [("a",), ("a", "b"), ("a", "b"), ("b",)]
    assert migration.computes(sliding, 80 * SECOND) == "a"
    assert migration.computes(sliding, 90 * SECOND) == "b"
    assert not migration.done(79 * SECOND)
    assert migration.done(80 * SECOND)


def test_days_hand_over_at_midnight() -> None:
    day, hour = CalendarSpec("day"), 3600 * SECOND
    migration = plan(MOVE, Strategy.SMOOTH, 1, 5 * hour, [day], [], 4 * hour)
    assert migration.handover == 24 * hour
    assert migration.aggregates(1, 23 * hour) == ("a",)
    assert migration.aggregates(1, 24 * hour) == ("b",)


def test_instant_ends_when_the_last_old_partial_is_needed_no_more() -> None:
    held = [Held(0, 10 * SECOND, 1), Held(1, 55 * SECOND, 1)]
    migration = plan(MOVE, Strategy.INSTANT, 2, 60 * SECOND, [WindowSpec(30 * SECOND, 10 * SECOND)], held, 50 * SECOND)
    assert migration.left == (held[1],)
    assert migration.handover == 80 * SECOND
    assert plan(MOVE, Strategy.INSTANT, 2, 60 * SECOND, [WindowSpec(SECOND, SECOND)], held, 58 * SECOND).done(
        60 * SECOND
    )


TUMBLING = WindowSpec(SECOND, SECOND)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: plan(MOVE, Strategy.INSTANT, 0, 5, [], [], 0),
        lambda: plan(Move(0, "a", "a", 1), Strategy.INSTANT, 0, 5, [TUMBLING], [], 0),
        lambda: plan(MOVE, Strategy.INSTANT, 0, 5, [TUMBLING], [], 5),
        lambda: plan(MOVE, Strategy.SMOOTH, 0, 5, [TUMBLING], [], 0).computes(WindowSpec(2 * SECOND, SECOND), 9),
        lambda: Link(0),
        lambda: Link(1, -1),
    ],
)
def test_what_makes_no_sense_is_refused(wrong) -> None:
    with pytest.raises(DefinitionError):
        wrong()
