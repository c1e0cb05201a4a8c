"""Columns, constants, truth and comparisons, as Spark understands them.

Where Arrow means something else, this says what Spark means: NaN equals NaN and is above every other number, null is
unknown. A function returns None for a term that only Spark computes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from transom.native.computing import Computation, Function, Reached, Value, also, is_simple
from transom.native.terms import Term


def literal(of: Computation, term: Term, _: Reached) -> Value:
    """Return a constant; a null without a type is one that is no boolean, either."""
    if term.value is None:
        return None
    return of.ground.constant(pa.scalar(None, pa.bool_()) if kinds.is_null(term.type) else term.value)


def conjunction(of: Computation, term: Term, reached: Reached) -> Value:
    """Return an AND, whose right side Spark computes where the left one is not false."""
    left, right = term.children
    first = of.value(left, reached)
    return pc.and_kleene(first, of.value(right, also(reached, pc.coalesce(first, True))))


def disjunction(of: Computation, term: Term, reached: Reached) -> Value:
    """Return an OR, whose right side Spark computes where the left one is not true."""
    left, right = term.children
    first = of.value(left, reached)
    return pc.or_kleene(first, of.value(right, also(reached, pc.invert(pc.coalesce(first, False)))))


def choice(of: Computation, term: Term, reached: Reached) -> Value:
    """Return an IF, or a CASE with its branches one after the other."""
    pairs, last = len(term.children) // 2, len(term.children) % 2
    conditions, values = [], []
    for pair in range(pairs):
        holds = pc.coalesce(of.value(term.children[2 * pair], reached), False)
        conditions.append(holds)
        values.append(of.value(term.children[2 * pair + 1], also(reached, holds)))
        reached = also(reached, pc.invert(holds))
    values.append(of.value(term.children[-1], reached) if last else pa.scalar(None, term.type))
    # Before version 24, Arrow's `if_else` of a null and a slice of texts gave other texts.
    return pc.case_when(pc.make_struct(*conditions), *values)


def coalesced(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the first value that is not null; Spark does not come to those after it."""
    found = []
    for child in term.children:
        found.append(of.value(child, reached))
        reached = also(reached, pc.is_null(found[-1]))
    return pc.coalesce(*found)


def less(of: Computation, sides: Sequence[Term], reached: Reached) -> Value:
    """Return whether a value is less than another one."""
    left, right = sides
    if left.type != right.type or not is_simple(left.type):
        return None
    a, b = of.value(left, reached), of.value(right, reached)
    if not _may_be_nan(right):
        return pc.less(a, b)
    above = pc.is_nan(b)
    if _may_be_nan(left):
        above = pc.and_kleene(above, pc.invert(pc.is_nan(a)))
    return pc.or_kleene(pc.less(a, b), above)


def equal(of: Computation, sides: Sequence[Term], reached: Reached) -> Value:
    """Return whether two values are equal."""
    left, right = sides
    if left.type != right.type or not is_simple(left.type):
        return None
    a, b = of.value(left, reached), of.value(right, reached)
    if not (_may_be_nan(left) and _may_be_nan(right)):
        return pc.equal(a, b)
    return pc.or_kleene(pc.equal(a, b), pc.and_kleene(pc.is_nan(a), pc.is_nan(b)))


def not_less(of: Computation, sides: Sequence[Term], reached: Reached) -> Value:
    """Return whether a value is at least another one."""
    found = less(of, sides, reached)
    return None if found is None else pc.invert(found)


def null_safe(of: Computation, term: Term, reached: Reached) -> Value:
    """Return whether two values are equal or both null."""
    found = equal(of, term.children, reached)
    if found is None:
        return None
    a, b = of.values(term, reached)
    return pc.or_kleene(pc.coalesce(found, False), pc.and_kleene(pc.is_null(a), pc.is_null(b)))


def member(of: Computation, term: Term, reached: Reached) -> Value:
    """Return whether a value is one of some: null where it is null, or is not among them and null is."""
    first, *rest = term.children
    if term.kind == "In" and not all(each.kind == "Literal" for each in rest):
        return None
    among = [each.value for each in rest] if term.kind == "In" else list(term.value)
    if not is_simple(first.type) or any(each is None for each in among):
        return None
    known = [each for each in among if each.is_valid]
    value = of.value(first, reached)
    if kinds.is_floating(first.type):
        sides = ((first, Term("Literal", first.type, str(each), value=each)) for each in known)
        found = functools.reduce(
            pc.or_kleene, (equal(of, pair, reached) for pair in sides), of.ground.constant(pa.scalar(False))
        )
    else:
        found = pc.is_in(value, pa.array([each.as_py() for each in known], first.type))
    found = pc.if_else(pc.is_null(value), pa.scalar(None, pa.bool_()), found)
    return found if len(known) == len(among) else pc.or_kleene(found, pa.scalar(None, pa.bool_()))


def part(of: Computation, term: Term, reached: Reached) -> Value:
    """Return a field of a struct."""
    return pc.struct_field(of.value(term.children[0], reached), indices=[term.value])


def _may_be_nan(term: Term) -> bool:
    if not kinds.is_floating(term.type):
        return False
    return term.kind != "Literal" or not term.value.is_valid or math.isnan(term.value.as_py())


FUNCTIONS: dict[str, Function] = {
    "Column": lambda of, term, _: of.ground.column(term),
    "Literal": literal,
    "And": conjunction,
    "Or": disjunction,
    "Not": lambda of, term, reached: pc.invert(of.value(term.children[0], reached)),
    "If": choice,
    "CaseWhen": choice,
    "Coalesce": coalesced,
    "IsNull": lambda of, term, reached: pc.is_null(of.value(term.children[0], reached)),
    "IsNotNull": lambda of, term, reached: pc.is_valid(of.value(term.children[0], reached)),
    "IsNaN": lambda of, term, reached: pc.coalesce(pc.is_nan(of.value(term.children[0], reached)), False),
    "EqualTo": lambda of, term, reached: equal(of, term.children, reached),
    "EqualNullSafe": null_safe,
    "LessThan": lambda of, term, reached: less(of, term.children, reached),
    "GreaterThan": lambda of, term, reached: less(of, term.children[::-1], reached),
    "GreaterThanOrEqual": lambda of, term, reached: not_less(of, term.children, reached),
    "LessThanOrEqual": lambda of, term, reached: not_less(of, term.children[::-1], reached),
    "In": member,
    "InSet": member,
    "GetStructField": part,
}
