"""Values that users give, checked: an error names the argument, what it is, and what it could be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from transom.errors import DefinitionError, short
from transom.model.time import Duration, Micros, parse_duration


def shown(value: Any) -> str:
    """Return a value and its type, shortened, for a message.

    >>> shown("1 MB")
    "'1 MB' (str)"
    """
    return f"{short(value)} ({type(value).__name__})"


def require_text(value: str, field: str) -> None:
    """Refuse a text that no file and no other program takes: with NUL, or half of a character.

    Raises:
        DefinitionError: It is that.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DefinitionError(f"{field} is {shown(value)}, with half a character.", "Give a text in UTF-8.") from None
    if "\0" in value:
        raise DefinitionError(f"{field} is {shown(value)}.", "Leave out the character NUL.")


def whole_number(value: Any, field: str, least: int = 1) -> int:
    """Return a whole number that is large enough.

    Raises:
        DefinitionError: It is none, or smaller.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise DefinitionError(f"{field} is {shown(value)}.", f"Give a whole number, at least {least}.")
    return value


def wait(value: Duration, field: str) -> Micros:
    """Return how long to wait, maybe not at all.

    Raises:
        DefinitionError: It is no duration, or negative.
    """
    longest = parse_duration(value, field)
    if longest < 0:
        raise DefinitionError(f"{field} is {value!r}.", "Give a duration, 0 for not at all.")
    return longest


def text(value: Any, field: str) -> str:
    """Return a text that is not empty.

    Raises:
        DefinitionError: It is none, or empty.
    """
    if not isinstance(value, str) or not value.strip():
        raise DefinitionError(f"{field} is {shown(value)}.", "Give a text that is not empty.")
    return value


def column_names(value: Any, field: str) -> tuple[str, ...]:
    """Return names of columns, each there once; maybe none.

    Raises:
        DefinitionError: It is no list of names, or one is there twice.
    """
    if isinstance(value, str):
        raise DefinitionError(f"{field} is the text {value!r}.", f"Give a list: [{value!r}].")
    if not isinstance(value, Iterable):
        raise DefinitionError(f"{field} is {shown(value)}.", "Give a list of column names.")
    names = tuple(value)
    for place, name in enumerate(names):
        text(name, f"{field}[{place}]")
        if name in names[:place]:
            raise DefinitionError(f"{field} has {name!r} twice.", "Give each column once.")
    return names
