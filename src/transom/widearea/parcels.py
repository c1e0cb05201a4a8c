"""What sites send each other: parcels of partials with the progress of their sources; acks; refusals.

A *cut range* (after, upto] of a site is what its stream committed after one cut and up to another. For each flow the
ranges of a site follow one another without gap or overlap, and once the first byte of one has left the site it stays
as it is. So where the destination stands with a site is one number, the last cut that it has, and whatever is lost,
repeated, reordered or takes two ways, each cut is merged exactly once: a range is taken only if it begins where the
destination stands.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeAlias

from transom.errors import SiteError
from transom.model.time import Micros
from transom.widearea.checked import WRONG, count, maybe, moment, real, text, whole
from transom.widearea.topology import Site

FlowName: TypeAlias = str
"""A flow by name, the same at all its sites."""
_HEAD = struct.Struct(">4sIIQ")
_MAGIC = b"TrP1"
_REMEDY = "Both sites need the same version of the protocol; if they have it, something between them changes bytes."


class Body(Protocol):
    """Partials: bytes, or what can be made bytes (`widearea.bodies`)."""

    def __len__(self) -> int:
        """Return the bytes that it takes in memory; 0 where there are no partials."""

    def __bytes__(self) -> bytes:
        """Return it as bytes."""


class PartitionProgress(NamedTuple):
    """How far one source partition of a site has come."""

    newest: Micros | None
    """Largest believed event time up to the range's last cut; None before its first row."""
    idle: Micros | None
    """For how long the site has found it empty, by the site's own clock; None where rows wait."""


class RowCounts(NamedTuple):
    """Raw rows of a cut range."""

    rows: int = 0
    null_time: int = 0
    ahead: int = 0
    corrupt: int = 0
    out_of_range: int = 0


class Delays(NamedTuple):
    """Moments of arrival minus event time over the rows of a cut range (`scheduling.arrivals.DelayMoments`)."""

    records: int = 0
    total: float = 0.0
    spread: float = 0.0


class Place(NamedTuple):
    """A place in what a site sends of a flow; places of one incarnation are ordered."""

    upto: int
    """The last cut."""
    epoch: int
    """Of the writer: each run of a site's application has a higher one."""
    step: int
    """Counts what a run sent of a flow; of two that end with the same cut the later one has the newer progress."""


@dataclass(frozen=True)
class Part:
    """What the cuts (after, upto] of one source site bring to a parcel; progress alone where the range is empty."""

    site: Site
    incarnation: str
    """Identity of the site's checkpoint (`checkpoint.identity.Identity.id`): cuts of another one are other cuts."""
    epoch: int
    """Of the writer that sends it."""
    after: int
    upto: int
    step: int
    """Counts the parcels of this flow that this run of the site has made, from 1."""
    since: int = 0
    """The cut after which the flow begins at the site: 0, or a later one where the job got it later."""
    acked: int = 0
    """The last cut of which the site knows that the destination has it; at least `since`."""
    partitions: tuple[PartitionProgress, ...] = ()
    """One for each source partition of the site, in its order; the list only ever grows."""
    arrived: Micros | None = None
    """When the newest row of the range arrived in its source, wall time of the site; None without rows."""
    counts: RowCounts = field(default_factory=RowCounts)
    delays: Delays = field(default_factory=Delays)
    failed: Mapping[str, str] = field(default_factory=dict)
    """Queries that have failed at the site up to this cut, each with the reason."""
    injected: Micros | None = None
    """The watermark that the site's source injected itself, up to the range's last cut; None where it injects none."""
    ended: bool = False
    """Whether the site's run ends with its rows, and they are all in cuts up to `upto`."""
    anew: bool = False
    """Whether the destination begins anew with the site here, whatever was lost before; it says so itself."""

    def __post_init__(self) -> None:
        if not 0 <= self.since <= self.after <= self.upto or self.step < 1 or self.epoch < 0:
            raise SiteError(
                f"A parcel of site {self.site!r} has the cuts ({self.after}, {self.upto}], number {self.step}.", _REMEDY
            )

    @property
    def place(self) -> Place:
        """Where the site's flow stands with it."""
        return Place(self.upto, self.epoch, self.step)

    @property
    def empty(self) -> bool:
        """Whether it brings progress alone."""
        return self.after == self.upto

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in memory, about."""
        texts = sum(len(query) + len(reason) for query, reason in self.failed.items())
        return 300 + 160 * len(self.partitions) + 2 * texts + 100 * len(self.failed)

    def progress_alone(self) -> Part:
        """Return what it says of the site's progress, without rows."""
        return replace(self, after=self.upto, arrived=None, counts=RowCounts(), delays=Delays())


