"""Units of sources whose offsets are numbers of rows: ranges of them, by name."""

from __future__ import annotations

from collections.abc import Sequence


def range_name(first: int, last: int) -> str:
    """Return the name of the rows from `first` to `last` - 1.

    >>> range_name(0, 2)
    'rows 0 to 1'
    """
    return f"rows {first} to {last - 1}"


def without(first: int, last: int, units: Sequence[str]) -> list[tuple[int, int]]:
    """Return what is left of a range without some units, in ascending order.

    >>> without(0, 9, ["rows 4 to 6", "rows 0 to 1"])
    [(2, 4), (7, 9)]
    """
    left: list[tuple[int, int]] = []
    for low, high in sorted((int(low), int(high)) for _, low, _, high in (unit.split() for unit in units)):
        if first < low:
            left.append((first, low))
        first = high + 1
    return [*left, (first, last)] if first < last else left
