"""Arithmetic and casts of numbers, as Spark does them.

Whole numbers overflow as the ANSI mode says. An operation that may fail gets null where Spark would not come to it: the
right side of `a <> 0 AND b / a > 1` where a is 0. A function returns None for a term that only Spark computes.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from transom.native import decimals, intervals
from transom.native.computing import Computation, Function, Reached, Value, constant, where
from transom.native.terms import Term

ANSI, LEGACY, TRY = "ANSI", "LEGACY", "TRY"
DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""Digits of the largest whole number, by bits."""
_ARITHMETIC = {"Add": "add", "Subtract": "subtract", "Multiply": "multiply", "UnaryMinus": "negate", "Abs": "abs"}
_BITS = {"BitwiseAnd": pc.bit_wise_and, "BitwiseOr": pc.bit_wise_or, "BitwiseXor": pc.bit_wise_xor}


def arithmetic(of: Computation, term: Term, reached: Reached) -> Value:
    """Return a sum, difference, product, negative or absolute value: of floats, or of whole numbers."""
    name = _ARITHMETIC[term.kind]
    if kinds.is_decimal(term.type):
        return decimals.arithmetic(name, term, of.values(term, reached))
    if intervals.is_span(term):
        return _of_spans(of, term, name, reached)
    if any(child.type != term.type for child in term.children):
        return None
    operands = of.values(term, reached)
    if kinds.is_floating(term.type) or (kinds.is_integer(term.type) and term.mode == LEGACY):
        return getattr(pc, name)(*operands)
    if not kinds.is_integer(term.type) or term.mode != ANSI:
        return None
    return getattr(pc, f"{name}_checked")(where(reached, operands[0]), *operands[1:])


def _of_spans(of: Computation, term: Term, name: str, reached: Reached) -> Value:
    """Return a sum, difference, negative or absolute value of intervals; too long a one is an error."""
    if name == "multiply" or not all(map(intervals.is_span, term.children)):
        return None
    spans = [where(reached, value.cast(pa.int64())) for value in of.values(term, reached)]
    return getattr(pc, f"{name}_checked")(*spans).cast(pa.duration("us"))


def quotient(of: Computation, term: Term, reached: Reached) -> Value:
    """Return a quotient of floats."""
    if not kinds.is_floating(term.type) or term.mode not in (ANSI, LEGACY, TRY):
        return None
    a, b = of.values(term, reached)
    if constant(term.children[1]):
        return pc.divide(a, b)
    if term.mode == ANSI:
        return pc.divide_checked(where(reached, a), b)
    return pc.divide(a, where(pc.not_equal(b, pa.scalar(0.0, term.type)), b))


def whole_quotient(of: Computation, term: Term, reached: Reached) -> Value:
    """Return what whole numbers divided by others give, or leave; -1 divides the least number to one out of range."""
    by = term.children[1]
    if not kinds.is_integer(by.type) or term.mode not in (ANSI, LEGACY, TRY):
        return None
    known = constant(by)
    if by.kind == "Literal" and known in (0, -1, None):
        return None
    if term.kind == "Pmod" and by.type.bit_width < 32 and (known is None or known < 0):
        return None  # Spark adds in 32 bits what may be out of range here
    a, b = of.values(term, reached)
    if known is None:
        none = pa.scalar(0, pa.int8()).cast(by.type)
        if term.mode != ANSI:
            b = where(pc.coalesce(pc.not_equal(b, none), pa.scalar(False)), b)
        plain = pc.and_kleene(pc.not_equal(b, none), pc.not_equal(b, pa.scalar(-1, pa.int8()).cast(by.type)))
        b = where(reached, of.ground.certain(term, b, plain, reached))
    whole = pc.divide(a, b)
    if term.kind == "IntegralDivide":
        return whole
    rest = pc.subtract(a, pc.multiply(whole, b))
    if term.kind == "Remainder":
        return rest
    # The remainder that is not negative: with the divisor added to it, and divided again, as Spark does.
    shifted = pc.add(rest, b)
    again = pc.subtract(shifted, pc.multiply(pc.divide(shifted, b), b))
    return pc.case_when(pc.make_struct(pc.less(rest, pa.scalar(0, term.type))), again, rest)


def bits(of: Computation, term: Term, reached: Reached) -> Value:
    """Return two whole numbers as bits, joined."""
    return _BITS[term.kind](*of.values(term, reached)) if kinds.is_integer(term.type) else None


def turned(of: Computation, term: Term, reached: Reached) -> Value:
    """Return a whole number with all bits turned."""
    return pc.bit_wise_not(of.value(term.children[0], reached)) if kinds.is_integer(term.type) else None


def shifted(of: Computation, term: Term, reached: Reached) -> Value:
    """Return a whole number with its bits moved by a constant number of places that it has."""
    value, by = term.children
    places = constant(by)
    if not kinds.is_integer(term.type) or value.type != term.type or places is None:
        return None
    if not 0 <= places < term.type.bit_width - 1:  # by as many as there are bits beside the sign Arrow moves nothing
        return None
    function = pc.shift_left if term.kind == "ShiftLeft" else pc.shift_right
    return function(of.value(value, reached), pa.scalar(places, pa.int8()).cast(term.type))


