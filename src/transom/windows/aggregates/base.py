"""The contract of an aggregate: primitives (mergeable states that Spark computes) and a result made from them.

A *state* is columns of one length, one slot per key. Spark computes it once per (pane, key); on the driver it
is only ever merged. Queries share primitives: `stddev(x)` and `var_pop(x)` use the same moments.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from transom.model.expression import Expression, Input

State: TypeAlias = "dict[str, np.ndarray[Any, Any]]"
"""Columns of a state by name, each of shape (slots,)."""
Slots: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Types: TypeAlias = "Mapping[str, pa.DataType]"
"""Arrow types of a state's columns, as Spark returns them."""
Where: TypeAlias = "Slots | slice[None, None, None]"
"""Slots to merge into: one for each row, or `ALL` when row i goes to slot i."""
ALL: slice[None, None, None] = slice(None)


def at(slots: Where, rows: Slots) -> Slots:
    """Return the slots of some rows."""
    return rows if isinstance(slots, slice) else slots[rows]


def state_key(kind: str, *details: object) -> str:
    """Return the name of a primitive's states in checkpoints.

    Args:
        kind: What the primitive is, with the version of the form of its states, e.g. `sum.1`. It is no name in the
            code, and never changes; states of another form or meaning get another version.
        details: What else tells the states from others of the kind; expressions as text.

    >>> state_key("sum.1", "x")
    '["sum.1", "x"]'
    """
    if all(isinstance(each, str) for each in details):
        return _key_of_texts(kind, *details)
    return json.dumps([kind, *details], ensure_ascii=False)


@lru_cache(maxsize=4096)
def _key_of_texts(*texts: object) -> str:
    return json.dumps(texts, ensure_ascii=False)


class Primitive(Protocol):
    """A commutative monoid over rows. Implementations are frozen, hashable dataclasses, shared when equal."""

    @property
    def key(self) -> str:
        """The name of its states in checkpoints, for ever: a `state_key`. Primitives of equal keys are the same."""

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """The expressions it reads."""

    @property
    def small(self) -> bool:
        """Whether a state is a few numbers, cheap to keep for each fine key; false for sketches."""

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return a Spark SQL aggregate expression for each column of the state.

        Args:
            inputs: A column reference (already quoted) for each of `inputs`.
            time: The column reference of the event time, a bigint of microseconds.
        """

    def decode(self, columns: Mapping[str, pa.Array]) -> State:
        """Return the state held by Arrow columns of n rows, as Spark or `encode` made them."""

    def encode(self, state: State, types: Types) -> dict[str, pa.Array]:
        """Return Arrow columns of `types` that `decode` turns into the same state."""

    def empty(self, slots: int, types: Types) -> State:
        """Return the neutral state in every slot; the caller owns it and may merge into it."""

    def merge_into(self, into: State, slots: Where, other: State) -> None:
        """Merge row i of `other` into slot `slots[i]` of `into`, in place; O(rows), vectorised if possible.

        Slots are unique within one call; `ALL` stands for the slots 0, 1, ... and saves looking them up. Never raises
        for a value: an overflow is kept in the state for `result`.
        """

    def flaw(self, columns: Mapping[str, pa.Array]) -> str:
        """Return in words why columns that came from elsewhere can be no states of rows; empty if they may be.

        What has no flaw can be decoded, merged, encoded and read, whatever made it.

        Args:
            columns: Arrow columns of the state's types, valid as Arrow sees it.

        Raises:
            Exception: They cannot be read at all.
        """


@dataclass(frozen=True)
class ExecutorFunction:
    """A step that the engine runs on the executors after the Spark aggregation, as an Arrow scalar UDF."""

    column: str
    """The state's column that it reads and replaces."""
    function: Callable[[pa.Array], pa.Array]
    """From the aggregated column to the state's column, of the same length. Pickled to the executors."""
    returns: str
    """Spark type of what it returns."""


def executor_function_of(primitive: Primitive) -> ExecutorFunction | None:
    """Return what the engine must run on the executors after the aggregation, `executor_function`; most have none."""
    found: ExecutorFunction | None = getattr(primitive, "executor_function", None)
    return found


def of_runs(primitive: Primitive, state: State, starts: Slots, longest: int) -> State | None:
    """Return the merged rows of each run of rows in one step, the same as by `merge_into`; None where there is no way.

    Args:
        primitive: Whose state it is; those for which there is a way have a method of this name.
        state: Rows, those of each run together; left as it is.
        starts: Where each run begins; the first at 0, and every run has rows.
        longest: No run has more rows.
    """
    found: Callable[[State, Slots, int], State | None] | None = getattr(primitive, "of_runs", None)
    return None if found is None else found(state, starts, longest)


@dataclass(frozen=True)
class ResultContext:
    """The context of a result: what it may depend on besides the states."""

    inputs: tuple[pa.DataType, ...]
    """Arrow types of the aggregate's own input expressions, in order."""
    types: tuple[Types, ...]
    """Types of the states' columns, one mapping per primitive, in the order of `primitives`."""
    ansi: bool
    """Whether overflow is an error (spark.sql.ansi.enabled)."""


class Aggregate(Protocol):
    """Primitives and the result made of them. Implementations are frozen, hashable dataclasses."""

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """The expressions it reads, as the user gave them."""

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """The primitives that it needs."""

    @property
    def zero(self) -> Any:
        """The value in a window without rows if the query has `fill="zero"`; None if zero would be a lie."""

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return one value per slot, of the type that Spark's batch aggregate has.

        Raises:
            QueryFailedError: Overflow under ANSI.
        """

    def describe(self) -> str:
        """Return the call as text, e.g. `quantile(fare, 0.95)`; part of the query's fingerprint."""

    def where(self, condition: Input) -> Aggregate:
        """Return the aggregate over the rows that satisfy a condition, SQL or a Column."""
