"""What leaves a stream for other sites: partials of committed cuts, gathered by flow until they are a parcel's.

A flow is one query of the stream, with the keys and the panes that its destination needs. Its partials are in a store
of panes, whose windows are made elsewhere. What is here is decided by the log alone, so that a restart has the same
cut ranges with the same partials: each is fixed by a record before its first byte leaves.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from transom.engine.partials.contents import Contents, taken_from
from transom.engine.partials.tables import PartialTable, store_table
from transom.engine.spark.cutstats import CutStats
from transom.engine.state.stores import StoreShape
from transom.errors import CheckpointCorruptError
from transom.model.lines import CORRUPT_REMEDY
from transom.model.time import Micros
from transom.widearea.ticks import Ticks
from transom.windows.aggregates.base import Primitive
from transom.windows.components import ROWS
from transom.windows.store import PaneStore


@dataclass(frozen=True)
class Leaving:
    """How the partials of a stream leave."""

    flows: tuple[str, ...]
    """The flows; the query of the stream that makes the partials of one has its name with an ending (`query_of`)."""
    ticks: Ticks
    """When cuts begin."""
    most_bytes: int = 1 << 30
    """So much may wait to be sent; beyond that, rows wait in the source."""


@dataclass(frozen=True)
class Elsewhere:
    """The window that waits at the destination of a flow for what leaves here, as far as it was told."""

    end: Micros
    """The watermark that completes it, event time."""
    limit: Micros
    """Time from the arrival of that watermark until the result should be there; 0 where nobody said."""
    cost: Micros
    """What remains after the partials have left: their way, merging, and results."""


def query_of(flow: str) -> str:
    """Return the name of the query that makes the partials of a flow, at their source."""
    return f"{flow}.partials"


@dataclass(frozen=True)
class CutRange:
    """The cuts (after, upto] of a flow, which travel together, and what they bring."""

    after: int
    upto: int
    tick: int
    """That on which they left."""
    stats: CutStats
    """Of their rows; the newest event times are those of all cuts up to the last one."""
    arrived: Micros | None
    """When the newest row arrived in the source, as far as this run knows; wall time."""
    table: pa.Table
    """Partials."""

    def held(self) -> dict[str, Any]:
        """Return all but the table as JSON."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**values, "stats": self.stats.to_json(), "table": None}

    @cached_property
    def nbytes(self) -> int:
        """Of its partials."""
        return int(self.table.get_total_buffer_size())

    @classmethod
    def of(cls, held: Mapping[str, Any], table: pa.Table) -> CutRange:
        """Return what `held` wrote, with its table."""
        return cls(**{**held, "stats": CutStats.from_json(held["stats"]), "table": table})


