"""Approximate distinct counts (HLL) and quantiles (KLL), by Apache DataSketches in Spark and here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from datasketches import hll_sketch, hll_union, kll_doubles_sketch, tgt_hll_type

from transom.windows.aggregates.base import ResultContext, State, state_key
from transom.windows.aggregates.kll import check_kll
from transom.windows.aggregates.oneinput import OneInput, OneInputAggregate
from transom.windows.aggregates.parts import PartsPrimitive

HLL_LG_K = 12
"""Relative standard error 1.04 / sqrt(2^12) = 1.6 %, at most 4 KiB."""


@dataclass(frozen=True)
class Hll(PartsPrimitive, OneInput):
    """HyperLogLog of the 64-bit hashes of the values that are not null. State: `sketch`, tuples of bytes.

    Spark's sketch takes only four types; hashing first lets every hashable type in, with one SQL text, and
    two different values share a hash with a probability of 2^-64.
    """

    column = "sketch"

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key("hll.1", HLL_LG_K, self.x.text)

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return Spark's sketch."""
        x = inputs[0]
        return {"sketch": f"hll_sketch_agg(if({x} is null, null, xxhash64({x})), {HLL_LG_K})"}

    def combine(self, parts: tuple[bytes, ...]) -> bytes:
        """Return the sketch of all values of some sketches."""
        union = hll_union(HLL_LG_K)
        for part in parts:
            union.update(hll_sketch.deserialize(part))
        return bytes(union.get_result(tgt_hll_type.HLL_8).serialize_compact())

    def check(self, part: bytes) -> None:
        """Refuse what is no sketch, or one of another size, in whose precision others would be merged.

        Raises:
            Exception: It is none.
        """
        if hll_sketch.deserialize(part).lg_config_k != HLL_LG_K:
            raise ValueError("a sketch has another size")
        self.combine((part,))


@dataclass(frozen=True)
class ApproxCountDistinct(OneInputAggregate):
    """The aggregate `approx_count_distinct`: bigint, never null; relative standard error 1.6 %."""

    @property
    def primitives(self) -> tuple[Hll]:
        """One sketch."""
        return (Hll(self.x),)

    @property
    def zero(self) -> Any:
        """Nothing has no distinct values."""
        return 0

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return the estimates, int64."""
        sketches = self.primitives[0].combined(states[0])
        counts = [0 if s is None else round(hll_sketch.deserialize(s).get_estimate()) for s in sketches]
        return pa.array(counts, type=pa.int64())

    def describe(self) -> str:
        """Return `approx_count_distinct(x)`."""
        return f"approx_count_distinct({self.x})"


@dataclass(frozen=True)
class Kll(PartsPrimitive, OneInput):
    """KLL sketch of the values as doubles, without nulls and NaN. State: `sketch`, tuples of bytes."""

    column = "sketch"

    k: int

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key("kll.1", self.k, self.x.text)

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return Spark's sketch."""
        return {"sketch": f"kll_sketch_agg_double(cast({inputs[0]} as double), {self.k})"}

    def combine(self, parts: tuple[bytes, ...]) -> bytes:
        """Return the sketch of all values of some sketches."""
        merged = kll_doubles_sketch(self.k)
        for part in parts:
            merged.merge(kll_doubles_sketch.deserialize(part))
        return bytes(merged.serialize())

    def check(self, part: bytes) -> None:
        """Refuse what is no sketch.

        Raises:
            Exception: It is none.
        """
        check_kll(part, self.k)
        self.combine((part,))


@dataclass(frozen=True)
class Quantile(OneInputAggregate):
    """The aggregate `quantile`: double, or array<double> for several ranks; null without values.

    The value of rank p is the smallest whose share of values up to and including it is at least p. Exact up
    to `k` values of a key in a window; beyond, the rank is off by at most 1.33 % for k = 200 with 99 %
    confidence.
    """

    ranks: tuple[float, ...]
    many: bool
    k: int = 200

    @property
    def primitives(self) -> tuple[Kll]:
        """One sketch, which quantiles of other ranks share."""
        return (Kll(self.x, self.k),)

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return the quantiles."""
        rows: list[Any] = []
        for data in self.primitives[0].combined(states[0]):
            sketch = None if data is None else kll_doubles_sketch.deserialize(data)
            if sketch is None or sketch.is_empty():
                rows.append(None)
            else:
                found = [float(value) for value in sketch.get_quantiles(list(self.ranks), True)]
                rows.append(found if self.many else found[0])
        many = pa.list_(pa.field("element", pa.float64(), nullable=False))
        return pa.array(rows, type=many if self.many else pa.float64())

    def describe(self) -> str:
        """Return for example `quantile(x, 0.95)`."""
        ranks = "[" + ", ".join(map(repr, self.ranks)) + "]" if self.many else repr(self.ranks[0])
        return f"quantile({self.x}, {ranks}{'' if self.k == 200 else f', k={self.k}'})"
