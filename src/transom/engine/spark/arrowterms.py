"""Terms of Spark as expressions of Arrow that give exactly what Spark gives for every row.

Where both differ, the expression says what Spark means: NaN equals NaN and is above every other number, a division by
zero is null or an error. An operation that may fail gets null where Spark would not come to it: the right side of
`a <> 0 AND b / a > 1` where a is 0. What has no such expression is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from transom.engine.spark.sparkterms import SPARK_ONLY, Term
from transom.errors import DefinitionError

Reached: TypeAlias = "pc.Expression | None"
"""Whether Spark comes to a term, never null; None for always."""
DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""Digits of the largest whole number, by bits."""


def arrow_expression(term: Term, schema: pa.Schema) -> pc.Expression:
    """Return a condition as an expression over tables of some columns; rows for which it is null are not kept.

    Raises:
        DefinitionError: It has a part that only Spark computes.
    """
    return _Translation(schema).value(term, None)


class _Translation:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def value(self, term: Term, reached: Reached) -> pc.Expression:
        """Return a term's value.

        Raises:
            DefinitionError: Only Spark computes it.
        """
        made = _MADE.get(term.kind)
        found = None if made is None else made(self, term, reached)
        if found is None:
            raise DefinitionError(f"where: only Spark computes {term.text}.", SPARK_ONLY)
        return found

    def values(self, term: Term, reached: Reached) -> list[pc.Expression]:
        """Return the values of the terms that it is made of."""
        return [self.value(each, reached) for each in term.children]

    def column(self, term: Term, _: Reached) -> pc.Expression:
        """Return a column, with the type that Spark gives it."""
        kind = self._schema.field(term.value).type
        field = pc.field(term.value)
        if kind == term.type or (kinds.is_timestamp(kind) and kind.tz and kind.unit == "us"):
            return field
        return field.cast(term.type) if _simple(term.type) else field

    def literal(self, term: Term, _: Reached) -> pc.Expression | None:
        """Return a constant; a null without a type is one that is no boolean, either."""
        if term.value is None:
            return None
        return pc.scalar(pa.scalar(None, pa.bool_()) if kinds.is_null(term.type) else term.value)

    # ---- truth: Arrow's `&`, `|` and `~` are those of Kleene's logic, as Spark's

    def conjunction(self, term: Term, reached: Reached) -> pc.Expression:
        """Return an AND, whose right side Spark computes where the left one is not false."""
        left, right = term.children
        first = self.value(left, reached)
        return first & self.value(right, _and(reached, pc.coalesce(first, True)))

    def disjunction(self, term: Term, reached: Reached) -> pc.Expression:
        """Return an OR, whose right side Spark computes where the left one is not true."""
        left, right = term.children
        first = self.value(left, reached)
        return first | self.value(right, _and(reached, ~pc.coalesce(first, False)))

    def choice(self, term: Term, reached: Reached) -> pc.Expression:
        """Return an IF, or a CASE with its branches one after the other."""
        children = term.children
        if len(children) == 1:
            return self.value(children[0], reached)
        if not children:
            return pc.scalar(pa.scalar(None, term.type))
        holds = pc.coalesce(self.value(children[0], reached), False)
        rest = Term(term.kind, term.type, term.text, children[2:])
        # Before version 24, Arrow's `if_else` of a null and a slice of texts gave other texts.
        return pc.case_when(
            pc.make_struct(holds),
            self.value(children[1], _and(reached, holds)),
            self.choice(rest, _and(reached, ~holds)),
        )

    def coalesced(self, term: Term, reached: Reached) -> pc.Expression:
        """Return the first value that is not null; Spark does not come to those after it."""
        found = []
        for child in term.children:
            found.append(self.value(child, reached))
            reached = _and(reached, found[-1].is_null())
        return pc.coalesce(*found)

    # ---- comparisons

    def less(self, sides: Sequence[Term], reached: Reached) -> pc.Expression | None:
        """Return whether a value is less than another one."""
        left, right = sides
        if left.type != right.type or not _simple(left.type):
            return None
        a, b = self.value(left, reached), self.value(right, reached)
        if not _may_be_nan(right):
            return a < b
        above = pc.is_nan(b) & ~pc.is_nan(a) if _may_be_nan(left) else pc.is_nan(b)
        return (a < b) | above

    def equal(self, sides: Sequence[Term], reached: Reached) -> pc.Expression | None:
        """Return whether two values are equal."""
        left, right = sides
        if left.type != right.type or not _simple(left.type):
            return None
        a, b = self.value(left, reached), self.value(right, reached)
        return (a == b) | (pc.is_nan(a) & pc.is_nan(b)) if _may_be_nan(left) and _may_be_nan(right) else a == b

    def not_less(self, sides: Sequence[Term], reached: Reached) -> pc.Expression | None:
        """Return whether a value is at least another one."""
        found = self.less(sides, reached)
        return None if found is None else ~found

    def null_safe(self, term: Term, reached: Reached) -> pc.Expression | None:
        """Return whether two values are equal or both null."""
        found = self.equal(term.children, reached)
        if found is None:
            return None
        a, b = self.values(term, reached)
        return pc.coalesce(found, False) | (a.is_null() & b.is_null())

    def member(self, term: Term, reached: Reached) -> pc.Expression | None:
        """Return whether a value is one of some: null where it is null, or is not among them and null is."""
        first, *rest = term.children
        if term.kind == "In" and not all(each.kind == "Literal" for each in rest):
            return None
        among = [each.value for each in rest] if term.kind == "In" else list(term.value)
        if not _simple(first.type) or any(each is None for each in among):
            return None
        known = [each for each in among if each.is_valid]
        if kinds.is_floating(first.type):
            found = pc.scalar(False)
            for each in known:
                literal = Term("Literal", first.type, str(each), value=each)
                found = found | self.equal((first, literal), reached)
        else:
            value = self.value(first, reached)
            listed = pa.array([each.as_py() for each in known], first.type)
            found = pc.if_else(value.is_null(), pa.scalar(None, pa.bool_()), pc.is_in(value, listed))
        return found if len(known) == len(among) else found | pa.scalar(None, pa.bool_())

    # ---- numbers

    def arithmetic(self, term: Term, reached: Reached) -> pc.Expression | None:
        """Return a sum, difference, product, negative or absolute value: of floats, or of whole numbers."""
        name = _ARITHMETIC[term.kind]
        operands = self.values(term, reached)
        if kinds.is_floating(term.type):
            return getattr(pc, name)(*operands)
        if not kinds.is_integer(term.type) or term.mode not in ("ANSI", "LEGACY"):
            return None
        if term.mode == "LEGACY":
            return getattr(pc, name)(*operands)
        operands[0] = _where(reached, operands[0], term.type)
        return getattr(pc, f"{name}_checked")(*operands)

    def quotient(self, term: Term, reached: Reached) -> pc.Expression | None:
        """Return a quotient of floats."""
        if not kinds.is_floating(term.type) or term.mode not in ("ANSI", "LEGACY"):
            return None
        a, b = self.values(term, reached)
        by = term.children[1]
        if by.kind == "Literal" and by.value.is_valid and by.value.as_py() != 0:
            return pc.divide(a, b)
        if term.mode == "ANSI":
            return pc.divide_checked(_where(reached, a, term.type), b)
        return pc.divide(a, pc.if_else(b == pa.scalar(0.0, term.type), pa.scalar(None, term.type), b))

    def whole_quotient(self, term: Term, reached: Reached) -> pc.Expression | None:
        """Return what whole numbers divided by a constant give, or leave."""
        by = term.children[1]
        if not kinds.is_integer(by.type) or by.kind != "Literal" or by.value.as_py() in (0, -1, None):
            return None
        a, b = self.values(term, reached)
        whole = pc.divide(a, b)
        return whole if term.kind == "IntegralDivide" else pc.subtract(a, pc.multiply(whole, b))

    def cast(self, term: Term, reached: Reached) -> pc.Expression | None:
        """Return a value of another type that has all of its values, or is rounded as Spark does."""
        kind, to = term.children[0].type, term.type
        if not (kind == to or _widens(kind, to)):
            return None
        return self.value(term.children[0], reached).cast(to, safe=False)

    # ---- times

    def moment(self, term: Term, reached: Reached) -> pc.Expression | None:
        """Return the moment that a whole number of seconds or parts of them names; too large a number is an error."""
        (child,) = term.children
        if not kinds.is_integer(child.type):
            return None
        number = self.value(child, reached).cast(pa.int64())
        if (unit := _MICROS[term.kind]) > 1:
            number = pc.multiply_checked(_where(reached, number, pa.int64()), unit)
        return number.cast(term.type)

    def number_of(self, term: Term, reached: Reached) -> pc.Expression | None:
        """Return the whole seconds, or parts of them, from the epoch to a moment; those before it count down."""
        micros = self.value(term.children[0], reached).cast(pa.int64())
        if (unit := _MICROS[term.kind]) == 1:
            return micros
        whole = pc.divide(micros, unit)
        below = pc.multiply(whole, unit) > micros
        return pc.subtract(whole, below.cast(pa.int64()))

    # ---- texts, structs

    def match(self, term: Term, reached: Reached) -> pc.Expression | None:
        """Return whether a text begins with, ends with or has another one."""
        text, part = term.children
        wanted = _constant_text(part)
        return None if wanted is None else _MATCHES[term.kind](self.value(text, reached), wanted)

    def like(self, term: Term, reached: Reached) -> pc.Expression | None:
        """Return whether a text is like a pattern without an escaped character."""
        text, pattern = term.children
        wanted = _constant_text(pattern)
        if wanted is None or term.value in wanted or "\\" in wanted:
            return None
        return pc.match_like(self.value(text, reached), wanted)

    def length(self, term: Term, reached: Reached) -> pc.Expression | None:
        """Return the number of characters."""
        (child,) = term.children
        return pc.utf8_length(self.value(child, reached)) if kinds.is_string(child.type) else None

    def part(self, term: Term, reached: Reached) -> pc.Expression:
        """Return a field of a struct."""
        return pc.struct_field(self.value(term.children[0], reached), indices=[term.value])


