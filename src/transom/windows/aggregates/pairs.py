"""Covariances and correlation, merged as Spark merges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from transom.windows.aggregates.base import Primitive, ResultContext, State, Types, Where, at, state_key
from transom.windows.aggregates.flaws import flaw_of_counts
from transom.windows.aggregates.moments import mean_sql
from transom.windows.aggregates.oneinput import Small, TwoInputAggregate, TwoInputs
from transom.windows.aggregates.values import from_values, to_values

_MEANS, _SUMS = ("mx", "my"), ("sx", "sy", "sxy")


@dataclass(frozen=True)
class PairMoments(TwoInputs, Small):
    """Of pairs in which neither is null: their number, both means, and sums of products of differences from them.

    State: `n` int64; `mx`, `my`, `sx` (of squares of x), `sy` and `sxy`, float64. Merging: Chan, Golub, LeVeque (1979),
    with the product of both differences for `sxy`.
    """

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key("pairs.1", self.x.text, self.y.text)

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return the moments from Spark's own functions."""
        x, y = inputs
        u, v = (f"CASE WHEN {other} IS NOT NULL THEN cast({one} AS double) END" for one, other in ((x, y), (y, x)))
        n = f"count({u})"
        return {
            "n": n,
            "mx": mean_sql(u),
            "my": mean_sql(v),
            "sx": f"var_pop({u}) * {n}",
            "sy": f"var_pop({v}) * {n}",
            "sxy": f"covar_pop({u}, {v}) * {n}",
        }

    def decode(self, columns: Mapping[str, pa.Array]) -> State:
        """Return the moments; zero where there are no pairs."""
        return {name: to_values(columns[name])[0] for name in ("n", *_MEANS, *_SUMS)}

    def encode(self, state: State, types: Types) -> dict[str, pa.Array]:
        """Return the moments."""
        valid = state["n"] > 0
        floats = {name: from_values(state[name], valid, types[name]) for name in (*_MEANS, *_SUMS)}
        return {"n": pa.array(state["n"], type=types["n"]), **floats}

    def empty(self, slots: int, types: Types) -> State:
        """Return moments of nothing."""
        return {"n": np.zeros(slots, np.int64), **{name: np.zeros(slots) for name in (*_MEANS, *_SUMS)}}

    def merge_into(self, into: State, slots: Where, other: State) -> None:
        """Combine; a slot or row without pairs leaves the other side bit for bit as it is."""
        rows = np.flatnonzero(other["n"] > 0)
        places = at(slots, rows)
        old = {name: column[places] for name, column in into.items()}
        new = {name: column[rows] for name, column in other.items()}
        n, fresh = old["n"] + new["n"], old["n"] == 0
        with np.errstate(all="ignore"):
            share = new["n"] / n
            dx, dy = (new[name] - old[name] for name in _MEANS)
            merged = {"mx": old["mx"] + dx * share, "my": old["my"] + dy * share}
            for name, product in (("sx", dx * dx), ("sy", dy * dy), ("sxy", dx * dy)):
                merged[name] = old[name] + new[name] + product * old["n"] * share
        for name, values in merged.items():
            into[name][places] = np.where(fresh, new[name], values)
        into["n"][places] = n

    def flaw(self, columns: Mapping[str, pa.Array]) -> str:
        """Return what is wrong with the numbers of rows."""
        return flaw_of_counts(columns["n"])


@dataclass(frozen=True)
class PairOf(TwoInputAggregate):
    """The aggregates `corr`, `covar_pop`, `covar_samp`: double; null for too few pairs."""

    function: Literal["corr", "covar_pop", "covar_samp"]

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """The moments."""
        return (PairMoments(self.x, self.y),)

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return the values, float64."""
        n, sxy = states[0]["n"], states[0]["sxy"]
        with np.errstate(all="ignore"):
            if self.function == "corr":
                spread = np.sqrt(states[0]["sx"] * states[0]["sy"])
                return from_values(sxy / spread, (n > 1) & (spread != 0), pa.float64())
            degrees = n - (self.function == "covar_samp")
            return from_values(sxy / np.maximum(degrees, 1), degrees > 0, pa.float64())

    def describe(self) -> str:
        """Return for example `corr(x, y)`."""
        return f"{self.function}({self.x}, {self.y})"
