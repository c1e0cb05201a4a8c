"""Elements of arrays, and of values in a row, chosen by their place. A function returns None where only Spark does."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from transom.native.computing import Computation, Function, Reached, Value, where
from transom.native.terms import Term


def element(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the element of an array at a place, which is counted from 0 by `[]`, else from 1, or from the end.

    A place where there is none is an error in ANSI mode, else null. Spark makes all elements of an array.
    """
    array, at = term.children
    if not kinds.is_list(array.type) or not kinds.is_integer(at.type):
        return None
    if array.kind == "CreateArray":
        return _chosen(of, term, array.children, at, reached)
    if array.kind != "Literal" or array.value is None or not array.value.is_valid:
        return None
    return _taken(of, term, array.value.values, at, reached)


def chosen(of: Computation, term: Term, reached: Reached) -> Value:
    """Return one of some values, whose place is counted from 1."""
    at, *values = term.children
    return _chosen(of, term, values, at, reached) if kinds.is_integer(at.type) else None


def _chosen(of: Computation, term: Term, values: list[Term] | tuple[Term, ...], at: Term, reached: Reached) -> Value:
    if any(value.type != term.type for value in values):
        return None
    known = [of.value(value, reached) for value in values]
    place = _place(of, term, len(values), at, reached)
    return None if isinstance(place, pc.Expression) or not known else pc.choose(place, *known)


def _taken(of: Computation, term: Term, values: pa.Array, at: Term, reached: Reached) -> Value:
    place = _place(of, term, len(values), at, reached)
    return values.take(place) if isinstance(place, pa.Array) and values.type == term.type else None


def _place(of: Computation, term: Term, count: int, at: Term, reached: Reached) -> Value:
    """Return places counted from 0; null where there is no element and that is no error."""
    index = of.value(at, reached).cast(pa.int64())
    first = pa.scalar(0 if term.kind == "GetArrayItem" else 1, pa.int64())
    place = pc.subtract(index, first)
    if term.kind == "ElementAt":
        from_end = pc.less(index, pa.scalar(0, pa.int64()))
        place = pc.case_when(pc.make_struct(from_end), pc.add(index, pa.scalar(count, pa.int64())), place)
    inside = pc.and_kleene(
        pc.greater_equal(place, pa.scalar(0, pa.int64())), pc.less(place, pa.scalar(count, pa.int64()))
    )
    if term.mode == "ANSI":
        return of.ground.certain(term, place, inside, reached)
    if term.kind == "ElementAt":  # zero is an error in any case
        place = of.ground.certain(term, place, pc.not_equal(index, pa.scalar(0, pa.int64())), reached)
    return where(pc.coalesce(inside, pa.scalar(False)), place)


FUNCTIONS: dict[str, Function] = {"ElementAt": element, "GetArrayItem": element, "Elt": chosen}
