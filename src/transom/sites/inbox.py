"""The inbox of a flow: parcels as files in the checkpoint of its destination, one behind the other.

    000000000042.parcel     as it came (`Parcel.to_bytes`), with a checksum
    before                  what was there before the first of these files, as a line that `model.lines` knows

A parcel has a position, counted from 1, and is durable before anybody hears of it. Files of parcels that the stream has
committed are removed many at once, after `before` has taken note of what they told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from transom.checkpoint.files import required, write_atomically
from transom.errors import CheckpointCorruptError, SiteError, SourceLostError
from transom.model.lines import CORRUPT_REMEDY, START, decode, encode
from transom.model.time import Micros
from transom.storage.durable import names_in
from transom.storage.places import Place
from transom.storage.translated import translated
from transom.widearea.parcels import Body, FlowName, Parcel, Part, Standing
from transom.widearea.topology import Site

KEPT = 256
"""So many parcels that are needed no longer stay, until so many more can be removed at once."""
FRESH_BYTES = 32 << 20
"""So much of what came in this run and was not read yet stays in memory, too."""
_BEFORE = "before"
_SUFFIX = ".parcel"


@dataclass(frozen=True)
class Entry:
    """A parcel in the inbox, without its body."""

    position: int
    parcel: Parcel
    nbytes: int
    """Of its body."""


@dataclass
class Known:
    """What all parcels up to a position have told of the sites."""

    partitions: dict[tuple[Site, int], int] = field(default_factory=dict)
    """The index of each source partition, by its site and number, in the order of indices; none ever changes."""
    last: dict[Site, Part] = field(default_factory=dict)
    """The newest part of each site."""
    arrived: Micros = 0
    """When the newest row arrived in its source."""

    def take(self, parcel: Parcel) -> None:
        """Take note of a parcel."""
        for part in parcel.parts:
            for number in range(len(part.partitions)):
                self.partitions.setdefault((part.site, number), len(self.partitions))
            self.last[part.site] = part
            self.arrived = max(self.arrived, part.arrived or 0)

    def copy(self) -> Known:
        """Return another one that tells the same."""
        return Known(dict(self.partitions), dict(self.last), self.arrived)

    def to_json(self, flow: FlowName) -> dict[str, Any]:
        """Return it as JSON."""
        last = [Parcel(flow, 0, (part,)).header() for part in self.last.values()]
        return {"partitions": [list(each) for each in self.partitions], "last": last, "arrived": self.arrived}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Known:
        """Return what `to_json` wrote."""
        parts = [Parcel.of(header, b"").part for header in value["last"]]
        partitions = {(site, number): index for index, (site, number) in enumerate(value["partitions"])}
        return cls(partitions, {part.site: part for part in parts}, value["arrived"])


class Fresh:
    """The newest bodies that nobody has read, in memory beside their files; used by any thread.

    Args:
        most: Bytes of all.
    """

    def __init__(self, most: int = FRESH_BYTES) -> None:
        self._most, self._bytes = most, 0
        self._bodies: dict[int, Body] = {}
        self._lock = threading.Lock()

    def put(self, position: int, body: Body) -> None:
        """Keep the body of the newest parcel, and let go of older ones for which there is no room."""
        with self._lock:
            self._bodies[position] = body
            self._bytes += len(body)
            while self._bytes > self._most:
                self._bytes -= len(self._bodies.pop(next(iter(self._bodies))))

    def take(self, position: int) -> Body | None:
        """Return a body, and let go of it; None if it is not there."""
        with self._lock:
            body = self._bodies.pop(position, None)
            self._bytes -= 0 if body is None else len(body)
            return body


class Inbox:
    """The parcels of a flow that have come; used by the loop's thread, and `body` by any.

    Args:
        flow: The flow.
        directory: Where its files are.
        sites: Those that have rows for it; each has a partition before it was heard.

    Raises:
        CheckpointCorruptError: A file is damaged or missing.
        CheckpointError: The file system does not let us read.
    """

    def __init__(self, flow: FlowName, directory: Place, sites: Iterable[Site]) -> None:
        self._flow = flow
        self._directory = directory
        self.check: Callable[[], None] = lambda: None
        """Returns while no other application has taken over the checkpoint."""
        self._first, self._before = self._read_before()
        self.known = self._before.copy()
        """What all parcels have told."""
        self._entries: list[Entry] = []
        self._fresh = Fresh()
        self.nbytes = 0
        """Of the bodies that are there."""
        self._read_parcels()
        self._number(sites)

    def _read_before(self) -> tuple[int, Known]:
        path = self._directory / _BEFORE
        if not path.exists():
            return 1, Known()
        with required(path):
            line = decode(path.read_bytes())
        if line is None:
            raise CheckpointCorruptError(f"The file {path} is damaged.", CORRUPT_REMEDY)
        return line.value["first"], Known.from_json(line.value)

    def _read_parcels(self) -> None:
        with translated(self._directory, "read"):
            names = names_in(self._directory)
        positions = sorted(int(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX))
        for position in positions:
            if position < self._first:
                self._remove([position])  # a crash came between
                continue
            if position != self._first + len(self._entries):
                raise CheckpointCorruptError(
                    f"A parcel is missing: {self._path(self._first + len(self._entries))}.", CORRUPT_REMEDY
                )
            with required(self._path(position)):
                data = self._path(position).read_bytes()
            try:
                parcel = Parcel.from_bytes(data)
                self._note(position, parcel, len(parcel.body))
            except SiteError as error:
                raise CheckpointCorruptError(
                    f"The file {self._path(position)} is damaged: {error.message}", CORRUPT_REMEDY
                ) from error

    def _number(self, sites: Iterable[Site]) -> None:
        """Give partitions to sites that have none, for ever: what is committed goes by their indices."""
        partitions, there = self.known.partitions, {site for site, _ in self.known.partitions}
        for site in sites:
            if site not in there:
                partitions[site, 0] = len(partitions)
        if partitions != self._before.partitions:
            before = self._before.copy()
            before.partitions = dict(partitions)
            self._begin(self._first, before)

    def _begin(self, first: int, before: Known) -> None:
        """Note durably which parcel is the first one, and what those before it have told; nothing if that fails."""
        line, _ = encode({"first": first, **before.to_json(self._flow)}, START)
        write_atomically(self._directory / _BEFORE, [line])
        self._first, self._before = first, before

    def _path(self, position: int) -> Place:
        return self._directory / f"{position:012d}{_SUFFIX}"

    def _note(self, position: int, parcel: Parcel, nbytes: int) -> None:
        self._entries.append(Entry(position, parcel.with_body(b""), nbytes))
        self.nbytes += nbytes
        self.known.take(parcel)

    @property
    def newest(self) -> int:
        """The position of the newest parcel; 0 before the first."""
        return self._first + len(self._entries) - 1

    def standings(self) -> list[Standing]:
        """Return where the flow stands with each site that has sent anything."""
        return [Standing(self._flow, site, part.incarnation, part.place) for site, part in self.known.last.items()]

    def append(self, parcel: Parcel) -> None:
        """Make a parcel durable, behind those that are there.

        Raises:
            CheckpointFencedError: Another application has taken over the checkpoint.
            CheckpointFullError: The disk is full.
            CheckpointError: It cannot be written.
        """
        position, body = self.newest + 1, bytes(parcel.body)
        write_atomically(self._path(position), [parcel.with_body(body).to_bytes()])
        self.check()
        if body:
            self._fresh.put(position, parcel.body)
        self._note(position, parcel, len(body))

    def between(self, start: int, end: int) -> list[Entry]:
        """Return the parcels at (start, end] that are there; none is missing between two."""
        if end <= start or not self._entries:
            return []
        low, high = (max(0, at + 1 - self._entries[0].position) for at in (start, end))
        return self._entries[low:high]

    def body(self, entry: Entry) -> Body:
        """Return the partials of a parcel: what came, or from its file if it was read before, or is of an earlier run.

        Raises:
            SourceLostError: It is not there any more, or damaged.
        """
        if not entry.nbytes:
            return b""
        if (fresh := self._fresh.take(entry.position)) is not None:
            return fresh
        try:
            return Parcel.from_bytes(self._path(entry.position).read_bytes()).body
        except (OSError, SiteError) as error:
            raise SourceLostError(
                f"The parcel {self._path(entry.position)} that came for {self._flow} cannot be read: {error}.",
                CORRUPT_REMEDY,
            ) from error

    def known_at(self, position: int) -> Known:
        """Return what the parcels up to a position have told; O(parcels that are there)."""
        known = self._before.copy()
        for entry in self.between(0, position):
            known.take(entry.parcel)
        return known

    def release(self, position: int) -> None:
        """Remove parcels up to a position, if there are many: nobody needs them any more.

        Raises:
            CheckpointError: What they told cannot be written.
        """
        gone = self.between(0, position)[:-KEPT]
        if len(gone) < KEPT:
            return
        self._begin(gone[-1].position + 1, self.known_at(gone[-1].position))
        del self._entries[: len(gone)]
        self.nbytes -= sum(entry.nbytes for entry in gone)
        self._remove(entry.position for entry in gone)

    def _remove(self, positions: Iterable[int]) -> None:
        for position in positions:
            with translated(self._path(position), "remove"), suppress(FileNotFoundError):
                self._path(position).unlink()
