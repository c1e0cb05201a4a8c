"""Windows of panes that are here, in files, or both, against the rows that were put in: no Spark."""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parents[1] / "windows"))

from store_helpers import KEYS, MS, PRIMITIVES, add, add_direct, expected, values_of, windows_of
from tests.engine.compacting import compact_files

import transom as tm
from transom.engine.cluster import worker as resident
from transom.engine.cluster.files import PartialFiles, files_of
from transom.engine.cluster.merges import Here, Merge, load_spec
from transom.engine.cluster.messages import Done
from transom.engine.cluster.store import TieredStore
from transom.engine.partials.contents import Contents, Origin, TableNote
from transom.engine.partials.tables import LENGTH, PANE, TAG, PartialTable, describe_table, state_name
from transom.engine.state.queries import CompiledQuery
from transom.engine.state.state import StreamState
from transom.engine.state.watermarks import WatermarkState
from transom.errors import CheckpointCorruptError
from transom.model.expression import Expression
from transom.model.window import WindowSpec
from transom.windows.aggregates.base import Primitive, Types
from transom.windows.components import ROWS, KeySet
from transom.windows.panes import Grid
from transom.windows.query import Key, WindowedQuery
from transom.windows.store import PaneStore

NAMES = {primitive: primitive.key for primitive in PRIMITIVES}
ORIGIN = Origin("branch", ("k",))


def tiered(directory: Path, specs: list[WindowSpec], groups: int = 3) -> TieredStore:
    return TieredStore(Grid.of(specs), KEYS, PRIMITIVES, specs, ORIGIN, NAMES, str(directory), Here(directory, groups))


@st.composite
def kinds(draw: st.DrawFn) -> WindowSpec:
    slide = draw(st.integers(1, 8)) * MS
    length = slide * draw(st.sampled_from([1, 2, 3, 10]))
    return WindowSpec(length, slide, draw(st.sampled_from([0, 3])) * MS)


SLIDING = [WindowSpec(MS, MS, 0), WindowSpec(50 * MS, 5 * MS, 3 * MS)]


