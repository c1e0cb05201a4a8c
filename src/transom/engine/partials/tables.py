"""Partials as self-describing Arrow tables: what a job returns, what the checkpoint keeps, what a store is fed with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.errors import CheckpointCorruptError, JobChangedError
from transom.model.lines import CORRUPT_REMEDY
from transom.windows.aggregates.base import Primitive, State, Types
from transom.windows.aggregates.former import current_key, is_known
from transom.windows.aggregates.widening import REMEDY, widened
from transom.windows.panes import Times
from transom.windows.store import PaneStore

PANE = "_pane"
"""Column with the start of the pane, int64 microseconds."""
TAG = "_condition_number"
"""Column with the index of the condition that the rows of a partial satisfy, when the table has several."""
LENGTH = "_length"
"""Column with the length of the window, int64 microseconds, when PANE is the start of a window instead of a pane."""
_META = b"transom"


def state_name(index: int, column: str) -> str:
    """Return the column that holds a state column of the primitive with this index."""
    return f"_s{index}_{column}"


def digest(text: str) -> str:
    """Return the name of a branch with this plan, while the checkpoint knows no other name for it."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def branch_of(definition: Mapping[str, Any]) -> str:
    """Return the name of the branch in a definition; those of older versions go by the plan."""
    return str(definition["branch"]) if "branch" in definition else digest(definition["rows"])


@dataclass(frozen=True)
class Origin:
    """The origin of partials; identifies them across restarts and changes of the job."""

    branch: str
    """Identity of the transformations."""
    keys: tuple[str, ...]
    """Texts of the grouping keys, sorted."""
    condition: str = ""
    """Text of the condition that the rows satisfy; a table can have several, and says so itself."""
    only: str = ""
    """Name of the query that shares with no other."""

    @property
    def name(self) -> str:
        """Return the origin as a file or table name."""
        rest = [self.condition, self.only] if self.condition or self.only else []
        return json.dumps([[self.branch, *self.keys], *rest] if rest else [self.branch, *self.keys])

    def serves(self, other: Origin) -> bool:
        """Tell whether partials of the other origin can be derived from those of this one."""
        return (
            self.branch == other.branch
            and set(other.keys) <= set(self.keys)
            and self.condition == other.condition
            and other.only in ("", self.only)
        )


@dataclass(frozen=True)
class TableNote:
    """The description of a table of partials."""

    origin: Origin
    primitives: tuple[Primitive, ...]
    conditions: tuple[str, ...] = ("",)
    """Texts of the conditions that TAG counts; one if there is no TAG."""
    made_for: tuple[Origin, ...] = ()
    """Origins of the stores that it was made for; others may use it, too, if it holds panes."""
    absent: tuple[Primitive, ...] = ()
    """Primitives whose states are not in it because they are neutral, or elsewhere."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON, with lasting names."""
        return {
            "branch": self.origin.branch,
            "keys": self.origin.keys,
            "only": self.origin.only,
            "conditions": self.conditions,
            "for": [origin.name for origin in self.made_for],
            "primitives": [primitive.key for primitive in self.primitives],
            "absent": [primitive.key for primitive in self.absent],
        }


def describe_table(table: pa.Table, note: TableNote) -> pa.Table:
    """Return the table with a note of what its columns are."""
    return table.replace_schema_metadata({_META: json.dumps(note.to_json()).encode()})


@dataclass(frozen=True)
class Contents:
    """The description of partials, wherever they are."""

    origin: Origin
    primitives: tuple[str, ...]
    """Lasting names."""
    conditions: tuple[str, ...] = ("",)
    """Texts of the conditions that TAG counts; one if there is no TAG."""
    made_for: frozenset[str] = frozenset()
    """Names of the origins of the stores that they were made for."""
    direct: bool = False
    """Whether they are windows instead of panes."""
    absent: frozenset[str] | None = frozenset()
    """Keys of primitives that are known not to be in them; None where that was not noted."""

    @classmethod
    def of(cls, note: Mapping[str, Any], direct: bool) -> Contents:
        """Read what `TableNote.to_json` wrote.

        Raises:
            CheckpointCorruptError: They hold states of which this version does not know what they are.
        """
        names = tuple(map(current_key, note["primitives"]))
        for name in names:
            if not is_known(name):
                raise CheckpointCorruptError(
                    f"The checkpoint holds states of a kind that this version of Transom does not know: {name!r}.",
                    "Use the version of Transom that wrote it.",
                )
        absent = frozenset(note["absent"]) if "absent" in note else None
        origin = Origin(note["branch"], tuple(note["keys"]), only=note.get("only", ""))
        conditions = tuple(note.get("conditions", [""]))
        return cls(origin, names, conditions, frozenset(note.get("for", ())), direct, absent)

    def require(self, origin: Origin, wanted: Iterable[str]) -> None:
        """Check that they hold all that a store has, or say why not.

        Args:
            origin: The store's origin, for the message.
            wanted: Keys of its primitives.

        Raises:
            CheckpointCorruptError: States are missing.
        """
        if missing := set(wanted) - (self.absent or frozenset()).union(self.primitives):
            raise lacking(origin, missing)

    def serves(self, origin: Origin) -> bool:
        """Tell whether partials of the other origin can be derived from these.

        They are of all rows of a cut that satisfy the conditions, so that the partials of one query serve
        queries that share, too. Windows are only those that somebody asked for.
        """
        if self.direct and origin.name not in self.made_for:
            return False
        return origin.condition in self.conditions and replace(self.origin, condition=origin.condition).serves(origin)


