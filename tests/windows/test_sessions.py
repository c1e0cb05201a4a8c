"""Sessions as mergeable intervals, against one pass over the sorted rows of each key."""

import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import transom as tm
from transom.errors import DefinitionError
from transom.model.expression import Expression
from transom.model.time import MAX_TIME, MIN_TIME
from transom.model.window import SessionSpec
from transom.windows import sessions
from transom.windows.aggregates.count import Count
from transom.windows.aggregates.extremes import Extreme
from transom.windows.intervals import TIMES, ends_of
from transom.windows.panes import Grid
from transom.windows.pieces import SessionPieces
from transom.windows.sessions import SessionStore

MS, SECOND = 1_000, 1_000_000
GAP = 10 * MS
COUNT, HIGH = Count(), Extreme(Expression("x"), "max")
TYPES = {COUNT: {"count": pa.int64()}, HIGH: {"value": pa.int64()}}
KEYS = pa.schema([("k", pa.string())])

Row = tuple[str, int, int]
"""Key, time, value."""


KINDS = [SessionSpec(GAP), SessionSpec(GAP, GAP), SessionSpec(GAP, 25 * MS), SessionSpec(GAP, 12_500)]
"""Without a limit, and with limits in whole milliseconds and not."""
LAST = 7
"""Values from which on a row ends its session, for kinds that have such rows."""
ENDED = [SessionSpec(GAP, most, Expression(f"x >= {LAST}")) for most in (None, 25 * MS, 12_500)]
"""The same kinds, where rows can end a session."""


def types_of(spec: SessionSpec) -> dict:
    ends = ends_of(spec)
    return TYPES if ends is None else {**TYPES, ends: {"value": pa.bool_()}}


def store_of(spec: SessionSpec = KINDS[0]) -> SessionStore:
    return SessionStore(spec, KEYS, types_of(spec))


def partials(rows: list[Row], grid: Grid) -> tuple[pa.Table, dict]:
    """What a job makes of rows: one interval per key and pane, with the count and the largest value.

    Where a row can end a session, also whether one does; of some that do not it is not known.
    """
    groups: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((int(grid.start(np.array([row[1]]))[0]), row[0]), []).append(row)
    table = pa.table({"k": pa.array([key for _, key in groups], pa.string())})
    times = [[row[1] for row in group] for group in groups.values()]
    states = {
        COUNT: {"count": np.array([len(group) for group in groups.values()], np.int64)},
        HIGH: {
            "value": np.array([max(row[2] for row in group) for group in groups.values()], np.int64),
            "valid": np.ones(len(groups), np.bool_),
        },
        TIMES: {
            "first": np.array([min(t) for t in times], np.int64),
            "last": np.array([max(t) for t in times], np.int64),
        },
    }
    high = states[HIGH]["value"]
    states[ends_of(ENDED[0])] = {"value": high >= LAST, "valid": (high >= LAST) | (high % 2 == 0)}
    return table, states


def sessions_of(rows: list[Row], spec: SessionSpec = KINDS[0]) -> list[tuple]:
    """Key, start, end, count and largest value of each session, by one pass over the sorted rows."""
    found: list[list] = []
    limit = MAX_TIME
    moments: dict[tuple, list[int]] = {}
    for key, time, value in sorted(rows):
        moments.setdefault((key, time), []).append(value)
    ended = False
    for (key, time), values in moments.items():
        value, n = max(values), len(values)
        if found and found[-1][0] == key and time <= found[-1][2] and time < limit and not ended:
            found[-1] = [key, found[-1][1], min(time + spec.gap, limit), found[-1][3] + n, max(found[-1][4], value)]
        else:
            if spec.at_most is not None:
                unit = MS if spec.at_most % MS == 0 else 1
                limit = time // unit * unit + spec.at_most
            found.append([key, time, min(time + spec.gap, limit), n, value])
        ended = spec.ends_when is not None and value >= LAST
        if ended:
            found[-1][2] = time + 1
    return sorted(map(tuple, found))


