"""The sending end of a link: parcels as frames, several under way at once, the one with the least slack first.

A link may be thin, and TCP and queues of the system can hold a minute of it. So little is given to them: what is not
received yet is at most a quarter of a second of the link's rate, or two frames. Receipts tell what has come and when,
and so the rate. When a connection breaks the receiving end (`incoming.py`) keeps what it has of unfinished parcels, and
the next connection goes on behind the last received byte.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from transom.errors import SiteError
from transom.model.time import MICROS_PER_SECOND, Micros
from transom.widearea.returning import Returning

LEAST_FRAME, MOST_FRAME = 4 << 10, 64 << 10
"""Bytes of a frame. What is around smaller ones, of TLS, TCP and receipts, would take more than a tenth of a link."""
FRAME_TIME: Micros = 50_000
"""How long a frame takes on the link, about."""
WINDOW: Micros = 250_000
MOST_WINDOW = 32 << 20
"""How much may be under way without a receipt: of the link's rate, which the other end says, and bytes, of 1 Gbit/s."""
RATES, LAST = 64, 5
"""Measured rates that are remembered, and those of now."""
SAMPLE: Micros = 100_000
"""Rates are measured over that long at least."""
LONGEST_FRAME: Micros = 60_000_000
"""A frame that took longer, as the other end says, tells no more: every rate is some bytes per second."""
USED: Micros = 10_000_000
"""For people it is said how much a link has carried in so long."""
PROBE = b"\0"
"""What is sent only to measure begins with it, and no parcel does."""
PROBE_SHARE = 0.01
"""Of the rate of an unused link, probes take so much."""
PROBE_TIME: Micros = 600_000
"""A probe keeps the link busy for so long: what may be under way, and some measures."""
MOST_PROBE = 8 << 20
"""Bytes of a probe, which is in the memory of both ends: a link that is very fast is measured by several."""
NEVER: Micros = 1 << 62
"""Due after everything else."""
REMEDY = "Both sites need the same version of the protocol; if they have it, something between them changes bytes."


@dataclass(frozen=True)
class Frame:
    """A piece of a parcel on a link."""

    number: int
    """Of the parcel on this link, since the sending site's process began."""
    offset: int
    total: int
    """Bytes of the whole parcel."""
    crc: int
    """Of the payload."""
    payload: bytes


@dataclass(frozen=True)
class Receipt:
    """So many bytes of a parcel have come, without a gap."""

    number: int
    received: int
    at: Micros = 0
    """When the last of them came, by the clock of who says so; only differences mean anything."""
    said: Micros = 0
    """When that was said, by the same clock: who was busy says it late."""


@dataclass
class _Outgoing:
    number: int
    data: bytes
    due: Micros
    given: int = 0
    """Bytes that were given to the connection."""
    received: int = 0
    """Bytes that were received."""
    probe: bool = False
    """Whether it is sent only to measure."""


class _OnWay(NamedTuple):
    """A frame that was given to the connection and not received yet."""

    number: int
    """Of the parcel."""
    upto: int
    """Bytes of the parcel up to its end."""
    size: int
    given: Micros
    """When, monotonic."""
    behind: bool
    """Whether another one was under way, as far as was known, so that it came as soon as the link allows."""


