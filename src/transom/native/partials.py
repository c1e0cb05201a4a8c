"""Partials of rows in memory: what the aggregation of a Spark job makes of the same rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.native.groups import Groups, State, check_order, is_plain
from transom.native.values import UncertainError

Function: TypeAlias = Literal["count", "sum", "min", "max", "zero", "null"]
Times: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
_SURE = 1 - 1e-6
"""Sums of floats are by less than that beside those of the whole numbers."""


@dataclass(frozen=True)
class Reduced:
    """A column of a state: what a function makes of the rows of a group in which a column is not null."""

    name: str
    function: Function
    """`zero` and `null` are the same for all groups."""
    of: str = ""
    """The column of the rows; none to count the rows themselves."""
    where: str = ""
    """The column of truths that tells which rows count; all do without one."""
    summed_as: pa.DataType | None = None
    """The type that values have before they are added."""


@dataclass(frozen=True)
class Grouping:
    """The aggregation of a component: one row per pane, condition and keys.

    Args:
        schema: Of what is made: the pane, the number of the condition if there are several, the keys, the states.
        start: Gives the start of the pane of each time.
        time: Column of the rows with their event time in microseconds, never null.
        keys: Columns of the rows, in the order of the schema.
        conditions: Columns of truths, of which nothing else is made; None for all rows. A row is aggregated once for
            every one that it satisfies.
        states: Columns of the states.
        others: States that are made in another way, with the names of their columns by their own ones.
    """

    schema: pa.Schema
    start: Callable[[Times], Times]
    time: str
    keys: tuple[str, ...]
    conditions: tuple[str | None, ...]
    states: tuple[Reduced, ...]
    others: tuple[tuple[dict[str, str], State], ...] = ()

    def of(self, rows: pa.RecordBatch) -> pa.Table:
        """Return the partials of some rows; O(rows x conditions).

        Raises:
            UncertainError: Spark may make something else of them, or raise.
        """
        made, read = [], rows.select([name for name in rows.schema.names if name not in self.conditions])
        for number, condition in enumerate(self.conditions):
            if condition is not None and not rows.column(condition).true_count:
                continue  # of many conditions, few have rows in one piece
            mine = read if condition is None else read.filter(rows.column(condition))
            columns = self._grouped(mine)
            if len(self.conditions) > 1:
                columns.insert(1, pa.repeat(pa.scalar(number, pa.int32()), len(columns[0])))
            made.append(pa.table(columns, names=self.schema.names).cast(self.schema))
        if len(made) == 1:
            return made[0]
        return pa.concat_tables(made).combine_chunks() if made else self.schema.empty_table()

    def _grouped(self, rows: pa.RecordBatch) -> list[Any]:
        """Return the columns of the partials of rows that satisfy one condition, without its number."""
        starts = self.start(rows.column(self.time).to_numpy())
        by = {"pane": pa.array(starts, pa.int64())}
        by.update((f"key {place}", rows.column(name)) for place, name in enumerate(self.keys))
        for key in by.values():
            check_order(key)
        if not self.others:
            found, states = self._reduced(rows, by)
            return [*(found.column(name) for name in by), *states.values()]
        groups = Groups.by(list(by.values()))
        _, states = self._reduced(rows, {"group": pa.array(groups.of)})
        for names, other in self.others:
            states.update((names[own], column) for own, column in other.columns(rows, groups).items())
        first = groups.first_rows()
        made = self.schema.names[len(self.schema) - len(states) :]
        return [*(key.take(first) for key in by.values()), *(states[name] for name in made)]

    def _reduced(self, rows: pa.RecordBatch, by: dict[str, pa.Array]) -> tuple[pa.Table, dict[str, Any]]:
        """Return the groups of rows, those that have numbers in the order of these, and their states by name."""
        read: dict[str, pa.Array] = {}
        asked: dict[tuple[Any, str], str] = {((), "count_all"): "count_all"}
        found_as: dict[str, str] = {}
        bounds: dict[str, pa.DataType] = {}
        odd: dict[str, tuple[str, str]] = {}
        for state in self.states:
            name, function = f"{state.of}, {state.where}, {state.summed_as}", state.function
            if function in ("zero", "null"):
                continue
            if not state.of:
                found_as[state.name] = "count_all"
                continue
            if name not in read:
                read[name] = _values(rows, state)
            if function in ("min", "max") and not is_plain(read[name]):
                odd[f"{name}_{function}"] = name, function
                read[f"{name}, order"] = pc.if_else(pc.is_nan(read[name]), None, read[name])
                read[f"{name}, nan"] = pc.is_nan(read[name])
                read[f"{name}, zero"] = pc.if_else(pc.equal(read[name], 0), read[name], None)
                aside = {(f"{name}, order", function), (f"{name}, nan", "any"), (f"{name}, zero", "first")}
                asked |= {(of, how): f"{of}_{how}" for of, how in sorted(aside)}
            elif function == "sum" and not _is_in_range(read[name]):
                bounds[name] = read[name].type
                read[f"{name}, size"] = pc.abs(read[name].cast(pa.float64(), safe=False))
                asked[f"{name}, size", "sum"] = f"{name}, size_sum"
            asked[name, function] = found_as[state.name] = f"{name}_{function}"
        functions: Any = [(list(of) if isinstance(of, tuple) else of, function) for of, function in asked]
        found = pa.TableGroupBy(pa.table(by | read), list(by), use_threads=False).aggregate(functions)
        for name, kind in bounds.items():
            _check_sizes(found.column(f"{name}, size_sum"), kind)
        for column, (name, best) in odd.items():
            found = found.set_column(found.schema.get_field_index(column), column, _extreme(found, name, best))
        found = found.sort_by("group") if "group" in by else found
        states: dict[str, Any] = {}
        for state in self.states:
            if state.name in found_as:
                states[state.name] = found.column(found_as[state.name])
            else:
                constant = pa.scalar(0 if state.function == "zero" else None, self.schema.field(state.name).type)
                states[state.name] = pa.repeat(constant, found.num_rows)
        return found, states


def _values(rows: pa.RecordBatch, state: Reduced) -> pa.Array:
    """Return the values that a state is made of; null in rows that do not count."""
    values = rows.column(state.of)
    if state.summed_as is not None:
        values = values.cast(state.summed_as, safe=False)
    if state.where:
        # Before version 24, Arrow's `if_else` of a null and a slice of texts gave other texts.
        values = pc.case_when(pc.make_struct(rows.column(state.where)), values)
    return values


def _extreme(found: pa.Table, name: str, function: str) -> pa.ChunkedArray:
    """Return the least or largest floats of groups, some with NaN or -0.0.

    NaN is the largest for Spark; of 0.0 and -0.0, which are equal, it keeps the first. Arrow has the least and the
    largest without NaN here, whether there is NaN, and the first zero.
    """
    best, nan = found.column(f"{name}, order_{function}"), found.column(f"{name}, nan_any")
    best = pc.if_else(pc.equal(best, 0), found.column(f"{name}, zero_first"), best)
    is_nan = pc.fill_null(nan if function == "max" else pc.and_(nan, pc.is_null(best)), False)
    return pc.if_else(is_nan, pa.scalar(float("nan"), best.type), best)


def _is_in_range(values: pa.Array) -> bool:
    """Tell whether no sum of some of the values can be out of range, whatever their groups."""
    kind = values.type
    if pa.types.is_floating(kind) or len(values) == values.null_count:
        return True
    least, most = (bound.as_py() for bound in pc.min_max(values).values())
    with localcontext(prec=100):
        return bool(max(-least, most) * len(values) < _beyond(kind))


def _check_sizes(sizes: pa.ChunkedArray, kind: pa.DataType) -> None:
    """See that no group's sum is out of range after any of its rows, where Spark fails or goes on with something else.

    Args:
        sizes: For each group, the sum of its values without their signs.
        kind: Type of the sums.

    Raises:
        UncertainError: One may be.
    """
    most = pc.max(sizes).as_py()
    if most is not None and not most < float(_beyond(kind)) * _SURE:
        raise UncertainError("a sum that may be out of range")


def _beyond(kind: pa.DataType) -> Decimal | int:
    """Return the least number that is out of the range of a type."""
    return Decimal(10) ** (kind.precision - kind.scale) if pa.types.is_decimal(kind) else 1 << 63
