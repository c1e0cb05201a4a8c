"""Values of JSON as Spark's reader reads them, where that is certain."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

LONGEST_LITERAL = 100
"""Characters of a number; Spark's parser has a limit, too."""
_NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?"
_IS_LITERAL = rf"^(true|false|null|{_NUMBER})$"
_EXPONENT = "[eE][+-]?[0-9]{1,3}"
_IS_DOUBLE = rf"^(0|-?[1-9][0-9]{{0,14}}|-?(0|[1-9][0-9]*)(\.[0-9]+({_EXPONENT})?|{_EXPONENT}))$"
"""Whole numbers that a double holds, and what Java rounds as Arrow does: to the nearest double, of two to the even."""
_IS_MOMENT = (
    r"^[1-9][0-9]{3}-[01][0-9]-[0-3][0-9][T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
    r"(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])$"
)
"""Times with their offset, so that they are the same moments in every session."""
_IS_DATE = r"^[1-9][0-9]{3}-[01][0-9]-[0-3][0-9]$"
_IS_UTC = r"^[1-9][0-9]{3}-[01][0-9]-[0-3][0-9]([T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?)?$"
"""Times without an offset, where a session is in UTC; a date is its midnight."""
_ZERO, _NINE, _MINUS = b"09-"


class UncertainError(Exception):
    """It is not certain what Spark makes of some lines."""


def is_readable(kind: pa.DataType) -> bool:
    """Tell whether values of a type are read here; others are Spark's."""
    plain = pa.types.is_string(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind)
    return bool(plain or _is_number(kind) or pa.types.is_decimal128(kind) or is_moment(kind))


def is_moment(kind: pa.DataType) -> bool:
    """Tell whether values of a type are moments, as Spark's timestamps are."""
    return bool(pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_float64(kind))


def certain_values(found: pa.StringArray, text: bool, kind: pa.DataType, utc: bool = False) -> pa.Array:
    """Return what is written in a field of each line as values of a type.

    Args:
        found: What is written, without quotation marks.
        text: Whether these are around it.
        kind: The declared type.
        utc: Whether times without an offset are those of UTC; else they are Spark's.

    Raises:
        UncertainError: Spark may make something else of one of them.
    """
    if text:
        return certain_texts(found, kind, utc)
    nulls = pc.equal(found, "null")
    if pc.any(nulls).as_py():
        found = pc.if_else(nulls, pa.scalar(None, pa.string()), found)
    if found.null_count == len(found):
        return pa.nulls(len(found), kind)
    return certain_literals(found, kind)  # of a number as a text it makes what its parser would write, or some moment


def is_text(kind: pa.DataType) -> bool:
    """Tell whether values of a type are written as texts, unlike numbers and truths."""
    return bool(pa.types.is_string(kind) or pa.types.is_date32(kind) or is_moment(kind))


def certain_texts(texts: pa.StringArray, kind: pa.DataType, utc: bool = False) -> pa.Array:
    """Return texts as values of a type; some may be null, but not all.

    Args:
        texts: They.
        kind: The declared type.
        utc: Whether times without an offset are those of UTC; else they are Spark's.

    Raises:
        UncertainError: Spark may make something else of one of them.
    """
    if is_moment(kind):
        if utc and len(texts) and re.match(_IS_UTC, texts.drop_null()[0].as_py()):
            _expect(texts, _IS_UTC)
            return _cast(texts, pa.timestamp("us")).cast(pa.int64()).cast(kind)
        _expect(texts, _IS_MOMENT)
        return _cast(texts, kind)
    if pa.types.is_date32(kind):
        _expect(texts, _IS_DATE)
        return _cast(texts, kind)
    if not pa.types.is_string(kind):
        raise UncertainError
    return texts


def certain_literals(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Return texts as numbers or truths; some may be null, but not all.

    Raises:
        UncertainError: Spark may make something else of one of them.
    """
    if is_text(kind):
        raise UncertainError
    if pa.types.is_boolean(kind):
        true = pc.equal(texts, "true")
        if not pc.all(pc.or_(true, pc.equal(texts, "false"))).as_py():
            raise UncertainError
        return true
    if pa.types.is_float64(kind):
        return _doubles(texts)
    if pa.types.is_decimal128(kind):
        _expect(texts, _decimals(kind))
        return _cast(texts, kind)
    return _integers(texts, kind)


def check_literals(texts: pa.StringArray) -> None:
    """See that values that nobody declared are numbers, true, false or null.

    Raises:
        UncertainError: One is not.
    """
    _expect(texts, _IS_LITERAL)
    if pc.max(pc.binary_length(texts)).as_py() > LONGEST_LITERAL:
        raise UncertainError


def _edges(texts: pa.StringArray) -> npt.NDArray[np.int32]:
    """Return where texts begin in their buffer, and where the last ends."""
    return np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]


def _integers(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Return whole numbers; only as JSON writes them, as Arrow takes more."""
    known = texts.drop_null()
    edges = _edges(known)
    letters = np.frombuffer(known.buffers()[2], np.uint8)
    if not len(letters) or np.diff(edges).min() == 0:
        raise UncertainError
    first = letters[edges[:-1]]
    single = np.diff(edges) == 1
    second = letters[np.minimum(edges[:-1] + 1, len(letters) - 1)]
    negative = (first == _MINUS) & ~single & _leads(second)
    if not (_leads(first) | (single & (first == _ZERO)) | negative).all():
        raise UncertainError
    return _cast(texts, kind)


def _leads(letters: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    return (letters > _ZERO) & (letters <= _NINE)


def _doubles(texts: pa.StringArray) -> pa.Array:
    """Return numbers; -0 as a whole number is 0 for Spark, and none may be out of range."""
    _expect(texts, _IS_DOUBLE)
    found = _cast(texts, pa.float64())
    if not pc.all(pc.is_finite(found)).as_py() or pc.max(pc.binary_length(texts)).as_py() > LONGEST_LITERAL:
        raise UncertainError
    return found


def _decimals(kind: pa.Decimal128Type) -> str:
    """Return what numbers look like that a type holds as they are; others are rounded, or out of range."""
    whole, behind = kind.precision - kind.scale, kind.scale
    before = rf"(0|[1-9][0-9]{{0,{whole - 1}}})" if whole else "0"
    return rf"^-?{before}(\.[0-9]{{1,{behind}}})?$" if behind else rf"^-?{before}$"


def _expect(texts: pa.StringArray, pattern: str) -> None:
    if not pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py():
        raise UncertainError


def _cast(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid as error:
        raise UncertainError from error
