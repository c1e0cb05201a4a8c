"""The bytes of a KLL sketch of doubles: Apache DataSketches reads some that are none beyond their end, and crashes."""

from __future__ import annotations

import struct
from functools import cache

import numpy as np

_HEAD = struct.Struct("<BBBBHBx")
"""Words of the preamble, version, family, flags, k, smallest level."""
_MORE = struct.Struct("<QHBx")
"""Number of values, smallest k of all that was merged, levels."""
_FAMILY, _LEAST = 15, 8
_EMPTY, _SORTED, _SINGLE = 1, 2, 4
_MOST_LEVELS = 48


def check_kll(data: bytes, k: int) -> None:
    """Refuse bytes that are no sketch; O(its values), which the library does not look at itself.

    The form is that of DataSketches, in Java and C++: levels of items that stand for 2^level values each, the first of
    them perhaps unsorted, behind where each begins in an array of the size that the number of levels tells.

    Args:
        data: The bytes.
        k: What the sketch should be of.

    Raises:
        ValueError, struct.error: They are none.
    """
    words, version, family, flags, of, least = _HEAD.unpack_from(data)
    single, empty = bool(flags & _SINGLE), bool(flags & _EMPTY)
    if family != _FAMILY or of != k or least != _LEAST or version != (2 if single else 1):
        raise ValueError(f"it is no KLL sketch with k = {k}")
    if words != (2 if single or empty else 5) or (single and empty):
        raise ValueError("a KLL sketch has another preamble")
    if empty:
        return
    if single:
        values = np.frombuffer(data, "<f8", offset=_HEAD.size)
        if len(values) != 1 or np.isnan(values[0]):
            raise ValueError("a KLL sketch of one value has none")
        return
    n, merged, levels = _MORE.unpack_from(data, _HEAD.size)
    if not 1 <= levels <= _MOST_LEVELS or not _LEAST <= merged <= k:
        raise ValueError(f"a KLL sketch has {levels} levels")
    at = _HEAD.size + _MORE.size
    begins = np.append(np.frombuffer(data, "<u4", levels, at), capacity(k, levels)).astype(np.int64)
    sizes, at = np.diff(begins), at + 4 * levels
    if sizes.min() < 0 or int(sizes @ (1 << np.arange(levels, dtype=np.int64))) != n:
        raise ValueError("the levels of a KLL sketch are not those of its values")
    values = np.frombuffer(data, "<f8", offset=at)
    if len(values) != 2 + sizes.sum():
        raise ValueError("a KLL sketch ends too early, or too late")
    low, high, items = values[0], values[1], values[2:]
    falls = np.flatnonzero(~(items[1:] >= items[:-1])) + 1
    begun = set((begins - begins[0]).tolist())
    unsorted = 0 if flags & _SORTED else int(sizes[0])
    if not np.all((items >= low) & (items <= high)) or not all(at < unsorted or at in begun for at in falls.tolist()):
        raise ValueError("the values of a KLL sketch are not in order")


@cache
def capacity(k: int, levels: int) -> int:
    """Return how many items a sketch of so many levels has room for.

    >>> capacity(200, 1), capacity(200, 3)
    (200, 422)
    """
    return sum(max(_LEAST, _level(k, depth)) for depth in range(levels))


def _level(k: int, depth: int) -> int:
    """Return k (2/3)^depth, rounded as the library does."""
    if depth <= 30:
        return (2 * (k << depth) // int(3**depth) + 1) // 2
    return _level(_level(k, depth // 2), depth - depth // 2)
