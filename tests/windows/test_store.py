"""Windows out of the store, whatever they are made of, against the rows that were put in."""

import gc
import random
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_helpers import MS, add, add_direct, expected, new_store, values_of, windows_of

from transom.model.time import MIN_TIME
from transom.model.window import WindowSpec, sliding, tumbling
from transom.windows.merged import Work
from transom.windows.panes import closing_windows


def minutes(*lengths):
    return [tumbling(f"{length} minutes") for length in lengths]


MINUTE = 60_000_000


@st.composite
def kinds(draw):
    slide = draw(st.integers(1, 8)) * MS
    length = slide * draw(st.sampled_from([1, 1, 2, 3, 5, 10, 20])) + draw(st.sampled_from([0, 0, 0, MS, 2 * MS]))
    return WindowSpec(length, min(slide, length), draw(st.sampled_from([0, 0, 3, 7])) * MS)


@settings(max_examples=50, deadline=None)
@given(st.lists(kinds(), min_size=1, max_size=4), st.integers(0, 2**32), st.booleans())
def test_windows_hold_the_rows_that_came_before_they_closed(specs, seed, busy):
    """Random rows in random order, some late, cuts in either form, early looks, expiry, compaction."""
    rng = random.Random(seed)
    store, rows, watermark = new_store(specs), [], 0
    corrections = rng.random() < 0.5
    for _ in range(rng.randint(2, 12)):
        horizon = min(spec.late_before(watermark) for spec in specs) if watermark else 0
        step = rng.choice([1, 3, 10, 10, 40]) * MS
        fresh = []
        for _ in range(rng.randint(1, 80 if busy else 8)):
            late = rng.random() < 0.1
            time = rng.randint(horizon, max(horizon, watermark)) if late else watermark + rng.randint(0, 2 * step)
            fresh.append((time, rng.randint(0, 3 if busy else 30), rng.randint(-5, 5)))
        if rng.random() < 0.25:
            add_direct(store, specs, fresh)
        else:
            add(store, fresh)
        rows += fresh
        if rng.random() < 0.2:
            store.compact()
        if rng.random() < 0.3:
            spans = {w for spec in specs for t, _, _ in rng.sample(rows, 1) for w in windows_of(spec, t)}
            spans = {span for span in spans if span[0] >= horizon and (corrections or span[1] > watermark)}
            for span, partial in store.consolidate(spans, watermark).items():
                assert values_of(store, partial) == expected(rows, span)
        after, watermark = watermark, watermark + step
        spans = {span for spec in specs for span in store.due(spec, after, watermark)}
        held = {w for spec in specs for t, _, _ in rows for w in windows_of(spec, t)}
        assert spans == {span for span in held if after < span[1] <= watermark}
        for span, partial in store.consolidate(spans, watermark).items():
            assert values_of(store, partial) == expected(rows, span)
            assert np.array_equal(partial.ids, np.unique(partial.ids))
            assert values_of(store, store.panes_of(span)) == expected(rows, span)
        store.drop_before(min(spec.late_before(watermark) for spec in specs), MIN_TIME if corrections else watermark)
        if rng.random() < 0.1:
            restored = new_store(specs)
            restored.add(*store.rows())
            restored.add_windows(*store.direct_rows())
            store = restored


