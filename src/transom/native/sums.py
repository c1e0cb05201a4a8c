"""Sums that Hadoop keeps beside files on a machine, and looks at when it reads them, as Spark does."""

from __future__ import annotations

import os
import zlib

from transom.native.values import UncertainError

_MAGIC = b"crc\0"
_BLOCK = 1 << 20
_MOST = 1 << 16
"""Bytes of a sum, at most; 512 are usual."""


def check_sums(path: str) -> None:
    """See that a file has the sums that are beside it, if there are any; O(bytes).

    Raises:
        UncertainError: It has others, or they are damaged.
        OSError: One of the two cannot be read.
    """
    folder, name = os.path.split(path)
    try:
        with open(os.path.join(folder, f".{name}.crc"), "rb") as file:
            beside = file.read()
    except FileNotFoundError:
        return
    each = int.from_bytes(beside[4:8], "big")
    if not beside.startswith(_MAGIC) or len(beside) < 8 or not 0 < each <= _MOST:
        raise UncertainError(f"the sums of {path}")
    found = bytearray(beside[:8])
    with open(path, "rb", buffering=0) as file:
        while block := memoryview(file.read(_BLOCK // each * each)):
            for start in range(0, len(block), each):
                found += zlib.crc32(block[start : start + each]).to_bytes(4, "big")
    if found != beside:
        raise UncertainError(f"the sums of {path}")
