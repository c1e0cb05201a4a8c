"""Arguments that users give, compared with the types that a function says it takes, before it begins.

Python takes "no" for true, a text for a list of its letters, and True for 1: a result would be another one than asked
for, or the error one of Python's, deep inside. Durations, expressions and what else has a check of its own are left to
it.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple, TypeVar

from transom.errors import DefinitionError
from transom.model.arguments import require_text, shown

F = TypeVar("F", bound=Callable[..., Any])

_SECRET = ("options", "storage_options", "dsn")
"""Arguments that may hold passwords, and are shown nowhere."""
LONGEST_NAME = 1000
"""Characters."""


class _Kind(NamedTuple):
    """A type as signatures have it."""

    fits: Callable[[Any], bool]
    give: str
    """What to give, for people."""


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isnan(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_path(value: Any) -> bool:
    return isinstance(value, os.PathLike) or hasattr(value, "read_bytes")  # the other way to name what is in a store


_KINDS = {
    "None": _Kind(lambda value: value is None, "nothing"),
    "str": _Kind(lambda value: isinstance(value, str), "a text"),
    "bool": _Kind(lambda value: isinstance(value, bool), "True or False"),
    "int": _Kind(lambda value: isinstance(value, int) and not isinstance(value, bool), "a whole number"),
    "Micros": _Kind(lambda value: isinstance(value, int) and not isinstance(value, bool), "whole microseconds"),
    "float": _Kind(_is_number, "a number"),
    "os.PathLike": _Kind(_is_path, "a path"),
    "Path": _Kind(_is_path, "a path"),
    "Literal": _Kind(lambda value: isinstance(value, str), "a text"),
    "Sequence": _Kind(lambda value: isinstance(value, Sequence) and not isinstance(value, (str, bytes)), "a list"),
    "Mapping": _Kind(lambda value: isinstance(value, Mapping), "a dictionary"),
    "Callable": _Kind(callable, "a function"),
}
_LISTS = {"Sequence[str]": "a list of texts", "Mapping[str, str]": "a dictionary of texts"}


def checked(function: F) -> F:
    """Let a function refuse arguments that are not of the types in its signature, as far as these are known here.

    A text may not hold what no file and no message can (the name of something: no line break either).

    Raises:
        DefinitionError: The function that is returned: an argument is of another type; names it, and what to give.
    """
    signature = inspect.signature(function)
    wanted = {name: _alternatives(each.annotation) for name, each in signature.parameters.items()}
    lists = {each.name: each.kind for each in signature.parameters.values()}
    owner = getattr(function, "__qualname__", "").removesuffix(".__init__").rpartition(".")[2]

    @functools.wraps(function)
    def wrapped(*args: Any, **options: Any) -> Any:
        try:
            bound = signature.bind(*args, **options)
        except TypeError:
            return function(*args, **options)  # Python says best what is missing, or too much
        for name, value in bound.arguments.items():
            if lists[name] is inspect.Parameter.VAR_POSITIONAL:
                for place, one in enumerate(value):
                    _check(f"{owner}: {name}[{place}]", name, one, wanted[name])
            elif lists[name] is not inspect.Parameter.VAR_KEYWORD:
                _check(f"{owner}: {name}", name, value, wanted[name])
        return function(*args, **options)

    return wrapped  # type: ignore[return-value]


def check_fields(value: Any, what: str) -> None:
    """Refuse a dataclass with a field of another type than it says.

    Raises:
        DefinitionError: There is one.
    """
    for each in fields(value):
        _check(f"{what}: {each.name}", each.name, getattr(value, each.name), _alternatives(each.type))


def _check(where: str, name: str, value: Any, wanted: Sequence[str]) -> None:
    if not wanted:
        return
    if not any(_fits(value, each) for each in wanted):
        words = dict.fromkeys(_words(each) for each in wanted if each != "None")
        seen = f"a value of type {type(value).__name__}" if name in _SECRET else shown(value)
        raise DefinitionError(f"{where} is {seen}.", f"Give {' or '.join(words)}.")
    if isinstance(value, str) and name not in _SECRET:
        _check_text(where, value, name == "name")


def _fits(value: Any, kind: str) -> bool:
    base, _, inner = kind.partition("[")
    if not _KINDS[base].fits(value):
        return False
    if base == "Sequence":
        wanted = _alternatives(inner[:-1])
        return not wanted or all(any(_fits(one, each) for each in wanted) for one in value)
    if inner == "str, str]":
        return all(isinstance(name, str) and isinstance(one, (str, int, float)) for name, one in value.items())
    return True


def _words(kind: str) -> str:
    return _LISTS.get(kind) or _KINDS[kind.partition("[")[0]].give


def _check_text(where: str, value: str, is_name: bool) -> None:
    require_text(value, where)
    if is_name and (not value.strip() or len(value) > LONGEST_NAME or not value.isprintable()):
        raise DefinitionError(
            f"{where} is {shown(value)}.",
            f"Give a name of printable characters, 1 to {LONGEST_NAME:,} of them.",
        )


def _alternatives(annotation: Any) -> tuple[str, ...]:
    """Return the types of an annotation; none if it has one that is not known here.

    >>> _alternatives("str | Sequence[str] | None"), _alternatives("Duration | None")
    (('str', 'Sequence[str]', 'None'), ())
    """
    if not isinstance(annotation, str):
        return ()
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(annotation + "|"):
        depth += (letter in "[(") - (letter in "])")
        if letter == "|" and not depth:
            parts.append(annotation[start:place].strip())
            start = place + 1
    return tuple(parts) if all(part.partition("[")[0] in _KINDS for part in parts) else ()
