"""Spark's type texts as Arrow types, without Spark."""

from __future__ import annotations

import re

import pyarrow as pa

from transom.errors import DefinitionError

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal": pa.decimal128(10, 0),
}
_TOKEN = re.compile(r"\s*(`[^`]+`|\w+|[<>(),:])")
_REMEDY = 'Write it as in Spark, for example "double", "array<bigint>" or "total double, n bigint".'


def parse_type(text: str, field: str) -> pa.DataType:
    """Return the Arrow type of a Spark type.

    Raises:
        DefinitionError: The text is not a type, naming the field.

    >>> parse_type("array<decimal(10,2)>", "returns")
    ListType(list<element: decimal128(10, 2)>)
    """
    reader = _Reader(text, field)
    kind = reader.type()
    reader.end()
    return kind


def parse_fields(text: str, field: str) -> pa.StructType:
    """Return the Arrow struct of a list of Spark columns, `name type, ...`.

    Raises:
        DefinitionError: The text is not such a list, naming the field.
    """
    reader = _Reader(text, field)
    kind = reader.fields("")
    reader.end()
    return kind


class _Reader:
    def __init__(self, text: str, field: str) -> None:
        self.text, self.field = text, field
        self.tokens = _TOKEN.findall(text)
        if not self.tokens or _TOKEN.sub("", text).strip():
            raise self.wrong()

    def wrong(self) -> DefinitionError:
        return DefinitionError(f"{self.field}: {self.text!r} is not a Spark type.", _REMEDY)

    def next(self) -> str:
        if not self.tokens:
            raise self.wrong()
        return str(self.tokens.pop(0))

    def expect(self, token: str) -> None:
        if self.next() != token:
            raise self.wrong()

    def end(self) -> None:
        if self.tokens:
            raise self.wrong()

    def type(self) -> pa.DataType:
        name = self.next().lower()
        opens = self.tokens[0] if self.tokens else ""
        if name == "decimal" and opens == "(":
            return self.decimal()
        if name in _SIMPLE:
            return _SIMPLE[name]
        if name not in ("array", "map", "struct"):
            raise self.wrong()
        self.expect("<")
        kind: pa.DataType
        if name == "array":
            kind = pa.list_(pa.field("element", self.type()))
        elif name == "map":
            key = self.type()
            self.expect(",")
            kind = pa.map_(key, self.type())
        else:
            kind = self.fields(">")
        self.expect(">")
        return kind

    def decimal(self) -> pa.DataType:
        self.expect("(")
        precision, scale = self.next(), "0"
        separator = self.next()
        if separator == ",":
            scale, separator = self.next(), self.next()
        good = precision.isdigit() and scale.isdigit() and separator == ")"
        if not good or not 0 < int(precision) <= 38 or int(scale) > int(precision):
            raise self.wrong()
        return pa.decimal128(int(precision), int(scale))

    def fields(self, end: str) -> pa.StructType:
        found: list[pa.Field] = []
        while True:
            name = self.next().strip("`")
            if self.tokens and self.tokens[0] == ":":
                self.next()
            found.append(pa.field(name, self.type()))
            if not self.tokens or self.tokens[0] == end:
                break
            self.expect(",")
        if len({item.name for item in found}) != len(found):
            raise self.wrong()
        return pa.struct(found)
