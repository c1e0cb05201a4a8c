"""Sessions whose rows are here, in files, or both, through snapshots and crashes, against the rows: no Spark."""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parents[1] / "windows"))

from store_helpers import COUNT, LIST, MS, PRIMITIVES, SUM, expected, key_table, states_of, values_of
from tests.engine.compacting import compact_files

from transom.engine.cluster import worker as resident
from transom.engine.cluster.files import PartialFiles, from_bytes, summary_of, write_partials
from transom.engine.cluster.merges import Here, load_spec
from transom.engine.cluster.messages import Done
from transom.engine.partials.contents import Origin
from transom.engine.partials.tables import PANE, PartialTable, partial_table
from transom.engine.state.stores import StoreEntry
from transom.model.expression import Expression
from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.model.window import SessionSpec, WindowSpec
from transom.windows.aggregates import functions as tm
from transom.windows.aggregates.reduce import Reduction
from transom.windows.components import KeySet
from transom.windows.intervals import TIMES
from transom.windows.panes import Grid
from transom.windows.query import Key, WindowedQuery

Row = tuple[int, int, int]
"""Time, key and value."""
TYPES = {**PRIMITIVES, TIMES: {"first": pa.int64(), "last": pa.int64()}}
AGGREGATES = (("n", tm.count()), ("total", tm.sum("x")), ("list", tm.collect_list("x", 1000)))
SHORT, LONG, FIXED = SessionSpec(10 * MS), SessionSpec(25 * MS), WindowSpec(20 * MS, 10 * MS, 0)
CUT = SessionSpec(10 * MS, 24 * MS)
GAPS = (SHORT, LONG, CUT)
GRID = Grid.of([*GAPS, FIXED])
FINE = Origin("branch", ("k",))


def entry_of(directory: Path, keyed: bool = True, windows: Sequence[Any] = (*GAPS, FIXED)) -> StoreEntry:
    """The store of one query, of key k or of none."""
    keys = (Key("k", Expression("k")),) if keyed else ()
    query = WindowedQuery("q", 0, keys, tuple(windows), AGGREGATES)
    key_set = KeySet(0, frozenset(keys), (query,))
    origin = FINE if keyed else Origin("branch", ())
    schema = pa.schema([("k", pa.int64())] if keyed else [])
    return StoreEntry.arranged((key_set, origin, schema, TYPES), {}, {}, str(directory), Here(directory, 3))


def partials(rows: Sequence[Row], watermark: Micros) -> PartialTable:
    """What the job of a cut makes of rows: one partial per key and pane, of which none is on both sides of an edge."""
    times, keys, values = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    moments = np.array(sorted(spec.late_before(watermark) for spec in GAPS), np.int64)
    what = np.stack([GRID.start(times), keys, np.searchsorted(moments, times, side="right")], axis=1)
    groups, slots = np.unique(what, axis=0, return_inverse=True)
    states = {**states_of(values), TIMES: {"first": times, "last": times}}
    reduction = Reduction.of(slots.reshape(-1), len(groups))
    merged = {p: reduction(p, state, TYPES[p]) for p, state in states.items()}
    return PartialTable.of(partial_table(TYPES, FINE, {PANE: groups[:, 0]}, key_table(groups[:, 1]), merged))


def in_files(table: PartialTable, directory: Path, cut: int, groups: int = 3) -> PartialFiles:
    keys = table.table.column("k").to_numpy()
    return write_partials(directory, f"{cut:012d}-cut.partials", table.table, keys % groups, table.contents, cut)


class Reference:
    """Sessions of rows that were in time, row by row."""

    def __init__(self) -> None:
        self.held: dict[tuple[SessionSpec, bool], list[Row]] = {}

    def close(self, spec: SessionSpec, keyed: bool, watermark: Micros) -> list[tuple[Any, ...]]:
        found, kept = [], []
        mine = self.held.get((spec, keyed), [])
        for key in {row[1] if keyed else None for row in mine}:
            run: list[Row] = []
            rows = sorted(row for row in mine if key is None or row[1] == key)
            for row, following in zip(rows, [*rows[1:], None], strict=True):
                run.append(row)
                limit = run[0][0] // MS * MS + (spec.at_most or MAX_TIME)
                if following is None or following[0] - row[0] > spec.gap or following[0] >= limit:
                    values = sorted(value for _, _, value in run)
                    if watermark == MAX_TIME or min(row[0] + spec.gap, limit) < watermark:
                        found.append((key, run[0][0], row[0], len(run), sum(values), values))
                    else:
                        kept += run
                    run = []
        self.held[spec, keyed] = kept
        return sorted(found, key=repr)

    def add(self, rows: Sequence[Row], watermark: Micros) -> None:
        for spec in GAPS:
            for keyed in (True, False):
                in_time = [row for row in rows if row[0] + (spec.gap if spec.at_most is None else 0) >= watermark]
                self.held.setdefault((spec, keyed), []).extend(in_time)


