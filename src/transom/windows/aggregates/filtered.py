"""Aggregates over some of the rows: FILTER (WHERE ...)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from transom.errors import DefinitionError
from transom.model.expression import Expression, Input
from transom.windows.aggregates.base import (
    Aggregate,
    ExecutorFunction,
    Primitive,
    ResultContext,
    State,
    Types,
    Where,
    executor_function_of,
    state_key,
)

_FUNCTIONS = re.compile(
    r"\b(?:count|sum|avg|min|max|var_pop|covar_pop|skewness|kurtosis|bool_and|bool_or|bit_and|bit_or|bit_xor"
    r"|collect_list|collect_set|hll_sketch_agg|kll_sketch_agg_double|approx_top_k_accumulate)\("
)
"""Calls of the functions of Spark that primitives are made of."""


def with_filter(sql: str, condition: str) -> str:
    """Return the SQL of a state in which every aggregate function takes the rows that satisfy a condition.

    >>> with_filter("max(named_struct('t', t)).t + count(*)", "c")
    "max(named_struct('t', t)) FILTER (WHERE c).t + count(*) FILTER (WHERE c)"
    """
    made, done = "", 0
    for call in _FUNCTIONS.finditer(sql):
        end, depth = call.end(), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(sql[end], 0)
            end += 1
        made += f"{sql[done:end]} FILTER (WHERE {condition})"
        done = end
    return made + sql[done:]


@dataclass(frozen=True)
class Filtered:
    """Another primitive over the rows that satisfy a condition; its states are the other's."""

    of: Primitive
    condition: Expression

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """Those of the other one, and the condition."""
        return (*self.of.inputs, self.condition)

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key("where.1", self.condition.text, self.of.key)

    @property
    def small(self) -> bool:
        """As the other one."""
        return self.of.small

    @property
    def executor_function(self) -> ExecutorFunction | None:
        """As the other one."""
        return executor_function_of(self.of)

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return the other's SQL, with FILTER."""
        return {name: with_filter(sql, inputs[-1]) for name, sql in self.of.sql(inputs[:-1], time).items()}

    def decode(self, columns: Mapping[str, pa.Array]) -> State:
        """Return the other's state."""
        return self.of.decode(columns)

    def encode(self, state: State, types: Types) -> dict[str, pa.Array]:
        """Return the other's state."""
        return self.of.encode(state, types)

    def empty(self, slots: int, types: Types) -> State:
        """Return the other's neutral state."""
        return self.of.empty(slots, types)

    def merge_into(self, into: State, slots: Where, other: State) -> None:
        """Merge as the other one."""
        self.of.merge_into(into, slots, other)

    def flaw(self, columns: Mapping[str, pa.Array]) -> str:
        """Return the other's flaw."""
        return self.of.flaw(columns)


@dataclass(frozen=True)
class FilteredOf:
    """Another aggregate over the rows that satisfy a condition: what it is of no row where none does."""

    of: Aggregate
    condition: Expression

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """Those of the other one, and the condition."""
        return (*self.of.inputs, self.condition)

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """Those of the other one, filtered."""
        return tuple(Filtered(primitive, self.condition) for primitive in self.of.primitives)

    @property
    def zero(self) -> Any:
        """As the other one."""
        return self.of.zero

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return the other's values."""
        return self.of.result(states, ResultContext(context.inputs[:-1], context.types, context.ansi))

    def describe(self) -> str:
        """Return for example `count(*) FILTER (WHERE x > 5)`."""
        return f"{self.of.describe()} FILTER (WHERE {self.condition})"

    def where(self, condition: Input) -> Aggregate:
        """Refuse a second condition.

        Raises:
            DefinitionError: Always.
        """
        raise DefinitionError(
            f"where: {self.describe()} has a condition already.", 'Write both as one, as in where("a > 0 AND b < 5").'
        )


class Filterable:
    """An aggregate that can be taken over some of the rows."""

    def where(self: Aggregate, condition: Input) -> Aggregate:
        """Return the aggregate over the rows that satisfy a condition, SQL or a Column: SQL's FILTER (WHERE ...)."""
        return FilteredOf(self, Expression.of(condition, "where"))
