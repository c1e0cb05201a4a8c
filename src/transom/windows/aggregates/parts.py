"""States that are merged late: each slot holds a tuple of immutable parts, combined when the value is needed.

Most slots are merged once and read once, and a pane that several windows share must not change. So a merge
only concatenates tuples; bytes are looked into by `result`, by `encode`, or when a slot has gathered
`MOST_PARTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from transom.windows.aggregates.base import Slots
from transom.windows.aggregates.values import Mask, Values

Combine: TypeAlias = "Callable[[tuple[Any, ...]], Any]"
"""Makes one part of at least two; the parts stay as they are."""

MOST_PARTS = 64
"""Parts of a slot before they are combined; bounds memory, and keeps the copying of tuples cheap."""


def no_parts(slots: int) -> Values:
    """Return a column of slots without parts."""
    column = np.empty(slots, dtype=object)
    column.fill(())
    return column


def single_parts(values: list[Any] | Values, valid: Mask) -> Values:
    """Return a column with one part in each valid row and none elsewhere."""
    column = no_parts(len(values))
    for row in np.flatnonzero(valid):
        column[row] = (values[row],)
    return column


def gather(into: Values, slots: Slots, other: Values, combine: Combine) -> None:
    """Add the parts of each row of `other` to its slot, in place."""
    for slot, parts in zip(slots.tolist(), other, strict=True):
        if parts:
            joined = into[slot] + parts
            into[slot] = (combine(joined),) if len(joined) > MOST_PARTS else joined


def combined(column: Values, combine: Combine) -> list[Any]:
    """Return the one part of each slot, None where there is none."""
    return [None if not parts else parts[0] if len(parts) == 1 else combine(parts) for parts in column]