def taken(store: SessionStore, watermark: int) -> list[tuple]:
    out = store.take(watermark)
    if not len(out):
        return []
    names = store.keys.take(out.ids)[0].to_pylist()
    ends = store.ends(out)
    columns = (out.first, ends, out.states[COUNT]["count"], out.states[HIGH]["value"])
    assert (np.diff(ends) >= 0).all()
    return [(name, *values) for name, *values in zip(names, *(c.tolist() for c in columns), strict=True)]


ROWS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(-120, 120).map(lambda t: t * 1_250), st.integers(0, 9)), max_size=25
)
CLOSE_ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(-30, 30).map(lambda t: t * 1_250), st.integers(0, 9)), max_size=25
)


@st.composite
def grids(draw: st.DrawFn, spec: SessionSpec = KINDS[0]) -> Grid:
    finer = [tm.tumbling("3 ms")]
    return Grid.of([spec, *draw(st.sampled_from([[], finer, [tm.sliding("7 ms", every="5 ms")]]))])


@given(st.lists(ROWS | CLOSE_ROWS, max_size=6), st.sampled_from([*KINDS, *ENDED]), st.data())
@settings(max_examples=150, deadline=None)
def test_sessions_are_those_of_the_rows_in_time_whatever_the_cuts_panes_and_restarts(cuts, spec, data):
    """A row is late when alone its session would be closed; a session that was emitted is never joined again.

    Where sessions are cut, rows behind the watermark are late.
    """
    grid = data.draw(grids(spec))
    store, watermark = store_of(spec), MIN_TIME
    got, open_rows, wanted = [], [], []
    for rows in cuts:
        limit = watermark - (0 if spec.cut else GAP)
        in_time = [row for row in rows if row[1] >= limit]
        for piece in ([r for r in rows if r[1] < limit], [r for r in rows if r[1] >= limit]):
            if piece:
                store.add(*partials(piece, grid), watermark)
        open_rows += in_time
        if data.draw(st.booleans()):
            saved = store.rows()
            store = store_of(spec)
            store.add(*saved[1:], MIN_TIME) if len(saved[0]) else None
        if data.draw(st.booleans()):
            store.compact()
        if data.draw(st.booleans()):
            store.due(watermark + 20 * MS)  # asking changes nothing
        if data.draw(st.booleans()):
            store._many = 0
        watermark = max(watermark, data.draw(st.integers(-120, 160).map(lambda t: t * 1_250)))
        due = [s for s in sessions_of(open_rows, spec) if s[2] < watermark]
        assert sorted(store.due(watermark).tolist()) == sorted(s[1] for s in due)
        wanted += due
        open_rows = [r for r in open_rows if not any(s[0] == r[0] and s[1] <= r[1] < s[2] for s in due)]
        assert store.first_end() <= min((s[2] for s in sessions_of(open_rows, spec)), default=MAX_TIME)
        now = taken(store, watermark)
        assert sorted(now) == sorted(due)
        got += now
    last = max((s[2] for s in sessions_of(open_rows, spec)), default=MIN_TIME)
    assert store.last_end() >= last if spec.cut else store.last_end() == last
    assert sorted(taken(store, MAX_TIME)) == sessions_of(open_rows, spec)
    assert len(store) == 0
    ends = [(s[0], s[2]) for s in got]
    assert len(set(ends)) == len(ends)