@pytest.mark.parametrize(
    "lengths, span, efficient, naive",
    [((5, 10, 15, 20), 60, 86, 240), ((5, 10), 60, 72, 120), ((5, 10, 15, 20, 25, 30), 300, 478, 1800)],
)
def test_inputs_of_the_paper(lengths, span, efficient, naive):
    """Enorm, Fig. 7 and 8."""
    specs = minutes(*lengths)
    store = new_store(specs, finer=minutes(1))
    for minute in range(span):
        add(store, [(minute * MINUTE, key, minute) for key in range(5)])
        closed = (minute + 1) * MINUTE
        spans = {s for spec in specs for s in store.due(spec, closed - MINUTE, closed)}
        for window, partial in store.consolidate(spans, closed).items():
            rows = [(m * MINUTE, key, m) for m in range(span) for key in range(5)]
            assert values_of(store, partial) == expected(rows, window)
        store.drop_before(min(spec.late_before(closed) for spec in specs))
    windows = sum(span // length for length in lengths)
    assert store.work == Work(windows, efficient - windows, efficient, naive)


def test_a_complete_window_is_no_part_after_one_of_its_panes_changed():
    """A record late for its 5 minutes, in time for the 20 minutes: the kept window of 5 minutes misses it."""
    specs = minutes(1, 5, 20)
    store, rows = new_store(specs), []

    def close(minute):
        spans = {s for spec in specs for s in store.due(spec, (minute - 1) * MINUTE, minute * MINUTE)}
        return store.consolidate(spans, minute * MINUTE)

    def feed(fresh):
        rows.extend(fresh)
        add(store, fresh)

    for minute in range(19):
        feed([(minute * MINUTE, 1, 1)])
        close(minute + 1)
    assert len(store._complete) == 3
    late = (7 * MINUTE + 1, 2, 100)
    feed([late])
    assert len(store._complete) == 2
    feed([(19 * MINUTE, 1, 1)])
    before = store.work.inputs
    window = close(20)[0, 20 * MINUTE]
    assert values_of(store, window) == expected(rows, (0, 20 * MINUTE)) == {1: (20, 20, [1] * 20), 2: (1, 100, [100])}
    one, five, twenty = 1, 5, 3 + 5 + 1
    assert store.work.inputs - before == one + five + twenty, "three kept windows, five panes and one late partial"


def test_a_late_record_counts_in_the_open_windows_of_a_tree():
    spec = sliding("1 minute", every="1 second")
    store, rows = new_store([spec]), []
    second = 1_000_000
    for now in range(400):
        fresh = [(now * second, now % 3, now)]
        if now % 7 == 0 and now > 60:
            fresh.append(((now - now % 50) * second, 9, now))
        add(store, fresh)
        rows += fresh
        closed = (now + 1) * second
        for span, partial in store.consolidate(store.due(spec, closed - second, closed), closed).items():
            assert values_of(store, partial) == expected(rows, span)
        store.drop_before(spec.late_before(closed))
    assert store._sliding._trees
    assert store.work.inputs < 0.25 * store.work.pane_inputs


def test_spans_survive_that_dead_keys_are_forgotten():
    """Keys that come and go: most ids are dead when the store is compacted, and the spans get the new ones."""
    specs = [sliding("1 minute", every="1 second"), tumbling("5 seconds"), tumbling("40 seconds")]
    store, rows = new_store(specs), []
    second = 1_000_000
    compacted = 0
    for now in range(600):
        fresh = [(now * second, now // 10 + key, now) for key in range(3)]
        add(store, fresh)
        rows += fresh
        closed = (now + 1) * second
        spans = {span for spec in specs for span in store.due(spec, closed - second, closed)}
        for span, partial in store.consolidate(spans, closed).items():
            assert values_of(store, partial) == expected(rows, span)
        store.drop_before(min(spec.late_before(closed) for spec in specs))
        if now % 7 == 0:
            before = len(store.keys)
            store.compact()
            compacted += len(store.keys) < before
    assert compacted > 3
    assert store._sliding._trees


def test_a_tree_is_given_up_when_the_stream_becomes_thin():
    spec = sliding("1 minute", every="1 second")
    store = new_store([spec])
    second = 1_000_000

    def run(start, end, every):
        for now in range(start, end):
            if now % every == 0:
                add(store, [(now * second, 1, 1)])
            closed = (now + 1) * second
            store.consolidate(store.due(spec, closed - second, closed), closed)
            store.drop_before(spec.late_before(closed))

    run(0, 200, 1)
    assert store._sliding._trees
    run(200, 400, 20)
    assert not store._sliding._trees
    run(400, 600, 1)
    assert store._sliding._trees


def test_a_few_rows_in_very_many_slides_get_no_tree():
    spec = sliding("10 minutes", every="10 milliseconds")
    store, rows = new_store([spec]), [(number * 10_000_000, number % 2, number) for number in range(60)]
    add(store, rows)
    for start in range(0, 100_000, 10_000):
        span = (start, start + 10 * MINUTE)
        assert values_of(store, store.consolidate([span])[span]) == expected(rows, span)
    assert not store._sliding._trees


def test_nothing_is_kept_for_windows_that_nobody_asks_for():
    specs = [*minutes(5, 20), sliding("10 minutes", every="1 minute")]
    store = new_store(specs)
    for minute in range(100):
        add(store, [(minute * MINUTE, 1, 1)])
        closed = (minute + 1) * MINUTE
        store.consolidate({s for spec in specs for s in store.due(spec, closed - MINUTE, closed)}, closed)
        store.drop_before(min(spec.late_before(closed) for spec in specs))
    assert len(store._complete) <= 4 + 2
    store.arrange(store.primitives, specs[:1])
    add(store, [(100 * MINUTE, 1, 1)])
    store.drop_before(100 * MINUTE)
    assert not store._sliding._trees
    assert len(store._complete) == 0
    assert store.starts == [100 * MINUTE]


def test_early_looks_keep_nothing():
    specs = minutes(1, 5, 20)
    store = new_store(specs)
    for minute in range(5):
        add(store, [(minute * MINUTE, 1, 1)])
    store.consolidate([(0, 5 * MINUTE)], until=4 * MINUTE)
    assert len(store._complete) == 0
    store.consolidate([(0, 5 * MINUTE)], until=5 * MINUTE)
    assert len(store._complete) == 1


def test_windows_without_rows_are_empty():
    store = new_store(minutes(5))
    add(store, [(0, 1, 1)])
    assert len(store.consolidate([(5 * MINUTE, 10 * MINUTE)])[5 * MINUTE, 10 * MINUTE]) == 0


def test_directly_computed_windows_are_due_by_their_own_kind():
    specs = minutes(10, 20)
    store = new_store(specs)
    add_direct(store, specs, [(25 * MINUTE, 1, 4)])
    short, long = (20 * MINUTE, 30 * MINUTE), (20 * MINUTE, 40 * MINUTE)
    assert store.due(specs[0], 0, 60 * MINUTE) == [short]
    assert store.due(specs[1], 0, 60 * MINUTE) == [long]
    assert store.last_end(specs) == 40 * MINUTE
    add(store, [(30 * MINUTE, 1, 5), (20 * MINUTE, 2, 6)])
    windows = store.consolidate([short, long])
    assert values_of(store, windows[short]) == {1: (1, 4, [4]), 2: (1, 6, [6])}
    assert values_of(store, windows[long]) == {1: (2, 9, [4, 5]), 2: (1, 6, [6])}
    store.drop_before(20 * MINUTE, ended=30 * MINUTE)
    starts, lengths, keys, _ = store.direct_rows()
    assert (starts.tolist(), lengths.tolist()) == ([20 * MINUTE], [20 * MINUTE])
    assert keys.column("k").to_pylist() == [1]


def test_changes_are_told_by_pane_and_by_window():
    specs = minutes(5, 10)
    store = new_store(specs)
    changes = add(store, [(0, 7, 1), (1, 8, 1), (6 * MINUTE, 7, 1)])
    assert [(start, ids.tolist()) for start, ids in changes] == [(0, [0, 1]), (5 * MINUTE, [0])]
    changes = add_direct(store, specs, [(6 * MINUTE, 8, 1)])
    assert [(span, ids.tolist()) for span, ids in changes] == [
        ((0, 10 * MINUTE), [1]),
        ((5 * MINUTE, 10 * MINUTE), [1]),
    ]


def test_a_new_primitive_forgets_what_was_merged_without_it():
    specs = minutes(1, 5, 20)
    store = new_store(specs)
    primitives = dict(store.primitives)
    first = dict(list(primitives.items())[:2])
    store.arrange(first, specs)
    for minute in range(5):
        add(store, [(minute * MINUTE, 1, 1)])
    store.consolidate([(0, 5 * MINUTE)])
    store.arrange(primitives, specs)
    add(store, [(5 * MINUTE, 1, 2)])
    window = store.consolidate([(0, 20 * MINUTE)])[0, 20 * MINUTE]
    assert values_of(store, window) == {1: (6, 7, [2])}


def test_due_is_what_closing_windows_says_without_direct_rows():
    spec = sliding("5 minutes", every="2 minutes")
    store = new_store([spec])
    add(store, [(minute * MINUTE, 1, 1) for minute in (0, 3, 4, 30)])
    assert store.due(spec, 0, 40 * MINUTE) == closing_windows(spec, store.starts, 0, 40 * MINUTE)


def test_a_store_goes_at_once_when_nobody_needs_it():
    """It does not wait for Python's collector: a store may hold gigabytes. Trees of spans do not keep it either."""
    spec = sliding("20 minutes", every="1 minute")
    gc.collect()
    gc.disable()
    try:
        store = new_store([spec])
        for minute in range(60):
            add(store, [(minute * MINUTE, key, 1) for key in range(200)])
            store.consolidate(closing_windows(spec, store.starts, (minute - 1) * MINUTE, minute * MINUTE))
        assert store._sliding._trees, "it has trees"
        gone = weakref.ref(store), weakref.ref(store._panes), weakref.ref(next(iter(store._panes.partials())))
        del store
        assert [each() for each in gone] == [None, None, None]
    finally:
        gc.enable()
