"""How wide a link has to be for what it is to carry: what is around parcels, and receipts of the other direction.

Measured on a link of 0.14 Mbit/s: 267 bytes more than a frame's payload of 2 kB go with it (its own head, Flight, gRPC,
HTTP/2, TLS, and heads of TCP, IP and Ethernet; the other end's receipt is acknowledged, too), and some 290 come back.
Sites measure what links carry; who says how wide they are has to know what that takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from transom.widearea.links import FRAME_TIME, LEAST_FRAME, MOST_FRAME
from transom.widearea.topology import HEADROOM, Link

SEGMENT, HEAD = 1_448, 66
"""Bytes of a TCP segment, and those before it."""
FRAME = 75
"""Bytes around a frame's payload in the TCP stream."""
RECEIPT = 290
"""Bytes that a frame's receipt takes on the way back, with what is around it."""


def frame_of(rate: float) -> int:
    """Return the payload of a frame on a link that carries so many bytes per second."""
    return min(MOST_FRAME, max(LEAST_FRAME, int(rate * FRAME_TIME / 1e6)))


def around(payload: int) -> int:
    """Return what goes with a frame's payload, bytes."""
    return FRAME + HEAD * (ceil((payload + FRAME) / SEGMENT) + 1)


def widths(carried: Mapping[Link, float]) -> dict[Link, float]:
    """Return the bytes per second that links need to carry so many, while those of the way back are as full as planned.

    >>> {link: round(rate) for link, rate in widths({("a", "b"): 100_000.0, ("b", "a"): 20_000.0}).items()}
    {('a', 'b'): 109233, ('b', 'a'): 26295}
    """
    found = {}
    for (source, target), rate in carried.items():
        frame = frame_of(rate)
        back = carried.get((target, source), 0.0)
        found[source, target] = rate * (1 + around(frame) / frame) + HEADROOM * back / frame_of(back) * RECEIPT
    return found
