"""Facts about a file that need no Spark: how many rows it has, and why it cannot be read."""

from __future__ import annotations

import os
import zlib
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from transom.errors import SourceError
from transom.storage.durable import opened
from transom.storage.places import is_local, located
from transom.storage.unpacking import UNPACKING_ERRORS, packing, unpacked

SAMPLE_BYTES = 1 << 16
_CHUNK = 1 << 20
_PACKED_BYTES = 1 << 18
"""Those of Zstandard that are looked at: each block has up to 128 KiB of text, and is unpacked whole or not at all."""
_MOST_TEXT, _LITTLE = 8 << 20, 1 << 12
_ERRORS = (*UNPACKING_ERRORS, pa.ArrowException)

Bytes: TypeAlias = int


def parquet_footer(path: str) -> tuple[int, pa.Schema] | None:
    """Return how many rows a Parquet file has and its columns; None when that cannot be read.

    Raises:
        SourceError: A store of objects does not answer: that says nothing of the file.
    """
    try:
        if not is_local(path):
            with opened(located(path)) as file:
                footer = pq.read_metadata(file)
        else:
            footer = pq.read_metadata(path)
        return int(footer.num_rows), footer.schema.to_arrow_schema()
    except _ERRORS as error:
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError) and not is_local(path):
            raise SourceError(
                f"files: {path} cannot be read: {error.strerror}.", "Run again when the store answers."
            ) from error
        return None


def estimate_rows(path: str, size: Bytes, header: bool = False) -> int:
    """Return about how many rows a text file has.

    Exact for text of up to 64 KiB without line breaks inside values; otherwise from the
    bytes per row in the first 64 KiB.

    Args:
        path: The file.
        size: Its bytes.
        header: Whether the first line of a CSV file is no row.

    A file that cannot be read counts as one row: the job on it will find out.
    """
    try:
        sample, whole = _sample(path, size)
    except _ERRORS:
        return 1
    lines = sample.count(b"\n")
    if whole > len(sample):
        rows = max(round(lines * whole / len(sample)), 1) if sample else 1
    else:
        rows = lines + (0 if sample.endswith(b"\n") or not sample else 1)
    return max(rows - 1, 0) if header else rows


def _sample(path: str, size: Bytes) -> tuple[bytes, Bytes]:
    """Return the first bytes of the text of a file, and about how many bytes the whole text has."""
    packed = packing(path)
    with opened(located(path)) as raw:
        first = raw.read(_PACKED_BYTES if packed == "zstd" else SAMPLE_BYTES)
    if packed is None:
        return first, max(size, len(first)) if len(first) == SAMPLE_BYTES else len(first)
    if packed == "zstd":
        text, used = _from_zstd(first), len(first)
    else:
        decoder = zlib.decompressobj(wbits=31)
        text = decoder.decompress(first, SAMPLE_BYTES)
        used = len(first) - len(decoder.unconsumed_tail) - len(decoder.unused_data)
    return text[:SAMPLE_BYTES], len(text) if used >= size else round(len(text) * size / max(used, 1))


def _from_zstd(packed: bytes) -> bytes:
    """Return the text, at most about `_MOST_TEXT` bytes, of the first bytes of a file."""
    text = bytearray()
    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
        try:
            while len(text) < _MOST_TEXT and (more := stream.read(_LITTLE)):
                text += more
        except OSError:
            if len(packed) < _PACKED_BYTES:
                raise
    return bytes(text)


def why_unreadable(path: str, kind: str) -> str | None:
    """Return why a file cannot be read at all, or None when nothing is wrong with it.

    Reads compressed text and Parquet to the end; O(bytes).
    """
    if is_local(path) and ":" in os.path.basename(path):
        return "Spark's local file system cannot read a file whose name contains a colon"
    try:
        where = located(path)
        if not where.exists():
            return "the file no longer exists"
        if kind == "parquet":
            with opened(where) as source, pq.ParquetFile(source) as file:
                for _ in file.iter_batches(batch_size=1 << 16):
                    pass
            return None
        with unpacked(opened(where), path) as text:
            while text.read(_CHUNK) and packing(path):
                pass
    except _ERRORS as error:
        return f"{type(error).__name__}: {error}"
    return None
