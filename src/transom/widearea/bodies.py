"""The body of a parcel: partials as a table, or as bytes that say what is in them, whose sizes are checked first.

At a site it is the table. Bytes are made of it for files: Arrow's IPC stream with zstd. On a link it goes in a narrower
form (`sites/codec.py`), which needs what came before.
"""

from __future__ import annotations

from functools import cached_property

import pyarrow as pa

from transom.errors import SiteError
from transom.widearea.parcels import Body

MOST_BYTES = 1 << 30
"""Of a table, unpacked."""
_REMEDY = "Both sites need the same version of the protocol; if they have it, something between them changes bytes."
_LEVEL = -5
"""Of zstd: partials are numbers that are hard to make smaller, and zeros."""


class TableBody:
    """A body that is a table with rows; nobody changes it."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __len__(self) -> int:
        """Return the bytes that it takes in memory."""
        return self._nbytes

    @cached_property
    def _nbytes(self) -> int:
        return max(1, int(self.table.get_total_buffer_size()))

    def __bytes__(self) -> bytes:
        """Return it as bytes, which `from_body` reads."""
        table = self.table.combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        plain = sink.getvalue()
        packed = pa.Codec("zstd", compression_level=_LEVEL).compress(plain, asbytes=True)
        return bytes(plain.size.to_bytes(8, "big") + packed)

    def __eq__(self, other: object) -> bool:
        """Tell whether another body holds the same, in the same order; bytes may."""
        return self is other or (isinstance(other, bytes | TableBody) and bytes(self) == bytes(other))

    __hash__ = None  # type: ignore[assignment]


def to_body(table: pa.Table) -> Body:
    """Return a table as a body; empty where it has no rows."""
    return TableBody(table) if table.num_rows else b""


def from_body(body: Body, most: int = MOST_BYTES) -> pa.Table | None:
    """Return the table of a body; None where there are no partials.

    Args:
        body: What `to_body` returned, or its bytes.
        most: The largest table that is taken of bytes; the size that they declare is checked before anything is
            unpacked.

    Raises:
        SiteError: It is damaged, or declares to be larger.
    """
    if isinstance(body, TableBody):
        return body.table
    data = bytes(body)
    if not data:
        return None
    size = int.from_bytes(data[:8], "big")
    if size > most:
        raise SiteError(
            f"A parcel declares a table of {size} bytes, where {most} are allowed.", "Send more often, or allow more."
        )
    try:
        plain = pa.decompress(data[8:], decompressed_size=size, codec="zstd")
        with pa.ipc.open_stream(plain) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SiteError(f"The partials of a parcel cannot be read: {error}.", _REMEDY) from error
    return table
