"""Files of text as Spark reads their bytes: as they are, or unpacked from gzip or Zstandard."""

from __future__ import annotations

import io
import zlib
from typing import Any, Literal, TypeAlias

import pyarrow as pa

_PACKED = 16 << 10
"""Bytes of gzip that are unpacked together: they may be a thousand times as many."""
Packing: TypeAlias = Literal["gzip", "zstd"]
_PACKINGS: dict[str, Packing] = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}

UNPACKING_ERRORS = (OSError, EOFError, zlib.error)
"""What reading a file raises that is not there, or that is damaged."""


def packing(path: str) -> Packing | None:
    """Return with what the text of a file is packed, by the end of its name.

    >>> packing("a.json.gz"), packing("a.json.zst"), packing("a.json")
    ('gzip', 'zstd', None)
    """
    return next((kind for end, kind in _PACKINGS.items() if path.endswith(end)), None)


def opened_text(path: str) -> io.BufferedReader:
    """Return a file of this machine that is open, unpacked if its name says that it is packed."""
    return unpacked(open(path, "rb"), path)


def unpacked(raw: io.BufferedReader, path: str) -> io.BufferedReader:
    """Return a reader of the text of an open file, unpacked if its name says so; closing it closes the file.

    All damage is an error, also a later frame of Zstandard that is cut off, up to which Spark reads without a word.
    """
    match packing(path):
        case "gzip":
            return io.BufferedReader(_Gzip(raw))
        case "zstd":
            return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd"))
        case None:
            return raw


class _Gzip(io.RawIOBase):
    """What gzip packed into a file. Python's own reader takes zeros at the end, which are damage for Spark."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self._packed = b""
        self._found = memoryview(b"")
        self._member: Any = None

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        while not self._found and (packed := self._packed or self._file.read(_PACKED)):
            self._member = self._member or zlib.decompressobj(wbits=31)
            self._found = memoryview(self._member.decompress(packed))
            self._packed = self._member.unused_data
            self._member = None if self._member.eof else self._member
        if not self._found and self._member is not None:
            raise EOFError("the file ends too early")
        count = min(len(into), len(self._found))
        into[:count] = self._found[:count]
        self._found = self._found[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
