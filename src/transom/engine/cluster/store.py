"""The windows and sessions of a key set whose panes are partly here and partly on the executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from transom.engine.cluster.files import PartialFiles, from_bytes, to_bytes, write_partials
from transom.engine.cluster.merges import GroupExecutors, Merge, StoreFiles, merged_alone
from transom.engine.cluster.messages import AskedSessions, Done, Feed, MergeRequest, SessionRows, StoreSpec
from transom.engine.cluster.parts import FileParts
from transom.engine.cluster.sessions import TieredSessions
from transom.engine.partials.contents import Contents, Origin
from transom.engine.partials.sessions import Ended
from transom.engine.partials.tables import PartialTable, direct_table, store_table
from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.model.window import WindowKind
from transom.windows.aggregates.base import Primitive, Slots, Types
from transom.windows.components import KeySet
from transom.windows.panes import Grid, Times
from transom.windows.partials import Partial
from transom.windows.reusable import PanedWindows, Span
from transom.windows.store import PaneStore

READ_AT_ONCE = 32 << 20
"""Bytes of files that the driver has in memory when it looks for keys and times: each table costs a look at all keys
that are known."""
FEW = 0.25
"""Of the known keys: with more, it is cheaper to return whole windows than to tell every task which keys are needed."""


class TieredStore:
    """A store of panes, and partials in files beside it: those are merged on the executors, window by window.

    Partials merge in any order, wherever they are. So the panes of one window may be here, in files, or both, and a key
    set can change its tier with any cut. Windows of files come as rows and are merged with those of the panes here.
    The times of all rows are here that sessions need; of those in files the states come when sessions have ended.
    Only what was merged for the last windows is kept of their keys (`tidy`).

    Args:
        grid: The panes.
        keys: Names and types of the key columns.
        primitives: What is kept for each key, with the types of the columns.
        kinds: The windows that are asked for; their edges are edges of the grid.
        origin: Where the partials come from.
        names: Lasting names of the primitives.
        scope: Distinguishes it from the stores of other streams and applications.
        executors: Where files are merged.
    """

    def __init__(
        self,
        grid: Grid,
        keys: pa.Schema,
        primitives: Mapping[Primitive, Types],
        kinds: Iterable[PanedWindows],
        origin: Origin,
        names: Mapping[Primitive, str],
        scope: str,
        executors: GroupExecutors,
    ) -> None:
        self.here = PaneStore(grid, keys, primitives, kinds)
        """The panes and windows that are here, and the ids of all keys."""
        self.sessions = TieredSessions(origin)
        self.origin = origin
        self.names = dict(names)
        self.executors = executors
        self._files = FileParts()
        self._scope = scope
        self._spec: bytes | None = None

    def arrange(self, primitives: Mapping[Primitive, Types], kinds: Iterable[PanedWindows]) -> None:
        """Change what is kept and asked for, as `PaneStore.arrange` does."""
        self.here.arrange(primitives, kinds)
        self._spec = None

    def arrange_sessions(self, key_set: KeySet) -> None:
        """Keep the sessions that the queries of its key set ask for, as `Sessions.arrange` does."""
        self.sessions.arrange(key_set, self.here.keys.schema, self.here.primitives)
        self._files.begun = MIN_TIME
        self._spec = None

    # ---- what is in files

    @property
    def parts(self) -> Sequence[StoreFiles]:
        """The parts that are in files."""
        return self._files.parts

    def attach(
        self, files: PartialFiles, condition: str, wanted: Iterable[str], sessions: SessionRows | None = None
    ) -> None:
        """Take in partials that are in files.

        Args:
            files: The partials.
            condition: Text of the condition that the rows satisfy which it takes.
            wanted: Lasting names of the primitives that it takes.
            sessions: What they are for sessions, whose times are here already; None for nothing.
        """
        feed = Feed(files.contents, condition, frozenset(wanted), sessions)
        panes = files.panes_of(condition) if feed.has_panes and self.here.kinds else ()
        starts = np.unique(self.here.grid.start(np.array(panes, np.int64)))
        self._files.attach(StoreFiles(feed, files, starts))

    def rename(self, names: Mapping[Primitive, str]) -> None:
        """Let the primitives have these lasting names."""
        if self.names != dict(names):
            self.names = dict(names)
            self._spec = None

    def take_over(self, old: TieredStore) -> None:
        """Take in all that a store holds whose panes were cut otherwise."""
        self._files.floor, self._files.ended = old._files.floor, old._files.ended
        self.here.add(*old.here.rows())
        self.here.add_windows(*old.here.direct_rows())
        for part in old.parts:
            self.attach(part.files, part.feed.condition, part.feed.wanted, part.feed.sessions)
        self.sessions = old.sessions

    def take_history(self, other: TieredStore, wanted: Sequence[Primitive]) -> None:
        """Take some primitives from the panes of another store, which has these keys or finer ones.

        Directly computed windows, which are not those of this store, stay where they are; so do sessions.
        """
        times, table, states = other.here.rows()
        self.here.add(times, table, {p: states[p] for p in wanted if p in states})
        for part in other.parts:
            names = {self.names[p] for p in wanted} & part.feed.wanted
            if names and part.feed.has_panes and not part.files.contents.direct:
                self.attach(part.files, part.feed.condition, names)

    @property
    def file_bytes(self) -> int:
        """Bytes of the files; those that are shared with other stores count in each."""
        return self._files.nbytes

    def recall(self) -> None:
        """Read all files, and keep their panes and sessions here.

        Raises:
            CheckpointError: A file cannot be read.
        """
        sessions = self.sessions.whole()
        if asked := self._asked(sessions):
            done = merged_alone(self.executors, self._merge_of((), MIN_TIME, sessions=asked))
            self.sessions.put(self.sessions.with_states(sessions, done, self.names))
        for part in self.parts if self.here.kinds else ():
            wanted = {p: name for p, name in self.names.items() if name in part.feed.wanted}
            for rows in self.read(part.files, part.feed.condition) if part.feed.has_panes else ():
                states = rows.states(wanted, self.here.primitives)
                if rows.direct:
                    self.here.add_windows(rows.panes(), rows.lengths(), rows.table, states)
                else:
                    self.here.add(rows.panes(), rows.table, states)
        self._files.put(())
        self.here.drop_before(self._files.floor, self._files.ended)

    def read(self, files: PartialFiles, condition: str) -> Iterator[PartialTable]:
        """Yield the rows of files that satisfy a condition, given by its text, in several tables.

        Raises:
            CheckpointError: A file cannot be read.
        """
        read: list[pa.Table] = []
        for number, piece in enumerate(files.slices, 1):
            read.append(piece.read(self.executors.directory))
            if number == len(files.slices) or sum(table.nbytes for table in read) > READ_AT_ONCE:
                yield PartialTable(pa.concat_tables(read), files.contents).of_condition(condition)
                read = []

    def touched(self, rows: PartialTable) -> list[tuple[Micros, Micros, Slots]]:
        """Return the panes and windows of some rows with the ids of their keys.

        Returns:
            Start and end of each directly computed window; of a pane the start twice.
        """
        starts = rows.panes()
        if not len(starts):
            return []
        edges = [starts, starts + rows.lengths()] if rows.direct else [self.here.grid.start(starts)] * 2
        return [(start, end, part.ids) for (start, end), part in self.here.split(edges, rows.table, {})]

    def know_keys(self) -> None:
        """Give ids to all keys in files.

        Raises:
            CheckpointError: A file cannot be read.
        """
        for part in self.parts:
            for rows in self.read(part.files, part.feed.condition) if part.feed.has_panes else ():
                self.touched(rows)

    @property
    def holds_states(self) -> bool:
        """Whether anything is here that `spill` would write."""
        return bool(len(self.here)) or self.sessions.has_states

    def spill(self, cut: int, file: str) -> None:
        """Write all panes and states of sessions that are here into files.

        Args:
            cut: The last cut.
            file: Name of the files, which no other has; an ending is added.

        Raises:
            CheckpointError: They cannot be written.
        """
        place, groups = self.executors.directory, self.executors.groups
        for ending, direct, table in (
            ("panes", False, store_table(self.here, self.origin)),
            ("windows", True, direct_table(self.here, self.origin)),
        ):
            if table.num_rows:
                buckets = self.here.ids_of(table, table.num_rows) % groups
                self._attach_own(write_partials(place, f"{file}.{ending}", table, buckets, self._own(direct), cut))
        self.here.clear()
        for files, rows in self.sessions.spill(place, file, cut, groups, self.names):
            self._attach_own(files, rows)

    def begin_compaction(self, cut: int, file: str) -> Merge:
        """Return what makes few files of all, without what nobody needs; until `finish_compaction` all rests.

        Args:
            cut: The last cut.
            file: Name of the files, which no other has; an ending is added.
        """
        return self._merge_of((), MIN_TIME, write=file, cut=cut, sessions=self._asked(self.sessions.whole()))

    def finish_compaction(self, merge: Merge, done: Sequence[Done]) -> None:
        """Use the files that were made in the place of all."""
        cut = merge.request.cut
        found: dict[bool, list[PartialFiles]] = {}
        for files in (PartialFiles.from_json(value) for one in done for value in one.files):
            found.setdefault(files.contents.direct, []).append(files)
        self._files.put(())
        for direct, several in found.items():
            panes = sorted({start for files in several for start in files.panes_of(self.origin.condition)})
            windows = sorted({span for files in several for span in files.windows_of(self.origin.condition)})
            slices = tuple(piece for files in several for piece in files.slices)
            self._attach_own(PartialFiles(self._own(direct), cut, slices, (tuple(panes),), (tuple(windows),)))
        for files, rows in self.sessions.written(done, cut, self.names):
            self._attach_own(files, rows)

    def in_files(self) -> Merge:
        """Return what the executors have to read of it, for groups that move."""
        return self._merge_of((), MIN_TIME)

    def _own(self, direct: bool) -> Contents:
        origin = Origin(self.origin.branch, self.origin.keys, only=self.origin.only)
        names = tuple(self.names[primitive] for primitive in self.here.primitives)
        return Contents(origin, names, (self.origin.condition,), frozenset([self.origin.name]), direct)

    def _attach_own(self, files: PartialFiles, sessions: SessionRows | None = None) -> None:
        self.attach(files, self.origin.condition, files.contents.primitives, sessions)

    # ---- the store

    @property
    def starts(self) -> Sequence[Micros]:
        """Starts of the panes that hold rows, here or in files, ascending."""
        return self._files.starts_with(self.here.start_times())[0] if self.parts else self.here.starts

    def start_times(self) -> Times:
        """Return `starts` as an array."""
        return self._files.starts_with(self.here.start_times())[1] if self.parts else self.here.start_times()

    def due(self, kind: WindowKind, after: Micros, until: Micros) -> list[Span]:
        """Return the windows of a kind that hold rows and end in (after, until], ordered by end."""
        spans = self.here.due(kind, after, until)
        if not self.parts:
            return spans
        return sorted({*spans, *self._files.due(kind, after, until)}, key=lambda span: (span[1], span[0]))

    def last_end(self, kinds: Sequence[PanedWindows]) -> Micros:
        """Return the end of the last window of some kinds that holds rows; MIN_TIME if none does."""
        return max(self.here.last_end(kinds), self._files.last_end(kinds))

    def consolidate(
        self, spans: Iterable[Span], until: Micros = MAX_TIME, only: Mapping[Span, Slots] | None = None
    ) -> dict[Span, Partial]:
        """Return the merged rows of some windows, as `PaneStore.consolidate` does; one Spark job if files hold some.

        Args:
            spans: The windows.
            until: The watermark.
            only: The keys that are needed of some windows; rows of others may be left where they are.
        """
        wanted = set(spans)
        merge = self.ask(wanted, {}, until, only)
        return self.close(wanted, {}, until, merged_alone(self.executors, merge) if merge else ())[0]

    def ask(
        self, spans: Iterable[Span], ended: Ended, until: Micros, only: Mapping[Span, Slots] | None = None
    ) -> Merge | None:
        """Return what `close` needs of the executors; None for nothing.

        Args:
            spans: The windows.
            ended: Sessions that were taken out.
            until: The watermark.
            only: The keys that are needed of some windows; rows of others may be left where they are.
        """
        asked = tuple(sorted(span for span in set(spans) if self._files.hold(span)))
        sessions = self._asked(ended)
        if not asked and not sessions:
            return None
        few = {span: ids for span, ids in (only or {}).items() if len(ids) <= FEW * len(self.here.keys)}
        keys = tuple((span, to_bytes(self.here.key_table(few[span]))) for span in asked if span in few)
        return self._merge_of(asked, until, only=keys, sessions=sessions)

    def close(
        self, spans: Iterable[Span], ended: Ended, until: Micros, done: Sequence[Done]
    ) -> tuple[dict[Span, Partial], Ended]:
        """Return the merged rows of some windows, and sessions with all their rows.

        Args:
            spans: The windows.
            ended: Sessions that were taken out.
            until: The watermark.
            done: What came of `ask`.
        """
        merged = self.here.consolidate(set(spans), until)
        self._add_windows(merged, done)
        return merged, self.sessions.with_states(ended, done, self.names)

    def _asked(self, sessions: Ended) -> tuple[AskedSessions, ...]:
        return self.sessions.asked(sessions, (part.feed for part in self.parts))

    def _add_windows(self, merged: dict[Span, Partial], done: Sequence[Done]) -> None:
        """Merge the windows that came from files into those that are here."""
        tables = [from_bytes(one.windows) for one in done if one.windows]
        work = self.here.work
        work.inputs += sum(table.num_rows for table in tables)
        if tables:
            whole = PartialTable(pa.concat_tables(tables), self._own(direct=True))
            edges = [whole.panes(), whole.panes() + whole.lengths()]
            states = whole.states(self.names, self.here.primitives)
            for (start, end), part in self.here.split(edges, whole.table, states):
                here = merged[start, end]
                merged[start, end] = self.here.merge([here, part]) if len(here) else part
                work.windows += not len(here)

    def _merge_of(
        self,
        spans: tuple[Span, ...],
        until: Micros,
        write: str = "",
        cut: int = 0,
        only: tuple[tuple[Span, bytes], ...] = (),
        sessions: tuple[AskedSessions, ...] = (),
    ) -> Merge:
        if self._spec is None:
            kept = tuple((p, types, self.names[p]) for p, types in self.here.primitives.items())
            asked = tuple((kind, tuple(store.primitives)) for kind, store in self.sessions.stores.items())
            spec = StoreSpec(
                self._scope, self.origin, self.here.grid, self.here.keys.schema, kept, self.here.kinds, asked
            )
            self._spec = spec.pickled()
        files = self._files
        request = MergeRequest(self._spec, until, files.floor, files.ended, files.begun, write, cut, only, sessions)
        return Merge(request, self.origin.name, tuple(self.parts), spans)

    def drop_before(self, moment: Micros, ended: Micros = MIN_TIME, begun: Micros = MAX_TIME) -> None:
        """Forget what no window and no session needs; files go with the next snapshot.

        Args:
            moment: No window that starts earlier will be asked for.
            ended: No directly computed window that ends by then will be asked for.
            begun: No session that begins earlier will be asked for (`Sessions.begun`).
        """
        self.here.drop_before(moment, ended)
        self._files.drop_before(moment, ended, begun)

    @property
    def nbytes(self) -> int:
        """Bytes that panes, windows, sessions and their keys take here; those of sketches are estimated."""
        return self.here.nbytes + self.sessions.nbytes