def closed(entry: StoreEntry, after: Micros, watermark: Micros) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Close what a watermark completes, as `StreamState.close` does; return windows and sessions."""
    query = entry.key_set.queries[0]
    spans = entry.due(query, after, watermark, MIN_TIME)
    taken = entry.sessions.take(watermark)
    merge = entry.ask(dict.fromkeys(spans), taken, watermark)
    done = entry.store.executors.run([merge])[0] if merge else ()
    windows, ended = entry.close(spans, taken, watermark, done)
    found = {}
    for spec, some in ended.items():
        names = entry.sessions.stores[spec].key_table(some.ids)
        keys = names.column("k").to_pylist() if names.num_columns else [None] * len(some)
        if len(some):
            lists = LIST.encode(some.states[LIST], PRIMITIVES[LIST])["values"].to_pylist()
            counts, sums = some.states[COUNT]["count"].tolist(), some.states[SUM]["sum"].tolist()
            rows = zip(keys, some.first.tolist(), some.last.tolist(), counts, sums, map(list, lists), strict=True)
            found[spec] = sorted(rows, key=repr)
    keyed = len(entry.origin.keys) > 0
    merged = {span: values_of(entry.store.here, partial) for span, partial in windows.items() if keyed}
    last = max((row[2] + spec.gap for spec, rows in found.items() for row in rows), default=after)
    entry.expire(last if watermark == MAX_TIME else watermark)
    return merged, found


class Life:
    """A store that is written into snapshots and begins again from the last one with the cuts since then."""

    def __init__(self, directory: Path, keyed: bool) -> None:
        self.directory, self.keyed = directory, keyed
        self.entry = entry_of(directory, keyed)
        self.watermark: Micros = MIN_TIME
        self.log: list[tuple[Micros, Any, Any]] = []
        """Watermark, partials and results of the cuts since the snapshot."""
        self.saved: tuple[Any, ...] = ()
        self.save()

    def save(self) -> None:
        files = json.dumps(self.entry.files())
        self.saved = files, self.entry.tables(), self.watermark
        self.log = []

    def step(self, watermark: Micros, rows: Any) -> Any:
        results = closed(self.entry, self.watermark, watermark)
        self.watermark = watermark
        self.entry.take([rows], MIN_TIME, watermark)
        return results

    def cut(self, watermark: Micros, rows: Any) -> Any:
        results = self.step(watermark, rows)
        self.log.append((watermark, rows, results))
        return results

    def crash(self) -> None:
        files, tables, self.watermark = self.saved
        self.entry = entry_of(self.directory, self.keyed)
        self.entry.restore(tables, json.loads(files))
        for watermark, rows, results in self.log:
            assert self.step(watermark, rows) == results


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 2**32))
@example(68)  # rows between those of a session that was one interval already
def test_sessions_have_all_their_rows_wherever_they_are(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_sessions_have_all_their_rows_wherever_they_are_at_length(seed: int) -> None:
    check(seed)


def check(seed: int) -> None:
    """Cuts are in files or not, what is here goes into files, files are merged and read back, workers forget."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        lives, reference, read, watermark = [Life(directory, keyed) for keyed in (True, False)], Reference(), [], 0
        for cut in range(rng.randint(3, 14)):
            step = rng.choice([1, 3, 10, 40]) * MS
            low, high = watermark - 2 * step, watermark + 3 * step
            rows = [
                (rng.randint(low, high) // 500 * 500, rng.randint(0, 9), rng.randint(0, 9))
                for _ in range(rng.randint(1, 25))
            ]
            after, watermark = watermark, max(watermark, watermark + rng.randint(-MS, step))
            table = partials(rows, watermark)
            written = in_files(table, directory, cut) if rng.random() < 0.7 else table
            for life in lives:
                windows, sessions = life.cut(watermark, written)
                for spec in GAPS:
                    assert sessions.get(spec, []) == reference.close(spec, life.keyed, watermark), (cut, spec)
                for span, values in windows.items():
                    assert values == expected(read, span)
                if life.keyed:
                    inside = {s for t, _, _ in read for s in spans_of(t)}
                    assert windows.keys() == {span for span in inside if max(after, 0) < span[1] <= watermark}
            reference.add(rows, watermark)
            read += rows
            for number, life in enumerate(lives):
                if rng.random() < 0.4:
                    act, file = rng.choice(["spill", "merge", "both", "recall", ""]), f"{cut}-{number}"
                    store = life.entry.store
                    if act in ("spill", "both"):
                        store.spill(cut, f"{file}-spilled")
                        assert not store.holds_states
                    if act in ("merge", "both"):
                        compact_files(store, cut, f"{file}-merged")
                        assert len(store.parts) <= 5, "panes, windows, and three kinds of sessions"
                    if act == "recall":
                        store.recall()
                        assert not store.parts
                    life.save()
                if rng.random() < 0.25:
                    resident.forget() if rng.random() < 0.5 else None
                    life.crash()
        for life in lives:
            _, sessions = life.cut(MAX_TIME, in_files(partials([(0, 0, 0)], MAX_TIME), directory, 100 + life.keyed))
            for spec in GAPS:
                assert sessions.get(spec, []) == reference.close(spec, life.keyed, MAX_TIME)


def spans_of(time: Micros) -> list[tuple[Micros, Micros]]:
    start = FIXED.last_start(time)
    return [(start - i * FIXED.slide, start - i * FIXED.slide + FIXED.length) for i in range(2)]


def test_the_driver_holds_times_only_and_files_go_when_sessions_have_ended(tmp_path: Path) -> None:
    resident.forget()
    entry = entry_of(tmp_path, windows=(SHORT, LONG))
    entry.take([in_files(partials([(0, 1, 5), (4 * MS, 2, 6)], MIN_TIME), tmp_path, 1)], 0, MIN_TIME)
    closed(entry, MIN_TIME, 5 * MS)
    entry.take([in_files(partials([(30 * MS, 1, 7)], 5 * MS), tmp_path, 2)], 0, 5 * MS)
    assert not entry.store.holds_states
    assert len(entry.store.here) == 0
    assert [part.feed.sessions.last for part in entry.store.parts if part.feed.sessions] == [4 * MS, 30 * MS]
    _, sessions = closed(entry, 5 * MS, 15 * MS)
    assert sessions == {SHORT: [(1, 0, 0, 1, 5, [5]), (2, 4 * MS, 4 * MS, 1, 6, [6])]}
    assert len(entry.store.parts) == 2, "the longer sessions are open"
    _, sessions = closed(entry, 15 * MS, 30 * MS)
    assert sessions == {LONG: [(1, 0, 0, 1, 5, [5]), (2, 4 * MS, 4 * MS, 1, 6, [6])]}
    assert [part.files.cut for part in entry.store.parts] == [2]
    closed(entry, 30 * MS, 60 * MS)
    assert entry.store.parts == []


def test_what_no_open_session_needs_is_not_written_again(tmp_path: Path) -> None:
    """A session that goes on keeps a file; those of other keys in it have ended."""
    resident.forget()
    entry = entry_of(tmp_path, windows=[SHORT])
    rows = [(0, 1, 1), *((MS, key, key) for key in range(2, 50))]
    entry.take([in_files(partials(rows, MIN_TIME), tmp_path, 1)], 0, MIN_TIME)
    entry.take([in_files(partials([(9 * MS, 1, 1)], MIN_TIME), tmp_path, 2)], 0, MIN_TIME)
    assert len(closed(entry, MIN_TIME, 12 * MS)[1][SHORT]) == 48
    compact_files(entry.store, 2, "merged")
    (part,) = entry.store.parts
    assert part.files.rows == 1
    assert closed(entry, 12 * MS, MAX_TIME)[1] == {SHORT: [(1, 0, 9 * MS, 2, 2, [1, 1])]}


def test_older_checkpoints_tell_nothing_of_sessions(tmp_path: Path) -> None:
    entry = entry_of(tmp_path, windows=[FIXED])
    entry.take([in_files(partials([(0, 1, 1)], MIN_TIME), tmp_path, 1)], 0, MIN_TIME)
    (saved,) = json.loads(json.dumps(entry.files()))
    older = entry_of(tmp_path, windows=[FIXED])
    older.restore(entry.tables(), [saved[:3]])
    assert older.files() == entry.files()


def test_a_group_takes_its_sessions_with_it(tmp_path: Path) -> None:
    """What one process knows goes to another one, which reads no file; sessions that began anew stay apart there."""
    resident.forget()
    entry = entry_of(tmp_path, windows=[SHORT])
    entry.take([in_files(partials([(0, 1, 1), (0, 4, 1), (9 * MS, 4, 2)], MIN_TIME), tmp_path, 1)], 0, MIN_TIME)
    taken = entry.sessions.take(10 * MS + 1)
    entry.take([in_files(partials([(2 * MS, 1, 3)], 10 * MS + 1), tmp_path, 2)], 0, 10 * MS + 1)
    taken = {spec: replace_sessions(some, entry.sessions.take(MAX_TIME)[spec]) for spec, some in taken.items()}
    assert [len(some) for some in taken.values()] == [3]

    def task(home: str) -> resident.Task:
        merge = entry.store._merge_of((), MAX_TIME, sessions=entry.store._asked(taken))
        return merge.task(str(tmp_path), merge.by_group(lambda _: home))

    before = resident.run(task("old"), load_spec)
    assert before.read == 4
    given = dict(resident.give(task("old"), load_spec))
    assert not resident._KEPT
    resident.take(task("new"), given, load_spec)
    for path in tmp_path.iterdir():
        path.rename(path.with_suffix(".away"))
    after = resident.run(task("new"), load_spec)
    assert after.read == 0
    halves = []
    for starts in ((MIN_TIME, MS), (MS, MAX_TIME)):  # as when it moves smoothly
        whole = task("new")
        works = tuple(replace(work, starts=starts) for work in whole.works)
        halves.append(resident.run(replace(whole, works=works), load_spec))
    assert [count(done) for done in (after, *halves)] == [3, 2, 1]
    answers = [entry.sessions.with_states(taken, some, entry.names)[SHORT] for some in ([before], [after], halves)]
    for found in answers:
        which = zip(found.ids.tolist(), found.first.tolist(), strict=True)
        sums = dict(zip(which, found.states[SUM]["sum"].tolist(), strict=True))
        assert sums == {(0, 0): 1, (1, 0): 3, (0, 2 * MS): 3}


def count(done: Done) -> int:
    """Return of how many sessions it has states."""
    return sum(from_bytes(data).num_rows for _, data in done.sessions)


def replace_sessions(some: Any, more: Any) -> Any:
    """Return two lots of sessions as one."""
    states = {TIMES: {n: np.concatenate([some.states[TIMES][n], more.states[TIMES][n]]) for n in ("first", "last")}}
    return replace(some, ids=np.concatenate([some.ids, more.ids]), states=states)


def test_an_answer_does_not_change_when_it_is_asked_for_again_or_earlier(tmp_path: Path) -> None:
    """Memory is a cache: a task that runs twice, or an application that begins where it was before, miss nothing."""
    resident.forget()
    entry = entry_of(tmp_path)
    entry.take([in_files(partials([(0, 1, 1), (15 * MS, 2, 2), (40 * MS, 3, 3)], MIN_TIME), tmp_path, 1)], 0, MIN_TIME)
    tables, files = entry.tables(), entry.files()
    first = [closed(entry, MIN_TIME, 12 * MS), closed(entry, 12 * MS, 60 * MS)]
    again = entry_of(tmp_path)
    again.restore(tables, json.loads(json.dumps(files)))
    assert [closed(again, MIN_TIME, 12 * MS), closed(again, 12 * MS, 60 * MS)] == first
    assert [len(sessions.get(SHORT, [])) for _, sessions in first] == [1, 2]


@pytest.mark.parametrize("moments", [(), (5,), (5, 12)])
def test_what_is_told_of_files_tells_late_rows_from_timely_ones(moments: tuple[int, ...]) -> None:
    first, last = [0, 6, 4, 11, 20], [4, 7, 5, 12, 22]
    table = pa.table({PANE: [0, 0, 0, 10, 20], "rows": [1, 2, 3, 4, 5], "first": first, "last": last})
    told = summary_of(table, "rows", ("first", "last"), moments)
    assert told.column_names == [PANE, "rows", "first", "last"]
    assert sum(told.column("rows").to_pylist()) == 15
    for moment in moments:
        for low, high, rows in ((first, last, table), (*(told.column(n).to_pylist() for n in ("first", "last")), told)):
            late = sum(n for n, end in zip(rows.column("rows").to_pylist(), high, strict=True) if end < moment)
            assert late == {5: 1, 12: 6}[moment]
            assert any(a < moment <= b for a, b in zip(low, high, strict=True))
