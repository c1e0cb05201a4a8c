"""Partials as self-describing Arrow tables: what a job returns, what the checkpoint keeps, what a store is fed with."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.engine.partials.contents import Contents, Origin, TableNote
from transom.errors import JobChangedError
from transom.windows.aggregates.base import Primitive, State, Types
from transom.windows.aggregates.widening import REMEDY, widened
from transom.windows.keys import as_key
from transom.windows.panes import Times
from transom.windows.store import PaneStore

PANE = "_pane"
"""Column with the start of the pane, int64 microseconds."""
TAG = "_condition_number"
"""Column with the index of the condition that the rows of a partial satisfy, when the table has several."""
LENGTH = "_length"
"""Column with the length of the window, int64 microseconds, when PANE is the start of a window instead of a pane."""
_META = b"transom"
_NEIGHBOURS = 64
"""Pieces with fewer rows than this in the mean cost more than copying them."""
_TAKEN = 1 << 30
"""Bytes below which Arrow takes rows of a table; it makes one piece of its texts then, which has 2 GB at most."""
_GROUPED = 64 << 20
"""Bytes of a table below which its rows are put in the order of their conditions once, for all of these."""
_SHARED = 1 << 16
"""Rows of a table up to which states are decoded once for all conditions, whoever asks for which."""
Places: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
_STATE = re.compile(r"(_s\d+_)(.*)", re.DOTALL)
_LONG = 1 << 16
"""Notes of more bytes are read again for each table."""


def state_name(index: int, column: str) -> str:
    """Return the column that holds a state column of the primitive with this index."""
    return f"_s{index}_{column}"


def describe_table(table: pa.Table, note: TableNote) -> pa.Table:
    """Return the table with a note of what its columns are."""
    return table.replace_schema_metadata({_META: _described(note)})


@lru_cache(maxsize=256)
def _described(note: TableNote) -> bytes:
    return json.dumps(note.to_json()).encode()


@dataclass(frozen=True, eq=False)
class PartialTable:
    """A table of partials with what it holds."""

    table: pa.Table
    contents: Contents
    read: dict[str, State] = field(default_factory=dict, init=False)
    """States that were decoded already, as they are in the table, by lasting names; nobody changes them."""
    within: tuple[PartialTable, slice] | None = None
    """The table of which it is some rows, and which, where states are decoded for all of these at once."""
    _decoded: dict[str, tuple[Types, State]] = field(default_factory=dict, init=False)
    """By lasting name, what was decoded for tables of some rows, and of which types; nobody changes it."""

    @classmethod
    def of(cls, table: pa.Table) -> PartialTable:
        """Read the note of `describe_table`."""
        note, direct = (table.schema.metadata or {})[_META], LENGTH in table.schema.names
        return cls(table, _noted(note, direct) if len(note) <= _LONG else Contents.of(json.loads(note), direct))

    @property
    def direct(self) -> bool:
        """Whether it holds windows instead of panes."""
        return self.contents.direct

    def of_condition(self, condition: str) -> PartialTable:
        """Return the rows of one condition."""
        if TAG not in self.table.column_names:
            return self
        order, edges = self._by_condition
        number = self.contents.conditions.index(condition)
        first, last = edges[number : number + 2].tolist()
        if self._grouped is None:
            rows, within = rows_at(self._untagged, order[first:last]), None
        else:
            rows = self._grouped.table.slice(first, last - first)
            within = (self._grouped, slice(first, last)) if self.table.num_rows <= _SHARED else None
        return PartialTable(rows, replace(self.contents, conditions=(condition,)), within=within)

    @cached_property
    def _by_condition(self) -> tuple[Places, Places]:
        """Places of its rows, those of one condition together, and where those of each condition begin and end."""
        tags = self.table.column(TAG).to_numpy()
        order: Places = np.argsort(tags, kind="stable")
        return order, np.searchsorted(tags[order], np.arange(len(self.contents.conditions) + 1))

    @cached_property
    def _grouped(self) -> PartialTable | None:
        """Its rows in the order of `_by_condition`; None where so much is not held twice."""
        if self._untagged.get_total_buffer_size() >= _GROUPED:
            return None
        order, _ = self._by_condition
        ordered = bool((order[1:] > order[:-1]).all())
        return PartialTable(self._untagged if ordered else self._untagged.take(pa.array(order)), self.contents)

    @cached_property
    def _untagged(self) -> pa.Table:
        return self.table.drop_columns([TAG])

    def states(self, wanted: Mapping[Primitive, str], types: Mapping[Primitive, Types]) -> dict[Primitive, State]:
        """Return the states of those wanted primitives that the table has.

        Args:
            wanted: Lasting names of the primitives.
            types: The types that their columns have now; those of a table of another run can be others.

        Raises:
            JobChangedError: What the table holds is not exactly of these types.
        """
        found: dict[Primitive, State] = {}
        for primitive, name in wanted.items():
            if name in self.contents.primitives:
                found[primitive] = self._state(primitive, name, types.get(primitive, {}))
        return found

    def _state(self, primitive: Primitive, name: str, types: Types) -> State:
        if self.within is not None and primitive.small:
            whole, rows = self.within
            known = whole._decoded.get(name)
            if known is None or known[0] != types:
                there = whole.columns_of(name)
                if all(array.type == types.get(column, array.type) for column, array in there.items()):
                    known = whole._decoded[name] = (types, primitive.decode(there))
            if known is not None and known[0] == types:
                return {column: array[rows].copy() for column, array in known[1].items()}
        there = self.columns_of(name)
        now = _as_now(there, types, name)
        same = name in self.read and all(now[column] is array for column, array in there.items())
        return self.read[name] if same else primitive.decode(now)

    def columns_of(self, name: str) -> dict[str, pa.Array]:
        """Return the columns of the states of a primitive that it has, given its lasting name."""
        prefix = state_name(self.contents.primitives.index(name), "")
        return {part: _array(self.table.column(place)) for part, place in self._places.get(prefix, {}).items()}

    @cached_property
    def _places(self) -> dict[str, dict[str, int]]:
        """The places of the columns of states, by what their names begin with, and by what follows."""
        return _places_of(tuple(self.table.schema.names))

    def panes(self) -> Times:
        """Return the start of each row's pane."""
        panes: Times = np.asarray(self.table.column(PANE).to_numpy(), dtype=np.int64)
        return panes

    def lengths(self) -> Times:
        """Return the length of each row's window."""
        lengths: Times = np.asarray(self.table.column(LENGTH).to_numpy(), dtype=np.int64)
        return lengths


