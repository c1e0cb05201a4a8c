"""Functions of times, as Spark computes them. A function returns None for a term that only Spark computes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from transom.native.computing import Computation, Function, Reached, Value, where
from transom.native.terms import Term

_MICROS = {
    "SecondsToTimestamp": 1_000_000,
    "MillisToTimestamp": 1_000,
    "MicrosToTimestamp": 1,
    "UnixSeconds": 1_000_000,
    "UnixMillis": 1_000,
    "UnixMicros": 1,
}
"""Microseconds of the units that times are counted in."""


def moment(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the moment that a whole number of seconds or parts of them names; too large a number is an error."""
    (child,) = term.children
    if not kinds.is_integer(child.type):
        return None
    number = of.value(child, reached).cast(pa.int64())
    if (unit := _MICROS[term.kind]) > 1:
        number = pc.multiply_checked(where(reached, number), pa.scalar(unit, pa.int64()))
    return number.cast(term.type)


def number_of(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the whole seconds, or parts of them, from the epoch to a moment; those before it count down."""
    micros = of.value(term.children[0], reached).cast(pa.int64())
    if (unit := _MICROS[term.kind]) == 1:
        return micros
    whole = pc.divide(micros, pa.scalar(unit, pa.int64()))
    below = pc.greater(pc.multiply(whole, pa.scalar(unit, pa.int64())), micros)
    return pc.subtract(whole, below.cast(pa.int64()))


FUNCTIONS: dict[str, Function] = {
    **{kind: moment for kind in _MICROS if kind.endswith("ToTimestamp")},
    **{kind: number_of for kind in _MICROS if kind.startswith("Unix")},
}
