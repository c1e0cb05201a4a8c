"""Key groups where they are merged: each keeps its panes in memory, and reads what it has not seen from the files.

This runs in the Python workers of the executors, or in the driver when there is no executor to ask. Memory is a cache:
a worker that lost it, or a group that comes to another executor, reads the files again. The panes are merged by the
same `PaneStore` as on the driver, so that complete windows and spans serve later windows here, too.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from transom.engine.cluster.files import Slice, files_of, from_bytes, summary_of, to_bytes, write_slices
from transom.engine.tables import LENGTH, PANE, Contents, Origin, PartialTable, direct_table, partial_table, store_table
from transom.model.expression import Expression
from transom.model.time import MIN_TIME, Micros, SystemClock
from transom.windows.aggregates.base import Primitive, Types
from transom.windows.complete import Kind, Span
from transom.windows.panes import Grid
from transom.windows.partials import restricted
from transom.windows.store import PaneStore

MEMORY = 256 << 20
"""Bytes of merged panes that a worker keeps; the groups asked for least recently go first."""


@dataclass(frozen=True)
class StoreSpec:
    """What a store merges."""

    scope: str
    """Tells it from all other stores of all applications on these executors."""
    origin: Origin
    grid: Grid
    keys: pa.Schema
    primitives: tuple[tuple[Primitive, Types, str], ...]
    """With their lasting names."""
    kinds: tuple[Kind, ...]

    def make(self) -> PaneStore:
        """Return an empty store."""
        return PaneStore(self.grid, self.keys, {p: types for p, types, _ in self.primitives}, self.kinds)

    def pickled(self) -> bytes:
        """Return it for the workers; PySpark's Columns, which they do not need, stay here."""
        from pyspark.cloudpickle import CloudPickler

        numbers: dict[int, int] = {}

        class Pickler(CloudPickler):
            def reducer_override(self, obj: Any) -> Any:
                if isinstance(obj, Expression) and obj.column is not None:
                    number = numbers.setdefault(id(obj.column), len(numbers))
                    return Expression, (f"{obj.text} #{number}",)
                return super().reducer_override(obj)  # type: ignore[no-untyped-call]

        sink = io.BytesIO()
        Pickler(sink).dump(self)  # type: ignore[no-untyped-call]
        return sink.getvalue()


@dataclass(frozen=True)
class Feed:
    """What a store takes of some partials."""

    contents: Contents
    condition: str
    """The rows that it takes."""
    wanted: frozenset[str]
    """Lasting names of the primitives that it takes."""


@dataclass(frozen=True)
class GroupWork:
    """What to merge of one key group."""

    group: int
    home: str
    """Where its panes are kept: another home is another memory of the same group."""
    slices: tuple[tuple[int, Slice], ...]
    """Number of the feed, and where the rows are."""
    spans: tuple[Span, ...] = ()
    """Windows to return."""

    @property
    def rows(self) -> int:
        """Rows in the slices."""
        return sum(part.rows for _, part in self.slices)


@dataclass(frozen=True)
class Request:
    """What is to be done with every group of a store."""

    spec: bytes
    """What the store merges: a pickled `StoreSpec`."""
    until: Micros = MIN_TIME
    """The watermark: nothing is kept of windows that end later."""
    floor: Micros = MIN_TIME
    """Panes that start earlier are in no window any more."""
    ended: Micros = MIN_TIME
    """Directly computed windows that end by then are not asked for any more."""
    write: str = ""
    """Name of a file to write the groups' panes into, with another ending for windows; empty to write nothing."""
    cut: int = 0
    """The cut that the file is said to be of."""
    only: tuple[tuple[Span, bytes], ...] = ()
    """Keys that are needed of some windows, as Arrow IPC streams; of the others all are."""


@dataclass(frozen=True)
class Task:
    """Work on several groups of one store for one place."""

    request: Request
    directory: str
    feeds: tuple[Feed, ...]
    works: tuple[GroupWork, ...]
    memory: int = MEMORY
    """Bytes of merged panes that the process keeps."""


