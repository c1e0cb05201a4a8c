"""Casts: values as values of another type, where it is known what Spark makes of them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kinds

from transom.native import numbers
from transom.native.computing import Computation, Function, Reached, Value
from transom.native.terms import Term


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


def _is_number(kind: pa.DataType) -> bool:
    return bool(kinds.is_integer(kind) or kinds.is_floating(kind))


_CASTS = (
    (_is_number, kinds.is_integer, numbers.narrowed),
    (kinds.is_boolean, _is_number, numbers.from_truth),
    (_is_number, kinds.is_boolean, numbers.as_truth),
)
"""From which types to which, and how."""
FUNCTIONS: dict[str, Function] = {"Cast": cast}