@dataclass(frozen=True)
class Parcel:
    """Partials of one flow that travel together, and which cuts of which sites are merged in them."""

    flow: FlowName
    tick: int
    """The tick on which it left, the same at all sites that sent a part of it."""
    parts: tuple[Part, ...]
    """One for each site, by name; a parcel that no relay merged has one."""
    body: Body = b""
    """Partials (`widearea.bodies`); empty where there are none."""

    def __post_init__(self) -> None:
        sites = [part.site for part in self.parts]
        if not sites or sorted(set(sites)) != sites or self.tick < 0:
            raise SiteError(f"A parcel of {self.flow!r} has parts of the sites {sites}.", _REMEDY)

    @property
    def merged(self) -> bool:
        """Whether more than one site has a part in it."""
        return len(self.parts) > 1

    @property
    def part(self) -> Part:
        """The part of a parcel that no relay merged."""
        (part,) = self.parts
        return part

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in memory, about."""
        return len(self.body) + sum(part.nbytes for part in self.parts)

    def with_body(self, body: Body) -> Parcel:
        """Return it with other partials."""
        return replace(self, body=body)

    def header(self) -> list[Any]:
        """Return all but the body as JSON."""
        return [self.flow, self.tick, [_part_json(part) for part in self.parts]]

    @classmethod
    def of(cls, header: Any, body: Body) -> Parcel:
        """Return the parcel that has a header.

        Raises:
            SiteError: It is none.
        """
        try:
            flow, tick, parts = header
            return cls(text(flow), whole(tick), tuple(map(_part, parts)), body)
        except WRONG as error:
            raise SiteError(f"This is no parcel: {error}.", _REMEDY) from error

    def to_bytes(self) -> bytes:
        """Return it as bytes that say how long they are and have a checksum, as for files."""
        header, body = json.dumps(self.header(), separators=(",", ":")).encode(), bytes(self.body)
        crc = zlib.crc32(body, zlib.crc32(header))
        return _HEAD.pack(_MAGIC, crc, len(header), len(body)) + header + body

    @classmethod
    def from_bytes(cls, data: bytes) -> Parcel:
        """Return what `to_bytes` wrote.

        Raises:
            SiteError: It is damaged, or no parcel.
        """
        if len(data) < _HEAD.size:
            raise SiteError(f"A parcel ends after {len(data)} bytes.", _REMEDY)
        magic, crc, header, body = _HEAD.unpack_from(data)
        if magic != _MAGIC or len(data) != _HEAD.size + header + body:
            raise SiteError("This is no parcel, or a part of one.", _REMEDY)
        if zlib.crc32(data[_HEAD.size :]) != crc:
            raise SiteError("A parcel has a wrong checksum.", _REMEDY)
        head, rest = data[_HEAD.size : _HEAD.size + header], data[_HEAD.size + header :]
        try:
            return cls.of(json.loads(head), rest)
        except (ValueError, RecursionError) as error:
            raise SiteError(f"This is no parcel: {error}.", _REMEDY) from error


@dataclass(frozen=True)
class Standing:
    """Where a destination stands with a site, for one flow: everything up to there is durable at the destination."""

    flow: FlowName
    site: Site
    incarnation: str
    place: Place

    def covers(self, part: Part) -> bool:
        """Tell whether all that a part brings is known there; rows that came before are, whatever run sent them."""
        known = self.place >= part.place if part.empty else self.place.upto >= part.upto
        return self.incarnation == part.incarnation and known


@dataclass(frozen=True)
class Ack:
    """A destination's word that it has a part, with what is left to do there (Klink, section 4).

    The printed rule sends costs to nodes with *downstream* operators, its example upstream, which is right: who sends
    has to know what comes after it.
    """

    standing: Standing
    cost: Micros = 0
    """What remains from here until results are out: merging, consolidation, delivery; each hop adds wait and transfer
    of its own."""
    deadline: Micros | None = None
    """The end of the window that closes next at the destination, event time; None where none waits."""


class Reason(StrEnum):
    """Why a parcel is not taken."""

    OVERLAP = "overlap"
    """The destination has some of it, and not all: what it does not have has to come by itself."""
    AHEAD = "ahead"
    """Cuts before it have not come, and no more can be held until they do."""
    FULL = "full"
    """No room, at a relay or in an inbox; to be sent again later, or another way."""
    EPOCH = "epoch"
    """A newer run of the site's application has sent since: this one was overtaken."""
    INCARNATION = "incarnation"
    """The site has another checkpoint than the one that its cuts came from until now."""
    LOST = "lost"
    """The destination has less than it acked once: its checkpoint is an old copy, or a new one."""
    BEHIND = "behind"
    """The destination has more of the site than the site itself knows to have sent: its checkpoint is an old copy."""
    FLOW = "flow"
    """The flow is not known, does not belong to the site, or has other columns."""
    FUTURE = "future"
    """It has rows of a time that has not come, further ahead of the clock of the destination than rows may be."""
    DAMAGED = "damaged"
    """It cannot be read, or holds what no rows make."""

    @property
    def passes(self) -> bool:
        """Whether sending again, or apart, helps without anybody's doing."""
        return self in (Reason.OVERLAP, Reason.AHEAD, Reason.FULL)

    @property
    def remedy(self) -> str:
        """What to do about it, for people; empty where nothing has to be done."""
        return _REMEDIES.get(self, "")


