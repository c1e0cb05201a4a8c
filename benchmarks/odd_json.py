"""Lines of JSON that readers take differently: every declared type against odd values, and damaged lines."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

KINDS = {
    "string": (pa.string(), '"x"'),
    "tinyint": (pa.int8(), "7"),
    "smallint": (pa.int16(), "-300"),
    "int": (pa.int32(), "70000"),
    "bigint": (pa.int64(), "1700000100000"),
    "double": (pa.float64(), "1.5"),
    "boolean": (pa.bool_(), "true"),
    "date": (pa.date32(), '"2024-02-29"'),
    "decimal(5,2)": (pa.decimal128(5, 2), "-12.25"),
    "decimal(20,0)": (pa.decimal128(20), "12345678901234567890"),
    "timestamp": (pa.timestamp("us", "UTC"), '"2024-02-29T12:34:56.5Z"'),
}
"""By Spark's name of a type: Arrow's, and a value as it is usually written."""

_WHOLE = [
    *("0", "-0", "00", "01", "-01", "+1", "1", "-1", "127", "128", "-128", "-129", "32767", "32768", "-32768"),
    *("-32769", "2147483647", "2147483648", "-2147483649", "9007199254740993", "9223372036854775807"),
    *("9223372036854775808", "-9223372036854775808", "-9223372036854775809", "123456789012345678901234567890"),
    *("0x1F", "1_000", "1e", "--1", "-", "1-", "- 1", "1 2", "0b1", "1L", "１", "٣"),
]
_REAL = [
    *("1.0", "-0.0", "0.0", "1.", ".5", "1.5", "01.5", "1e3", "1E3", "1e+3", "1E-3", "1e400", "-1e400", "1e-400"),
    *("4.9e-324", "2.2250738585072011e-308", "1.7976931348623157e308", "1.7976931348623159e308", "0.1"),
    *("0.30000000000000004", "123456789.123456789123456789", "1.0000000000000002", "9007199254740993.0", "1.5f"),
    *("1,5", "1e5.5", "5e-325", "100000000000000000000.0", "1" + "0" * 120, "0." + "3" * 60, "1e99999", "1e0"),
    *("1e-05", "1e+16", "-2E022", "0e5", "-0e0", "00e1", "1e-", "1e+", "5e-324", "2e-324", "3e-324", "8e22", "1e23"),
    *("9007199254740993e0", "9007199254740993e22", "17976931348623157e292", "17976931348623159e292", "1e0005", "1e 5"),
]
_WORDS = [
    *("true", "false", "null", "True", "TRUE", "tru", "nulL", "NULL", "None", "nan", "NaN", "-NaN", "Infinity"),
    *("-Infinity", "+Infinity", "INF", "-INF", "inf", "undefined", "yes", "", " ", "t", "truefalse", "nullnull"),
]
_TEXTS = [
    *('"x"', '""', '" "', '"1"', '"-1"', '"1.0"', '"true"', '"false"', '"null"', '"NaN"', '"Infinity"', '"-INF"'),
    *('"a,b"', '"a}b"', '"{a"', '"a:b"', '"é"', '"日本"', '"😀"', '"it\'s"', '"\u2028"', '"\ufeff"', '"\x7f"'),
    *('"\\u00e9"', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\ude00x"', '"\\""', '"\\\\"', '"\\/"', '"\\n"', '"\\u0000"'),
    *('"\\x41"', '"\\"', '"a\tb"', '"a\x01b"', '"a\x00b"', "'x'", "x", '"x', 'x"', '"x""y"', '"x" "y"', "`x`"),
    *('"2024-01-01T00:00:00Z"', '"2024-01-01"', '"1700000100000"', '"' + "y" * 300 + '"', '"1,\\"a\\":2"', '"#"'),
]
_TIMES = [
    *(
        '"2024-02-29T12:34:56Z"',
        '"2024-02-29 12:34:56.123456Z"',
        '"2024-02-29T12:34:56.1234567Z"',
        '"2023-02-29T00:00:00Z"',
    ),
    *(
        '"2024-02-29T24:00:00Z"',
        '"2024-02-29T23:59:60Z"',
        '"2024-02-29T12:34:56"',
        '"2024-02-29T12:34Z"',
        '"2024-02-29T12Z"',
    ),
    *(
        '"2024-02-29T12:34:56+05:30"',
        '"2024-02-29T12:34:56-17:59"',
        '"2024-02-29T12:34:56+18:00"',
        '"2024-02-29T12:34:56+19:00"',
    ),
    *(
        '"2024-02-29T12:34:56+0530"',
        '"2024-02-29T12:34:56+05"',
        '"2024-02-29T12:34:56-00:00"',
        '"2024-02-29T12:34:56 Z"',
    ),
    *(
        '"2024-02-29T12:34:56UTC"',
        '"2024-02-29T12:34:56z"',
        '"2024-02-29t12:34:56Z"',
        '"2024-2-9T1:2:3Z"',
        '"1000-01-01T00:00:00Z"',
    ),
    *(
        '"0999-01-01T00:00:00Z"',
        '"9999-12-31T23:59:59.999999Z"',
        '"10000-01-01T00:00:00Z"',
        '"-2024-01-01T00:00:00Z"',
        '"now"',
    ),
    *(
        '"1582-10-10T00:00:00Z"',
        '"1883-11-18T12:00:00+01:23"',
        '"2024-02-29T12:34:56.Z"',
        '" 2024-02-29T12:34:56Z "',
        '"epoch"',
    ),
    *(
        '"2024-02-30T00:00:00Z"',
        '"2024-00-10T00:00:00Z"',
        '"2024-13-10T00:00:00Z"',
        '"2024-04-31T00:00:00.000001+00:00"',
        "1709210096.5",
    ),
]
_NESTED = [
    *("[]", "[1]", "[1,2]", '["x"]', "{}", '{"b":1}', '{"a":1}', '{"b":{"c":[1,{}]}}', "[", "]", "{", "}", "[}"),
    *("1/*c*/", "/*c*/1", "1//c", "1#c", "1;", "1}", "1]", "1}}", '1,"b":2', '1,"a":2', '1,"A":2', '1,"s":"y"'),
    *('1,"S":"y"', "1,", ",1", '1,"b"', '1,"b":', '1,"":2', '1,"b":01', '1,"b":nul', '1,"b":"x', '1,"b":.5'),
    *('null,"a":1', '1,"a":null', '"x","a":"y"', 'true,"a":false', '1,"_corrupt_record":"x"', '1,"b":[1,2]'),
    *('1,"b":NaN', '1,"b":Infinity', '1,"b":1e400', '1,"b":+1', '1,"b":-', '1,"b":0x1', "1,'b':2", "1,b:2"),
]
_DAYS = [
    *(
        '"2023-02-29"',
        '"2024-2-9"',
        '"2024-02"',
        '"2024"',
        '"0999-12-31"',
        '"1582-10-10"',
        '"9999-12-31"',
        '"20240229"',
    ),
    *('"2024-02-29 "', '"2024-02-29T"', '"10000-01-01"', '"2024-13-01"', '"2024-12-00"', '"-2024-01-01"', "19000"),
]
_DECIMALS = [
    *(
        "999.99",
        "-999.99",
        "1000",
        "999.995",
        "0.005",
        "-0.00",
        "12.3450",
        "0.10",
        "1.25e1",
        "99999",
        "12345.6",
        "-0.1",
    ),
    *("99999999999999999999", "100000000000000000000", "0.0", "00.5", "-.5", "1234", "-1000.00", "999.999", '"1.5"'),
]
VALUES = [*_WHOLE, *_REAL, *_WORDS, *_TEXTS, *_TIMES, *_DAYS, *_DECIMALS, *_NESTED]
_FORMS = [
    *('{"s":"x","a":%s}', '{"a":%s,"s":"x"}', '{"a":%s}', '{"s": "x", "a": %s}', '{"s":"x" ,"a" :%s }', ' {"a":%s}'),
    *('{"a":%s,"n":1}', '{"a":%s}{"a":1}', '[{"a":%s}]', '{"a":%s},', '{"a":%s} x', '{"A":%s}', '{"a" %s}', "%s"),
    *(
        '{"b":{"a":%s}}',
        '{"s":"p,q","a":%s}',
        '\ufeff{"a":%s}',
        '{"a":%s}\x00',
        '{"a":%s}\r',
        '{"a":%s}\t',
        '\t{"a":%s}',
    ),
    *('{"a":%s,}', '{,"a":%s}', '{"a":%s', '"a":%s}', '{"s":5,"a":%s}', '{"s":null,"a":%s}', '{"s":"x";"a":%s}'),
    *('{"\\u0061":%s}', '{"a":%s,"t":"1","u":true,"v":-2.5e3,"w":null}', "{'a':%s}", "{a:%s}", '{"a"=%s}', '{"a ":%s}'),
]
_LETTERS = "{}[]:,\"'\\0123456789.eE+-truefalsn xAé\t\x00"


@dataclass(frozen=True)
class Odd:
    """A line, and the type that its field `a` is declared with; the field `s` is a string."""

    kind: str
    line: bytes

    @property
    def schema(self) -> pa.Schema:
        """The declared columns in Arrow."""
        return pa.schema([("s", pa.string()), ("a", KINDS[self.kind][0])])


def usual(kind: str) -> bytes:
    """Return a line as programs write it."""
    return b'{"s":"x","a":' + KINDS[kind][1].encode() + b"}"


def odd_lines(count: int) -> list[Odd]:
    """Return so many different cases, always the same: first each type against each value."""
    found: dict[Odd, None] = {}
    for case in _cases():
        found.setdefault(case)
        if len(found) == count:
            return list(found)
    raise AssertionError


def _cases() -> Iterator[Odd]:
    drawn = random.Random(20)
    for value in VALUES:
        for kind in KINDS:
            yield Odd(kind, (_FORMS[0] % value).encode())
    for form in _FORMS:
        for kind, (_, value) in KINDS.items():
            yield Odd(kind, (form % value).encode())
    while True:
        kind = drawn.choice(list(KINDS))
        value = drawn.choice([*VALUES, KINDS[kind][1], KINDS[kind][1]])
        line = drawn.choice([*_FORMS, _FORMS[0], _FORMS[1], _FORMS[2]]) % value
        for _ in range(drawn.choice([0, 0, 1, 1, 2])):
            place = drawn.randrange(len(line) + 1)
            line = line[:place] + drawn.choice([*_LETTERS, ""]) + line[place + drawn.randrange(2) :]
        data = line.encode()
        if drawn.random() < 0.02:
            place = drawn.randrange(len(data))
            data = data[:place] + bytes([drawn.randrange(128, 256)]) + data[place + 1 :]
        if b"\n" not in data:
            yield Odd(kind, data)