@settings(max_examples=12, deadline=None)
@example(SLIDING, 15911055)  # a window that slides is merged here, its panes go into files and come back
@given(st.lists(kinds(), min_size=1, max_size=3), st.integers(0, 2**32))
def test_windows_hold_all_rows_wherever_they_are(specs: list[WindowSpec], seed: int) -> None:
    """Panes go into files, files are merged and read back, the memory of workers is lost, windows expire."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        store, rows, watermark = tiered(Path(directory), specs), [], 0
        for cut in range(rng.randint(2, 9)):
            horizon = min(spec.late_before(watermark) for spec in specs) if watermark else 0
            step = rng.choice([1, 3, 10, 40]) * MS
            fresh = [
                (
                    rng.randint(max(horizon, watermark - step), watermark + 2 * step),
                    rng.randint(0, 20),
                    rng.randint(-5, 5),
                )
                for _ in range(rng.randint(1, 30))
            ]
            add_direct(store.here, specs, fresh) if rng.random() < 0.25 else add(store.here, fresh)
            rows += fresh
            if rng.random() < 0.7:
                store.spill(cut, f"{cut}-spilled")
                assert len(store.here) == 0
            if rng.random() < 0.2:
                compact_files(store, cut, f"{cut}-merged")
                assert len(store.parts) <= 2
            if rng.random() < 0.1:
                store.recall()
                assert not store.parts
            if rng.random() < 0.2:
                resident.forget()
            after, watermark = watermark, watermark + step
            spans = {span for spec in specs for span in store.due(spec, after, watermark)}
            held = {w for spec in specs for t, _, _ in rows for w in windows_of(spec, t)}
            assert spans == {span for span in held if after < span[1] <= watermark}
            for span, partial in store.consolidate(spans, watermark).items():
                assert values_of(store.here, partial) == expected(rows, span), span
            store.drop_before(min(spec.late_before(watermark) for spec in specs), watermark)
            store.here.compact()


def test_another_grid_and_another_store_take_what_is_in_files(tmp_path: Path) -> None:
    coarse, fine = WindowSpec(10 * MS, 10 * MS, 0), WindowSpec(4 * MS, 4 * MS, 0)
    store = tiered(tmp_path, [coarse])
    rows = [(t * MS, t % 3, t) for t in range(20)]
    add(store.here, rows)
    store.spill(1, "one")
    finer = tiered(tmp_path, [coarse, fine])
    finer.take_over(store)
    history = tiered(tmp_path, [coarse])
    history.take_history(store, list(PRIMITIVES))
    for other in (finer, history):
        (span,) = other.due(coarse, 0, 10 * MS)
        assert values_of(other.here, other.consolidate([span])[span]) == expected(rows, span)


def test_a_damaged_file_is_told_by_name(tmp_path: Path) -> None:
    store = tiered(tmp_path, [WindowSpec(10 * MS, 10 * MS, 0)])
    add(store.here, [(0, 1, 1)])
    store.spill(1, "one")
    file = tmp_path / "one.panes"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    resident.forget()
    with pytest.raises(CheckpointCorruptError, match=r"one\.panes is damaged"):
        store.consolidate([(0, 10 * MS)])
    file.unlink()
    with pytest.raises(CheckpointCorruptError, match="all executors see"):
        store.consolidate([(0, 10 * MS)])


def test_memory_of_workers_is_bounded(tmp_path: Path) -> None:
    resident.forget()
    store = tiered(tmp_path, [WindowSpec(10 * MS, 10 * MS, 0)], groups=5)
    rows = [(t, t % 50, t) for t in range(200)]
    add(store.here, rows)
    store.spill(1, "one")
    merge = store._merge_of(((0, 10 * MS),), 10 * MS)
    task = merge.task(str(tmp_path), merge.by_group(lambda _: "here"))
    resident.run(replace(task, memory=1), load_spec)
    assert len(resident._KEPT) == 1


def test_a_group_takes_its_panes_with_it(tmp_path: Path) -> None:
    """What one process knows goes to another one, which needs no file for it, and reads only what came later."""
    resident.forget()
    kind = WindowSpec(10 * MS, 5 * MS, 0)
    store = tiered(tmp_path, [kind])
    rows = [(t * MS // 10, t % 20, t) for t in range(100)]
    add(store.here, rows)
    store.spill(1, "one")
    direct = [(12 * MS, 3, 7)]
    add_direct(store.here, [kind], direct)
    store.spill(2, "two")

    def task(home: str, *spans: tuple[int, int]) -> resident.Task:
        merge = store._merge_of(spans, 10 * MS)
        return merge.task(str(tmp_path), merge.by_group(lambda _: home))

    spans = ((0, 10 * MS), (5 * MS, 15 * MS))
    before = resident.run(task("old", *spans), load_spec)
    assert before.read == sum(part.files.rows for part in store.parts)
    given = dict(resident.give(task("old"), load_spec))
    assert not resident._KEPT
    for path in tmp_path.iterdir():
        path.rename(path.with_suffix(".away"))
    resident.take(task("new"), given, load_spec)
    after = resident.run(task("new", *spans), load_spec)
    assert after.windows == before.windows
    assert (after.read, before.windows != b"") == (0, True)
    for path in tmp_path.iterdir():
        path.rename(path.with_suffix(".panes" if path.stem == "one" else ".windows"))
    add(store.here, [(11 * MS, 1, 1)])
    store.spill(3, "three")
    assert resident.run(task("new", *spans), load_spec).read == 1
    (late,) = (span for span in store.due(kind, 14 * MS, 15 * MS))
    assert values_of(store.here, store.consolidate([late])[late]) == expected([*rows, *direct, (11 * MS, 1, 1)], late)


@pytest.mark.parametrize("put", [add, lambda panes, rows: add_direct(panes, [WindowSpec(10 * MS, 10 * MS, 0)], rows)])
def test_who_starts_again_finds_what_was_dropped_before(tmp_path: Path, put: Callable[[PaneStore, Any], Any]) -> None:
    """As an application that replays its log in the session in which it ran: the same files, for closed windows."""
    resident.forget()
    kind, first, second = WindowSpec(10 * MS, 10 * MS, 0), (0, 10 * MS), (10 * MS, 20 * MS)
    rows = [(t * MS // 5, t % 7, t) for t in range(100)]
    store = tiered(tmp_path, [kind])
    put(store.here, rows)
    store.spill(1, "one")
    parts = list(store.parts)
    for _ in range(2):
        for span in (first, second):
            assert values_of(store.here, store.consolidate([span], span[1])[span]) == expected(rows, span)
            store.drop_before(span[1], span[1])
        store = tiered(tmp_path, [kind])
        for part in parts:
            store.attach(part.files, part.feed.condition, part.feed.wanted)


def test_only_the_keys_that_are_needed_come_from_the_executors(tmp_path: Path) -> None:
    resident.forget()
    kind, window = WindowSpec(10 * MS, 10 * MS, 0), (0, 10 * MS)
    store = tiered(tmp_path, [kind])
    rows = [(t * MS // 10, t % 50, t) for t in range(100)]
    add(store.here, rows)
    store.spill(1, "one")
    other = tiered(tmp_path, [kind])
    other.take_over(store)
    assert len(other.here.keys) == 0
    other.know_keys()
    assert len(other.here.keys) == 50
    wanted = expected(rows, window)
    for ids in (np.array([3, 17]), np.arange(40)):
        found = other.consolidate([window], 10 * MS, {window: ids})[window]
        assert set(ids.tolist()) <= set(found.ids.tolist())
        assert values_of(other.here, found).items() <= wanted.items()
        assert len(found) == (2 if len(ids) == 2 else 50), "few keys are told to the executors, many are not"
    assert other.touched(next(other.read(other.parts[0].files, "")))[0][:2] == (0, 0)


def test_files_say_which_condition_their_panes_are_of() -> None:
    contents = Contents(ORIGIN, (), ("", "x > 0"))
    summary = pa.table({PANE: [0, 10, 10], TAG: pa.array([0, 0, 1], pa.int32()), "rows": [1, 2, 3]})
    files = PartialFiles.from_json(files_of(contents, 1, (), summary).to_json())
    assert (files.panes_of(""), files.panes_of("x > 0")) == ((0, 10), (10,))
    windows = summary.append_column(LENGTH, [[10, 10, 20]])
    files = PartialFiles.from_json(files_of(replace(contents, direct=True), 1, (), windows).to_json())
    assert (files.windows_of(""), files.windows_of("x > 0")) == (((0, 10), (10, 20)), ((10, 30),))


class Counting(Here):
    """Tells how many stores each job was for."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 3)
        self.jobs: list[int] = []

    def run(self, merges: Sequence[Merge]) -> list[list[Done]]:
        self.jobs.append(len(merges))
        return super().run(merges)


