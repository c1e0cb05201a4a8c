"""Partials of rows in memory: what the aggregation of a Spark job makes of the same rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.native.values import UncertainError

Function: TypeAlias = Literal["count", "sum", "min", "max", "zero", "null"]
Times: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
_BEYOND = 2.0**63


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
        conditions: Columns of truths; None for all rows. A row is aggregated once for every one that it satisfies.
        states: Columns of the states.
    """

    schema: pa.Schema
    start: Callable[[Times], Times]
    time: str
    keys: tuple[str, ...]
    conditions: tuple[str | None, ...]
    states: tuple[Reduced, ...]

    def of(self, rows: pa.RecordBatch) -> pa.Table:
        """Return the partials of some rows; O(rows x conditions).

        Raises:
            UncertainError: Spark may make something else of them, or raise.
        """
        made = []
        for number, condition in enumerate(self.conditions):
            mine = rows if condition is None else rows.filter(rows.column(condition))
            columns = self._grouped(mine)
            if len(self.conditions) > 1:
                columns.insert(1, pa.repeat(pa.scalar(number, pa.int32()), len(columns[0])))
            made.append(pa.table(columns, names=self.schema.names).cast(self.schema))
        return pa.concat_tables(made)

    def _grouped(self, rows: pa.RecordBatch) -> list[Any]:
        """Return the columns of the partials of rows that satisfy one condition, without its number."""
        starts = self.start(rows.column(self.time).to_numpy())
        by = {"pane": pa.array(starts, pa.int64())}
        by.update((f"key {place}", rows.column(name)) for place, name in enumerate(self.keys))
        read: dict[str, pa.Array] = {}
        asked: dict[tuple[Any, str], str] = {((), "count_all"): "count_all"}
        found_as: dict[str, str] = {}
        for state in self.states:
            name, function = f"{state.of}, {state.where}, {state.summed_as}", state.function
            if function in ("zero", "null"):
                continue
            if not state.of:
                found_as[state.name] = "count_all"
                continue
            if name not in read:
                read[name] = _values(rows, state)
            _CHECKS[function](read[name])
            asked[name, function] = found_as[state.name] = f"{name}_{function}"
        functions: Any = [(list(of) if isinstance(of, tuple) else of, function) for of, function in asked]
        found = pa.TableGroupBy(pa.table(by | read), list(by), use_threads=False).aggregate(functions)
        columns: list[Any] = [found.column(name) for name in by]
        for state in self.states:
            if state.name in found_as:
                columns.append(found.column(found_as[state.name]))
            else:
                constant = pa.scalar(0 if state.function == "zero" else None, self.schema.field(state.name).type)
                columns.append(pa.repeat(constant, found.num_rows))
        return columns


def _values(rows: pa.RecordBatch, state: Reduced) -> pa.Array:
    """Return the values that a state is made of; null in rows that do not count."""
    values = rows.column(state.of)
    if state.summed_as is not None:
        values = values.cast(state.summed_as, safe=False)
    if state.where:
        # Before version 24, Arrow's `if_else` of a null and a slice of texts gave other texts.
        values = pc.case_when(pc.make_struct(rows.column(state.where)), values)
    return values


def _check_sum(values: pa.Array) -> None:
    """See that no group's sum of whole numbers can be out of range, where Spark fails or goes on from the other end.

    Raises:
        UncertainError: One may be.
    """
    if pa.types.is_integer(values.type) and len(values) > values.null_count:
        least, most = (bound.as_py() for bound in pc.min_max(values).values())
        if max(-least, most) * len(values) >= _BEYOND:
            raise UncertainError


def _check_order(values: pa.Array) -> None:
    """See that Arrow and Spark agree which value is the least and the largest: of NaN and of -0.0 they do not.

    Raises:
        UncertainError: There is one.
    """
    if pa.types.is_floating(values.type):
        known = values.drop_null().to_numpy()
        if np.isnan(known).any() or (np.signbit(known) & (known == 0)).any():
            raise UncertainError


_CHECKS: dict[str, Callable[[pa.Array], None]] = {
    "count": lambda values: None,
    "sum": _check_sum,
    "min": _check_order,
    "max": _check_order,
}