_ACCEPT = "once with --accept-loss, which goes on with windows of which nothing is lost."
_REMEDIES = {
    Reason.EPOCH: (
        "Stop the older of the two applications that run on the site's checkpoint; if there is one only, on an old "
        f"copy, run the destination {_ACCEPT}"
    ),
    Reason.INCARNATION: f"Give the site its old checkpoint back; or run the destination {_ACCEPT}",
    Reason.LOST: f"Give the destination its newest checkpoint back; or run it {_ACCEPT}",
    Reason.BEHIND: (f"Give the site its newest checkpoint back; or run both, the site and the destination, {_ACCEPT}"),
    Reason.FLOW: "Run the same job at both sites.",
    Reason.FUTURE: "Set the clocks of the sites; what is of later than now is taken when its time has come.",
    Reason.DAMAGED: (
        "Run the same version of Transom at both sites; if they do, memory or disk of the site that sends it is "
        f"damaged: give it a new checkpoint, and run the destination {_ACCEPT}"
    ),
}


@dataclass(frozen=True)
class Refusal:
    """A parcel that was not taken, as a whole, and what the one that refuses has."""

    flow: FlowName
    tick: int
    places: tuple[tuple[Site, Place], ...]
    """The parts of the parcel that was refused, by site."""
    reason: Reason
    standings: tuple[Standing, ...] = ()
    """Where it stands with those sites, of which it has anything."""
    detail: str = ""
    """What is wrong, for people."""

    @classmethod
    def of(cls, parcel: Parcel, reason: Reason, standings: tuple[Standing, ...] = (), detail: str = "") -> Refusal:
        """Return the refusal of a parcel."""
        places = tuple((part.site, part.place) for part in parcel.parts)
        return cls(parcel.flow, parcel.tick, places, reason, standings, detail)


@dataclass(frozen=True)
class Tell:
    """Tell a neighbour what became of a parcel of its."""

    peer: Site
    message: Ack | Refusal


def _part_json(part: Part) -> list[Any]:
    return [
        part.site,
        part.incarnation,
        part.epoch,
        part.after,
        part.upto,
        part.step,
        part.since,
        part.acked,
        [list(each) for each in part.partitions],
        part.arrived,
        list(part.counts) if any(part.counts) else [],
        list(part.delays) if part.delays.records else [],
        dict(part.failed),
        None,  # once the tick of the next departure, which nobody needed: who reads or sends it still can
        part.injected,
        int(part.ended),
        *([1] if part.anew else []),
    ]


def _part(value: Any) -> Part:
    site, incarnation, epoch, after, upto, step, since, acked, *rest = value
    partitions, arrived, counts, delays, failed, _, injected, ended, *anew = rest
    return Part(
        text(site),
        text(incarnation),
        count(epoch),
        count(after),
        count(upto),
        count(step),
        count(since),
        count(acked),
        tuple(PartitionProgress(moment(newest), maybe(idle)) for newest, idle in partitions),
        moment(arrived),
        RowCounts(*map(count, counts)),
        _delays(*delays) if delays else Delays(),
        {text(query): text(reason) for query, reason in failed.items()},
        moment(injected),
        bool(whole(ended)),
        anew == [1],
    )


def _delays(records: Any, total: Any, spread: Any) -> Delays:
    """Return the moments of delays of 64 bits each, with which everybody can reckon."""
    found = Delays(count(records), real(total), real(spread))
    if abs(found.total) > found.records * 2.0**63 or not 0 <= found.spread <= found.records * 2.0**126:
        raise ValueError(f"{found} are of no delays")
    return found