def test_what_all_stores_of_a_stream_have_in_files_is_merged_in_one_job(tmp_path: Path) -> None:
    """Two key sets are in files, of the third only windows of before are due."""
    executors, queries, shapes = Counting(tmp_path), {}, []
    counts: dict[Primitive, Types] = {ROWS: {"count": pa.int64()}}
    for number, name in enumerate("abc"):
        keys = (Key(name, Expression(name)),)
        query = WindowedQuery(name, number, keys, (WindowSpec(MS, MS, 0),), (("n", tm.count()),))
        queries[name] = CompiledQuery(query, {"n": ()})
        key_set = KeySet(number, frozenset(keys), (query,))
        shapes.append((key_set, Origin("rows", (name,)), pa.schema([(name, pa.int64())]), counts))
    state = StreamState(queries, WatermarkState.start(1), 0, ansi=True, executors=executors)
    state.arrange(shapes)
    tables = []
    for _, origin, _, _ in shapes:
        (name,) = origin.keys
        rows = pa.table({PANE: [0, 0, MS], name: [7, 8, 7], state_name(0, "count"): [1, 2, 3]})
        tables.append(PartialTable.of(describe_table(rows, TableNote(origin, (ROWS,)))))
    state.commit(tables, 1, state.watermark)
    for entry in state.stores[:2]:
        entry.store.spill(1, entry.origin.name)
    closings = state.close(MS, 2, 0, state.closed_by(MS))
    assert executors.jobs == [2]
    assert {closing.query: sorted(closing.results.table["n"].to_pylist()) for closing in closings} == {
        name: [1, 2] for name in "abc"
    }
    state.close(MS, 3, 0, state.closed_by(MS))
    assert executors.jobs == [2], "nothing is due"
