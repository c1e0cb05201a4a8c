"""The form of a line of JSON: what is the same in every line that a program writes, and where its values lie."""

from __future__ import annotations

import re
from dataclasses import dataclass

COMMA, QUOTE, BACKSLASH = ",", '"', "\\"
MOST_FIELDS, LONGEST_KEY = 1_000, 1_000
_FIELD = re.compile(r' *"(?P<key>[^"\\]+)" *: *(?:"(?P<text>[^"\\]*)"|(?P<literal>[^ "\\,{}\[\]:]+)) *(?=[,}])')


@dataclass(frozen=True)
class Value:
    """A value of a line."""

    key: str
    text: bool
    """Whether it is a text, else a number, true, false or null."""


@dataclass(frozen=True)
class Shape:
    """The form of a line that is one object of texts and literals.

    Args:
        constants: What is around the values: one before each, and one behind the last.
        values: They, in the order of the line.
    """

    constants: tuple[str, ...]
    values: tuple[Value, ...]

    def count(self, letter: str) -> int:
        """Return how often a letter is in the constants of a line."""
        return sum(constant.count(letter) for constant in self.constants)


def shape_of(line: str) -> Shape | None:
    r"""Return the form of a line; None if it is no object of texts and literals.

    >>> shape = shape_of('{"a":"x","b": 1}')
    >>> shape.constants
    ('{"a":"', '","b": ', '}')
    >>> [(value.key, value.text) for value in shape.values]
    [('a', True), ('b', False)]
    >>> shape_of('{"a":[1]}') is None
    True
    """
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
    return Shape((*constants, line[begin:]), tuple(values)) if values and line[place - 1 :] == "}" else None