class LinkOut:
    """The sending end of a link.

    Args:
        rate: What is known of the link, bytes per second, until it is measured.
    """

    def __init__(self, rate: float = 0.0) -> None:
        self._stated = rate
        self._queue: dict[int, _Outgoing] = {}
        self._next = 1
        self._rates: deque[float] = deque(maxlen=RATES)
        self._on_way: deque[_OnWay] = deque()
        self._returning = Returning()
        self._full = False
        """Whether more waited than could be given."""
        self._came: Micros = 0
        """When the last frame came, by the other end's clock."""
        self._sample: tuple[Micros, int] = (0, 0)
        """How long the link took for some bytes, until that is long enough to tell a rate."""
        self._measured: Micros | None = None
        """When the rate was measured last, or first asked for."""
        self._carried: deque[tuple[Micros, int]] = deque()
        """When receipts came in the last `USED`, and of how many bytes."""
        self.heard: Micros = 0
        """When the last receipt came, or something was sent to an idle link; monotonic."""

    @property
    def queued(self) -> int:
        """Bytes of parcels that have not been received."""
        return sum(len(each.data) - each.received for each in self._queue.values() if not each.probe)

    @property
    def begun(self) -> frozenset[int]:
        """The parcels of which a byte has left."""
        return frozenset(each.number for each in self._queue.values() if each.given)

    @property
    def waiting(self) -> int:
        """Parcels of which no byte has left yet."""
        return sum(1 for each in self._queue.values() if not each.given and not each.probe)

    @property
    def full(self) -> bool:
        """Whether bytes of parcels wait that were not given to the connection."""
        return any(each.given < len(each.data) for each in self._queue.values())

    def waits_before(self, due: Micros) -> bool:
        """Tell whether a parcel of which no byte has left yet is due by then: what is due later would only wait."""
        return any(not each.given and not each.probe and each.due <= due for each in self._queue.values())

    @property
    def under_way(self) -> int:
        """Bytes that were given to the connection and not received yet."""
        return sum(each.given - each.received for each in self._queue.values())

    @property
    def rate(self) -> float:
        """Bytes per second that it carries when it is busy: the lower decile of what was measured; 0 if unknown."""
        if not self._rates:
            return self._stated
        ordered = sorted(self._rates)
        return ordered[ceil(len(ordered) / 10) - 1]

    @property
    def pace(self) -> float:
        """Bytes per second by which frames are made: what was measured last, as a link that gets faster has to show."""
        recent = sorted(list(self._rates)[-LAST:])
        return recent[len(recent) // 2] if recent else self._stated

    @property
    def sure(self) -> float:
        """Bytes per second to count with: where the last measures agree that it has become thin, that is so at once."""
        return min(self.rate, max(list(self._rates)[-LAST:], default=self._stated))

    def used(self, now: Micros) -> float:
        """Return the bytes per second that it has carried in the last `USED`."""
        return sum(size for at, size in self._carried if at > now - USED) / USED * MICROS_PER_SECOND

    @property
    def frame(self) -> int:
        """Bytes of a frame: about 50 ms of the link."""
        return min(MOST_FRAME, max(LEAST_FRAME, int(self.pace * FRAME_TIME / MICROS_PER_SECOND)))

    @property
    def window(self) -> int:
        """Bytes that may be under way: 0.25 s of the link, two frames at least, and `MOST_WINDOW` at most.

        Beside them are those whose receipts are on a way back that is full: they have left the link already.
        """
        time = WINDOW + self._returning.back
        return max(2 * self.frame, int(min(MOST_WINDOW, self.pace * time / MICROS_PER_SECOND)))

    def queue(self, data: bytes, due: Micros) -> int:
        """Take a parcel that is to be sent; return its number on the link.

        Args:
            data: The parcel, not empty.
            due: When it should be there; what is due first goes first.
        """
        number, self._next = self._next, self._next + 1
        self._queue[number] = _Outgoing(number, data, due)
        return number

    def probe(self, now: Micros) -> bool:
        """Send something to measure a link that nobody has used for long; return whether that is so.

        Parcels go before it. In a time without measures it takes `PROBE_SHARE` of what the link can carry.
        """
        if self._measured is None or self._queue:
            self._measured = now if self._measured is None else self._measured
            return False
        if (now - self._measured) * PROBE_SHARE < PROBE_TIME or not self.rate:
            return False
        self._measured = now
        size = min(MOST_PROBE, max(1, int(self.rate * PROBE_TIME / MICROS_PER_SECOND)))
        number = self.queue(PROBE * size, NEVER)
        self._queue[number].probe = True
        return True

    def abandon(self, number: int) -> bool:
        """Send no more of a parcel; tell whether the other end has to hear of it."""
        gone = self._queue.pop(number, None)
        if gone is None or not gone.given:
            return False
        self._on_way = deque(each for each in self._on_way if each.number != number)
        self._came = NEVER  # frames were between those whose receipts come
        return True

    def frames(self, now: Micros) -> list[Frame]:
        """Return the frames that may be given to the connection now."""
        found: list[Frame] = []
        if not self.full:
            self._full = False
            return found
        under_way, size, window = self.under_way, self.frame, self.window
        most = min(MOST_FRAME, size + size // 4)  # what little is left of a parcel goes with its last frame
        behind = self._full and under_way > 0
        self.heard = self.heard if under_way else now
        for each in sorted(self._queue.values(), key=lambda one: (one.due, one.number)):
            while each.given < len(each.data) and (under_way == 0 or under_way + size <= window):
                upto = len(each.data) if len(each.data) - each.given <= most else each.given + size
                payload = each.data[each.given : upto]
                found.append(Frame(each.number, each.given, len(each.data), zlib.crc32(payload), payload))
                each.given = upto
                under_way += len(payload)
                self._on_way.append(_OnWay(each.number, each.given, len(payload), now, behind or len(found) > 1))
        self._full = self.full
        return found

    def receipt(self, receipt: Receipt, now: Micros) -> bool:
        """Take a receipt, that came now; tell whether it is of a parcel, all of which has been received.

        Raises:
            SiteError: It is about bytes that were not sent.
        """
        self._measure(receipt, now)
        each = self._queue.get(receipt.number)
        if each is None:
            return False  # abandoned
        if not each.received <= receipt.received <= each.given:
            raise SiteError(f"A receipt tells of {receipt.received} bytes of a parcel, of {each.given}.", REMEDY)
        self._note_carried(receipt.received - each.received, now)
        each.received, self.heard = receipt.received, now
        if each.received == len(each.data):
            del self._queue[each.number]
            return not each.probe
        return False

    def _note_carried(self, size: int, now: Micros) -> None:
        """Take note of bytes that have come; moments that are close count as one, however many receipts there are."""
        while self._carried and self._carried[0][0] <= now - USED:
            self._carried.popleft()
        if self._carried and now - self._carried[-1][0] < USED // 100:
            at, before = self._carried.pop()
            self._carried.append((at, before + size))
        else:
            self._carried.append((now, size))

    def _measure(self, receipt: Receipt, now: Micros) -> None:
        """Note how long the link took for a frame that came right behind another one; of others it says nothing.

        When frames came is what the other end saw, so that it does not matter when either end comes to look. Of a frame
        that was given after the one before had come nothing is known: the link may have waited for a loop.
        """
        if not any((each.number, each.upto) == (receipt.number, receipt.received) for each in self._on_way):
            return
        while ((frame := self._on_way.popleft()).number, frame.upto) != (receipt.number, receipt.received):
            self._came = NEVER  # there was no receipt of that one: it could not be read
        self._returning.came(receipt.said, now)
        if frame.behind and frame.given + self._returning.ahead <= self._came < NEVER:
            took, total = self._sample
            took += min(LONGEST_FRAME, max(0, receipt.at - self._came))
            self._sample = (took, total + frame.size)
            if took >= SAMPLE:
                self._rates.append((total + frame.size) * MICROS_PER_SECOND / took)
                self._measured, self._sample = now, (0, 0)
        self._came = receipt.at

    def opened(self, received: Mapping[int, int], now: Micros) -> list[int]:
        """Go on over a new connection; return the parcels of which all has been received.

        Args:
            received: What the other end has of each parcel that it knows.
            now: Monotonic time.
        """
        done = []
        self._queue = {number: each for number, each in self._queue.items() if not each.probe}
        for each in list(self._queue.values()):
            each.given = each.received = max(0, min(received.get(each.number, 0), len(each.data)))
            if each.given == len(each.data):
                done.append(each.number)
                del self._queue[each.number]
        self._full, self.heard = False, now
        self._on_way.clear()
        self._returning = Returning()
        return done