@dataclass(frozen=True, eq=False)
class PartialTable:
    """A table of partials with what it holds."""

    table: pa.Table
    contents: Contents

    @classmethod
    def of(cls, table: pa.Table) -> PartialTable:
        """Read the note of `describe_table`."""
        note = json.loads((table.schema.metadata or {})[_META])
        return cls(table, Contents.of(note, LENGTH in table.column_names))

    @property
    def direct(self) -> bool:
        """Whether it holds windows instead of panes."""
        return self.contents.direct

    def of_condition(self, condition: str) -> PartialTable:
        """Return the rows of one condition."""
        if TAG not in self.table.column_names:
            return self
        mine = pc.equal(self.table.column(TAG), self.contents.conditions.index(condition))
        rows = self.table.filter(mine).drop_columns([TAG])
        return PartialTable(rows, replace(self.contents, conditions=(condition,)))

    def states(self, wanted: Mapping[Primitive, str], types: Mapping[Primitive, Types]) -> dict[Primitive, State]:
        """Return the states of those wanted primitives that the table has.

        Args:
            wanted: Lasting names of the primitives.
            types: The types that their columns have now; those of a table of another run can be others.

        Raises:
            JobChangedError: What the table holds is not exactly of these types.
        """
        position = {name: i for i, name in enumerate(self.contents.primitives)}
        found: dict[Primitive, State] = {}
        for primitive, name in wanted.items():
            if name not in position:
                continue
            prefix = state_name(position[name], "")
            columns = {
                column.removeprefix(prefix): _array(self.table.column(column))
                for column in self.table.column_names
                if column.startswith(prefix)
            }
            found[primitive] = primitive.decode(_as_now(columns, types.get(primitive, {}), name))
        return found

    def panes(self) -> Times:
        """Return the start of each row's pane."""
        panes: Times = np.asarray(self.table.column(PANE).to_numpy(), dtype=np.int64)
        return panes

    def lengths(self) -> Times:
        """Return the length of each row's window."""
        lengths: Times = np.asarray(self.table.column(LENGTH).to_numpy(), dtype=np.int64)
        return lengths


def lacking(origin: Origin, names: Iterable[str]) -> CheckpointCorruptError:
    """Return the error for states that should be in a checkpoint."""
    return CheckpointCorruptError(
        f"The checkpoint has no states {', '.join(sorted(names))} of {origin.name}.", CORRUPT_REMEDY
    )


class HasContents(Protocol):
    """Partials, wherever they are."""

    @property
    def contents(self) -> Contents:
        """Their description."""


P = TypeVar("P", bound=HasContents)


def taken_from(
    origin: Origin, names: Mapping[Primitive, str], tables: Sequence[P]
) -> list[tuple[P, dict[Primitive, str]]]:
    """Return the tables from which a store takes a cut's partials, each with the primitives that it takes there.

    Each primitive is taken from one table: that which was made for the store, else as few as possible, then those with
    the fewest keys.

    Args:
        origin: The store's origin.
        names: Lasting names of its primitives.
        tables: All tables of the cut.

    Raises:
        CheckpointCorruptError: There are partials for the store, but not of all primitives.
    """
    able = [table for table in tables if table.contents.serves(origin)]
    missing = dict(names)
    found = []
    while missing and able:
        wanted = set(missing.values())
        best = max(
            able,
            key=lambda table: (
                origin.name in table.contents.made_for,
                len(wanted.intersection(table.contents.primitives)),
                -len(table.contents.origin.keys),
            ),
        )
        taken = {primitive: name for primitive, name in missing.items() if name in best.contents.primitives}
        if not taken:
            break
        found.append((best, taken))
        missing = {primitive: name for primitive, name in missing.items() if primitive not in taken}
        able.remove(best)
    if missing and any(table.contents.serves(origin) for table in tables):
        raise lacking(origin, missing.values())
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


def _as_now(columns: dict[str, pa.Array], types: Types, name: str) -> dict[str, pa.Array]:
    """Return the columns of a state with the types that they have now."""
    now = {column: widened(array, types.get(column, array.type), name) for column, array in columns.items()}
    carry = columns.get("carry")
    if carry is not None and now["sum"] is not columns["sum"] and pc.any(pc.not_equal(carry, 0)).as_py():
        raise JobChangedError(f"The checkpoint holds sums of {name} that have overflowed, of another type.", REMEDY)
    return now


def _array(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        return pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array
