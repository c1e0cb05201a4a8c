"""An input of an aggregate or a key, as the user wrote it."""

from __future__ import annotations

import itertools
import re
import weakref
from dataclasses import dataclass
from typing import Any, TypeAlias

from transom.errors import DefinitionError
from transom.model.arguments import require_text, shown

Input: TypeAlias = "str | object"
"""A column name, a SQL expression, or a PySpark Column."""

_ORIGIN = re.compile(
    r",Origin\((?:None,){7}Some\(\[Ljava\.lang\.StackTraceElement;@[0-9a-f]+\),(?:None|Some\(\([^()]*\)\)),None\)"
)
"""Where in the user's code a part of a Column was made, which Spark writes into the arguments of Python functions."""
_ARGUMENT = re.compile(r"columnnodeexpression\(UnresolvedAttribute\(List\(([^()]*)\),None,false\)\)")
_PARAMETERS = re.compile(r"\b([a-z]_\d+)\b(?=[^()]*\)? -> )")

_columns: tuple[dict[int, tuple[str, weakref.ref[Any]]], ...] = tuple({} for _ in range(1 << 10))
"""Columns that expressions were made of and that are still there, with their texts, by number; of like texts together.

Threads put Columns in and take them out, each with one operation on a dictionary, and no dictionary is ever replaced.
"""
_numbers = itertools.count()


@dataclass(frozen=True, eq=False)
class Expression:
    """A SQL text, or a PySpark Column.

    Two texts are the same expression when they are equal. Two Columns are the same when they are one object, or surely
    mean the same: then they are made one object by `of`. Columns with one text that may differ (functions that are
    called alike) are two expressions, of which a stream takes only one, since the text is what a checkpoint knows.
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
            require_text(value, field)
            return cls(value)
        if hasattr(value, "alias") and hasattr(value, "cast"):
            text = lasting_text(str(value))
            return cls(text, _one_of(text, value))
        raise DefinitionError(
            f"{field}: {shown(value)} is not a column.", "Give a column name, a SQL expression or a Column."
        )

    @classmethod
    def called(cls, text: str, column: object) -> Expression:
        """Return a Column under a text of its own."""
        return cls(text, _one_of(text, column))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.text == other.text and self.column is other.column

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text


def lasting_text(text: str) -> str:
    """Return the text of a Column without what differs from run to run: lines of code and numbers of variables.

    >>> lasting_text("Column<'transform(a, x_41 -> +(x_41, 1))'>")
    "Column<'transform(a, x_1 -> +(x_1, 1))'>"
    """
    text = _ORIGIN.sub("", text)
    text = _ARGUMENT.sub(lambda match: match[1].replace(", ", "."), text)
    for number, name in enumerate(dict.fromkeys(_PARAMETERS.findall(text)), 1):
        text = re.sub(rf"\b{name}\b", f"{name[0]}\0{number}", text)
    return text.replace("\0", "_")


def _one_of(text: str, column: Any) -> Any:
    """Return the first Column that surely means the same; this one, if there is none.

    It is put in before the others are looked at: so of two threads with equal Columns both find the same one first.
    """
    alike, number = _columns[hash(text) % len(_columns)], next(_numbers)
    alike[number] = text, weakref.ref(column, lambda _: alike.pop(number, None))
    for its_text, reference in list(alike.values()):
        other = reference() if its_text == text else None
        if other is not None and (other is column or _same(other, column)):
            break
    if other is not column:
        del alike[number]
    return other


def _same(one: Any, other: Any) -> bool:
    """Tell whether two Columns surely mean the same; where Spark cannot tell, they do not."""
    if hasattr(one, "_jc") and hasattr(other, "_jc"):
        try:
            return bool(one._jc.equals(other._jc))
        except Exception:  # they are of a JVM that is gone
            return False
    return _alike(getattr(one, "_expr", None), getattr(other, "_expr", other))


def _alike(one: Any, other: Any) -> bool:
    """Tell whether two expressions of Spark Connect are equal but for the lines of code that they come from."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
    if type(one).__module__.startswith("pyspark.sql.connect.expressions"):
        parts, others = ({k: v for k, v in vars(each).items() if k != "origin"} for each in (one, other))
        return parts.keys() == others.keys() and all(_alike(parts[name], others[name]) for name in parts)
    return isinstance(one, (str, int, float, bool, bytes)) and repr(one) == repr(other)