def _and(reached: Reached, further: pc.Expression) -> pc.Expression:
    return further if reached is None else reached & further


def _where(reached: Reached, value: pc.Expression, kind: pa.DataType) -> pc.Expression:
    """Return a value where Spark comes to it, null elsewhere."""
    return value if reached is None else pc.if_else(reached, value, pa.scalar(None, kind))


def _simple(kind: pa.DataType) -> bool:
    """Tell whether Arrow compares values of a type as Spark does, but for NaN."""
    return any(
        each(kind)
        for each in (
            kinds.is_boolean,
            kinds.is_integer,
            kinds.is_floating,
            kinds.is_decimal,
            kinds.is_string,
            kinds.is_binary,
            kinds.is_date32,
            kinds.is_timestamp,
        )
    )


def _constant_text(term: Term) -> str | None:
    """Return the value of a constant that is a text."""
    known = term.kind == "Literal" and kinds.is_string(term.type) and term.value is not None
    return term.value.as_py() if known else None


def _may_be_nan(term: Term) -> bool:
    if not kinds.is_floating(term.type):
        return False
    return term.kind != "Literal" or not term.value.is_valid or math.isnan(term.value.as_py())


def _widens(kind: pa.DataType, to: pa.DataType) -> bool:
    """Tell whether a type has all values of another one, or rounds them as Spark does."""
    if kinds.is_integer(kind) and kinds.is_decimal(to):
        return bool(to.precision - to.scale >= DIGITS[kind.bit_width])
    if kinds.is_integer(kind) and kinds.is_integer(to):
        return bool(to.bit_width > kind.bit_width)
    if kinds.is_decimal(kind) and kinds.is_decimal(to):
        return bool(to.scale >= kind.scale and to.precision - to.scale >= kind.precision - kind.scale)
    return bool(kinds.is_floating(to) and (kinds.is_integer(kind) or kinds.is_floating(kind)))


