"""Files as Spark reads their bytes: as they are, or unpacked from gzip."""

from __future__ import annotations

import io
import zlib
from typing import Any

_PACKED = 16 << 10
"""Bytes that are unpacked together: they may be a thousand times as many."""


def opened(path: str) -> io.BufferedReader:
    """Return a file that is open, unpacked if it has to be."""
    return io.BufferedReader(_Unpacked(path)) if path.endswith(".gz") else open(path, "rb")


class _Unpacked(io.RawIOBase):
    """What gzip packed into a file. Python's own reader takes zeros at the end, which are damage for Spark."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb")  # noqa: SIM115
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
