"""What becomes of the columns of aggregates before they are results: conditions and columns, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from transom.model.expression import Expression


@dataclass(frozen=True)
class Having:
    """Rows that satisfy a condition, and no others."""

    condition: Expression

    def __str__(self) -> str:
        return f"having {self.condition}"


@dataclass(frozen=True)
class Select:
    """These columns, and no others."""

    columns: tuple[tuple[str, Expression], ...]
    """Name and expression."""

    def __str__(self) -> str:
        named = (name if name == str(value) else f"{value} as {name}" for name, value in self.columns)
        return f"select {', '.join(named)}"


@dataclass(frozen=True)
class Rename(Select):
    """All columns as they are, some with other names."""

    def __str__(self) -> str:
        return f"rename {', '.join(f'{value} as {name}' for name, value in self.columns if name != str(value))}"


Step: TypeAlias = "Having | Select"


def named_in(expression: Expression, names: Sequence[str]) -> str | None:
    """Return the column that an expression is, as it is; None for one that is computed.

    >>> named_in(Expression("`a b`"), ["a b"]), named_in(Expression("a + 1"), ["a"])
    ('a b', None)
    """
    if expression.column is not None:
        return None
    return next((name for name in names if expression.text in (name, f"`{name}`")), None)


def columns_after(steps: Sequence[Step], names: Sequence[str]) -> dict[str, str | None]:
    """Return the columns that some columns become, each with the one that it is, or None if it is computed.

    >>> columns_after([Select((("until", Expression("end")), ("more", Expression("n + 1"))))], ["end", "n"])
    {'until': 'end', 'more': None}
    """
    found: dict[str, str | None] = {name: name for name in names}
    for step in steps:
        if isinstance(step, Select):
            named = {name: named_in(value, list(found)) for name, value in step.columns}
            found = {name: None if source is None else found[source] for name, source in named.items()}
    return found


def kept_as(steps: Sequence[Step], names: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...] | None:
    """Return the names that some of the columns have after the steps; None if one of them is gone.

    >>> kept_as([Select((("until", Expression("window_end")),))], ["window_end", "n"], ["window_end"])
    ('until',)
    """
    found = {source: name for name, source in reversed(columns_after(steps, names).items())}
    return tuple(found[name] for name in wanted) if all(name in found for name in wanted) else None