@dataclass
class Done:
    """What a task gave. Rows are Arrow IPC streams."""

    windows: bytes = b""
    """The merged windows in the form of directly computed ones; empty if there is no row."""
    files: list[dict[str, Any]] = field(default_factory=list)
    """What was written, as JSON."""
    read: int = 0
    """Rows that had to be read from files."""
    reading: Micros = 0
    """How long that took."""
    rows: dict[int, int] = field(default_factory=dict)
    """Rows of each group that were read, and rows of its windows: what it costs."""


@dataclass
class _Resident:
    """The panes of one key group."""

    store: PaneStore
    seen: dict[tuple[Feed, str, int], tuple[Micros, Micros]] = field(default_factory=dict)
    """Slices that it holds, with the last start and the last end in them."""
    floor: Micros = MIN_TIME
    ended: Micros = MIN_TIME
    """Of the slices that it holds, panes and windows before these are gone."""

    def serves(self, request: Request, wanted: Collection[tuple[Feed, str, int]]) -> bool:
        """Tell whether it holds only slices that are wanted, and of those all that is asked for.

        An application that is started again in the same session replays its log, and asks again for windows that it
        has closed before.
        """
        return request.floor >= self.floor and request.ended >= self.ended and all(key in wanted for key in self.seen)

    def drop_before(self, floor: Micros, ended: Micros) -> None:
        self.floor, self.ended = max(self.floor, floor), max(self.ended, ended)
        self.store.drop_before(floor, ended)
        self.seen = {
            key: (start, end)
            for key, (start, end) in self.seen.items()
            if start >= floor and (not key[0].contents.direct or end > ended)
        }


_CLOCK = SystemClock()
_KEPT: OrderedDict[tuple[bytes, int, str], _Resident] = OrderedDict()


def forget() -> None:
    """Let this process keep nothing, as if it had just started."""
    _KEPT.clear()


def run(task: Task, load: Callable[[bytes], StoreSpec]) -> Done:
    """Merge the windows of some groups, and write their panes if that is asked for.

    Args:
        task: What to do.
        load: Makes a spec of its pickled form.

    Raises:
        CheckpointCorruptError: A file is missing or damaged.
        CheckpointFullError: The panes cannot be written.
    """
    spec = load(task.request.spec)
    names = {primitive: name for primitive, _, name in spec.primitives}
    done = Done()
    found: list[pa.Table] = []
    panes: list[tuple[int, pa.Table]] = []
    windows: list[tuple[int, pa.Table]] = []
    only = {span: from_bytes(keys) for span, keys in task.request.only}
    for work in task.works:
        resident = _resident(task, spec, names, work, done)
        store = resident.store
        merged = store.consolidate(work.spans, task.request.until) if work.spans else {}
        for span in merged.keys() & only.keys():
            merged[span] = restricted(merged[span], store.keys.intern(only[span]), len(store.keys))
        if merged:
            starts, lengths, keys, states = store.window_rows(merged)
            done.rows[work.group] = done.rows.get(work.group, 0) + len(starts)
            if len(starts):
                times = {PANE: starts, LENGTH: lengths}
                found.append(partial_table(store.primitives, spec.origin, times, keys, states))
        if task.request.write:
            panes.append((work.group, store_table(store, spec.origin)))
            windows.append((work.group, direct_table(store, spec.origin)))
        store.compact()
        _KEPT.move_to_end((task.request.spec, work.group, work.home))
    _bound(task.memory)
    if found:
        done.windows = to_bytes(pa.concat_tables(found))
    for ending, direct, parts in (("panes", False, panes), ("windows", True, windows)):
        written = _write(task, spec, names, f"{task.request.write}.{ending}", direct, parts)
        done.files += [] if written is None else [written]
    return done


