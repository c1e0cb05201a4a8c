"""Skewness and kurtosis, merged as Spark merges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from transom.windows.aggregates.base import Primitive, ResultContext, State, Types, Where, at, state_key
from transom.windows.aggregates.flaws import flaw_of_counts
from transom.windows.aggregates.moments import mean_sql
from transom.windows.aggregates.oneinput import OneInputAggregate, SmallPrimitive
from transom.windows.aggregates.values import from_values, to_values

_FLOATS = ("mean", "m2", "m3", "m4")


@dataclass(frozen=True)
class HigherMoments(SmallPrimitive):
    """Number, mean and sums of the second to fourth powers of differences from the mean.

    State: `n` int64; `mean`, `m2`, `m3`, `m4` float64. Merging: Meng, "Simpler Online Updates for Arbitrary-Order
    Central Moments" (2015), in the form that Spark has.
    """

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key("moments4.1", self.x.text)

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return the moments from Spark's own functions, which are null where all values are one."""
        x = f"cast({inputs[0]} as double)"
        n, v = f"count({inputs[0]})", f"var_pop({x})"
        return {
            "n": n,
            "mean": mean_sql(x),
            "m2": f"{v} * {n}",
            "m3": f"coalesce(skewness({x}) * power({v}, 1.5D) * {n}, {v} * 0)",
            "m4": f"coalesce((kurtosis({x}) + 3) * {v} * {v} * {n}, {v} * 0)",
        }

    def decode(self, columns: Mapping[str, pa.Array]) -> State:
        """Return the moments; zero where there are no values."""
        return {name: to_values(columns[name])[0] for name in ("n", *_FLOATS)}

    def encode(self, state: State, types: Types) -> dict[str, pa.Array]:
        """Return the moments."""
        valid = state["n"] > 0
        floats = {name: from_values(state[name], valid, types[name]) for name in _FLOATS}
        return {"n": pa.array(state["n"], type=types["n"]), **floats}

    def empty(self, slots: int, types: Types) -> State:
        """Return moments of nothing."""
        return {"n": np.zeros(slots, np.int64), **{name: np.zeros(slots) for name in _FLOATS}}

    def merge_into(self, into: State, slots: Where, other: State) -> None:
        """Combine; a slot or row without values leaves the other side bit for bit as it is."""
        rows = np.flatnonzero(other["n"] > 0)
        places = at(slots, rows)
        old = {name: column[places] for name, column in into.items()}
        new = {name: column[rows] for name, column in other.items()}
        fresh, n = old["n"] == 0, old["n"] + new["n"]
        with np.errstate(all="ignore"):
            a, b = old["n"] / n, new["n"] / n
            d = new["mean"] - old["mean"]
            both = d * d * n * a * b
            merged = {
                "mean": old["mean"] + d * b,
                "m2": old["m2"] + new["m2"] + both,
                "m3": old["m3"] + new["m3"] + both * d * (a - b) + 3 * d * (a * new["m2"] - b * old["m2"]),
                "m4": old["m4"]
                + new["m4"]
                + both * d * d * (a * a - a * b + b * b)
                + 6 * d * d * (a * a * new["m2"] + b * b * old["m2"])
                + 4 * d * (a * new["m3"] - b * old["m3"]),
            }
        for name, values in merged.items():
            into[name][places] = np.where(fresh, new[name], values)
        into["n"][places] = n

    def flaw(self, columns: Mapping[str, pa.Array]) -> str:
        """Return what is wrong with the numbers of rows."""
        return flaw_of_counts(columns["n"])


@dataclass(frozen=True)
class ShapeOf(OneInputAggregate):
    """The aggregates `skewness` and `kurtosis` (above that of a normal distribution): double.

    Null without values, and where all values are one.
    """

    function: Literal["skewness", "kurtosis"]

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """The moments."""
        return (HigherMoments(self.x),)

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return the values, float64."""
        n, m2, m3, m4 = (states[0][name] for name in ("n", "m2", "m3", "m4"))
        with np.errstate(all="ignore"):
            value = np.sqrt(n) * m3 / np.sqrt(m2 * m2 * m2) if self.function == "skewness" else n * m4 / (m2 * m2) - 3
        return from_values(value, (n > 0) & (m2 != 0), pa.float64())

    def describe(self) -> str:
        """Return `skewness(x)` or `kurtosis(x)`."""
        return f"{self.function}({self.x})"
