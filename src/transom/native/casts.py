"""Casts: values as values of another type, where it is known what Spark makes of them.

Of texts only those are known that are written as everybody writes them: Spark takes more, each type in its own way.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from transom.native import decimals, numbers, times
from transom.native.computing import Computation, Function, Reached, Value, where
from transom.native.terms import Term

_WHOLE = r"^-?[0-9]{1,18}$"
_REAL = r"^-?[0-9]{1,17}(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?$"
_DATE = r"^[1-9][0-9]{3}-[01][0-9]-[0-3][0-9]$"
_TIME = r"^[1-9][0-9]{3}-[01][0-9]-[0-3][0-9]([T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?Z?)?$"
_SECONDS = 1 << 42
"""More seconds before or after the epoch than times have."""
_TRUE, _FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")


def cast(of: Computation, term: Term, reached: Reached) -> Value:
    """Return a value of another type; None for one that only Spark computes."""
    (child,) = term.children
    kind, to = child.type, term.type
    if kind == to or numbers.is_wider(kind, to):
        return of.value(child, reached).cast(to, safe=False)
    for is_from, is_to, function in _CASTS:
        if is_from(kind) and is_to(to):
            return function(of, term, reached)
    return None


def as_text(of: Computation, term: Term, reached: Reached) -> Value:
    """Return a whole number or a truth as a text."""
    return of.value(term.children[0], reached).cast(pa.string())


def number_in(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the number that a text is."""
    return _written(of, term, reached, _WHOLE if kinds.is_integer(term.type) else _REAL).cast(term.type)


def truth_in(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the truth that a text says."""
    text = of.value(term.children[0], reached)
    true = pc.is_in(text, pa.array(_TRUE))
    known = pc.or_kleene(true, pc.is_in(text, pa.array(_FALSE)))
    return of.ground.certain(term, pc.case_when(pc.make_struct(pc.is_valid(text)), true), known, reached)


def date_in(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the date that a text is."""
    return _written(of, term, reached, _DATE).cast(pa.date32())


def moment_in(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the moment that a text names by a date and a time of UTC."""
    if term.value not in times.UTC and kinds.is_timestamp(term.type):
        return None
    text = pc.ascii_rtrim(_written(of, term, reached, _TIME), "Z")
    return text.cast(pa.timestamp("us")).cast(pa.int64()).cast(term.type)


def date_of(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the date of a moment by UTC."""
    (child,) = term.children
    if times.is_moment(child.type) and term.value not in times.UTC:
        return None
    days = times.floored(of.value(child, reached), times.DAY)
    return days.cast(pa.int32()).cast(pa.date32())


def midnight(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the moment at which a date begins by UTC."""
    if term.value not in times.UTC:
        return None
    days = of.value(term.children[0], reached).cast(pa.int32()).cast(pa.int64())
    return pc.multiply_checked(where(reached, days), pa.scalar(times.DAY, pa.int64())).cast(term.type)


def seconds_of(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the whole seconds from the epoch to a moment."""
    return times.floored(of.value(term.children[0], reached), 1_000_000) if kinds.is_int64(term.type) else None


def moment_of(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the moment that a whole number of seconds names; of those that are too large Spark takes the last one."""
    seconds = of.value(term.children[0], reached).cast(pa.int64())
    known = pc.less(pc.abs(seconds), pa.scalar(_SECONDS, pa.int64()))
    seconds = of.ground.certain(term, seconds, known, reached)
    return pc.multiply(seconds, pa.scalar(1_000_000, pa.int64())).cast(term.type)


def parts_of(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the seconds from the epoch to a moment, with their parts."""
    micros = of.value(term.children[0], reached).cast(pa.int64())
    return pc.divide(micros.cast(pa.float64(), safe=False), pa.scalar(1e6))


def _written(of: Computation, term: Term, reached: Reached, form: str) -> Value:
    """Return texts of a form; others are Spark's to judge."""
    text = of.value(term.children[0], reached)
    return of.ground.certain(term, text, pc.match_substring_regex(text, form), reached)


def _is_number(kind: pa.DataType) -> bool:
    return bool(kinds.is_integer(kind) or kinds.is_floating(kind))


_CASTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool], Function], ...] = (
    (_is_number, kinds.is_integer, numbers.narrowed),
    (kinds.is_boolean, _is_number, numbers.from_truth),
    (_is_number, kinds.is_boolean, numbers.as_truth),
    (kinds.is_integer, kinds.is_string, as_text),
    (kinds.is_boolean, kinds.is_string, as_text),
    (kinds.is_string, _is_number, number_in),
    (kinds.is_string, kinds.is_boolean, truth_in),
    (kinds.is_string, kinds.is_date32, date_in),
    (kinds.is_string, times.is_moment, moment_in),
    (times.is_moment, kinds.is_date32, date_of),
    (times.is_moment, kinds.is_integer, seconds_of),
    (kinds.is_date32, times.is_moment, midnight),
    (kinds.is_integer, times.is_moment, moment_of),
    (times.is_moment, kinds.is_float64, parts_of),
    (kinds.is_integer, kinds.is_decimal, decimals.from_whole),
    (kinds.is_decimal, kinds.is_float64, decimals.as_double),
)
"""From which types to which, and how."""
FUNCTIONS: dict[str, Function] = {"Cast": cast}
