"""An input of an aggregate or a key, as the user wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from transom.errors import DefinitionError

Input: TypeAlias = "str | object"
"""A column name, a SQL expression, or a PySpark Column."""


@dataclass(frozen=True, eq=False)
class Expression:
    """A SQL text, or a PySpark Column, which is only known by identity.

    Two texts are the same expression when they are equal. Two Columns are the same only when they are one object,
    because different Python functions can print alike.
    """

    text: str
    column: object | None = None

    @classmethod
    def of(cls, value: Input, field: str) -> Expression:
        """Wrap what the user wrote.

        Raises:
            DefinitionError: It is neither text nor a Column.
        """
        if isinstance(value, Expression):
            return value
        if isinstance(value, str):
            if not value.strip():
                raise DefinitionError(f"{field}: the expression is empty.", "Name a column.")
            return cls(value)
        if hasattr(value, "alias") and hasattr(value, "cast"):
            return cls(str(value), value)
        raise DefinitionError(
            f"{field}: {value!r} is not a column.", "Give a column name, a SQL expression or a Column."
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.text == other.text and self.column is other.column

    def __hash__(self) -> int:
        return hash((self.text, id(self.column)))

    def __str__(self) -> str:
        return self.text
