"""The most frequent values: Apache DataSketches' frequent items, in Spark and on the driver alike."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from datasketches import frequent_items_error_type, frequent_strings_sketch

from transom.model.expression import Expression
from transom.windows.aggregates.base import ExecutorFunction, ResultContext, State, state_key
from transom.windows.aggregates.flaws import MOST_ROWS
from transom.windows.aggregates.oneinput import OneInput, OneInputAggregate
from transom.windows.aggregates.parts import PartsPrimitive
from transom.windows.aggregates.rowstates import NULLS_BYTES, FrequentOf

_SIZES = struct.Struct("<5B")
"""Numbers at the beginning of a sketch; the last two are logarithms of sizes of its hash map, which is made of them."""
_MOST = (1 << 63) - 1
"""Larger weights are no bigint."""
_LOAD = 0.75
"""Share of a sketch's hash map that may be filled."""


@dataclass(frozen=True)
class FrequentItems(PartsPrimitive, OneInput):
    """Frequent-items sketch of values as strings, and number of nulls. State: `sketch`, tuples of bytes."""

    column = "sketch"

    max_items: int

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key("frequent.1", self.max_items, self.x.text)

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return Spark's sketch."""
        x = f"cast({inputs[0]} as string)"
        return {"sketch": f"approx_top_k_accumulate({x}, {self.max_items}).sketch"}

    def combine(self, parts: tuple[bytes, ...]) -> bytes:
        """Return the sketch of all rows of some sketches."""
        return merged(parts, self.max_items)

    def check(self, part: bytes) -> None:
        """Refuse what is no sketch; each row counts one."""
        check(part, self.max_items, MOST_ROWS)


@dataclass(frozen=True)
class HeavyItems(PartsPrimitive):
    """Frequent-items sketch of values as strings, each of a weight, and weight of the nulls; as `FrequentItems`.

    Spark's function knows no weights: it collects the rows, of which executors make sketches.
    """

    column = "sketch"

    x: Expression
    weight: Expression
    max_items: int

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """The values and their weights."""
        return (self.x, self.weight)

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key("heavy.1", self.max_items, self.x.text, self.weight.text)

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return the rows that weigh something as a list, which `executor_function` turns into a sketch."""
        x, weight = inputs
        wrong = f"raise_error(concat('top_k: a weight is ', {weight}, '; give whole numbers, 0 or more'))"
        row = f"named_struct('x', cast({x} as string), 'w', cast({weight} as bigint))"
        case = f"CASE WHEN {weight} < 0 OR {weight} <> try_cast({weight} as bigint) THEN {wrong} WHEN {weight} > 0"
        return {"sketch": f"collect_list({case} THEN {row} END)"}

    @property
    def executor_function(self) -> ExecutorFunction:
        """Makes the sketches of the collected rows on the executors."""
        sketches = FrequentOf(map_size(self.max_items))

        def on_executors(column: pa.Array) -> pa.Array:  # Spark reads the annotations of functions only
            return sketches(column)

        return ExecutorFunction("sketch", on_executors, "binary")

    def combine(self, parts: tuple[bytes, ...]) -> bytes:
        """Return the sketch of all rows of some sketches."""
        return merged(parts, self.max_items)

    def check(self, part: bytes) -> None:
        """Refuse what is no sketch."""
        check(part, self.max_items, _MOST)


def check(part: bytes, max_items: int, most: int) -> None:
    """Refuse bytes that are no sketch with nulls, of so much weight at most.

    Raises:
        Exception: They are none.
    """
    largest = map_size(max_items)
    if len(part) < NULLS_BYTES + _SIZES.size or max(_SIZES.unpack_from(part)[3:]) > largest or _nulls(part) > most:
        raise ValueError(f"it is no sketch of {max_items} items")
    sketch = frequent_strings_sketch.deserialize(part[:-NULLS_BYTES])
    found = sketch.get_frequent_items(frequent_items_error_type.NO_FALSE_NEGATIVES)
    if max([sketch.total_weight, *(above for *_, above in found)]) > most:
        raise ValueError("a sketch of frequent items has counted too much")
    merged((part,), max_items)


def merged(parts: tuple[bytes, ...], max_items: int) -> bytes:
    """Return the sketch of all rows of some sketches, with their nulls."""
    whole = frequent_strings_sketch(map_size(max_items))
    nulls = 0
    for part in parts:
        whole.merge(frequent_strings_sketch.deserialize(part[:-NULLS_BYTES]))
        nulls += _nulls(part)
    return bytes(whole.serialize()) + min(nulls, _MOST).to_bytes(NULLS_BYTES, "big")


def map_size(max_items: int) -> int:
    """Return the binary logarithm of the hash map that Spark uses to track a number of items.

    >>> map_size(10_000)
    14
    """
    return max(3, math.ceil(math.log2(max_items / _LOAD)))


def _nulls(part: bytes) -> int:
    return int.from_bytes(part[-NULLS_BYTES:], "big")


@dataclass(frozen=True)
class TopK(OneInputAggregate):
    """The aggregate `top_k`: array<struct<item, count>>, most frequent first, ties by item, null last.

    Exact while a key has fewer than `max_items` different values in a window. Counts nulls as an item, as
    Spark's approx_top_k does. Items have the input's type if that is a string or an integer, else they are
    its text.
    """

    k: int
    max_items: int
    weight: Expression | None = None
    """What rows count instead of one; whole numbers."""

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """The values, and their weights if they have some."""
        return (self.x,) if self.weight is None else (self.x, self.weight)

    @property
    def primitives(self) -> tuple[FrequentItems | HeavyItems]:
        """One sketch."""
        if self.weight is not None:
            return (HeavyItems(self.x, self.weight, self.max_items),)
        return (FrequentItems(self.x, self.max_items),)

    @property
    def zero(self) -> Any:
        """Nothing has no frequent values."""
        return []

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return the items with their counts."""
        given = context.inputs[0]
        integer = pa.types.is_integer(given)
        item = pa.field("item", given if integer else pa.string())
        count = pa.field("count", pa.int64(), nullable=False)
        rows = [self._top(data, integer) for data in self.primitives[0].combined(states[0])]
        entry = pa.field("element", pa.struct([item, count]), nullable=False)
        return pa.array(rows, type=pa.list_(entry))

    def _top(self, data: bytes | None, integer: bool) -> list[dict[str, Any]]:
        if data is None:
            return []
        sketch = frequent_strings_sketch.deserialize(data[:-NULLS_BYTES])
        found = sketch.get_frequent_items(frequent_items_error_type.NO_FALSE_POSITIVES)
        counts: list[tuple[Any, int]] = [(int(text) if integer else text, estimate) for text, estimate, *_ in found]
        counts.sort(key=lambda pair: (-pair[1], pair[0]))
        nulls = _nulls(data)
        if nulls:
            place = sum(1 for _, number in counts if number >= nulls)
            counts.insert(place, (None, nulls))
        return [{"item": item, "count": number} for item, number in counts[: self.k]]

    def describe(self) -> str:
        """Return for example `top_k(x, 3)`."""
        items = "" if self.max_items == default_max_items(self.k) else f", max_items={self.max_items}"
        weight = "" if self.weight is None else f", weight={self.weight}"
        return f"top_k({self.x}, {self.k}{items}{weight})"


def default_max_items(k: int) -> int:
    """Return how many items are tracked unless the user says so: Spark's 10,000, or k if more."""
    return max(10_000, k)