@lru_cache(maxsize=256)
def _noted(note: bytes, direct: bool) -> Contents:
    """Return what tables with this note hold: all of a flow have the same."""
    return Contents.of(json.loads(note), direct)


@lru_cache(maxsize=256)
def _places_of(names: tuple[str, ...]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for place, name in enumerate(names):
        if state := _STATE.fullmatch(name):
            found.setdefault(state[1], {})[state[2]] = place
    return found


def store_table(store: PaneStore, origin: Origin) -> pa.Table:
    """Return the panes that a store holds as one table of partials."""
    times, keys, states = store.rows()
    return partial_table(store.primitives, origin, {PANE: times}, keys, states)


def direct_table(store: PaneStore, origin: Origin) -> pa.Table:
    """Return the directly computed windows that a store holds as one table of partials."""
    starts, lengths, keys, states = store.direct_rows()
    return partial_table(store.primitives, origin, {PANE: starts, LENGTH: lengths}, keys, states)


def partial_table(
    primitives: Mapping[Primitive, Types],
    origin: Origin,
    times: Mapping[str, Times],
    keys: pa.Table,
    states: Mapping[Primitive, State],
    absent: Sequence[Primitive] = (),
) -> pa.Table:
    """Return partials as a table that says what it holds.

    Args:
        primitives: What the columns are of.
        origin: Where the partials come from.
        times: PANE, and LENGTH if they are windows, of shape (rows,).
        keys: Key columns of n rows.
        states: Columns of shape (rows,); a primitive that is missing is neutral.
        absent: What there are no columns of.
    """
    columns = {name: pa.array(moments, pa.int64()) for name, moments in times.items()}
    rows = len(columns[PANE])
    for name in keys.column_names:
        columns[name] = keys.column(name)
    for i, (primitive, types) in enumerate(primitives.items()):
        state = states.get(primitive) or primitive.empty(rows, types)
        for name, array in primitive.encode(state, types).items():
            columns[state_name(i, name)] = array
    note = TableNote(origin, tuple(primitives), (origin.condition,), (origin,), tuple(absent))
    return describe_table(pa.table(columns), note)


def together(tables: Sequence[pa.Table], keys: Mapping[str, pa.DataType], names: Mapping[str, Types]) -> pa.Table:
    """Return tables of partials, each of other rows, one behind the other.

    Columns are told by what they hold: who makes partials numbers states by the order of the aggregates in its job.
    Tables of an earlier run may have narrower types; where tables differ, all get those of now.

    Args:
        tables: At least one.
        keys: The columns of keys that are needed, with the types that they have now; all tables have them. Where tables
            differ, others are left out.
        names: The same of states, by lasting names of their primitives.

    Raises:
        JobChangedError: Types differ, and values of one are not exactly values of now.
    """
    first, *others = map(PartialTable.of, tables)
    if not all(each.table.schema.equals(first.table.schema, check_metadata=True) for each in others):
        held = [each.contents.primitives for each in others]
        shared = [each for each in first.contents.primitives if each in names and all(each in had for had in held)]
        mine, *theirs = (_numbered(each, keys, {name: names[name] for name in shared}) for each in (first, *others))
        if wrong := [_types(each) for each in theirs if _types(each) != _types(mine)]:
            raise JobChangedError(
                f"Partials of one query have the columns {_told(_types(mine))}, and {_told(wrong[0])}.",
                "Run the same job, and the same version of Transom, everywhere.",
            )
        note = json.loads(first.table.schema.metadata[_META]) | {"primitives": shared}
        meta = {_META: json.dumps(note).encode()}
        tables = [each.select(mine.column_names).replace_schema_metadata(meta) for each in (mine, *theirs)]
    return pa.concat_tables(tables).combine_chunks()


def _numbered(partials: PartialTable, keys: Mapping[str, pa.DataType], names: Mapping[str, Types]) -> pa.Table:
    """Return a table of partials with some keys and states, those numbered by their place among the names."""
    columns = {PANE: _array(partials.table.column(PANE))}
    columns |= {name: as_key(partials.table.column(name), pa.field(name, kind)) for name, kind in keys.items()}
    for number, (name, types) in enumerate(names.items()):
        for part, array in _as_now(partials.columns_of(name), types, name).items():
            longer = pa.types.is_decimal(array.type) and part in types  # of one scale: the values are the same
            columns[state_name(number, part)] = array.cast(types[part]) if longer else array
    return pa.table(columns)


def _types(table: pa.Table) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in table.schema}


