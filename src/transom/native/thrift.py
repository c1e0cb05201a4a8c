"""Structures of Thrift's compact protocol, strictly: only known fields, each of its type, and all that must be there.

Readers that are made from the same definition skip what they do not know, or fail, each in its own way; what passes
here is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Kind: TypeAlias = Any
"""Of a value: "bool", "i8", "i16", "i32", "i64", "binary", the numbers of an enumeration, a list with the kind of its
elements, or a `Struct`."""
_TYPES = {"bool": 2, "i8": 3, "i16": 4, "i32": 5, "i64": 6, "binary": 8}
_BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
_LIST, _STRUCT = 9, 12
_LONG = 15
"""Elements of a list from which on their number is written apart."""


class OddThriftError(ValueError):
    """What is read is no such structure, or more than that."""


@dataclass(frozen=True)
class Struct:
    """The definition of a structure.

    Args:
        fields: The kinds of its fields by their numbers.
        required: Fields that must be there.
        union: Whether there is exactly one field.
    """

    fields: Mapping[int, Kind]
    required: frozenset[int] = frozenset()
    union: bool = False


class CompactReader:
    """Reads values one after the other.

    Args:
        data: The bytes.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0
        """Of the byte that is read next."""

    def struct(self, of: Struct) -> dict[int, Any]:
        """Return the fields of a structure by their numbers.

        Raises:
            OddThriftError: It is another one, or does not end.
        """
        found: dict[int, Any] = {}
        last = 0
        while head := self._byte():
            last = last + (head >> 4) if head >> 4 else self._number(16)
            kind = of.fields.get(last)
            if kind is None or last in found:
                raise OddThriftError(f"the field {last}")
            found[last] = self._value(kind, head & 15)
        if not of.required <= found.keys() or (of.union and len(found) != 1):
            raise OddThriftError("a field that is missing")
        return found

    def _value(self, kind: Kind, written: int) -> Any:
        if kind == "bool" and written in (1, 2):
            return written == 1
        if _type_of(kind) != written:
            raise OddThriftError(f"a value of the type {written}")
        if isinstance(kind, Struct):
            return self.struct(kind)
        if isinstance(kind, list):
            return self._list(kind[0])
        if kind == "binary":
            return self._bytes(self._unsigned(32))
        if kind == "i8":
            return int.from_bytes(self._bytes(1), signed=True)
        if isinstance(kind, frozenset):
            number = self._number(32)
            if number not in kind:
                raise OddThriftError(f"{number}, which has no name")
            return number
        return self._number(_BITS[kind])

    def _list(self, kind: Kind) -> list[Any]:
        head = self._byte()
        count = self._unsigned(32) if head >> 4 == _LONG else head >> 4
        if count > len(self._data) - self.place or (count and head & 15 != _type_of(kind)):
            raise OddThriftError("a list of something else")
        return [self._value(kind, head & 15) for _ in range(count)]

    def _bytes(self, count: int) -> bytes:
        found = self._data[self.place : self.place + count]
        if len(found) < count:
            raise OddThriftError("an early end")
        self.place += count
        return found

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _unsigned(self, bits: int) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if number >> bits or (shift > 7 and not byte):
            raise OddThriftError("a number that is too long")
        return number

    def _number(self, bits: int) -> int:
        number = self._unsigned(bits)
        return (number >> 1) ^ -(number & 1)


def _type_of(kind: Kind) -> int:
    if isinstance(kind, Struct):
        return _STRUCT
    if isinstance(kind, list):
        return _LIST
    return _TYPES["i32" if isinstance(kind, frozenset) else kind]
