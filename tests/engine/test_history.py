"""What panes can do for queries that come later: never more than is in them, and all that is in the plain cases."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import transom as tm
from transom.engine.partials.contents import Origin
from transom.engine.partials.history import Held, complete_from, sources_of
from transom.model.expression import Expression
from transom.model.time import MAX_TIME, MIN_TIME
from transom.model.window import SessionSpec, WindowSpec
from transom.windows.components import KeySet
from transom.windows.panes import Grid
from transom.windows.query import Key, WindowedQuery

KEYS = tuple(Key(name, Expression(name)) for name in "ab")
AGGREGATES = {"n": tm.count(), "low": tm.min("x"), "total": tm.sum("x"), "mean": tm.avg("x")}
WINDOWS = [WindowSpec(4000, 4000), WindowSpec(8000, 4000), WindowSpec(6000, 3000), WindowSpec(4000, 4000, 1000)]


def query(name, aggregates=("n",), windows=(WINDOWS[0],), keys=1):
    return WindowedQuery(name, 0, KEYS[:keys], tuple(windows), tuple((a, AGGREGATES[a]) for a in aggregates))


def origin(keys=1, branch="rows", condition=""):
    return Origin(branch, tuple(str(key) for key in KEYS[:keys]), condition)


def start_of(new, held, unseen=100_000):
    key_set = KeySet(0, frozenset(new.keys), (new,))
    found = sources_of(key_set, origin(len(new.keys)), held, frozenset([new.name]))
    return complete_from(new, found, unseen)


def test_plain_cases():
    fine = Held(origin(2), ((query("fine", ("n", "total"), keys=2), MIN_TIME),), 7_000)
    assert start_of(query("new"), [fine]) == 7_000
    assert start_of(query("new", ("n", "low")), [fine]) == 100_000
    assert start_of(query("new", windows=[WINDOWS[2]]), [fine]) == 100_000
    assert start_of(query("new", windows=[WINDOWS[1]]), [fine]) == 7_000
    assert start_of(query("new", windows=[SessionSpec(1000)]), [fine]) == 100_000
    assert start_of(query("new", keys=2), [Held(origin(1), fine.queries, 0)]) == 100_000
    assert start_of(query("new"), [Held(origin(2, "others"), fine.queries, 0)]) == 100_000
    assert start_of(query("new"), [Held(origin(2, condition="x > 0"), fine.queries, 0)]) == 100_000
    assert start_of(query("new"), [], MIN_TIME) == MIN_TIME


def test_the_own_store_goes_before_a_finer_one_and_each_primitive_has_its_own():
    own = Held(origin(1), ((query("own"), 50_000),), 0)
    fine = Held(origin(2), ((query("fine", ("n", "low"), keys=2), 20_000),), 0)
    assert start_of(query("new", ("low",)), [own, fine]) == 20_000
    assert start_of(query("new", ("low", "n")), [own, fine]) == 50_000
    older = Held(origin(2), ((query("older", ("low",), keys=2), 10_000),), 0)
    assert start_of(query("new", ("low",)), [fine, older]) == 10_000


QUERIES = st.builds(
    query,
    st.just("?"),
    st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=2, unique=True),
    st.lists(st.sampled_from(WINDOWS), min_size=1, max_size=2, unique=True),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), st.lists(st.integers(0, 60), min_size=1, max_size=4)),
        st.tuples(st.just("come"), QUERIES),
        st.tuples(st.just("leave"), st.integers(0, 3)),
    ),
    max_size=14,
)


@given(STEPS, QUERIES)
def test_no_row_of_a_complete_window_was_missed(steps, new):
    """Every row from the promised moment on was aggregated as the new query needs it, in panes cut at its edges."""
    running: list[tuple[WindowedQuery, int]] = []
    rows: list[tuple[int, list[WindowedQuery]]] = []
    unseen, dropped = MIN_TIME, MIN_TIME
    for kind, value in steps:
        if kind == "rows":
            rows += [(time * 1000, [q for q, _ in running]) for time in value]
            unseen = max(unseen, *(time * 1000 + 1 for time in value))
        elif kind == "come":
            running.append((value, start_of(value, [Held(origin(), tuple(running), dropped)], unseen)))
        elif running:
            running.pop(value % len(running))
    moment = start_of(new, [Held(origin(), tuple(running), dropped)], unseen)
    assert moment < MAX_TIME
    needed = {p for _, aggregate in new.aggregates for p in aggregate.primitives}
    for time, queries in rows:
        if time >= moment:
            there = {p for q in queries for _, aggregate in q.aggregates for p in aggregate.primitives}
            windows = [window for q in queries for window in q.windows]
            assert needed <= there
            assert Grid.of([*windows, *new.windows]) == Grid.of(windows)
