"""What tasks give to the driver, compressed where it is large: Spark copies it several times on the way.

A million rows of partials are some 50 MB, mostly zeros. As they were, they took twice as long on their way through both
JVMs as it had taken to make them.
"""

from __future__ import annotations

import pyarrow as pa

LARGE = 64 << 10
"""Bytes; less is given as it is."""
_CODEC = pa.Codec("lz4_raw")
_PLAIN, _COMPRESSED = b"p", b"c"
_LENGTH = 8
"""Bytes of the length of what was compressed."""


def compressed(data: bytes) -> bytes:
    """Return what `decompressed` makes the same bytes of."""
    if len(data) < LARGE:
        return _PLAIN + data
    return b"".join([_COMPRESSED, len(data).to_bytes(_LENGTH, "little"), _CODEC.compress(data, asbytes=True)])


def decompressed(given: bytes) -> memoryview:
    """Return the bytes of which `compressed` made these."""
    view = memoryview(given)
    if view[:1] == _PLAIN:
        return view[1:]
    length = int.from_bytes(view[1 : 1 + _LENGTH], "little")
    return memoryview(_CODEC.decompress(view[1 + _LENGTH :], length))
