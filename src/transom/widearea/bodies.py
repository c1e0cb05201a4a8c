"""The body of a parcel: a table of partials as bytes that say what is in them; sizes are checked before they are read.

Arrow's IPC stream with zstd. On a link it goes in a narrower form (`widearea/codec.py`), which needs what came before.
"""

from __future__ import annotations

import pyarrow as pa

from transom.errors import SiteError

MOST_BYTES = 1 << 30
"""Of a table, unpacked."""
_REMEDY = "Both sites need the same version of the protocol; if they have it, something between them changes bytes."


def to_body(table: pa.Table) -> bytes:
    """Return a table as a body; empty where it has no rows."""
    if not table.num_rows:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    plain = sink.getvalue()
    return bytes(plain.size.to_bytes(8, "big") + pa.compress(plain, "zstd", asbytes=True))


def from_body(body: bytes, most: int = MOST_BYTES) -> pa.Table | None:
    """Return the table of a body; None where there are no partials.

    Args:
        body: What `to_body` returned.
        most: The largest table that is taken, bytes; the size that it declares is checked before anything is unpacked.

    Raises:
        SiteError: It is damaged, or declares to be larger.
    """
    if not body:
        return None
    size = int.from_bytes(body[:8], "big")
    if size > most:
        raise SiteError(
            f"A parcel declares a table of {size} bytes, where {most} are allowed.", "Send more often, or allow more."
        )
    try:
        plain = pa.decompress(body[8:], decompressed_size=size, codec="zstd")
        with pa.ipc.open_stream(plain) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SiteError(f"The partials of a parcel cannot be read: {error}.", _REMEDY) from error
    return table
