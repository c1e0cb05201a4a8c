"""Lines of CSV files that readers take differently: every declared type against odd values, and odd lines."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from benchmarks.odd_json import KINDS, VALUES

LAYOUTS: list[dict[str, str]] = [{}, {"sep": ";"}, {"sep": "\\t"}, {"escape": '"'}, {"nullValue": "NA"}]
"""Options of readers."""
ALONE = ""
"""In the place of a type: there is no second column."""

_FORMS = [
    *("x,%s", 'x,"%s"', '"x","%s"', '"x",%s', ",%s", '"",%s', "NA,%s", "x, %s", "x,%s ", " x ,%s", "x,%s\r", "x,\t%s"),
    *("x,%s,", "x,%s,y", "%s", "%s,", "x;%s", "x|%s", "x\t%s", "\t%s", '"x,%s', 'x",%s', 'x,%s"', 'x,"%s', "x,%s,,"),
    *('"x"y,%s', '"x" ,%s', ' "x",%s', "x,'%s'", '"x\\"",%s', '"x\\\\",%s', '"x""",%s', '"x""y",%s', '"""",%s', ",,%s"),
    *('"",",%s', "x\\,%s", '\\"x",%s', "#x,%s", "x,%s #", "\ufeffx,%s", "x,%s\x00", "\x00x,%s", "x,\r%s", "x,%s\n"),
    *("\nx,%s", "x\n,%s", '"x\n",%s', "x,%s\n \n", "x,%s\n\t\n", "x,%s\r\n\r", "'x',%s", "x\u2028,%s", "x\x85,%s"),
]
_SINGLE = [
    "x",
    "",
    " ",
    "\t",
    '""',
    '" "',
    '"x"',
    '"x',
    'x"',
    '"x""y"',
    '""""',
    "NA",
    '"NA"',
    "x,",
    ",",
    "x,y",
    '"x,y"',
]
_ENDLESS = re.compile(rb"[eE]\+?[0-9]{6}")
"""Numbers that Java takes minutes to round as decimals."""
_LETTERS = ",;\t\"'\\0123456789.eE+-truefalsn xAé\x00\r\n#"


@dataclass(frozen=True)
class Odd:
    """Some lines, the place of the options with which they are read, and the type of the column `a` behind `s`."""

    layout: int
    kind: str
    lines: bytes

    @property
    def columns(self) -> dict[str, str]:
        """The declared columns with their types."""
        return {"s": "string"} | ({} if self.kind == ALONE else {"a": self.kind})

    @property
    def schema(self) -> pa.Schema:
        """The declared columns in Arrow."""
        return pa.schema([(name, KINDS[kind][0]) for name, kind in self.columns.items()])

    def usual(self, text: str = "x") -> bytes:
        """Return a line as programs write it, with its newline."""
        between = LAYOUTS[self.layout].get("sep", ",").replace("\\t", "\t")
        value = "" if self.kind == ALONE else between + _unquoted(KINDS[self.kind][1])
        return f"{text}{value}\n".encode()


def odd_cases() -> Iterator[Odd]:
    """Yield different cases without end, always the same: first each type against each value, and each form."""
    found: set[Odd] = set()
    for case in _cases():
        if case not in found and not _ENDLESS.search(case.lines):
            found.add(case)
            yield case


def _cases() -> Iterator[Odd]:
    long = "y" * 450_000
    yield Odd(0, "string", f'{long},"{long[:9]}"\n"{long}",x\n'.encode())
    for value in VALUES:
        for kind in KINDS:
            yield Odd(0, kind, f"x,{_unquoted(value)}\n".encode())
    for layout in range(len(LAYOUTS)):
        for single in _SINGLE:
            yield Odd(layout, ALONE, f"{single}\n".encode())
        for kind, (_, value) in KINDS.items():
            for form in _FORMS:
                yield Odd(layout, kind, form.replace("%s", _unquoted(value)).encode() + b"\n")
    drawn = random.Random(4)
    while True:
        kind, layout = drawn.choice([*KINDS, ALONE]), drawn.randrange(len(LAYOUTS))
        values = [KINDS[kind][1]] * len(VALUES) if kind else _SINGLE
        value = drawn.choice([*VALUES, *values])
        value = drawn.choice([value, _unquoted(value), _unquoted(value)])
        form = drawn.choice([*_FORMS, *[_FORMS[0], _FORMS[1], _FORMS[3]] * 9]) if kind else "%s"
        line = form.replace(",", LAYOUTS[layout].get("sep", ",").replace("\\t", "\t")).replace("%s", value)
        for _ in range(drawn.choice([0, 0, 1, 1, 2])):
            place = drawn.randrange(len(line) + 1)
            line = line[:place] + drawn.choice([*_LETTERS, ""]) + line[place + drawn.randrange(2) :]
        yield Odd(layout, kind, line.encode() + b"\n")


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
