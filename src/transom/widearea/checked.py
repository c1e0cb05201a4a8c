"""Values that came from another site as JSON: what is not what it should be, or would not fit, is refused."""

from __future__ import annotations

from math import isfinite
from typing import Any

from transom.model.time import MAX_TIME, MIN_TIME, Micros

WRONG = (TypeError, ValueError, AttributeError, LookupError, OverflowError, RecursionError)
"""What these and the shapes around them raise when something else came."""


MOST = 1 << 48
"""No cut range has so many rows, and no site has made so many cuts or had so many runs: some such numbers may be added.
"""


def whole(value: Any) -> int:
    """Return a whole number of 64 bits, with which everybody can reckon."""
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError("a number has more than 64 bits")
    return value


def count(value: Any) -> int:
    """Return a number of things, or which one of them."""
    if not 0 <= whole(value) < MOST:
        raise ValueError(f"{value} things cannot be")
    return whole(value)


def real(value: Any) -> float:
    """Return a number that is one, and finite."""
    if not isfinite(value):
        raise ValueError(f"{value} is no number")
    return float(value)


def moment(value: Any) -> Micros | None:
    """Return a time, microseconds since the epoch, or a watermark; or None."""
    if value is not None and not MIN_TIME <= whole(value) <= MAX_TIME:
        raise ValueError(f"{value} is no time")
    return maybe(value)


def maybe(value: Any) -> int | None:
    """Return a whole number or None."""
    return None if value is None else whole(value)


def text(value: Any) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
