"""The messages on a connection; as bytes, and back: what is no message is an error of ours, whatever it is."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from transom.errors import SiteError
from transom.widearea.checked import WRONG, moment, text, whole
from transom.widearea.links import MOST_FRAME, Frame, Receipt
from transom.widearea.parcels import Ack, Place, Reason, Refusal, Standing


@dataclass(frozen=True)
class Abandon:
    """No more of a parcel comes."""

    number: int


@dataclass(frozen=True)
class Unreadable:
    """A parcel cannot be read without what is forgotten: it has to come again, in full."""

    number: int


@dataclass(frozen=True)
class Opening:
    """What the sending end of a link says first."""

    boot: str
    """Random, of the process: with another one everything that was in its memory is gone."""
    numbers: tuple[int, ...] = ()
    """The parcels that it goes on with."""
    standings: tuple[Standing, ...] = ()
    """What it has fixed of the flows that end there, so that nobody else can say so of more."""


@dataclass(frozen=True)
class Opened:
    """What the receiving end answers."""

    boot: str
    received: Mapping[int, int] = field(default_factory=dict)
    """Bytes of each parcel that it has."""
    standings: tuple[Standing, ...] = ()
    """Where it stands with the flows that end there."""


Up: TypeAlias = "Frame | Abandon"
"""What goes from the sending end to the receiving one."""
Down: TypeAlias = "Receipt | Ack | Refusal | Unreadable"
"""What comes back."""

MOST_COST = 86_400_000_000
"""What remains of a flow's way is not believed to take longer than a day, microseconds: each hop adds to it."""
MOST_MESSAGE = 1 << 20
"""Bytes of a message."""
_FRAME = struct.Struct(">cQQQI")
_RECEIPT = struct.Struct(">cQQqq")
_ONE = struct.Struct(">cQ")
_REMEDY = "Both sites need the same version of the protocol; if they have it, something between them changes bytes."

Message: TypeAlias = "Up | Down | Opening | Opened"


def to_bytes(message: Message) -> bytes:
    """Return a message as bytes."""
    match message:
        case Frame(number, offset, total, crc, payload):
            return _FRAME.pack(b"F", number, offset, total, crc) + payload
        case Receipt(number, received, at, said):
            return _RECEIPT.pack(b"R", number, received, at, said)
        case Abandon(number):
            return _ONE.pack(b"A", number)
        case Unreadable(number):
            return _ONE.pack(b"U", number)
        case Ack(standing, cost, deadline):
            return _text(b"K", [_standing(standing), cost, deadline])
        case Refusal(flow, tick, places, reason, standings, detail):
            pairs = [[site, list(place)] for site, place in places]
            return _text(b"N", [flow, tick, pairs, reason.value, [_standing(each) for each in standings], detail])
        case Opening(boot, numbers, standings):
            return _text(b"O", [boot, list(numbers), [_standing(each) for each in standings]])
        case Opened(boot, received, standings):
            return _text(b"P", [boot, list(received.items()), [_standing(each) for each in standings]])


def from_bytes(data: bytes) -> Message:
    """Return the message that bytes are.

    Raises:
        SiteError: They are none.
    """
    if not data or len(data) > MOST_MESSAGE:
        raise SiteError(f"A message has {len(data)} bytes.", _REMEDY)
    make = _MAKERS.get(data[:1])
    if make is None:
        raise SiteError(f"A message begins with {data[:1]!r}.", _REMEDY)
    try:
        return make(data)
    except (struct.error, *WRONG) as error:
        raise SiteError(f"This is no message: {error}.", _REMEDY) from error


def _frame(data: bytes) -> Frame:
    if len(data) > _FRAME.size + MOST_FRAME:
        raise ValueError(f"a frame has {len(data)} bytes")
    _, number, offset, total, crc = _FRAME.unpack_from(data)
    return Frame(number, offset, total, crc, data[_FRAME.size :])


def _receipt(data: bytes) -> Receipt:
    _, number, received, at, said = _RECEIPT.unpack(data)
    return Receipt(number, received, at, said)


def _abandon(data: bytes) -> Abandon:
    return Abandon(_ONE.unpack(data)[1])


def _unreadable(data: bytes) -> Unreadable:
    return Unreadable(_ONE.unpack(data)[1])


def _ack(data: bytes) -> Ack:
    standing, cost, deadline = json.loads(data[1:])
    return Ack(_standing_of(standing), min(max(0, whole(cost)), MOST_COST), moment(deadline))


def _refusal(data: bytes) -> Refusal:
    flow, tick, places, reason, standings, detail = json.loads(data[1:])
    pairs = tuple((text(site), _place(place)) for site, place in places)
    known = tuple(map(_standing_of, standings))
    return Refusal(text(flow), whole(tick), pairs, Reason(reason), known, text(detail))


def _opening(data: bytes) -> Opening:
    boot, numbers, standings = [*json.loads(data[1:]), []][:3]  # the first version has none
    return Opening(text(boot), tuple(map(whole, numbers)), tuple(map(_standing_of, standings)))


def _opened(data: bytes) -> Opened:
    boot, received, standings = json.loads(data[1:])
    sizes = {whole(number): whole(size) for number, size in received}
    return Opened(text(boot), sizes, tuple(map(_standing_of, standings)))


_MAKERS: dict[bytes, Callable[[bytes], Message]] = {
    b"F": _frame,
    b"R": _receipt,
    b"A": _abandon,
    b"U": _unreadable,
    b"K": _ack,
    b"N": _refusal,
    b"O": _opening,
    b"P": _opened,
}


def _text(kind: bytes, value: Any) -> bytes:
    return kind + json.dumps(value, separators=(",", ":")).encode()


def _standing(standing: Standing) -> list[Any]:
    return [standing.flow, standing.site, standing.incarnation, list(standing.place)]


def _standing_of(value: Any) -> Standing:
    flow, site, incarnation, place = value
    return Standing(text(flow), text(site), text(incarnation), _place(place))


def _place(value: Any) -> Place:
    upto, epoch, step = value
    return Place(whole(upto), whole(epoch), whole(step))