@given(ROWS | CLOSE_ROWS, st.sampled_from([*KINDS, *ENDED]), st.data())
@settings(max_examples=200, deadline=None)
def test_rows_that_are_never_behind_the_watermark_make_the_same_sessions_in_any_cuts(rows, spec, data):
    """The delay is the least with which no row is behind the watermark if each row is a cut, so that some are at it."""
    newest, delay = MIN_TIME, 0
    for _, time, _ in rows:
        newest = max(newest, time)
        delay = max(delay, newest - time)
    grid = data.draw(grids(spec))
    store, got, place, newest = store_of(spec), [], 0, MIN_TIME
    while place < len(rows):
        watermark = newest - delay if place else MIN_TIME
        got += taken(store, watermark)
        cut = rows[place : place + data.draw(st.integers(1, 5))]
        assert min(time for _, time, _ in cut) >= store.spec.late_before(watermark)
        store.add(*partials(cut, grid), watermark)
        place, newest = place + len(cut), max(newest, *(time for _, time, _ in cut), MIN_TIME)
    assert sorted(got + taken(store, MAX_TIME)) == sessions_of(rows, spec)


def test_a_session_is_cut_from_its_first_row_on_by_whole_seconds():
    """An hour of clicks, one each 20 s: at most 2 minutes from 0.7 s on are those up to 100.7 s, and so on."""
    store = SessionStore(tm.session_window("30 s", at_most="2 minutes"), KEYS, TYPES)
    rows = [("a", i * 20 * SECOND + 700 * MS, i) for i in range(180)]
    store.add(*partials(rows, Grid.of([store.spec])), MIN_TIME)
    cut = taken(store, 3_500 * SECOND)
    assert cut[0] == ("a", 700 * MS, 120 * SECOND, 6, 5)
    assert cut[1] == ("a", 120 * SECOND + 700 * MS, 240 * SECOND, 6, 11)
    assert len(cut) == 29
    assert len(store) == 1, "it is known where the last one begins"
    assert len(taken(store, MAX_TIME)) == 1


def test_an_earlier_row_moves_the_cuts_that_follow():
    store = SessionStore(SessionSpec(GAP, 20 * MS), KEYS, TYPES)
    grid = Grid.of([store.spec])
    store.add(*partials([("a", time * MS, 1) for time in (10, 18, 24, 32)], grid), MIN_TIME)
    assert [s[1] for s in taken(store, 9 * MS)] == []
    store.add(*partials([("a", 9 * MS, 1)], grid), 9 * MS)
    assert taken(store, 29 * MS) == []
    assert taken(store, 29 * MS + 1) == [("a", 9 * MS, 29 * MS, 4, 1)]
    assert taken(store, MAX_TIME) == [("a", 32 * MS, 42 * MS, 1, 1)]


@pytest.mark.slow
def test_what_is_known_of_a_long_session_is_one_interval():
    """An hour with a row each 10 ms, in 3,600 commits: the store holds what is not decided yet."""
    store = SessionStore(tm.session_window("1 second", at_most="30 minutes"), KEYS, TYPES)
    grid, most = Grid.of([store.spec]), 0
    for second in range(3_600):
        rows = [("a", second * SECOND + i * 10 * MS, 1) for i in range(100)]
        store.add(*partials(rows, grid), second * SECOND)
        assert len(taken(store, second * SECOND)) == (second in (1801,))
        most = max(most, len(store))
    assert most < 10
    assert [row[3] for row in taken(store, MAX_TIME)] == [180_000]


def test_moments_that_the_watermark_has_passed_are_joined_by_session(monkeypatch):
    """No session ends, so that no key has to be looked at; the store holds open sessions and a few commits."""
    monkeypatch.setattr(sessions, "MANY", 200)
    spec = SessionSpec(3_600 * SECOND, None, ENDED[0].ends_when)
    store, grid, most = store_of(spec), Grid.of([spec]), 0
    for second in range(100):
        rows = [(f"k{i % 20}", second * SECOND + i * MS, 1) for i in range(60)]
        store.add(*partials(rows, grid), second * SECOND)
        assert taken(store, second * SECOND) == []
        most = max(most, len(store))
    assert most <= 200 + 2 * 60
    assert [row[3] for row in taken(store, MAX_TIME)] == [300] * 20


def test_partials_that_do_not_tell_whether_they_end_sessions_came_before_the_query():
    store = store_of(ENDED[0])
    table, states = partials([("a", 0, 1)], Grid.of([ENDED[0]]))
    store.add(table, {p: state for p, state in states.items() if p != ends_of(ENDED[0])}, MIN_TIME)
    assert len(store) == 0


