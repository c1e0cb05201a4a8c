"""Variances and standard deviations, merged by Chan's formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.windows.aggregates.base import Primitive, ResultContext, State, Types, Where, at, state_key
from transom.windows.aggregates.flaws import flaw_of_counts
from transom.windows.aggregates.oneinput import OneInputAggregate, SmallPrimitive
from transom.windows.aggregates.values import from_values, to_values


def mean_sql(x: str) -> str:
    """Return the SQL of a mean of doubles that is the value where all values are one.

    A sum of equal values, divided by their number, may be next to it; the means of two panes would then differ, and
    what is of no spread would have one, with a skewness or correlation made of nothing but rounding.
    """
    return f"CASE WHEN var_pop({x}) = 0 THEN min({x}) ELSE avg({x}) END"


@dataclass(frozen=True)
class Moments(SmallPrimitive):
    """Number, mean and sum of squared differences from the mean.

    State: `n` int64, `mean` and `m2` float64. Merging: Chan, Golub, LeVeque, "Updating formulae and a
    pairwise algorithm for computing sample variances" (1979), Eq. 1.5, with Spark's form of the mean.
    """

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key("moments.1", self.x.text)

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return the three moments from Spark's own functions."""
        x = f"cast({inputs[0]} as double)"
        return {"n": f"count({inputs[0]})", "mean": mean_sql(x), "m2": f"var_pop({x}) * count({inputs[0]})"}

    def decode(self, columns: Mapping[str, pa.Array]) -> State:
        """Return the moments; zero where there are no values."""
        return {name: to_values(columns[name])[0] for name in ("n", "mean", "m2")}

    def encode(self, state: State, types: Types) -> dict[str, pa.Array]:
        """Return the moments."""
        valid = state["n"] > 0
        return {
            "n": pa.array(state["n"], type=types["n"]),
            "mean": from_values(state["mean"], valid, types["mean"]),
            "m2": from_values(state["m2"], valid, types["m2"]),
        }

    def empty(self, slots: int, types: Types) -> State:
        """Return moments of nothing."""
        return {"n": np.zeros(slots, np.int64), "mean": np.zeros(slots), "m2": np.zeros(slots)}

    def merge_into(self, into: State, slots: Where, other: State) -> None:
        """Combine; a slot or row without values leaves the other side bit for bit as it is."""
        rows = np.flatnonzero(other["n"] > 0)
        places, n_new = at(slots, rows), other["n"][rows]
        n_old = into["n"][places]
        n = n_old + n_new
        with np.errstate(all="ignore"):
            delta = other["mean"][rows] - into["mean"][places]
            share = n_new / n
            mean = into["mean"][places] + delta * share
            m2 = into["m2"][places] + other["m2"][rows] + delta * delta * n_old * share
        fresh = n_old == 0
        into["mean"][places] = np.where(fresh, other["mean"][rows], mean)
        into["m2"][places] = np.where(fresh, other["m2"][rows], m2)
        into["n"][places] = n

    def flaw(self, columns: Mapping[str, pa.Array]) -> str:
        """Return what is wrong with the numbers of rows."""
        return flaw_of_counts(columns["n"])


@dataclass(frozen=True)
class Spread(OneInputAggregate):
    """The aggregates var_samp, var_pop, stddev_samp, stddev_pop: double.

    Null without values; the sample forms are null for one value, as in Spark since 3.1.
    """

    root: bool
    sample: bool

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """The moments."""
        return (Moments(self.x),)

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return the variances or standard deviations, float64."""
        n, m2 = states[0]["n"], states[0]["m2"]
        degrees = n - 1 if self.sample else n
        with np.errstate(all="ignore"):
            spread = m2 / np.maximum(degrees, 1)
            if self.root:
                spread = np.sqrt(spread)
        return from_values(spread, degrees > 0, pa.float64())

    def describe(self) -> str:
        """Return for example `stddev_samp(x)`."""
        return f"{'stddev' if self.root else 'var'}_{'samp' if self.sample else 'pop'}({self.x})"
