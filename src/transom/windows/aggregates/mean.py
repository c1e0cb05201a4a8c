"""avg(x), as Spark computes it: in double precision, or exactly for decimals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.errors import QueryFailedError
from transom.windows.aggregates.base import Primitive, ResultContext, State, Types, Where, state_key
from transom.windows.aggregates.flaws import flaw_of_counts
from transom.windows.aggregates.oneinput import OneInputAggregate, SmallPrimitive
from transom.windows.aggregates.sums import OVERFLOW_REMEDY, add_values
from transom.windows.aggregates.values import fits, fitting, from_values, to_values

_DIVISION_SCALE = 39
"""Decimal digits after the point that Spark's decimal division keeps before it rounds to the result type."""


@dataclass(frozen=True)
class MeanSum(SmallPrimitive):
    """The sum that a mean needs; unlike `sum` it cannot overflow for integers, which Spark's avg adds as doubles.

    State: `count` int64; `sum` float64; for decimals also `exact`, unscaled Python integers, None once
    overflowed. The SQL does not know the type of its input: `exact` is a column of nulls unless that is a
    decimal, which Spark decides when it analyses the query, not for each row.
    """

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key("mean.1", self.x.text)

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return the sums; without ANSI, `exact` is null where it overflows."""
        x = inputs[0]
        return {
            "count": f"count({x})",
            "sum": f"sum(cast({x} as double))",
            "exact": f"sum(if(typeof({x}) like 'decimal%', {x}, null))",
        }

    def decode(self, columns: Mapping[str, pa.Array]) -> State:
        """Return the sums."""
        state = {name: to_values(columns[name])[0] for name in ("count", "sum")}
        if pa.types.is_decimal(columns["exact"].type):
            exact, _ = to_values(columns["exact"])
            exact[state["count"] == 0] = 0
            state["exact"] = exact
        return state

    def encode(self, state: State, types: Types) -> dict[str, pa.Array]:
        """Return the sums; an exact one beyond its type is an overflow."""
        result = {
            "count": pa.array(state["count"], type=types["count"]),
            "sum": from_values(state["sum"], state["count"] > 0, types["sum"]),
        }
        if "exact" in state:
            kind, exact = types["exact"], state["exact"]
            result["exact"] = from_values(exact, fitting(exact, kind) & (state["count"] > 0), kind)
        else:
            result["exact"] = pa.nulls(len(state["count"]), types["exact"])
        return result

    def empty(self, slots: int, types: Types) -> State:
        """Return zeros."""
        state: State = {"count": np.zeros(slots, np.int64), "sum": np.zeros(slots, np.float64)}
        if pa.types.is_decimal(types["exact"]):
            state["exact"] = np.full(slots, 0, dtype=object)
        return state

    def merge_into(self, into: State, slots: Where, other: State) -> None:
        """Add."""
        for name in into:
            add_values(into[name], slots, other[name])

    def flaw(self, columns: Mapping[str, pa.Array]) -> str:
        """Return what is wrong with the numbers of rows."""
        return flaw_of_counts(columns["count"])


@dataclass(frozen=True)
class Mean(OneInputAggregate):
    """The aggregate `avg`: double, or decimal(min(38, p + 4), min(38, s + 4)); null without values."""

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """One sum for means."""
        return (MeanSum(self.x),)

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return the means.

        Raises:
            QueryFailedError: A decimal sum or mean overflows under ANSI.
        """
        state = states[0]
        valid = state["count"] > 0
        if "exact" not in state:
            mean = state["sum"] / np.maximum(state["count"], 1)
            return from_values(mean, valid, pa.float64())
        given, total_kind = context.inputs[0], context.types[0]["exact"]
        kind = pa.decimal128(min(38, given.precision + 4), min(38, given.scale + 4))
        means = np.full(len(valid), 0, dtype=object)
        for row in np.flatnonzero(valid):
            total = state["exact"][row]
            good = total is not None and fits(total, total_kind)
            means[row] = divide(total, given.scale, int(state["count"][row]), kind.scale) if good else 0
            if not good or not fits(means[row], kind):
                if context.ansi:
                    raise QueryFailedError(f"{self.describe()} does not fit in {kind}.", OVERFLOW_REMEDY)
                valid[row] = False
        return from_values(means, valid, kind)

    def describe(self) -> str:
        """Return `avg(x)`."""
        return f"avg({self.x})"


def divide(total: int, scale: int, count: int, result_scale: int) -> int:
    """Return `total / 10^scale / count` in units of 10^-result_scale, rounded half up twice as Spark does.

    >>> divide(10, 0, 4, 1), divide(-5, 0, 2, 0)
    (25, -3)
    """
    sign = -1 if total < 0 else 1
    fine = _half_up(abs(total) * 10 ** (_DIVISION_SCALE - scale), count)
    return sign * _half_up(fine, 10 ** (_DIVISION_SCALE - result_scale))


def _half_up(dividend: int, divisor: int) -> int:
    return (2 * dividend + divisor) // (2 * divisor)