def test_pieces_belong_to_the_sessions_that_rows_ended():
    """Where a session ended is told by whoever asks; what follows a microsecond later is of the next."""
    kind = ENDED[0]
    pieces = SessionPieces(kind, KEYS, types_of(kind))
    pieces.add(*partials([("a", 0, 1), ("a", MS, 8), ("a", MS + 1, 2)], Grid.of([kind])), MIN_TIME)
    pieces.add(*partials([("a", MS, 3), ("a", 2 * MS, 4)], Grid.of([kind])), MIN_TIME)
    numbers, states = pieces.within(pa.table({"k": ["a", "a"]}), np.array([0, MS + 1]), np.array([MS, 2 * MS]))
    assert numbers.tolist() == [0, 1]
    assert states[COUNT]["count"].tolist() == [3, 2]
    assert states[HIGH]["value"].tolist() == [8, 4]


def test_kinds_that_differ_in_what_ends_them_have_names_of_their_own():
    kinds = [*KINDS, *ENDED, SessionSpec(GAP, None, Expression("x >= 8"))]
    assert len({kind.key for kind in kinds}) == len({str(kind) for kind in kinds}) == len(kinds)
    assert ENDED[0].key.replace("-", "").isalnum(), "it is part of the names of files"
    assert str(ENDED[1]) == "session 10 ms, at most 25 ms, ends when x >= 7"


@pytest.mark.parametrize(
    ("gap", "at_most", "said"),
    [
        ("30 minutes", "2 minutes", "at_most is 2 minutes, shorter than the gap of 30 minutes"),
        ("30 minutes", 0, "Give at least the gap of 30 minutes"),
        ("30 minutes", "-1 hour", "Give at least the gap of 30 minutes"),
        ("30 minutes", "two hours", "session at_most: 'two hours' is not a duration"),
        (0, "1 hour", "the gap is 0 seconds"),
    ],
)
def test_limits_that_make_no_sense_are_refused(gap, at_most, said):
    with pytest.raises(DefinitionError, match=re.escape(said)):
        tm.session_window(gap, at_most=at_most)


@pytest.mark.parametrize(
    ("gap", "at_most", "unit"),
    [
        ("30 minutes", "2 hours", SECOND),
        ("500 ms", "2 hours", MS),
        ("30 minutes", "1800.5 seconds", MS),
        ("1 ms", 1_001, 1),
    ],
)
def test_lengths_are_measured_by_units(gap, at_most, unit):
    assert tm.session_window(gap, at_most=at_most).grain == unit


def test_a_session_is_open_while_the_watermark_is_at_its_end():
    """A row at the watermark is in time, and one exactly a gap after the last row joins it."""
    store, grid = store_of(), Grid.of([SessionSpec(GAP)])
    store.add(*partials([("a", 25 * MS, 1)], grid), MIN_TIME)
    assert taken(store, 35 * MS) == []
    store.add(*partials([("a", 35 * MS, 2)], grid), 35 * MS)
    assert taken(store, 45 * MS) == []
    assert taken(store, 45 * MS + 1) == [("a", 25 * MS, 45 * MS, 2, 2)]


def test_rows_one_gap_apart_are_one_session_as_in_spark():
    store = store_of()
    store.add(*partials([("a", 0, 1), ("a", GAP, 2), ("a", 2 * GAP + 1, 3)], Grid.of([SessionSpec(GAP)])), MIN_TIME)
    assert taken(store, MAX_TIME) == [("a", 0, 2 * GAP, 2, 2), ("a", 2 * GAP + 1, 3 * GAP + 1, 1, 3)]


