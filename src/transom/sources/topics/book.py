"""The partitions that a source has found, in the order in which it found them; durable before any offset of them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from transom.errors import CheckpointCorruptError
from transom.model.lines import CORRUPT_REMEDY
from transom.storage.durable import replacing
from transom.storage.translated import translated

NAME = "partitions.json"


@dataclass(frozen=True)
class Part:
    """A partition of a topic. A topic that is deleted and made again has other partitions than before."""

    topic: str
    id: str
    """Identity of the topic, which one that is made again with the same name does not have."""
    partition: int
    first: int
    """The offset from which on it is read."""
    key: str
    """Its name in offsets: "topic/partition", or "topic#2/partition" for the second topic of the name."""


class Book:
    """The partitions of a source. Indices never change.

    Args:
        directory: The source's part of the checkpoint.

    Raises:
        CheckpointCorruptError: The file is damaged.
        CheckpointError: It cannot be read.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self.is_new = not self._path.exists()
        """Whether nobody has looked for partitions yet."""
        self._parts: tuple[Part, ...] = ()
        if not self.is_new:
            with translated(self._path, "read"):
                text = self._path.read_bytes()
            try:
                self._parts = tuple(Part(**part) for part in json.loads(text))
            except (ValueError, TypeError):
                raise CheckpointCorruptError(f"The file {self._path} is damaged.", CORRUPT_REMEDY) from None
        self._index()

    @property
    def parts(self) -> Sequence[Part]:
        """All of them, the oldest first."""
        return self._parts

    def __getitem__(self, key: str) -> Part:
        """Return the partition of a name.

        Raises:
            CheckpointCorruptError: It is not known, so that the file is not the one that belongs to the offset.
        """
        if key not in self.index_of:
            raise CheckpointCorruptError(
                f"{self._path} does not list the partition {key}, which was read.", CORRUPT_REMEDY
            )
        return self._parts[self.index_of[key]]

    def latest_id(self, topic: str) -> str | None:
        """Return the identity of the newest topic of a name."""
        return self._ids.get(topic)

    def is_latest(self, key: str) -> bool:
        """Tell whether a partition is one of the newest topic of its name."""
        part = self[key]
        return self.latest_id(part.topic) == part.id

    def named(self, topic: str, id: str, partition: int) -> str:
        """Return the name of a partition, known or not."""
        ids = list(dict.fromkeys(part.id for part in self._parts if part.topic == topic))
        number = ids.index(id) if id in ids else len(ids)
        return f"{topic}{f'#{number + 1}' if number else ''}/{partition}"

    def add(self, found: Sequence[tuple[str, str, int, int]]) -> None:
        """Take partitions: topic, its identity, partition, first offset. Durable when it returns.

        Raises:
            CheckpointFullError: The disk is full.
            CheckpointError: They cannot be written for another reason.
        """
        new = [
            Part(topic, id, partition, first, self.named(topic, id, partition)) for topic, id, partition, first in found
        ]
        parts = (*self._parts, *new)
        with translated(self._path, "write"), replacing(self._path) as file:
            file.write((json.dumps([asdict(part) for part in parts]) + "\n").encode())
        self._parts, self.is_new = parts, False
        self._index()

    def mark(self, offset: Mapping[str, int]) -> int:
        """Return what tells the rows before an offset from those of other topics, or from other offsets on."""
        found = [(part.key, part.id, part.first) for part in (self[key] for key in sorted(offset))]
        return zlib.crc32(json.dumps(found).encode())

    def _index(self) -> None:
        self.index_of = {part.key: index for index, part in enumerate(self._parts)}
        self._ids = {part.topic: part.id for part in self._parts}
