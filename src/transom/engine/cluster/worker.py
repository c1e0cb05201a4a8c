"""Key groups where they are merged: each keeps its panes in memory, and reads what it has not seen from the files.

This runs in the Python workers of the executors, or in the driver when there is no executor to ask. Memory is a cache:
a worker that lost it, or a group that comes to another executor, reads the files again. Panes are merged by the same
`PaneStore` as on the driver, so that complete windows and spans serve later windows here, too. When sessions begin and
end is known to the driver, which asks for what is here of those that ended.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from transom.engine.cluster.files import from_bytes, to_bytes, write_partials
from transom.engine.cluster.group import HeldGroup
from transom.engine.cluster.messages import Done, GroupWork, MergeTask, StoreSpec
from transom.engine.partials.tables import PartialTable, direct_table, store_table
from transom.model.time import SystemClock
from transom.storage.places import located

_CLOCK = SystemClock()
_KEPT: OrderedDict[tuple[bytes, int, str], HeldGroup] = OrderedDict()


def forget() -> None:
    """Let this process keep nothing, as if it had just started."""
    _KEPT.clear()


def run(task: MergeTask, load: Callable[[bytes], StoreSpec]) -> Done:
    """Merge the windows and sessions of some groups, or write what they hold.

    Args:
        task: What to do.
        load: Makes a spec of its pickled form.

    Raises:
        CheckpointCorruptError: A file is missing or damaged.
        CheckpointFullError: The panes cannot be written.
    """
    spec, request = load(task.request.spec), task.request
    done = Done()
    asked = {one.kind: PartialTable.of(from_bytes(one.table)) for one in request.sessions}
    only = {span: from_bytes(keys) for span, keys in request.only}
    windows: list[pa.Table] = []
    states: dict[str, list[pa.Table]] = {kind: [] for kind in asked}
    holdings = _Holdings(task, spec)
    for work in task.works:
        group = _held(task, spec, work, done)
        if request.write:
            holdings.add(work.group, group, asked)
        else:
            found = [(windows, group.windows(work, request.until, only))]
            found += [(states[kind], group.states_of(kind, sessions, work)) for kind, sessions in asked.items()]
            for mine, table in found:
                if table is not None:
                    mine.append(table)
                    done.rows[work.group] = done.rows.get(work.group, 0) + table.num_rows
        group.compact()
        _KEPT.move_to_end((request.spec, work.group, work.home))
    _bound(task.memory)
    if windows:
        done.windows = to_bytes(pa.concat_tables(windows))
    done.sessions = [(kind, to_bytes(pa.concat_tables(tables))) for kind, tables in states.items() if tables]
    holdings.write(done)
    return done


def _held(task: MergeTask, spec: StoreSpec, work: GroupWork, done: Done) -> HeldGroup:
    """Return a group with all its slices."""
    identity = task.request.spec, work.group, work.home
    group = _KEPT.get(identity)
    wanted = {(task.feeds[number], part.file, part.offset): part for number, part in work.slices}
    if group is None or not group.serves(task.request, wanted.keys()):
        group = _KEPT[identity] = HeldGroup(spec)
    begun, before = _CLOCK.monotonic(), done.read
    for seen, part in wanted.items():
        if seen not in group.seen:
            done.read += part.rows
            group.take_in(seen, PartialTable(part.read(located(task.directory)), seen[0].contents))
    if done.read > before:
        done.reading += _CLOCK.monotonic() - begun
        done.rows[work.group] = done.rows.get(work.group, 0) + done.read - before
    group.drop_before(task.request)
    return group


def give(task: MergeTask, load: Callable[[bytes], StoreSpec]) -> Iterator[tuple[int, bytes]]:
    """Yield each group of a task with all that this process knows of it, and forget it here.

    Raises:
        CheckpointCorruptError: A file is missing or damaged.
    """
    spec = load(task.request.spec)
    for work in task.works:
        group = _held(task, spec, work, Done())
        tables = [(to_bytes(table), direct, rows) for table, direct, rows in group.tables()]
        yield work.group, pickle.dumps((tables, group.seen))
        del _KEPT[task.request.spec, work.group, work.home]


def take(task: MergeTask, given: dict[int, bytes], load: Callable[[bytes], StoreSpec]) -> None:
    """Keep groups of a task as another process gave them (`give`)."""
    spec = load(task.request.spec)
    for work in task.works:
        if work.group not in given:
            continue
        tables, seen = pickle.loads(given[work.group])
        group = _KEPT[task.request.spec, work.group, work.home] = HeldGroup(spec)
        for data, direct, rows in tables:
            group.add(from_bytes(data), direct, rows)
        group.seen = seen
        group.drop_before(task.request)
    _bound(task.memory)


class _Holdings:
    """The content of a task's groups on its way into files: one of panes, of windows, and of each kind of sessions."""

    def __init__(self, task: MergeTask, spec: StoreSpec) -> None:
        self._task = task
        self._spec = spec
        self._parts: dict[tuple[str, str | None], list[tuple[int, pa.Table]]] = {}
        """What is written, and for sessions the key of their kind: groups and their rows."""

    def add(self, number: int, group: HeldGroup, asked: Mapping[str, PartialTable]) -> None:
        """Take in what a group holds, of its sessions those that are asked for."""
        origin = self._spec.origin
        tables: dict[tuple[str, str | None], pa.Table] = {
            ("panes", None): store_table(group.store, origin),
            ("windows", None): direct_table(group.store, origin),
            **{(f"sessions-{kind}", kind): group.sessions_of(kind, sessions) for kind, sessions in asked.items()},
        }
        for what, table in tables.items():
            if table.num_rows:
                self._parts.setdefault(what, []).append((number, table))

    def write(self, done: Done) -> None:
        """Write a file for each kind that has rows, and note what is in it."""
        directory, request = located(self._task.directory), self._task.request
        for (ending, kind), parts in self._parts.items():
            table = pa.concat_tables([table for _, table in parts])
            groups = np.repeat(
                np.array([number for number, _ in parts], np.int64), [each.num_rows for _, each in parts]
            )
            primitives = self._spec.types if kind is None else self._spec.of_sessions(kind)
            contents = self._spec.contents(primitives, direct=ending == "windows")
            files = write_partials(directory, f"{request.write}.{ending}", table, groups, contents, request.cut)
            if kind is None:
                done.files.append(files.to_json())
            else:
                done.session_files.append((kind, files.to_json()))


def _bound(memory: int) -> None:
    """Forget the groups that were asked for least recently, as far as there is no memory for them."""
    left = memory
    for identity in reversed(list(_KEPT)):
        left -= _KEPT[identity].nbytes
        if left < 0 and identity != next(reversed(_KEPT)):
            del _KEPT[identity]