def test_a_row_joins_two_open_sessions():
    store, grid = store_of(), Grid.of([SessionSpec(GAP)])
    store.add(*partials([("a", 0, 1), ("a", 18 * MS, 2)], grid), MIN_TIME)
    store.add(*partials([("a", 9 * MS, 5)], grid), 9 * MS)
    assert store.due(28 * MS).tolist() == []
    assert taken(store, 28 * MS + 1) == [("a", 0, 28 * MS, 3, 5)]


def test_keys_of_emitted_sessions_are_forgotten():
    store, grid = store_of(), Grid.of([SessionSpec(GAP)])
    store.add(*partials([(f"k{i}", i * MS, i) for i in range(100)], grid), MIN_TIME)
    assert len(taken(store, 100 * MS + 1)) == 91
    store.compact()
    assert len(store.keys) == 9
    assert [row[0] for row in taken(store, MAX_TIME)] == [f"k{i}" for i in range(91, 100)]


def test_parts_stay_few_and_a_commit_touches_few_rows():
    """A thousand commits leave at most a logarithm of parts, and few intervals of a session that goes on."""
    store, grid = store_of(), Grid.of([SessionSpec(GAP)])
    for i in range(1_000):
        store.add(*partials([(f"k{(i * 7 + j) % 500}", i * 20 + j, 1) for j in range(5)], grid), MIN_TIME)
    assert len(store._parts) <= 20
    assert len(store) <= 4 * 500
    assert sum(row[3] for row in taken(store, MAX_TIME)) == 5_000


def test_pieces_belong_to_the_session_that_they_lie_in():
    """The second session began within a gap of the first, which had ended; a key that is unknown has none."""
    pieces, grid = SessionPieces(SessionSpec(GAP), KEYS, TYPES), Grid.of([SessionSpec(GAP)])
    first = [("a", 0, 1), ("a", 4 * MS, 2), ("b", 5 * MS, 3), ("a", -50 * MS, 9)]
    pieces.add(*partials(first, grid), -35 * MS)
    for row in (("a", 8 * MS, 4), ("a", 3 * MS, 7)):
        pieces.add(*partials([row], grid), 14 * MS)
    assert len(pieces) == 3, "rows are late for a cut as for sessions that are whole"
    keys = pa.table({"k": ["a", "c", "a", "b"]})
    begins, ends = np.array([8 * MS, 0, 0, 5 * MS]), np.array([9 * MS, MS, 4 * MS, 5 * MS])
    for _ in range(2):
        numbers, states = pieces.within(keys, begins, ends)
        assert numbers.tolist() == [0, 2, 3]
        assert states[COUNT]["count"].tolist() == [1, 2, 1]
        assert states[HIGH]["value"].tolist() == [4, 2, 3]
        assert states[TIMES]["last"].tolist() == [8 * MS, 4 * MS, 5 * MS]
    pieces.drop_before(5 * MS)
    assert pieces.within(keys, begins, ends)[0].tolist() == [0, 3]
    pieces.drop_before(9 * MS)
    assert len(pieces) == 0
    assert pieces.within(keys, begins, ends)[0].tolist() == []


def test_a_store_can_hold_nothing_but_times():
    store, grid = store_of(), Grid.of([SessionSpec(GAP)])
    table, states = partials([("a", 0, 1), ("a", 9 * MS, 2), ("b", 30 * MS, 2)], grid)
    store.add(table, {TIMES: states[TIMES]}, MIN_TIME)
    assert not store.has_states
    small = store.nbytes
    assert (store.begun(MIN_TIME), store.begun(5 * MS), store.begun(40 * MS)) == (MIN_TIME, -5 * MS, 0)
    whole = store.whole()
    store.put(whole.merged(np.array([0, 0, 1]), {COUNT: {"count": np.array([1, 1, 1])}}, store.primitives))
    assert store.has_states
    assert store.nbytes > small
    ended = store.take(25 * MS)
    assert ended.states[COUNT]["count"].tolist() == [2]
    assert HIGH not in ended.states, "a primitive that is missing is neutral"
    store.forget_states()
    assert store.take(MAX_TIME).states.keys() == {TIMES}
