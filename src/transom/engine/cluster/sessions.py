"""The open sessions of a key set, of which the driver knows all times, while states may be in files, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from transom.engine.cluster.files import PartialFiles, from_bytes, to_bytes, write_partials
from transom.engine.cluster.group import SESSION
from transom.engine.cluster.messages import AskedSessions, Done, Feed, SessionRows
from transom.engine.partials.contents import Contents, Origin
from transom.engine.partials.sessions import Ended, Sessions, sessions_table
from transom.engine.partials.tables import PANE, PartialTable, partial_table
from transom.model.time import MIN_TIME
from transom.model.window import SessionSpec
from transom.storage.places import Place
from transom.windows.aggregates.base import Primitive, Types
from transom.windows.intervals import TIMES


class TieredSessions(Sessions):
    """Sessions that take times of rows in files.

    What is late, which intervals belong together and when sessions end is decided here from the times. States of rows
    in files are fetched for the sessions that have ended: the rows of a key that lie in one are its rows, as sessions
    of a key never overlap (`SessionPieces`).

    Args:
        origin: Where the partials come from.
    """

    def __init__(self, origin: Origin) -> None:
        super().__init__()
        self._origin = origin

    def asked(self, sessions: Ended, feeds: Iterable[Feed]) -> tuple[AskedSessions, ...]:
        """Return what the executors have to be asked for some sessions: those of kinds that may have rows in files.

        Args:
            sessions: The sessions by kind.
            feeds: What is taken of files.
        """
        known = tuple(feeds)
        found = []
        for spec, some in sessions.items():
            if not len(some):
                continue
            starts = int(some.first.min()), int(some.first.max())
            if any(f.is_for(spec.key) and f.sessions is not None and f.sessions.last >= starts[0] for f in known):
                store = self.stores[spec]
                kept: dict[Primitive, Types] = {TIMES: store.primitives[TIMES]}
                keys = store.key_table(some.ids)
                table = partial_table(kept, self._origin, {PANE: some.first}, keys, some.states)
                found.append(AskedSessions(spec.key, to_bytes(table), starts))
        return tuple(found)

    def with_states(self, sessions: Ended, done: Sequence[Done], names: Mapping[Primitive, str]) -> Ended:
        """Return sessions with the states of their rows in files.

        Args:
            sessions: What was asked for (`asked`).
            done: What came back.
            names: Lasting names of the primitives.
        """
        found = dict(sessions)
        for spec, some in sessions.items():
            tables = [from_bytes(data) for one in done for kind, data in one.sessions if kind == spec.key]
            if tables:
                kept = self.stores[spec].primitives
                wanted = {p: names[p] for p in kept if p != TIMES}
                rows = PartialTable(pa.concat_tables(tables), Contents(self._origin, tuple(wanted.values())))
                found[spec] = some.merged(rows.table.column(SESSION).to_numpy(), rows.states(wanted, kept), kept)
        return found

    def whole(self) -> Ended:
        """Return all open sessions; they stay."""
        return {spec: store.whole() for spec, store in self.stores.items()}

    def put(self, sessions: Ended) -> None:
        """Hold these sessions instead of what is there."""
        for spec, some in sessions.items():
            self.stores[spec].put(some)

    @property
    def has_states(self) -> bool:
        """Whether more of some sessions is here than their times."""
        return any(store.has_states for store in self.stores.values())

    def spill(
        self, directory: Place, file: str, cut: int, groups: int, names: Mapping[Primitive, str]
    ) -> Iterator[tuple[PartialFiles, SessionRows]]:
        """Write the states that are here into files, hold nothing but times any more, and yield what was written.

        Args:
            directory: Where to.
            file: Name of the files, which no other has; an ending is added.
            cut: The last cut.
            groups: Number of key groups.
            names: Lasting names of the primitives.

        Raises:
            CheckpointError: They cannot be written.
        """
        for spec, store in self.stores.items():
            if store.has_states:
                whole, table = store.whole(), sessions_table(store, self._origin)
                name, contents = f"{file}.sessions-{spec.key}", self._contents(spec, names)
                files = write_partials(directory, name, table, whole.ids % groups, contents, cut)
                yield files, SessionRows(MIN_TIME, int(whole.last.max()), spec.key)
                store.forget_states()

    def written(
        self, done: Sequence[Done], cut: int, names: Mapping[Primitive, str]
    ) -> Iterator[tuple[PartialFiles, SessionRows]]:
        """Yield the open sessions that the executors have written, one for each kind (`Done.session_files`)."""
        for spec, store in self.stores.items():
            several = [
                PartialFiles.from_json(value) for one in done for kind, value in one.session_files if kind == spec.key
            ]
            if several:
                slices = tuple(piece for files in several for piece in files.slices)
                panes = tuple(sorted({start for files in several for start in files.panes[0]}))
                files = PartialFiles(self._contents(spec, names), cut, slices, (panes,), ((),))
                yield files, SessionRows(MIN_TIME, int(store.whole().last.max()), spec.key)

    def _contents(self, spec: SessionSpec, names: Mapping[Primitive, str]) -> Contents:
        """Return what files of one kind of sessions hold."""
        primitives = tuple(names[p] for p in self.stores[spec].primitives)
        made_for = frozenset([self._origin.name])
        return Contents(replace(self._origin, condition=""), primitives, (self._origin.condition,), made_for)
