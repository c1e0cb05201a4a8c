"""Decimals: exact arithmetic, where the result has room for every digit, and what they are as other numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from transom.native.computing import Computation, Reached, Value, where
from transom.native.terms import Term

_MOST_DIGITS, _MOST_SCALE, _WHOLE_DOUBLES = 38, 22, 1 << 53


def unscaled(values: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return decimals as whole numbers of their last digit, and where these fit a bigint; null is anything.

    >>> unscaled(pa.array([1.5, -2.0]).cast(pa.decimal128(3, 1)))[0].tolist()
    [15, -20]
    """
    words: npt.NDArray[Any] = np.frombuffer(values.buffers()[1] or b"", np.dtype("<i8"))
    words = words.reshape(-1, 2)[values.offset : values.offset + len(values)]
    return words[:, 0], words[:, 1] == words[:, 0] >> 63


def arithmetic(name: str, term: Term, operands: list[Value]) -> Value:
    """Return a sum, difference, product, negative or absolute value; None where Spark may round it."""
    if not all(isinstance(each, (pa.Array, pa.Scalar)) and kinds.is_decimal128(each.type) for each in operands):
        return None
    found = getattr(pc, name)(*operands)
    return found if found.type == term.type else None


def rounded(of: Computation, term: Term, digits: int, reached: Reached) -> Value:
    """Return a decimal with so many digits behind the point, half of the last one away from zero."""
    value = of.value(term.children[0], reached)
    kind = term.children[0].type
    if isinstance(value, pc.Expression) or digits < 0 or kind.precision >= _MOST_DIGITS:
        return None
    if digits >= kind.scale:
        return value.cast(term.type)
    wide = value.cast(pa.decimal128(kind.precision + 1, kind.scale))
    return pc.round(wide, ndigits=digits, round_mode="half_towards_infinity").cast(term.type)


def whole(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the whole decimal at or below a decimal, or at or above it."""
    value = of.value(term.children[0], reached)
    kind = term.children[0].type
    if isinstance(value, pc.Expression) or kind.precision >= _MOST_DIGITS or term.type.scale:
        return None
    wide = value.cast(pa.decimal128(kind.precision + 1, kind.scale))
    return (pc.floor if term.kind == "Floor" else pc.ceil)(wide).cast(term.type)


def from_whole(of: Computation, term: Term, reached: Reached) -> Value:
    """Return a whole number as a decimal that may have too few digits for it, which is an error in ANSI mode."""
    digits = 19 + term.type.scale
    value = of.value(term.children[0], reached)
    if term.mode != "ANSI" or digits > _MOST_DIGITS or isinstance(value, pc.Expression):
        return None
    return where(reached, value).cast(pa.int64()).cast(pa.decimal128(digits, term.type.scale)).cast(term.type)


def as_double(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the double that is nearest to a decimal: a whole number that doubles have, divided by a power of ten."""
    value, scale = of.value(term.children[0], reached), term.children[0].type.scale
    if not isinstance(value, pa.Array) or not kinds.is_decimal128(value.type) or not 0 <= scale <= _MOST_SCALE:
        return None
    number, fits = unscaled(value)
    small = fits & (np.abs(number) < _WHOLE_DOUBLES)
    nulls = value.is_null().to_numpy(zero_copy_only=False)
    found = pa.array(number / 10.0**scale, mask=nulls)
    return of.ground.certain(term, found, pa.array(small | nulls), reached)
