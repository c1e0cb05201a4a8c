"""All functions that are computed without Spark, each exactly as Spark computes it for every row."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from transom.native import arrays, casts, hashing, intervals, logic, numbers, texts, times
from transom.native.computing import Computation, Expected, Function
from transom.native.terms import Term

FUNCTIONS: dict[str, Function] = {
    **logic.FUNCTIONS,
    **numbers.FUNCTIONS,
    **casts.FUNCTIONS,
    **texts.FUNCTIONS,
    **times.FUNCTIONS,
    **intervals.FUNCTIONS,
    **arrays.FUNCTIONS,
    **hashing.FUNCTIONS,
}
"""By Spark's names of their classes."""


def arrow_expression(term: Term, schema: pa.Schema) -> pc.Expression:
    """Return a condition as an expression over tables of some columns; rows for which it is null are not kept.

    Raises:
        NotKnownError: It has a part that only Spark computes, or of which rows have to be looked at first.
    """
    found: pc.Expression = Computation(Expected(schema), FUNCTIONS).value(term, None)
    return found
