"""The windows of joins: rows given out slice by slice, as the watermarks allow, are those of a join of all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from transom.model.joinkind import ANTI, FULL, INNER, LEFT, RIGHT, SEMI
from transom.model.time import MIN_TIME
from transom.model.window import sliding, tumbling
from transom.windows.joining import IntervalTimes, WindowTimes

SECOND = 1_000_000
KINDS = [INNER, LEFT, RIGHT, FULL, SEMI, ANTI]
MOMENTS = st.integers(0, 100 * SECOND)
ROWS = st.lists(st.tuples(st.sampled_from("ab"), MOMENTS), max_size=8)
BOUNDS = st.lists(st.integers(-40 * SECOND, 40 * SECOND), min_size=2, max_size=2).map(sorted)


def batch(times: IntervalTimes, left: Sequence, right: Sequence) -> Counter:
    """Return the joined rows of all rows, as pairs of numbers."""

    def matches(one: tuple, other: tuple) -> bool:
        return one[0] == other[0] and times.low <= other[1] - one[1] <= times.high

    pairs = [(i, k) for i, one in enumerate(left) for k, other in enumerate(right) if matches(one, other)]
    lefts, rights = {i for i, _ in pairs}, {k for _, k in pairs}
    lonely = [(i, None) for i in range(len(left)) if i not in lefts]
    if times.how in (SEMI, ANTI):
        return Counter((i, None) for i in lefts) if times.how == SEMI else Counter(lonely)
    lone_rights = [(None, k) for k in range(len(right)) if k not in rights]
    deciding = zip(times.deciding, (lonely, lone_rights), strict=True)
    return Counter(pairs + [row for decides, rows in deciding if decides for row in rows])


def one_slice(times: IntervalTimes, end: int, left: Sequence, right: Sequence) -> Counter:
    """Return what a slice gives of the rows that are kept for it."""
    start, found = times.start_of(end), Counter()
    sides = [
        {n: row for n, row in enumerate(rows) if times.needed_from(i, end) <= row[1] <= times.needed_until(i, row[1])}
        for i, rows in enumerate((left, right))
    ]
    kept = [
        {n: r for n, r in side.items() if times.needed_until(i, r[1]) >= end and r[1] < times.needed_before(i, end)}
        for i, side in enumerate(sides)
    ]
    whole = batch(times, list(kept[0].values()), list(kept[1].values()))
    names = [list(side) for side in kept]
    after = times.after
    for (i, k), count in whole.items():
        one = None if i is None else left[names[0][i]][1]
        other = None if k is None else right[names[1][k]][1]
        if one is not None and other is not None:
            moment = max(one, other)
        else:
            moment = one + after[0] if one is not None else other + after[1]
        if start <= moment < end:
            found[None if i is None else names[0][i], None if k is None else names[1][k]] += count
    return found


@given(
    ROWS,
    ROWS,
    BOUNDS,
    st.sampled_from(KINDS),
    st.sampled_from(["left", "right"]),
    st.lists(st.tuples(MOMENTS, MOMENTS)),
)
def test_slices_give_each_joined_row_once(left, right, bounds, how, time, looks) -> None:
    times = IntervalTimes(*bounds, how, "left" if how in (SEMI, ANTI) else time)
    given_out, joint, found, untils = MIN_TIME, MIN_TIME, Counter(), [MIN_TIME, MIN_TIME]
    counts: tuple[dict, dict] = ({}, {})
    last = 400 * SECOND
    for look in [*looks, (last, last)]:
        for side, rows in enumerate((left, right)):
            until = max(untils[side], look[side])
            for _, moment in rows:
                end = times.window.last_end(moment)
                if untils[side] < end <= until:
                    counts[side][end] = counts[side].get(end, 0) + 1
            untils[side] = until
        floor, joint = times.watermark(joint), min(untils)
        pending = set(times.pending(counts, joint))
        for end, rows in times.ends(counts, given_out, joint):
            assert rows > 0
            assert end not in pending
            gives = one_slice(times, end, left, right)
            for i, k in gives:
                moments = [None if i is None else left[i][1], None if k is None else right[k][1]]
                first, second = moments if times.time == "left" else moments[::-1]
                assert (first if first is not None else second) >= floor
            found += gives
        given_out = joint
        for side, ends in enumerate(counts):
            for end in [end for end in ends if times.is_done(side, end, joint)]:
                del ends[end]
    assert found == batch(times, left, right)
    assert counts == ({}, {})


def test_rows_nearer_than_the_lower_bound_are_not_read() -> None:
    times = IntervalTimes(3_600 * SECOND, 7_200 * SECOND)
    assert [times.needed_before(side, 10_000 * SECOND) for side in (0, 1)] == [6_400 * SECOND, 10_000 * SECOND]
    times = IntervalTimes(-7_200 * SECOND, -3_600 * SECOND)
    assert [times.needed_before(side, 10_000 * SECOND) for side in (0, 1)] == [10_000 * SECOND, 6_400 * SECOND]
    assert WindowTimes(tumbling("1 hour")).needed_before(0, 5) == 5


def test_slices_follow_the_bounds() -> None:
    assert str(IntervalTimes(0, 7_200 * SECOND).window) == "1 minute"
    assert str(IntervalTimes(0, 100 * SECOND).window) == "3 seconds"
    assert str(IntervalTimes(0, 0).window) == "1 second"
    assert str(IntervalTimes(0, 30 * 86_400 * SECOND).window) == "15 minutes"


def test_windows_are_given_out_that_the_kind_needs() -> None:
    window, ends = tumbling("10 ms"), (10_000, 20_000, 30_000)
    counts = ({ends[0]: 1, ends[1]: 2}, {ends[1]: 3, ends[2]: 4})
    found = {how: [end for end, _ in WindowTimes(window, how).ends(counts, 0, ends[2])] for how in KINDS}
    first, middle, last = ends
    assert found[INNER] == found[SEMI] == [middle]
    assert found[LEFT] == found[ANTI] == [first, middle]
    assert (found[RIGHT], found[FULL]) == ([middle, last], [first, middle, last])
    assert list(WindowTimes(window).ends(counts, first, middle)) == [(middle, 5)]


def test_rows_with_their_own_time_hold_back_the_watermark() -> None:
    window = sliding("10 ms", "4 ms")
    assert WindowTimes(window).watermark(21_000) == 21_000
    assert WindowTimes(window, time="left").watermark(21_000) == 12_000  # [12, 22) is the first that is not closed
