"""What computes terms: of the columns of a batch, or as expressions of Arrow over tables to come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from transom.native.terms import Term

Value: TypeAlias = Any
"""An array, a scalar or an expression of Arrow: its functions take all of them."""
Reached: TypeAlias = Any
"""Whether Spark comes to a term, a value that is never null; None for always."""


class NotKnownError(Exception):
    """Only Spark computes a term."""

    def __init__(self, text: str) -> None:
        super().__init__(f"only Spark computes {text}")
        self.text = text


class DoubtError(Exception):
    """Some row is one for which Spark may do something else, or fail."""


class Ground(Protocol):
    """Where columns come from."""

    def column(self, term: Term) -> Value:
        """Return a column, with the type that Spark gives it."""
        ...

    def constant(self, value: pa.Scalar) -> Value:
        """Return a constant."""
        ...

    def certain(self, term: Term, value: Value, holds: Value, reached: Reached) -> Value:
        """Return a value of which is known what Spark makes of it where something holds, and nowhere else.

        Raises:
            DoubtError: Spark comes to it where that does not hold.
            NotKnownError: Whether it holds cannot be looked at here.
        """
        ...


@dataclass(frozen=True)
class Rows:
    """Columns that are there."""

    columns: Mapping[str, pa.Array]

    def column(self, term: Term) -> Value:
        """Return a column."""
        found = self.columns[term.value]
        return found if found.type == term.type else found.cast(term.type)

    def constant(self, value: pa.Scalar) -> Value:
        """Return a constant as it is."""
        return value

    def certain(self, term: Term, value: Value, holds: Value, reached: Reached) -> Value:
        """Look at the rows; what is null is certain."""
        doubtful = pc.invert(pc.coalesce(holds, True))
        if pc.any(doubtful if reached is None else pc.and_kleene(doubtful, reached), min_count=0).as_py():
            raise DoubtError(f"a value for which it is not certain what Spark makes of {term.text}")
        return where(pc.invert(doubtful), value)


@dataclass(frozen=True)
class Expected:
    """Columns of tables to come."""

    schema: pa.Schema

    def column(self, term: Term) -> Value:
        """Return a column as an expression."""
        kind = self.schema.field(term.value).type
        found = pc.field(term.value)
        if kind == term.type or (kinds.is_timestamp(kind) and kind.tz and kind.unit == "us"):
            return found
        return found.cast(term.type) if is_simple(term.type) else found

    def constant(self, value: pa.Scalar) -> Value:
        """Return a constant as an expression, which Arrow's functions want to be given first."""
        return pc.scalar(value)

    def certain(self, term: Term, value: Value, holds: Value, reached: Reached) -> Value:
        """Refuse, as nothing can be looked at."""
        raise NotKnownError(term.text)


@dataclass(frozen=True)
class Computation:
    """Computes terms over some columns, each once.

    Args:
        ground: The columns.
        functions: What computes a term, by its kind; None is what it returns for one that only Spark computes.
    """

    ground: Ground
    functions: Mapping[str, Function]
    _known: dict[tuple[int, int], tuple[Value, Term, Reached]] = field(default_factory=dict, init=False, repr=False)
    """By the identity of terms, which are kept with their values: to compare them would be to walk them."""

    def value(self, term: Term, reached: Reached) -> Value:
        """Return a term's value; where Spark does not come to it, any.

        Raises:
            NotKnownError: Only Spark computes it.
            DoubtError: It may be something else in Spark for some row.
            pyarrow.ArrowException: It cannot be computed for some row, or for any value of its type.
        """
        place = id(term), id(reached)
        if place not in self._known:
            function = self.functions.get(term.kind)
            found = None if function is None else function(self, term, reached)
            if found is None:
                raise NotKnownError(term.text)
            self._known[place] = found, term, reached
        return self._known[place][0]

    def values(self, term: Term, reached: Reached) -> list[Value]:
        """Return the values of the terms that it is made of."""
        return [self.value(each, reached) for each in term.children]


Function: TypeAlias = Callable[[Computation, Term, Reached], Value]


def also(reached: Reached, further: Value) -> Reached:
    """Return what is reached if something holds, too."""
    return further if reached is None else pc.and_kleene(reached, further)


def where(reached: Reached, value: Value) -> Value:
    """Return a value where Spark comes to it, null elsewhere."""
    # Before version 24, Arrow's `if_else` of a null and a slice of texts gave other texts.
    return value if reached is None else pc.case_when(pc.make_struct(reached), value)


def is_simple(kind: pa.DataType) -> bool:
    """Tell whether Arrow compares values of a type as Spark does, but for NaN."""
    return any(
        each(kind)
        for each in (
            kinds.is_boolean,
            kinds.is_integer,
            kinds.is_floating,
            kinds.is_decimal,
            kinds.is_string,
            kinds.is_binary,
            kinds.is_date32,
            kinds.is_timestamp,
        )
    )


def constant(term: Term) -> Any:
    """Return the value of a constant; None for what is none, or null."""
    return term.value.as_py() if term.kind == "Literal" and term.value is not None else None


def constant_text(term: Term) -> str | None:
    """Return the value of a constant that is a text."""
    return constant(term) if kinds.is_string(term.type) else None
