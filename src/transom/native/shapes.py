"""The form of a line of JSON: what is the same in every line that a program writes, and where its values lie."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

COMMA, QUOTE = ",", '"'
MOST_FIELDS, LONGEST_KEY = 1_000, 1_000
_FIELD = re.compile(r' *"(?P<key>[^"\\]+)" *: *(?:"(?P<text>[^"\\]*)"|(?P<literal>[^ "\\,{}\[\]:]+)) *(?=[,}])')


@dataclass(frozen=True)
class Value:
    """A value of a line."""

    key: str
    text: bool
    """Whether it is a text, else a number, true, false or null."""


@dataclass(frozen=True)
class Part:
    """What is known of one piece of each line."""

    before: str
    """What it begins with; all of it, if there is no value."""
    value: Value | None = None
    after: str = ""
    """What it ends with, behind the value."""


@dataclass(frozen=True)
class Shape:
    """The form of a line that is one object of texts and literals, split at a separator.

    Args:
        parts: What lies between the separators.
        quotes: Quotation marks of each line.
    """

    parts: tuple[Part, ...]
    quotes: int

    @property
    def values(self) -> list[Value]:
        """The values, in the order of the line."""
        return [part.value for part in self.parts if part.value is not None]


def shape_of(line: str, separator: str) -> Shape | None:
    r"""Return the form of a line; None if it is no object of texts and literals.

    >>> shape_of('{"a":"x","b": 1}', ",").parts[1]
    Part(before='"b": ', value=Value(key='b', text=False), after='}')
    >>> [part.before for part in shape_of('{"a":"x"}', '"').parts]
    ['{', 'a', ':', '', '}']
    >>> shape_of('{"a":[1]}', ",") is None
    True
    """
    found = _taken_apart(line)
    if found is None:
        return None
    constants, values = found
    return Shape(_parts(constants, values, separator), sum(constant.count(QUOTE) for constant in constants))


def _taken_apart(line: str) -> tuple[list[str], list[Value]] | None:
    """Return what lies around the values, and these."""
    constants: list[str] = []
    values: list[Value] = []
    begin, place = 0, 1
    while line.startswith("{" if place == 1 else COMMA, place - 1):
        field = _FIELD.match(line, place)
        if field is None or len(values) == MOST_FIELDS or len(field["key"]) > LONGEST_KEY:
            return None
        kind = "literal" if field["text"] is None else "text"
        constants.append(line[begin : field.start(kind)])
        values.append(Value(field["key"], kind == "text"))
        begin, place = field.end(kind), field.end() + 1
    return ([*constants, line[begin:]], values) if values and line[place - 1 :] == "}" else None


def _parts(constants: Sequence[str], values: Sequence[Value], separator: str) -> tuple[Part, ...]:
    parts = [Part("")]
    for constant, value in zip(constants, [*values, None], strict=True):
        first, *others = constant.split(separator)
        last = parts[-1]
        parts[-1] = replace(last, before=first) if last.value is None else replace(last, after=first)
        parts += [Part(other) for other in others]
        if value is not None:
            parts[-1] = replace(parts[-1], value=value)
    return tuple(parts)