@dataclass
class FlowSender:
    """What is to leave of a flow, and what has left and is not known to have arrived."""

    flow: str
    shape: StoreShape
    """That of the query which makes its partials."""
    left: int = 0
    """The last cut that belongs to a range."""
    committed: int = 0
    """The last cut that is committed."""
    ranges: dict[int, CutRange] = field(default_factory=dict)
    """What has left, or is about to, and is not known to have arrived, by the last cut; the oldest first."""
    nbytes: int = field(default=0, init=False)
    """Of what is not known to have arrived."""

    def __post_init__(self) -> None:
        key_set, self.origin, keys, primitives = self.shape
        kept = {ROWS: {"count": pa.int64()}, **primitives}
        self._names = {primitive: primitive.key for primitive in kept}
        self._store = PaneStore(key_set.grid, keys, kept)
        self._stats = CutStats()
        self._arrived: Micros | None = None
        self._held: list[Contents] = []
        """What the partials of the last cut hold, and what the flow takes of them."""
        self._places: list[tuple[int, dict[Primitive, str]]] = []

    def _weigh(self) -> None:
        """Note the bytes again: they are asked for at each turn of the loop, and change with a cut or a parcel."""
        self.nbytes = self._store.nbytes + sum(each.nbytes for each in self.ranges.values())

    @property
    def waits(self) -> bool:
        """Whether anything is not known to have arrived."""
        return self.left < self.committed or bool(self.ranges)

    def take(self, cut: int, partials: Sequence[PartialTable], stats: CutStats, arrived: Micros | None) -> None:
        """Take what it needs of the partials of a committed cut.

        Args:
            cut: Its number.
            partials: All partials of the cut; none if the query of the flow failed.
            stats: Counts of its rows.
            arrived: When the newest of them arrived.
        """
        if self._add(self._store, partials):
            self._weigh()
        self.committed = cut
        self._stats += stats
        self._arrived = max((at for at in (self._arrived, arrived) if at is not None), default=None)

    def merged(self, tables: Sequence[PartialTable]) -> pa.Table:
        """Return partials of the flow from several sites, each of other rows, as one table.

        Raises:
            CheckpointCorruptError: One of them has other states.
            JobChangedError: One of them has other types.
        """
        store = PaneStore(self._store.grid, self._store.keys.schema, self._store.primitives)
        for table in tables:
            self._add(store, [table])
        return store_table(store, self.origin)

    def _add(self, store: PaneStore, partials: Sequence[PartialTable]) -> int:
        """Merge what the flow needs of partials into a store; return of how many rows."""
        rows = 0
        for table, names in self._taken(partials):
            mine = table.of_condition(self.origin.condition)
            if mine.table.num_rows:  # many flows of a stream have no rows at a site
                store.add(mine.panes(), mine.table, mine.states(names, store.primitives))
                rows += mine.table.num_rows
        return rows

    def _taken(self, partials: Sequence[PartialTable]) -> list[tuple[PartialTable, dict[Primitive, str]]]:
        """Return the tables that the flow takes, each with what of it: what it was of others that hold the same."""
        held = [table.contents for table in partials]
        if len(held) != len(self._held) or not all(map(operator.is_, held, self._held)):
            found = taken_from(self.origin, self._names, partials)
            self._held, self._places = held, [(partials.index(table), names) for table, names in found]
        return [(partials[place], names) for place, names in self._places]

    def fix(self, upto: int, tick: int) -> CutRange:
        """Return the cuts after the last range as a range; the log has a record of it.

        Args:
            upto: The last committed cut.
            tick: That on which they leave.

        Raises:
            CheckpointCorruptError: The log lacks a cut.
        """
        if upto != self.committed:
            raise CheckpointCorruptError(
                f"The log lacks a record: of the flow {self.flow!r} the cuts up to {upto} left, and {self.committed} "
                "are committed.",
                CORRUPT_REMEDY,
            )
        table = store_table(self._store, self.origin) if len(self._store) else self._nothing
        made = CutRange(self.left, upto, tick, self._stats, self._arrived, table)
        self._store.clear()
        self._store.compact()
        self.ranges[upto], self.left = made, upto
        self._weigh()
        self._stats, self._arrived = replace(CutStats(), newest=self._stats.newest), None
        return made

    @property
    def newest(self) -> tuple[Micros | None, ...]:
        """The largest event time of each source partition, over all committed cuts."""
        return self._stats.newest

    @cached_property
    def _nothing(self) -> pa.Table:
        """Partials of no rows."""
        return store_table(PaneStore(self._store.grid, self._store.keys.schema, self._store.primitives), self.origin)

    def arrived_up_to(self, cut: int) -> bool:
        """Forget the ranges up to a cut, which have arrived; return whether there were any."""
        known = [upto for upto in self.ranges if upto <= cut]
        for upto in known:
            del self.ranges[upto]
        self._weigh()
        return bool(known)

    def _as_now(self, table: pa.Table) -> pa.Table:
        """Return partials of an earlier run with the types that columns have now: destinations take no others.

        Raises:
            JobChangedError: Values of a former type are not exactly values of now.
        """
        held = {field.name: field.type for field in table.schema}
        same = held == {field.name: field.type for field in self._nothing.schema}
        return table if same else self.merged([PartialTable.of(table)])

    # ---- snapshot

    def held(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """Return what a snapshot must hold, as JSON and tables."""
        state = {
            "left": self.left,
            "committed": self.committed,
            "stats": self._stats.to_json(),
            "arrived": self._arrived,
            "ranges": [each.held() for each in self.ranges.values()],
        }
        tables = {f"{upto}": each.table for upto, each in self.ranges.items()}
        return state, {**tables, "gathered": store_table(self._store, self.origin)}

    def restore(self, state: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Take in what `held` returned.

        Raises:
            CheckpointCorruptError: States are missing.
        """
        self.left, self.committed = state["left"], state["committed"]
        self._stats, self._arrived = CutStats.from_json(state["stats"]), state["arrived"]
        ranges = [CutRange.of(each, self._as_now(tables[f"{each['upto']}"])) for each in state["ranges"]]
        self.ranges = {each.upto: each for each in ranges}
        table = PartialTable.of(tables["gathered"])
        table.contents.require(self.origin, self._names.values())
        self._store.add(table.panes(), table.table, table.states(self._names, self._store.primitives))
        self._weigh()
