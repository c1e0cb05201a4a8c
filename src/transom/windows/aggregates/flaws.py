"""What no rows make, in states that came from elsewhere: merging and reading them relies on its not being there."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

MOST_ROWS = 1 << 48
"""More rows are in no partial, so that numbers of rows never leave 64 bits."""


def flaw_of_counts(counts: pa.Array) -> str:
    """Return in words why a column is none of numbers of rows; empty if it is.

    >>> flaw_of_counts(pa.array([1, 0])), flaw_of_counts(pa.array([1, -2])), flaw_of_counts(pa.array([None, 1]))
    ('', 'it counts -2 rows', 'a number of rows is missing')
    """
    if counts.null_count:
        return "a number of rows is missing"
    values = counts.to_numpy()
    least, most = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    wrong = least if least < 0 else most
    return "" if 0 <= wrong <= MOST_ROWS else f"it counts {wrong} rows"


def flaw_of_lists(lists: pa.Array, most: int) -> str:
    """Return in words why a column is none of lists of so many values that are not null; empty if it is.

    >>> flaw_of_lists(pa.array([[1], None, [2, 3]]), 2), flaw_of_lists(pa.array([[1], [None]]), 2)
    ('', 'a list holds nothing in a place')
    """
    lengths = pc.max(pc.list_value_length(lists)).as_py() or 0
    if lengths > most:
        return f"a list has {lengths} values, of {most} at most"
    return "a list holds nothing in a place" if lists.flatten().null_count else ""
