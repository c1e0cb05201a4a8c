"""How CSV files are written: options of Spark's reader, where it is known all that they change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SEPARATORS = {",": ",", ";": ";", "|": "|", "\t": "\t", "\\t": "\t"}
"""Separators by how an option says them."""
_QUOTE, _BACKSLASH = '"', "\\"
_UTF8 = ("utf-8", "utf8")


@dataclass(frozen=True)
class Dialect:
    """How CSV files are written.

    Args:
        separator: What is between values.
        header: Whether a file's first line names its columns.
        named: Whether these have to be the declared ones.
        doubled: Whether a quotation mark in a quoted value is written twice, and not behind a backslash.
        null: The text that is null; an empty one always is, unless it is quoted.
    """

    separator: str = ","
    header: bool = False
    named: bool = True
    doubled: bool = False
    null: str = ""


SPARKS = Dialect()
"""How Spark takes files to be written."""


def dialect_of(options: Mapping[str, object]) -> Dialect | str:
    r"""Return the dialect of some options of Spark's reader; or the first option that only Spark knows.

    What is not said is as Spark has it, but for `enforceSchema`, which is false.

    >>> dialect_of({"header": "true", "sep": ";", "escape": '"'})
    Dialect(separator=';', header=True, named=True, doubled=True, null='')
    >>> dialect_of({"header": "true", "Comment": "#"})
    'Comment'
    """
    given: dict[str, str] = {}
    for name, value in options.items():
        text, own = str(value), name.lower()
        own = {"delimiter": "sep", "charset": "encoding"}.get(own, own)
        if own in given or not isinstance(value, (str, bool)) or not _is_known(own, text):
            return name
        given[own] = text
    return Dialect(
        SEPARATORS[given.get("sep", ",")],
        header=given.get("header", "").lower() == "true",
        named=given.get("enforceschema", "").lower() != "true",
        doubled=given.get("escape") == _QUOTE,
        null=given.get("nullvalue", ""),
    )


def _is_known(name: str, value: str) -> bool:
    """Tell whether it is known what a value of an option changes."""
    match name:
        case "header" | "enforceschema" | "inferschema":
            return value.lower() in ("true", "false")
        case "multiline" | "ignoreleadingwhitespace" | "ignoretrailingwhitespace":
            return value.lower() == "false"
        case "sep":
            return value in SEPARATORS
        case "quote":
            return value == _QUOTE
        case "escape":
            return value in (_QUOTE, _BACKSLASH)
        case "encoding":
            return value.lower() in _UTF8
        case "nullvalue":
            return value.isprintable() and value == value.strip() and not {_QUOTE, _BACKSLASH, *SEPARATORS} & {*value}
    return False
