"""What the two ends of a link remember of one another: headers, schemas and keys that need not be sent again."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from transom.engine.partials.tables import PANE
from transom.sites.columns import Ints, damaged
from transom.sites.related import Told
from transom.windows.keys import KeyIndex

MOST_HEADERS = 8 << 20
"""Bytes of headers that are remembered of a connection."""
MOST_SCHEMAS = 10_000


@dataclass
class Keys:
    """The keys of one flow as the sending end numbers them."""

    index: KeyIndex
    given: int = 0
    """Numbers that were given."""
    _numbers: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """By id: the number that the other end is known to have; -1 for none. It has room for ids to come."""

    def numbers_of(self, ids: Ints) -> Ints:
        """Return the numbers that the other end is known to have; -1 for none."""
        self._grow(ids)
        return self._numbers[ids]

    def learn(self, ids: Ints, numbers: Ints) -> None:
        """Take note of numbers that the other end has; the first one of an id stays."""
        self._grow(ids)
        new = self._numbers[ids] < 0
        self._numbers[ids[new]] = numbers[new]

    def _grow(self, ids: Ints) -> None:
        least = int(ids.max(initial=-1)) + 1
        if least > len(self._numbers):
            grown = np.full(2 * least, -1, np.int64)
            grown[: len(self._numbers)] = self._numbers
            self._numbers = grown


@dataclass
class News:
    """What a parcel brings that may be referred to once it is confirmed."""

    generation: int
    flow: str
    header: bytes
    schema: int | None = None
    ids: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    numbers: Ints = field(default_factory=lambda: np.empty(0, np.int64))


class Sent:
    """What the sending end knows of the other one, over one connection."""

    def __init__(self) -> None:
        self.headers: dict[str, bytes] = {}
        """The last header of each flow that was confirmed."""
        self.schemas: dict[str, tuple[int, pa.Schema]] = {}
        self.confirmed: set[int] = set()
        """Numbers of schemas."""
        self.keys: dict[str, Keys] = {}
        self.told: dict[str, Told] = {}
        """By flow."""


@dataclass(frozen=True)
class Columns:
    """The columns of partials that come."""

    schema: pa.Schema
    columns: tuple[tuple[str, pa.DataType], ...]
    """Names and types."""
    keys: pa.Schema

    @classmethod
    def of(cls, schema: pa.Schema) -> Columns:
        """Return those of a schema.

        Raises:
            SiteError: It is none of partials.
        """
        if PANE not in schema.names or len(set(schema.names)) < len(schema.names):
            raise damaged("its columns are not those of partials")
        keys = pa.schema([each for each in schema if not each.name.startswith("_s") and each.name != PANE])
        return cls(schema, tuple((each.name, each.type) for each in schema), keys)


class Got:
    """What the receiving end has from one connection of the other one."""

    def __init__(self) -> None:
        self.headers: dict[int, bytes] = {0: b""}
        """By checksum, the oldest first; one of them is empty."""
        self.header_bytes = 0
        self.schemas: dict[int, Columns] = {}
        self.keys: dict[int, list[pa.Table]] = {}
        """By number of schema: keys as they came."""
        self.rows: dict[int, Ints] = {}
        """By number of schema, and then of key: its row in those; -1 for none."""
        self.bytes: dict[int, int] = {}
        """By number of schema: of itself and of its keys."""

    def keep(self, header: bytes) -> None:
        """Remember a header; the oldest are forgotten beyond `MOST_HEADERS`, and asked for again."""
        crc = zlib.crc32(header)
        if not header or crc in self.headers:
            return
        self.headers[crc] = header
        self.header_bytes += len(header)
        while self.header_bytes > MOST_HEADERS:
            oldest = next(each for each in self.headers if each)
            self.header_bytes -= len(self.headers.pop(oldest))

    def bound(self, most: int) -> None:
        """Forget schemas with their keys, the oldest first, beyond so many bytes: they are asked for again."""
        while len(self.schemas) > 1 and (len(self.schemas) > MOST_SCHEMAS or sum(self.bytes.values()) > most):
            oldest = next(iter(self.schemas))
            for each in (self.schemas, self.keys, self.rows, self.bytes):
                each.pop(oldest, None)