def _told(types: Mapping[str, pa.DataType]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in types.items())


def _as_now(columns: dict[str, pa.Array], types: Types, name: str) -> dict[str, pa.Array]:
    """Return the columns of a state with the types that they have now."""
    now = {column: widened(array, types.get(column, array.type), name) for column, array in columns.items()}
    carry = columns.get("carry")
    if carry is not None and now["sum"] is not columns["sum"] and pc.any(pc.not_equal(carry, 0)).as_py():
        raise JobChangedError(f"The checkpoint holds sums of {name} that have overflowed, of another type.", REMEDY)
    return now


def rows_at(table: pa.Table, places: Places) -> pa.Table:
    """Return the rows at some places, ascending; not copied where enough of them are neighbours."""
    if not len(places) or int(places[-1] - places[0]) == len(places) - 1:  # as partials of a condition mostly are
        return table.slice(int(places[0]) if len(places) else 0, len(places))
    breaks = np.flatnonzero(np.diff(places) != 1) + 1
    if len(places) < _NEIGHBOURS * (len(breaks) + 1):
        if table.get_total_buffer_size() < _TAKEN:
            return table.take(pa.array(places))
        chosen = np.zeros(table.num_rows, np.bool_)
        chosen[places] = True
        return table.filter(pa.array(chosen))
    edges = [0, *breaks.tolist(), len(places)]
    return pa.concat_tables(table.slice(int(places[a]), b - a) for a, b in itertools.pairwise(edges))


def _array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        return pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array