_ARITHMETIC = {"Add": "add", "Subtract": "subtract", "Multiply": "multiply", "UnaryMinus": "negate", "Abs": "abs"}
_MICROS = {
    "SecondsToTimestamp": 1_000_000,
    "MillisToTimestamp": 1_000,
    "MicrosToTimestamp": 1,
    "UnixSeconds": 1_000_000,
    "UnixMillis": 1_000,
    "UnixMicros": 1,
}
"""Microseconds of the units that times are counted in."""
_MATCHES: dict[str, Callable[[pc.Expression, str], pc.Expression]] = {
    "StartsWith": lambda text, part: pc.starts_with(text, part),
    "EndsWith": lambda text, part: pc.ends_with(text, part),
    "Contains": lambda text, part: pc.match_substring(text, part),
}
_MADE: dict[str, Callable[[_Translation, Term, Reached], Any]] = {
    "Column": _Translation.column,
    "Literal": _Translation.literal,
    "And": _Translation.conjunction,
    "Or": _Translation.disjunction,
    "Not": lambda to, term, reached: ~to.value(term.children[0], reached),
    "If": _Translation.choice,
    "CaseWhen": _Translation.choice,
    "Coalesce": _Translation.coalesced,
    "IsNull": lambda to, term, reached: to.value(term.children[0], reached).is_null(),
    "IsNotNull": lambda to, term, reached: to.value(term.children[0], reached).is_valid(),
    "IsNaN": lambda to, term, reached: pc.coalesce(pc.is_nan(to.value(term.children[0], reached)), False),
    "EqualTo": lambda to, term, reached: to.equal(term.children, reached),
    "EqualNullSafe": _Translation.null_safe,
    "LessThan": lambda to, term, reached: to.less(term.children, reached),
    "GreaterThan": lambda to, term, reached: to.less(term.children[::-1], reached),
    "GreaterThanOrEqual": lambda to, term, reached: to.not_less(term.children, reached),
    "LessThanOrEqual": lambda to, term, reached: to.not_less(term.children[::-1], reached),
    "In": _Translation.member,
    "InSet": _Translation.member,
    **dict.fromkeys(_ARITHMETIC, _Translation.arithmetic),
    "Divide": _Translation.quotient,
    "Remainder": _Translation.whole_quotient,
    "IntegralDivide": _Translation.whole_quotient,
    "Cast": _Translation.cast,
    **{kind: _Translation.moment for kind in _MICROS if kind.endswith("ToTimestamp")},
    **{kind: _Translation.number_of for kind in _MICROS if kind.startswith("Unix")},
    **dict.fromkeys(_MATCHES, _Translation.match),
    "Like": _Translation.like,
    "Length": _Translation.length,
    "GetStructField": _Translation.part,
}