def _resident(task: Task, spec: StoreSpec, names: dict[Primitive, str], work: GroupWork, done: Done) -> _Resident:
    """Return the panes of a group, with all its slices."""
    identity = task.request.spec, work.group, work.home
    resident = _KEPT.get(identity)
    wanted = {(task.feeds[number], part.file, part.offset): part for number, part in work.slices}
    if resident is not None:
        resident.drop_before(task.request.floor, task.request.ended)
    if resident is None or not resident.serves(task.request, wanted):
        resident = _KEPT[identity] = _Resident(spec.make())
    begun, before = _CLOCK.now(), done.read
    for (feed, file, offset), part in wanted.items():
        if (feed, file, offset) not in resident.seen:
            done.read += part.rows
            table = PartialTable(part.read(Path(task.directory)), feed.contents).of_condition(feed.condition)
            wants = {primitive: name for primitive, name in names.items() if name in feed.wanted}
            resident.seen[feed, file, offset] = _take_in(resident.store, table, wants)
    if done.read > before:
        done.reading += _CLOCK.now() - begun
        done.rows[work.group] = done.rows.get(work.group, 0) + done.read - before
    resident.drop_before(task.request.floor, task.request.ended)
    return resident


def _take_in(store: PaneStore, table: PartialTable, names: dict[Primitive, str]) -> tuple[Micros, Micros]:
    """Add the rows of a table; return the last start and the last end in it."""
    states, starts = table.states(names), table.panes()
    ends = starts
    if table.direct:
        lengths = table.lengths()
        ends = starts + lengths
        store.add_windows(starts, lengths, table.table, states)
    else:
        store.add(starts, table.table, states)
    return (int(starts.max()), int(ends.max())) if len(starts) else (MIN_TIME, MIN_TIME)


def give(task: Task, load: Callable[[bytes], StoreSpec]) -> Iterator[tuple[int, bytes]]:
    """Yield each group of a task with all that this process knows of it, and forget it here.

    Raises:
        CheckpointCorruptError: A file is missing or damaged.
    """
    spec = load(task.request.spec)
    names = {primitive: name for primitive, _, name in spec.primitives}
    for work in task.works:
        resident = _resident(task, spec, names, work, Done())
        tables = [store_table(resident.store, spec.origin), direct_table(resident.store, spec.origin)]
        kept = resident.seen, resident.floor, resident.ended
        yield work.group, pickle.dumps(([to_bytes(table) for table in tables], kept))
        del _KEPT[task.request.spec, work.group, work.home]


def take(task: Task, given: dict[int, bytes], load: Callable[[bytes], StoreSpec]) -> None:
    """Keep groups of a task as another process gave them (`give`)."""
    spec = load(task.request.spec)
    names = {primitive: name for primitive, _, name in spec.primitives}
    for work in task.works:
        if work.group not in given:
            continue
        tables, kept = pickle.loads(given[work.group])
        resident = _KEPT[task.request.spec, work.group, work.home] = _Resident(spec.make(), *kept)
        for direct, data in zip((False, True), tables, strict=True):
            table = from_bytes(data)
            if table.num_rows:
                _take_in(resident.store, PartialTable(table, _contents(spec, names, direct)), names)
    _bound(task.memory)


def _contents(spec: StoreSpec, names: dict[Primitive, str], direct: bool) -> Contents:
    """Return what the tables of a store hold."""
    origin = replace(spec.origin, condition="")
    made_for = frozenset([spec.origin.name])
    return Contents(origin, tuple(names.values()), (spec.origin.condition,), made_for, direct)


def _write(
    task: Task,
    spec: StoreSpec,
    names: dict[Primitive, str],
    file: str,
    direct: bool,
    parts: Sequence[tuple[int, pa.Table]],
) -> dict[str, Any] | None:
    """Write the rows of some groups into one file; return None when there are none."""
    parts = [(group, table) for group, table in parts if table.num_rows]
    if not parts:
        return None
    table = pa.concat_tables([table for _, table in parts])
    groups = np.repeat(np.array([group for group, _ in parts], np.int64), [table.num_rows for _, table in parts])
    slices = write_slices(Path(task.directory), file, table, groups)
    contents = _contents(spec, names, direct)
    counted = table.append_column("rows", pa.array(np.ones(table.num_rows, np.int64)))
    return files_of(contents, task.request.cut, slices, summary_of(counted, "rows")).to_json()


def _bound(memory: int) -> None:
    """Forget the groups that were asked for least recently, as far as there is no memory for them."""
    left = memory
    for identity in reversed(list(_KEPT)):
        left -= _KEPT[identity].store.nbytes
        if left < 0 and identity != next(reversed(_KEPT)):
            del _KEPT[identity]