def square_root(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the square root of a float, NaN of a negative one."""
    return pc.sqrt(of.value(term.children[0], reached))


def extreme(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the least or greatest of some whole numbers, dates or times, nulls aside."""
    kind = term.type
    if not (kinds.is_integer(kind) or kinds.is_date32(kind) or kinds.is_timestamp(kind)):
        return None
    function = pc.max_element_wise if term.kind == "Greatest" else pc.min_element_wise
    whole = kind if kinds.is_integer(kind) else pa.int32() if kinds.is_date32(kind) else pa.int64()
    return function(*(value.cast(whole) for value in of.values(term, reached)), skip_nulls=True).cast(kind)


def rounded(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the whole number at or below a number, or at or above it; too large a float has another one in Spark."""
    (child,) = term.children
    if kinds.is_decimal(child.type) and kinds.is_decimal(term.type):
        return decimals.whole(of, term, reached)
    if kinds.is_int64(child.type) and kinds.is_int64(term.type):
        return of.value(child, reached)
    if not kinds.is_float64(child.type) or not kinds.is_int64(term.type):
        return None
    value = of.value(child, reached)
    value = of.ground.certain(term, value, pc.less(pc.abs(value), pa.scalar(2.0**63)), reached)
    return (pc.floor if term.kind == "Floor" else pc.ceil)(value).cast(term.type)


def rounded_half(of: Computation, term: Term, reached: Reached) -> Value:
    """Return a decimal with fewer digits, a double without those behind the point, half of the last one going up.

    Doubles with digits behind the point are Spark's, which rounds them as they are written.
    """
    child, scale = term.children
    digits = constant(scale)
    if digits is None:
        return None
    if kinds.is_decimal(child.type) and kinds.is_decimal(term.type):
        return decimals.rounded(of, term, digits, reached)
    if kinds.is_integer(child.type) and child.type == term.type and digits >= 0:
        return of.value(child, reached)
    if digits or not kinds.is_float64(child.type) or child.type != term.type:
        return None
    value = of.value(child, reached)
    whole = pc.trunc(value)
    up = pc.greater_equal(pc.abs(pc.subtract(value, whole)), pa.scalar(0.5))
    found = pc.case_when(pc.make_struct(up), pc.add(whole, pc.sign(value)), whole)
    # Nothing is -0.0 as it was a decimal meanwhile, but for what is infinite or no number.
    return pc.case_when(pc.make_struct(pc.equal(found, pa.scalar(0.0))), pa.scalar(0.0), found)


def narrowed(of: Computation, term: Term, reached: Reached) -> Value:
    """Return a number as a whole number that may not have it: what is too large is an error in ANSI mode.

    What is behind the point is cut off.
    """
    (child,) = term.children
    value = of.value(child, reached)
    if kinds.is_integer(child.type):
        if term.mode == LEGACY:
            return value.cast(term.type, safe=False)
        if term.mode == TRY:
            most = pa.scalar(2 ** (term.type.bit_width - 1) - 1, child.type)
            least = pa.scalar(-(2 ** (term.type.bit_width - 1)), child.type)
            fits = pc.and_kleene(pc.less_equal(value, most), pc.greater_equal(value, least))
            return where(pc.coalesce(fits, False), value).cast(term.type)
        return where(reached, value).cast(term.type)
    if term.mode == LEGACY:
        # Of NaN and large numbers Spark makes others, without ANSI mode.
        bound = pa.scalar(float(2 ** (term.type.bit_width - 1)), child.type)
        value = of.ground.certain(term, value, pc.less(pc.abs(value), bound), reached)
    return where(reached, pc.trunc(value)).cast(term.type) if term.mode in (ANSI, LEGACY) else None


def from_truth(of: Computation, term: Term, reached: Reached) -> Value:
    """Return true as 1, false as 0."""
    return of.value(term.children[0], reached).cast(term.type)


def as_truth(of: Computation, term: Term, reached: Reached) -> Value:
    """Return whether a number is not zero."""
    (child,) = term.children
    return pc.not_equal(of.value(child, reached), pa.scalar(0, pa.int8()).cast(child.type))


def is_wider(kind: pa.DataType, to: pa.DataType) -> bool:
    """Tell whether a type has all values of another one, or rounds them as Spark does."""
    if kinds.is_integer(kind) and kinds.is_decimal(to):
        return bool(to.precision - to.scale >= DIGITS[kind.bit_width])
    if kinds.is_integer(kind) and kinds.is_integer(to):
        return bool(to.bit_width > kind.bit_width)
    if kinds.is_decimal(kind) and kinds.is_decimal(to):
        return bool(to.scale >= kind.scale and to.precision - to.scale >= kind.precision - kind.scale)
    return bool(kinds.is_floating(to) and (kinds.is_integer(kind) or kinds.is_floating(kind)))


FUNCTIONS: dict[str, Function] = {
    **dict.fromkeys(_ARITHMETIC, arithmetic),
    **dict.fromkeys(_BITS, bits),
    "BitwiseNot": turned,
    "ShiftLeft": shifted,
    "ShiftRight": shifted,
    "Round": rounded_half,
    "Divide": quotient,
    "Remainder": whole_quotient,
    "Pmod": whole_quotient,
    "IntegralDivide": whole_quotient,
    "Sqrt": square_root,
    "Floor": rounded,
    "Ceil": rounded,
    "Greatest": extreme,
    "Least": extreme,
}
