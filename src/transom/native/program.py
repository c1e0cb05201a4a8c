"""Programs: what a stream's transformations, conditions, keys and inputs make of rows, as steps that need no Spark.

A program is a value: equal ones do the same, and it travels to tasks by pickle. `evaluate.run` runs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import pyarrow as pa

from transom.native.terms import Term

INNER, LEFT, SEMI, ANTI = "inner", "left", "left_semi", "left_anti"


@dataclass(frozen=True)
class Filter:
    """Keeps the rows for which a condition is true, neither false nor null."""

    condition: Term


@dataclass(frozen=True)
class Project:
    """Makes columns; no others are there after it."""

    columns: tuple[tuple[str, Term], ...]
    """Their names, and what they are."""


@dataclass(frozen=True)
class Lookup:
    """Joins rows with those of a table that is given when the program runs.

    A row that finds several has one for each; one that finds none goes, or has nulls.
    """

    table: str
    on: tuple[tuple[Term, str], ...]
    """Values of a row, and the columns of the table that they must equal; null equals nothing, unless it is said."""
    kind: str
    """`INNER`, `LEFT`, `SEMI` (rows that find one) or `ANTI` (rows that find none)."""
    columns: tuple[tuple[str, str, pa.DataType], ...] = ()
    """Columns that are added: their names, which of the table they are, and their types; `SEMI` and `ANTI` have them
    for their condition only."""
    null_safe: frozenset[str] = frozenset()
    """Columns of the table in which null equals null."""
    condition: Term | None = None
    """What else must be true of a row and one of the table that it finds."""

    @property
    def adds(self) -> bool:
        """Whether rows have the columns of the table afterwards."""
        return self.kind in (INNER, LEFT)


Step: TypeAlias = Filter | Project | Lookup


@dataclass(frozen=True)
class Program:
    """Steps that are taken with the rows of a batch, one after the other.

    Args:
        columns: Of the rows that it takes; a batch may have more.
        steps: What is done with them.
    """

    columns: pa.Schema
    steps: tuple[Step, ...] = ()

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the rows that it makes."""
        found = {field.name: field.type for field in self.columns}
        for step in self.steps:
            if isinstance(step, Project):
                found = {name: term.type for name, term in step.columns}
            elif isinstance(step, Lookup) and step.adds:
                found.update((name, kind) for name, _, kind in step.columns)
        return pa.schema(list(found.items()))

    @property
    def kept(self) -> frozenset[str]:
        """Those of them that are as they were at the beginning, under the same name."""
        origin = {name: name for name in self.columns.names}
        for step in self.steps:
            if isinstance(step, Project):
                columns = {name: str(term.value) for name, term in step.columns if term.kind == "Column"}
                origin = {name: origin[source] for name, source in columns.items() if source in origin}
        return frozenset(name for name, source in origin.items() if name == source)

    @property
    def tables(self) -> frozenset[str]:
        """Names of the tables that it needs."""
        return frozenset(step.table for step in self.steps if isinstance(step, Lookup))

    @cached_property
    def needed(self) -> tuple[frozenset[str], ...]:
        """The columns that are needed before each step and after the last one."""
        wanted = frozenset(self.schema.names)
        found = [wanted]
        for step in reversed(self.steps):
            if isinstance(step, Filter):
                wanted |= names_in(step.condition)
            elif isinstance(step, Project):
                wanted = frozenset().union(*(names_in(term) for name, term in step.columns))
            else:
                wanted -= {name for name, _, _ in step.columns}
                terms = [*(term for term, _ in step.on), *([] if step.condition is None else [step.condition])]
                wanted = wanted.union(*map(names_in, terms)) - {name for name, _, _ in step.columns}
            found.append(wanted)
        return tuple(reversed(found))


@dataclass(frozen=True)
class Judge:
    """The word that Spark has to decide about a batch, and why: a row that would fail there, or one in doubt."""

    why: str


def names_in(term: Term) -> frozenset[str]:
    """Return the columns that a term reads."""
    if term.kind == "Column":
        return frozenset([str(term.value)])
    return frozenset().union(*(names_in(child) for child in term.children))
