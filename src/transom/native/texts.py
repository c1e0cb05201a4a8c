"""Functions of texts, as Spark computes them. A function returns None for a term that only Spark computes."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from transom.native.computing import Computation, Function, Reached, Value, constant, constant_text
from transom.native.terms import Term

_MATCHES: dict[str, Callable[[Value, str], Value]] = {
    "StartsWith": lambda text, part: pc.starts_with(text, part),
    "EndsWith": lambda text, part: pc.ends_with(text, part),
    "Contains": lambda text, part: pc.match_substring(text, part),
}
_TRIMMED = {"StringTrim": pc.ascii_trim, "StringTrimLeft": pc.ascii_ltrim, "StringTrimRight": pc.ascii_rtrim}
_LONGEST = 1_000
_CASES = {"Upper": pc.ascii_upper, "Lower": pc.ascii_lower}


def match(of: Computation, term: Term, reached: Reached) -> Value:
    """Return whether a text begins with, ends with or has another one."""
    text, part = term.children
    wanted = constant_text(part)
    return None if wanted is None else _MATCHES[term.kind](of.value(text, reached), wanted)


def like(of: Computation, term: Term, reached: Reached) -> Value:
    """Return whether a text is like a pattern without an escaped character."""
    text, pattern = term.children
    wanted = constant_text(pattern)
    if wanted is None or term.value in wanted or "\\" in wanted:
        return None
    return pc.match_like(of.value(text, reached), wanted)


def length(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the number of characters."""
    (child,) = term.children
    return pc.utf8_length(of.value(child, reached)) if kinds.is_string(child.type) else None


def case(of: Computation, term: Term, reached: Reached) -> Value:
    """Return a text in upper or lower case; languages have their own rules for what is beyond ASCII."""
    text = of.value(term.children[0], reached)
    known = of.ground.certain(term, text, pc.string_is_ascii(text), reached)
    return _CASES[term.kind](known)


def substring(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the characters of a text from a place on, which is counted from 1, or from the end if it is negative."""
    text = term.children[0]
    place, count = (constant(child) for child in term.children[1:])
    if not kinds.is_string(text.type) or place is None or count is None:
        return None
    start = place - 1 if place > 0 else place
    stop: int | None = start + max(count, 0)
    if start < 0 and start + count >= 0:
        stop = None
    return pc.utf8_slice_codeunits(of.value(text, reached), start, stop)


def place_of(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the place of a constant in a text, counted from 1, 0 where it is not; of ASCII a byte is a character."""
    text, part = term.children
    wanted = constant_text(part)
    if not wanted:
        return None
    value = of.value(text, reached)
    known = of.ground.certain(term, value, pc.string_is_ascii(value), reached)
    return pc.add(pc.find_substring(known, wanted), pa.scalar(1, pa.int32()))


def joined(of: Computation, term: Term, reached: Reached) -> Value:
    """Return texts one after the other, null if one is."""
    if not term.children or not all(kinds.is_string(child.type) for child in term.children):
        return None
    return pc.binary_join_element_wise(*of.values(term, reached), pa.scalar(""))


def joined_with(of: Computation, term: Term, reached: Reached) -> Value:
    """Return texts with a constant between them, without those that are null."""
    by, *parts = term.children
    between = constant_text(by)
    if between is None or not parts or not all(kinds.is_string(child.type) for child in parts):
        return None
    values = [of.value(part, reached) for part in parts]
    return pc.binary_join_element_wise(*values, pa.scalar(between), null_handling="skip")


def trimmed(of: Computation, term: Term, reached: Reached) -> Value:
    """Return a text without the blanks at its ends."""
    if len(term.children) != 1:
        return None
    return _TRIMMED[term.kind](of.value(term.children[0], reached), " ")


def replaced(of: Computation, term: Term, reached: Reached) -> Value:
    """Return a text with another one in the place of a constant."""
    text, *others = term.children
    wanted, by = map(constant_text, others)
    if not wanted or by is None:
        return None
    return pc.replace_substring(of.value(text, reached), wanted, by)


def padded(of: Computation, term: Term, reached: Reached) -> Value:
    """Return a text with a constant length: cut off, or filled up with a constant character."""
    text, size, fill = term.children
    length, letter = constant(size), constant_text(fill)
    if not kinds.is_string(text.type) or length is None or not 0 < length < _LONGEST or len(letter or "") != 1:
        return None
    pad = pc.utf8_lpad if term.kind == "StringLPad" else pc.utf8_rpad
    return pc.utf8_slice_codeunits(pad(of.value(text, reached), length, letter), 0, length)


def letter(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the character with a number, of which only the last eight bits count; none for a number below zero."""
    number = of.value(term.children[0], reached)
    if not isinstance(number, pa.Array):
        return None
    letters = pa.array([chr(place) for place in range(256)])
    found = letters.take(pc.bit_wise_and(number.cast(pa.int64()), pa.scalar(255, pa.int64())))
    below = pc.less(number, pa.scalar(0, pa.int8()).cast(number.type))
    return pc.case_when(pc.make_struct(pc.coalesce(below, pa.scalar(False))), pa.scalar(""), found)


FUNCTIONS: dict[str, Function] = {
    **dict.fromkeys(_MATCHES, match),
    **dict.fromkeys(_TRIMMED, trimmed),
    **dict.fromkeys(_CASES, case),
    "Like": like,
    "Length": length,
    "Substring": substring,
    "StringInstr": place_of,
    "Concat": joined,
    "ConcatWs": joined_with,
    "StringReplace": replaced,
    "StringLPad": padded,
    "StringRPad": padded,
    "Chr": letter,
}
