"""Bounded collect_list and collect_set: the first values of an order, so that they are exact and mergeable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from transom.model.expression import Expression
from transom.windows.aggregates.base import ResultContext, State, Types, state_key
from transom.windows.aggregates.filtered import Filterable
from transom.windows.aggregates.flaws import flaw_of_lists
from transom.windows.aggregates.oneinput import OneInput, OneInputAggregate
from transom.windows.aggregates.parts import PartsPrimitive, single_parts
from transom.windows.aggregates.values import Values, distinct, from_values, order_key, sort, storage_dtype, to_values


@dataclass(frozen=True)
class Smallest(PartsPrimitive, OneInput):
    """The `limit` smallest values that are not null, with or without repetitions, in Spark's order.

    State: `values`, tuples of sorted numpy arrays.
    """

    column = "values"

    limit: int
    unique: bool

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key("smallest.1", self.limit, self.unique, self.x.text)

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return the sorted beginning of what Spark collects."""
        function = "collect_set" if self.unique else "collect_list"
        return {"values": f"slice(sort_array({function}({inputs[0]})), 1, {self.limit})"}

    def decode(self, columns: Mapping[str, pa.Array]) -> State:
        """Return one sorted array per row, none where the list is empty."""
        lists = columns["values"]
        if isinstance(lists, pa.ChunkedArray):
            lists = lists.combine_chunks()
        lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        ends = np.cumsum(lengths)
        items = to_values(lists.flatten())[0]
        arrays = [items[end - length : end] for end, length in zip(ends, lengths, strict=True)]
        return {"values": single_parts(arrays, lengths > 0)}

    def encode(self, state: State, types: Types) -> dict[str, pa.Array]:
        """Return one list per slot."""
        return {"values": self.lists(state, types["values"])}

    def combine(self, parts: tuple[Values, ...]) -> Values:
        """Return the smallest values of sorted arrays."""
        ordered = sort(np.concatenate(parts))
        return (distinct(ordered) if self.unique else ordered)[: self.limit]

    def flaw(self, columns: Mapping[str, pa.Array]) -> str:
        """Return what is wrong with the lists."""
        return flaw_of_lists(columns["values"], self.limit)

    def lists(self, state: State, kind: pa.DataType) -> pa.Array:
        """Return one sorted list per slot, of an Arrow list type."""
        item = kind.value_type
        none = np.empty(0, dtype=storage_dtype(item))
        arrays = [none if found is None else found for found in self.combined(state)]
        offsets = np.concatenate(([0], np.cumsum([len(array) for array in arrays]))).astype(np.int32)
        items = np.concatenate([none, *arrays])
        flat = from_values(items, np.ones(len(items), dtype=np.bool_), item)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, type=kind)


@dataclass(frozen=True)
class Collect(OneInputAggregate):
    """The aggregates `collect_list` and `collect_set`: a sorted array of the input's type, never null."""

    limit: int
    unique: bool

    @property
    def primitives(self) -> tuple[Smallest]:
        """The smallest values."""
        return (Smallest(self.x, self.limit, self.unique),)

    @property
    def zero(self) -> Any:
        """Nothing collects nothing."""
        return []

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return the lists."""
        return self.primitives[0].lists(states[0], context.types[0]["values"])

    def describe(self) -> str:
        """Return for example `collect_set(x, limit=10)`."""
        return f"collect_{'set' if self.unique else 'list'}({self.x}, limit={self.limit})"


@dataclass(frozen=True)
class FirstOf(PartsPrimitive):
    """The values of the first `limit` rows in the order of another expression, of rows where the value is not null.

    Of equal ranks the smaller value is the smaller one. State: `rows`, tuples of sorted lists of structs.
    """

    column = "rows"

    x: Expression
    order: Expression
    descending: bool
    limit: int

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """The values, and their order."""
        return (self.x, self.order)

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key("first.1", self.limit, "desc" if self.descending else "asc", self.x.text, self.order.text)

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return the sorted beginning of what Spark collects."""
        x, order = inputs
        rows = f"collect_list(CASE WHEN {x} IS NOT NULL THEN named_struct('o', {order}, 'x', {x}) END)"
        return {"rows": f"slice(sort_array({rows}, {not self.descending}), 1, {self.limit})"}

    def decode(self, columns: Mapping[str, pa.Array]) -> State:
        """Return one sorted list per row, none where it is empty."""
        rows = columns["rows"].to_pylist()
        return {"rows": single_parts(rows, np.fromiter(map(bool, rows), np.bool_, len(rows)))}

    def encode(self, state: State, types: Types) -> dict[str, pa.Array]:
        """Return one list per slot."""
        return {"rows": pa.array([rows or [] for rows in self.combined(state)], type=types["rows"])}

    def combine(self, parts: tuple[list[dict[str, Any]], ...]) -> list[dict[str, Any]]:
        """Return the first rows of sorted lists."""
        rows = [row for part in parts for row in part]
        return sorted(rows, key=order_key, reverse=self.descending)[: self.limit]

    def flaw(self, columns: Mapping[str, pa.Array]) -> str:
        """Return what is wrong with the lists, or that a value is null."""
        rows = columns["rows"]
        if wrong := flaw_of_lists(rows, self.limit):
            return wrong
        values = rows.flatten().field("x")
        return "a list holds a value that is null" if values.null_count else ""


@dataclass(frozen=True)
class CollectFirst(Filterable):
    """The aggregate `collect_list` with an order: an array of the input's type, never null."""

    x: Expression
    order: Expression
    descending: bool
    limit: int

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """The values, and their order."""
        return (self.x, self.order)

    @property
    def primitives(self) -> tuple[FirstOf]:
        """The first rows."""
        return (FirstOf(self.x, self.order, self.descending, self.limit),)

    @property
    def zero(self) -> Any:
        """Nothing collects nothing."""
        return []

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return the values."""
        kind = context.types[0]["rows"].value_type.field("x").type
        values = [[row["x"] for row in rows or []] for rows in self.primitives[0].combined(states[0])]
        return pa.array(values, type=pa.list_(pa.field("element", kind, nullable=False)))

    def describe(self) -> str:
        """Return for example `collect_list(x, limit=10, order_by=y desc)`."""
        order = f"{self.order}{' desc' if self.descending else ''}"
        return f"collect_list({self.x}, limit={self.limit}, order_by={order})"
