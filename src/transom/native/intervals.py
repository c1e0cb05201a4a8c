"""Intervals of days and parts of them, as microseconds: where the wall clock is that of UTC, a day is one of them.

A function returns None for a term that only Spark computes.
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from transom.native.computing import Computation, Function, Reached, Value, constant, where
from transom.native.terms import Term
from transom.native.times import DAY, UTC, is_moment

_MICROS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": DAY,
    "DAYOFYEAR": DAY,
    "WEEK": 7 * DAY,
}
"""Of the units that moments are moved by."""
_SPAN = pa.duration("us")
_SECONDS = pa.decimal128(18, 6)


def is_span(term: Term) -> bool:
    """Tell whether a term is an interval that is known here; of those with months only such as have none are."""
    if kinds.is_duration(term.type) or term.kind == "MakeInterval":
        return True
    return term.kind == "UnaryMinus" and is_span(term.children[0])


def later(of: Computation, term: Term, reached: Reached) -> Value:
    """Return a moment an interval later."""
    time, by = term.children
    if not (is_moment(time.type) and is_span(by)) or term.value not in UTC:
        return None
    return _sum(of.value(time, reached), of.value(by, reached), reached).cast(term.type)


def moved(of: Computation, term: Term, reached: Reached) -> Value:
    """Return a moment so many units later."""
    number, time = term.children
    unit, zone = term.value
    if unit not in _MICROS or zone not in UTC or not (is_moment(time.type) and kinds.is_integer(number.type)):
        return None
    by = _times(of.value(number, reached), _MICROS[unit], reached)
    return _sum(of.value(time, reached), by, reached).cast(term.type)


def made(of: Computation, term: Term, reached: Reached) -> Value:
    """Return an interval made of numbers of its units; one with years or months has no length of its own."""
    *whole, seconds = term.children
    units = [3_600_000_000, 60_000_000]
    if term.kind == "MakeInterval":
        if [constant(each) for each in whole[:2]] != [0, 0] or term.mode != "ANSI":
            return None
        whole, units = whole[2:], [7 * DAY, DAY, *units]
    else:
        units = [DAY, *units]
    if seconds.type != _SECONDS or not all(kinds.is_int32(each.type) for each in whole):
        return None
    values = [of.value(each, reached) for each in (*whole, seconds)]
    if any(isinstance(value, pc.Expression) for value in values):
        return None
    found = pc.multiply(values.pop(), pa.scalar(Decimal(1_000_000), pa.decimal128(7, 0))).cast(pa.int64())
    for value, unit in zip(values, units, strict=True):
        found = _sum(found, _times(value, unit, reached), reached)
    if term.kind == "MakeInterval":  # weeks and days are one number of 32 bits there
        days = pc.add(pc.multiply(values[0].cast(pa.int64()), pa.scalar(7, pa.int64())), values[1].cast(pa.int64()))
        fits = pc.less(pc.abs(days), pa.scalar(1 << 31, pa.int64()))
        found = of.ground.certain(term, found, fits, reached)
    return found.cast(_SPAN)


def multiplied(of: Computation, term: Term, reached: Reached) -> Value:
    """Return an interval, a whole number of times."""
    span, number = term.children
    if not (kinds.is_duration(span.type) and kinds.is_integer(number.type)):
        return None
    left, right = (of.value(each, reached).cast(pa.int64()) for each in term.children)
    return pc.multiply_checked(where(reached, left), right).cast(_SPAN)


def _times(number: Value, unit: int, reached: Reached) -> Value:
    """Return a number of units in microseconds; too many are an error."""
    return pc.multiply_checked(where(reached, number.cast(pa.int64())), pa.scalar(unit, pa.int64()))


def _sum(left: Value, right: Value, reached: Reached) -> Value:
    """Return a sum of microseconds; one that is too large is an error."""
    return pc.add_checked(where(reached, left.cast(pa.int64())), right.cast(pa.int64()))


FUNCTIONS: dict[str, Function] = {
    "TimestampAddInterval": later,
    "TimestampAdd": moved,
    "MakeInterval": made,
    "MakeDTInterval": made,
    "MultiplyDTInterval": multiplied,
}
