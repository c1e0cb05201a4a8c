"""sum(x): exact for integers and decimals whatever the order of merging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.errors import QueryFailedError
from transom.windows.aggregates.base import Primitive, ResultContext, Slots, State, Types, Where, at, state_key
from transom.windows.aggregates.flaws import flaw_of_counts
from transom.windows.aggregates.oneinput import OneInputAggregate, SmallPrimitive
from transom.windows.aggregates.values import (
    Mask,
    Values,
    fits,
    fitting,
    from_values,
    numbers_of,
    storage_dtype,
    to_values,
)

_WRAPS = 1 << 63
OVERFLOW_REMEDY = "Cast the input to a wider type, or set spark.sql.ansi.enabled to false to get Spark's other result."


@dataclass(frozen=True)
class Sum(SmallPrimitive):
    """Sum and number of the values that are not null.

    State: `sum` is int64 (modulo 2^64), float64, or unscaled Python integers for decimals, None where Spark's
    partial sum had overflowed. `carry` counts how often an int64 sum has wrapped, so that `carry * 2^64 +
    sum` is exact and whether the total overflows does not depend on the order of merging. `count` is int64.
    """

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key("sum.1", self.x.text)

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return Spark's sum and count, and no wraps yet."""
        return {"sum": f"sum({inputs[0]})", "count": f"count({inputs[0]})", "carry": "bigint(0)"}

    def decode(self, columns: Mapping[str, pa.Array]) -> State:
        """Return the sums; a decimal null with a count is an overflow, a null without is zero."""
        values, valid = to_values(columns["sum"])
        count, carry = numbers_of(columns["count"]), numbers_of(columns["carry"])
        if values.dtype == object:
            values[(count == 0) & ~valid] = 0
            moved = np.flatnonzero(carry)
            values[moved] += carry[moved].astype(object) * 10 ** columns["sum"].type.precision
            carry = np.zeros_like(carry)
        return {"sum": values, "count": count, "carry": carry}

    def encode(self, state: State, types: Types) -> dict[str, pa.Array]:
        """Return the sums; what exceeds a decimal's digits goes to `carry`."""
        values, carry, kind = state["sum"], state["carry"], types["sum"]
        valid = state["count"] > 0
        if values.dtype == object:
            values, carry = values.copy(), carry.copy()
            for row, value in enumerate(values):
                if value is None:
                    valid[row] = False
                elif not fits(value, kind):
                    carry[row], values[row] = divmod(value, 10**kind.precision)
        return {
            "sum": from_values(values, valid, kind),
            "count": pa.array(state["count"], type=types["count"]),
            "carry": pa.array(carry, type=types["carry"]),
        }

    def empty(self, slots: int, types: Types) -> State:
        """Return zeros."""
        dtype = storage_dtype(types["sum"])
        values = np.full(slots, 0, dtype=dtype)
        return {"sum": values, "count": np.zeros(slots, np.int64), "carry": np.zeros(slots, np.int64)}

    def merge_into(self, into: State, slots: Where, other: State) -> None:
        """Add; integers wrap modulo 2^64 and count it."""
        add_values(into["sum"], slots, other["sum"])
        into["count"][slots] += other["count"]
        into["carry"][slots] += other["carry"]
        if into["sum"].dtype == np.int64:
            rows, direction = _wraps(into["sum"][slots], other["sum"])
            into["carry"][at(slots, rows)] += direction

    def of_runs(self, state: State, starts: Slots, longest: int) -> State | None:
        """Add whole numbers, where no sum can wrap; what floats make depends on the order."""
        sums = state["sum"]
        if sums.dtype != np.int64 or longest * max(-int(sums.min()), int(sums.max())) >= _WRAPS:
            return None
        return {name: np.add.reduceat(column, starts) for name, column in state.items()}

    def flaw(self, columns: Mapping[str, pa.Array]) -> str:
        """Return what is wrong with the numbers of values, or of wraps, of which each value brings one at most."""
        count, carry = columns["count"], columns["carry"]
        if wrong := flaw_of_counts(count):
            return wrong
        if not carry.null_count and not carry.to_numpy().any():
            return ""
        wraps = pc.or_(pc.greater(carry, count), pc.less(carry, pc.negate(count)))
        return "a sum wrapped more often than it has values" if carry.null_count or pc.any(wraps).as_py() else ""


def add_values(into: Values, slots: Where, other: Values) -> None:
    """Add rows to slots in place; None (an overflowed decimal) absorbs whatever it meets."""
    if into.dtype != object:
        with np.errstate(over="ignore", invalid="ignore"):
            into[slots] += other
        return
    good = _known(other) & _known(into[slots])
    into[at(slots, np.flatnonzero(good))] += other[good]
    into[at(slots, np.flatnonzero(~good))] = None


def _known(values: Values) -> Mask:
    return np.fromiter((value is not None for value in values), np.bool_, len(values))


def _wraps(total: Values, added: Values) -> tuple[Slots, Values]:
    """Return the rows where `total = before + added` wrapped, and +1 where upwards, -1 where downwards."""
    before = total - added
    rows = np.flatnonzero(((total ^ added) & (total ^ before)) < 0)
    return rows, np.where(added[rows] < 0, -1, 1)


@dataclass(frozen=True)
class SumOf(OneInputAggregate):
    """The aggregate `sum`: bigint, double, or decimal(min(38, p + 10), s); null without values."""

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """One sum."""
        return (Sum(self.x),)

    @property
    def zero(self) -> Any:
        """The sum of nothing."""
        return 0

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return the sums.

        Raises:
            QueryFailedError: A sum overflows under ANSI.
        """
        state, kind = states[0], context.types[0]["sum"]
        values, valid = state["sum"], state["count"] > 0
        if values.dtype == object:
            good = fitting(values, kind)
            _check(good | ~valid, context.ansi, self.describe(), kind)
            return from_values(values, valid & good, kind)
        _check(state["carry"] == 0, context.ansi, self.describe(), kind)
        return from_values(values, valid, kind)

    def describe(self) -> str:
        """Return `sum(x)`."""
        return f"sum({self.x})"


def _check(good: Mask, ansi: bool, call: str, kind: pa.DataType) -> None:
    if ansi and not good.all():
        raise QueryFailedError(f"{call} does not fit in {kind}.", OVERFLOW_REMEDY)
