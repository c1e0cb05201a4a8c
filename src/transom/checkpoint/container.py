"""One file that holds a JSON value and several Arrow tables, each with a checksum.

Layout, integers little-endian:

    "TRANSOM1"  8 bytes
    tables      each an Arrow IPC stream, starting at a multiple of 64 bytes
    footer      JSON: {"meta": ..., "tables": [{"name", "offset", "length", "crc"}, ...]}
    trailer     length of the footer (8 bytes), its CRC-32 (4 bytes), "TRNS"

The footer's checksum covers the tables' checksums, so (length, checksum) of a file identifies its content.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from transom.checkpoint.files import Written, required, write_atomically
from transom.errors import CheckpointCorruptError
from transom.model.lines import CORRUPT_REMEDY
from transom.storage.places import Place

_MAGIC = b"TRANSOM1"
_TRAILER = struct.Struct("<QI4s")
_END = b"TRNS"
_ALIGNMENT = 64


@dataclass(frozen=True)
class Container:
    """A file's content."""

    meta: Any
    """What JSON holds."""
    tables: dict[str, pa.Table]
    """Slices of one buffer with the file's bytes: no column was copied."""
    written: Written


def write_container(path: Place, meta: object, tables: Mapping[str, pa.Table], *, sync: bool = True) -> Written:
    """Write a file atomically; needs memory for the largest table once more.

    Raises:
        TypeError: JSON cannot hold `meta`.
        CheckpointError: It was not written; also as CheckpointFullError.
    """
    crc = 0

    def pieces() -> Iterator[bytes | memoryview]:
        nonlocal crc
        yield _MAGIC
        offset = len(_MAGIC)
        entries = []
        for name, table in tables.items():
            padding = -offset % _ALIGNMENT
            data = _stream(table)
            entries.append({"name": name, "offset": offset + padding, "length": len(data), "crc": zlib.crc32(data)})
            yield bytes(padding)
            yield data
            offset += padding + len(data)
        footer = json.dumps({"meta": meta, "tables": entries}, separators=(",", ":")).encode("ascii")
        crc = zlib.crc32(footer)
        yield footer
        yield _TRAILER.pack(len(footer), crc, _END)

    length = write_atomically(path, pieces(), sync=sync)
    return Written(length, crc)


def _stream(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def read_container(path: Place) -> Container:
    """Read a file and check every byte of it.

    Raises:
        CheckpointCorruptError: It is missing or damaged.
        CheckpointError: The file system does not let us read it.
    """
    with required(path):
        data = memoryview(path.read_bytes())
    try:
        return _parse(data)
    except (ValueError, KeyError, TypeError, struct.error, pa.ArrowException) as error:
        raise CheckpointCorruptError(f"The file {path} is damaged: {error}.", CORRUPT_REMEDY) from error


def _parse(data: memoryview) -> Container:
    if len(data) < len(_MAGIC) + _TRAILER.size or bytes(data[: len(_MAGIC)]) != _MAGIC:
        raise ValueError("it does not begin as it should")
    length, crc, end = _TRAILER.unpack(data[-_TRAILER.size :])
    footer_end = len(data) - _TRAILER.size
    footer_start = footer_end - length
    if end != _END or footer_start < len(_MAGIC):
        raise ValueError("its end is missing")
    footer = bytes(data[footer_start:footer_end])
    if zlib.crc32(footer) != crc:
        raise ValueError("the checksum of its footer differs")
    value = json.loads(footer)
    tables = {}
    position = len(_MAGIC)
    for entry in value["tables"]:
        if any(data[position : entry["offset"]]):
            raise ValueError("bytes between its tables differ")
        position = entry["offset"] + entry["length"]
        part = data[entry["offset"] : position]
        if zlib.crc32(part) != entry["crc"]:
            raise ValueError(f"the checksum of its table {entry['name']!r} differs")
        tables[entry["name"]] = pa.ipc.open_stream(pa.py_buffer(part)).read_all()
    if position != footer_start:
        raise ValueError("its tables have another length")
    return Container(value["meta"], tables, Written(len(data), crc))
