"""Aggregates of the user's own: three functions over Arrow, the first of which runs on the executors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from transom.errors import QueryFailedError
from transom.model.expression import Expression
from transom.windows.aggregates.base import ExecutorFunction, Primitive, ResultContext, State, state_key
from transom.windows.aggregates.ddl import parse_fields, parse_type
from transom.windows.aggregates.filtered import Filterable
from transom.windows.aggregates.parts import PartsPrimitive

Values: TypeAlias = "Mapping[str, Any]"
"""One state of a user's aggregate: a Python value for each field."""
PartialFunction: TypeAlias = "Callable[[pa.Table], Values]"
"""Rows of one key in one pane (a column for each input) to their state."""
MergeFunction: TypeAlias = "Callable[[pa.Table], Values]"
"""Two or more states (a row each) to the state of all their rows; must not depend on their order."""
ResultFunction: TypeAlias = "Callable[[Values], Any]"
"""A state to the value."""


@dataclass(frozen=True)
class _PartialOfRows:
    """Lists of rows to states: `partial` for each list. An exception is kept as the state's error."""

    partial: PartialFunction
    state: str

    def __call__(self, column: pa.Array) -> pa.Array:
        kind = parse_fields(self.state, "state")
        states: list[dict[str, Any] | None] = []
        for row in range(len(column)):
            rows = column[row].values
            if rows is None or len(rows) == 0:
                states.append(None)
            else:
                states.append(_guarded(self.partial, _table(rows), kind))
        return pa.array(states, type=_stored(kind))


@dataclass(frozen=True)
class UserStates(PartsPrimitive):
    """States of a user's aggregate. State: `state`, tuples of dicts with the user's fields and `error`."""

    column = "state"

    name: str
    """The user's name for the aggregate; functions have no lasting name."""
    fields: tuple[tuple[str, Expression], ...]
    partial: PartialFunction
    merge: MergeFunction
    state: str

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """The input expressions."""
        return tuple(expression for _, expression in self.fields)

    @property
    def executor_function(self) -> ExecutorFunction:
        """Computes the states of the collected rows on the executors."""
        returns = f"struct<value: struct<{self.state}>, error: string>"
        states_of = _PartialOfRows(self.partial, self.state)

        def on_executors(column: pa.Array) -> pa.Array:  # Spark reads the annotations of functions only
            return states_of(column)

        return ExecutorFunction("state", on_executors, returns)

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key("user.1", self.name, self.state, *([name, x.text] for name, x in self.fields))

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return the rows as a list of structs, which `executor_function` turns into states."""
        pairs = ", ".join(f"'{name}', {x}" for (name, _), x in zip(self.fields, inputs, strict=True))
        return {"state": f"collect_list(named_struct({pairs}))"}

    def combine(self, parts: tuple[dict[str, Any], ...]) -> dict[str, Any]:
        """Return the user's merge of some states; the first error if there is one."""
        for part in parts:
            if part["error"] is not None:
                return part
        kind = parse_fields(self.state, "state")
        states = _table(pa.array([part["value"] for part in parts], type=kind))
        return _guarded(self.merge, states, kind)

    def check(self, part: dict[str, Any]) -> None:
        """Refuse what is neither the user's state nor an error; the user's functions are not asked.

        Raises:
            ValueError: It is both or none.
        """
        if (part["value"] is None) == (part["error"] is None):
            raise ValueError("a state is neither a value nor an error")


def _table(rows: pa.StructArray) -> pa.Table:
    """Return structs as a table.

    Arrow's own function for it took more rows than a slice has, before version 23.

    >>> _table(pa.array([[{"x": 1}], [{"x": 2}, {"x": 3}]])[0].values)["x"].to_pylist()
    [1]
    """
    return pa.Table.from_arrays(rows.flatten(), schema=pa.schema(list(rows.type)))


def _stored(kind: pa.StructType) -> pa.StructType:
    return pa.struct([pa.field("value", kind), pa.field("error", pa.string())])


def _guarded(function: Callable[[pa.Table], Values], table: pa.Table, kind: pa.StructType) -> dict[str, Any]:
    """Return what a user's function returns, as its declared type holds it, or its exception as an error."""
    try:
        value = dict(function(table))
        names = {field.name for field in kind}
        if set(value) != names:
            raise ValueError(f"it returned the fields {sorted(value)}, not {sorted(names)}")
        return {"value": pa.scalar(value, type=kind).as_py(), "error": None}
    except MemoryError:  # it may go well the next time
        raise
    except Exception as error:
        return {"value": None, "error": f"{type(error).__name__}: {error}"}


@dataclass(frozen=True)
class UserAggregate(Filterable):
    """The aggregate that `udaf` returns; null without rows."""

    name: str
    states: UserStates
    finish: ResultFunction
    returns: str

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """The input expressions."""
        return self.states.inputs

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """The user's states."""
        return (self.states,)

    @property
    def zero(self) -> Any:
        """The state of no rows, which only the user knows."""
        return None

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return the user's values.

        Raises:
            QueryFailedError: A function of the user's raised, or returned what its declared type cannot hold.
        """
        values: list[Any] = []
        for part in self.states.combined(states[0]):
            if part is None:
                values.append(None)
                continue
            if part["error"] is not None:
                raise self._failed(part["error"])
            try:
                values.append(self.finish(dict(part["value"])))
            except MemoryError:
                raise
            except Exception as error:
                raise self._failed(f"{type(error).__name__}: {error}") from error
        try:
            return pa.array(values, type=parse_type(self.returns, "returns"))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise self._failed(f"{error} (its result is declared as {self.returns})") from error

    def _failed(self, reason: str) -> QueryFailedError:
        return QueryFailedError(
            f"The user's aggregate {self.name} failed: {reason}.", "Correct its functions and start again."
        )

    def describe(self) -> str:
        """Return the name, the inputs and the declared types."""
        inputs = ", ".join(f"{name}={expression}" for name, expression in self.states.fields)
        return f"{self.name}({inputs}) state {self.states.state} returns {self.returns}"
