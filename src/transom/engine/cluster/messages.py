"""Requests of stores to key groups, and answers: values that go from the driver to the workers and back."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from transom.engine.cluster.files import Slice
from transom.engine.partials.contents import Contents, Origin
from transom.model.expression import Expression
from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.model.window import SessionSpec
from transom.windows.aggregates.base import Primitive, Types
from transom.windows.panes import Grid
from transom.windows.reusable import PanedWindows, Span

MEMORY = 256 << 20
"""Bytes of merged panes that a worker keeps; the groups asked for least recently go first."""


@dataclass(frozen=True)
class StoreSpec:
    """The description of a store for those who merge it."""

    scope: str
    """Distinguishes it from all other stores of all applications on these executors."""
    origin: Origin
    grid: Grid
    keys: pa.Schema
    primitives: tuple[tuple[Primitive, Types, str], ...]
    """With their lasting names."""
    kinds: tuple[PanedWindows, ...]
    """The windows that are made of panes."""
    sessions: tuple[tuple[SessionSpec, tuple[Primitive, ...]], ...] = ()
    """The kinds of sessions, with what is kept for each."""

    @property
    def names(self) -> dict[Primitive, str]:
        """Lasting names of the primitives."""
        return {primitive: name for primitive, _, name in self.primitives}

    @property
    def types(self) -> dict[Primitive, Types]:
        """Types of the primitives' columns."""
        return {primitive: types for primitive, types, _ in self.primitives}

    def of_sessions(self, kind: str) -> tuple[Primitive, ...]:
        """Return what is kept for a kind of sessions, in the order of a table's columns."""
        return next(primitives for spec, primitives in self.sessions if spec.key == kind)

    def contents(self, primitives: Iterable[Primitive], direct: bool = False) -> Contents:
        """Return what tables of the store hold, given the primitives in the order of their columns."""
        names = self.names
        origin, made_for = replace(self.origin, condition=""), frozenset([self.origin.name])
        return Contents(origin, tuple(names[p] for p in primitives), (self.origin.condition,), made_for, direct)

    def pickled(self) -> bytes:
        """Return it for the workers; PySpark's Columns, which they do not need, stay here."""
        from pyspark.cloudpickle import CloudPickler

        class Pickler(CloudPickler):
            def reducer_override(self, obj: Any) -> Any:
                if isinstance(obj, Expression) and obj.column is not None:
                    return Expression, (obj.text,)
                return super().reducer_override(obj)  # type: ignore[no-untyped-call]

        sink = io.BytesIO()
        Pickler(sink).dump(self)  # type: ignore[no-untyped-call]
        return sink.getvalue()


@dataclass(frozen=True)
class SessionRows:
    """The part of some partials that sessions need."""

    closed: Micros
    """The watermark that was in force for them: rows whose own session had ended by then count for nothing."""
    last: Micros
    """Time of the last row."""
    kind: str | None = None
    """The key of their kind of sessions, if they are intervals of one kind and no panes; None if they are panes."""

    def to_json(self) -> list[int | str | None]:
        """Return it as JSON."""
        return [self.closed, self.last, self.kind]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> SessionRows:
        """Return what `to_json` wrote; in older checkpoints a kind is a number."""
        closed, last, kind = value
        return cls(closed, last, None if kind is None else str(kind))


@dataclass(frozen=True)
class Feed:
    """The part of some partials that a store takes."""

    contents: Contents
    condition: str
    """The rows that it takes."""
    wanted: frozenset[str]
    """Lasting names of the primitives that it takes."""
    sessions: SessionRows | None = None
    """The sessions that it takes part in; None for none."""

    @property
    def has_panes(self) -> bool:
        """Whether they are panes or windows."""
        return self.sessions is None or self.sessions.kind is None

    def is_for(self, kind: str) -> bool:
        """Tell whether a kind of sessions, given by its key, takes them."""
        return self.sessions is not None and self.sessions.kind in (None, kind)


@dataclass(frozen=True)
class AskedSessions:
    """Sessions of one kind whose rows are wanted."""

    kind: str
    """Its key."""
    table: bytes
    """Their keys and TIMES as a table of partials, an Arrow IPC stream."""
    starts: tuple[Micros, Micros]
    """When the first and the last of them begin."""


@dataclass(frozen=True)
class GroupWork:
    """The work on one key group."""

    group: int
    home: str
    """Where its panes are kept: another home is another memory of the same group."""
    slices: tuple[tuple[int, Slice], ...]
    """Number of the feed, and where the rows are."""
    spans: tuple[Span, ...] = ()
    """Windows to return."""
    starts: tuple[Micros, Micros] = (MIN_TIME, MAX_TIME)
    """Of the sessions that are asked for, those that begin in [first, second) are wanted of it."""

    @property
    def rows(self) -> int:
        """Rows in the slices."""
        return sum(part.rows for _, part in self.slices)


@dataclass(frozen=True)
class MergeRequest:
    """The work to be done on every group of a store."""

    spec: bytes
    """A pickled `StoreSpec`, which says how the store merges."""
    until: Micros = MIN_TIME
    """The watermark: nothing is kept of windows that end later."""
    floor: Micros = MIN_TIME
    """Panes that start earlier are in no window any more."""
    ended: Micros = MIN_TIME
    """Directly computed windows that end by then are not asked for any more."""
    begun: Micros = MIN_TIME
    """No session is or will be asked for that begins earlier."""
    write: str = ""
    """Name of files to write the groups' panes, windows and sessions into, with different endings; empty to write
    nothing."""
    cut: int = 0
    """The cut that the file is said to be of."""
    only: tuple[tuple[Span, bytes], ...] = ()
    """Keys that are needed of some windows, as Arrow IPC streams; of the others all are."""
    sessions: tuple[AskedSessions, ...] = ()
    """Sessions to return, or to write."""


@dataclass(frozen=True)
class MergeTask:
    """Work on several groups of one store for one place."""

    request: MergeRequest
    directory: str
    feeds: tuple[Feed, ...]
    works: tuple[GroupWork, ...]
    memory: int = MEMORY
    """Bytes of merged panes that the process keeps."""


@dataclass
class Done:
    """The result of a task. Rows are Arrow IPC streams."""

    windows: bytes = b""
    """The merged windows in the form of directly computed ones; empty if there is no row."""
    sessions: list[tuple[str, bytes]] = field(default_factory=list)
    """For kinds of sessions, given by their keys, states of those that hold rows, by SESSION."""
    files: list[dict[str, Any]] = field(default_factory=list)
    """The panes and windows that were written, as JSON."""
    session_files: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """The sessions that were written, as JSON, by the key of their kind."""
    read: int = 0
    """Rows that had to be read from files."""
    reading: Micros = 0
    """Time that this took."""
    rows: dict[int, int] = field(default_factory=dict)
    """Rows of each group that were read, and rows of its windows: what it costs."""
