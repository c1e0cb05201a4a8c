"""Spark's `hash` (Murmur3) and `xxhash64` of values: the hash of each is the seed of the next one, null leaves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from transom.native.computing import Computation, Function, Reached, Value
from transom.native.terms import Term
from transom.windows.aggregates.hashes import Letters, hashes, letters_of, letters_of_texts, words_of

Seeds: TypeAlias = "npt.NDArray[Any]"
_FIRST, _SECOND, _FIVE, _ADDED = map(np.uint32, (0xCC9E2D51, 0x1B873593, 5, 0xE6546B64))
_THIRD, _FOURTH = map(np.uint32, (0x85EBCA6B, 0xC2B2AE35))
_HASHED = (kinds.is_boolean, kinds.is_integer, kinds.is_floating, kinds.is_date32, kinds.is_timestamp, kinds.is_string)


def murmur3(letters: Letters, seeds: Seeds) -> npt.NDArray[np.int32]:
    """Return the hash of each row of bytes with its seed; what is left of words are bytes with a sign.

    >>> murmur3(letters_of(pa.array([1], pa.int32())), np.array([42], np.uint32)).tolist()
    [-559580957]
    """
    length = letters.shape[1]
    end = length - length % 4
    with np.errstate(over="ignore"):
        found = np.zeros(len(letters), np.uint32) + seeds
        for word in words_of(letters[:, :end], np.uint32).T:
            found = _mixed(found, word)
        for letter in letters[:, end:].T:
            found = _mixed(found, letter.view(np.int8).astype(np.int32).view(np.uint32))
        found = found ^ np.uint32(length)
        found = (found ^ (found >> np.uint32(16))) * _THIRD
        found = (found ^ (found >> np.uint32(13))) * _FOURTH
        return (found ^ (found >> np.uint32(16))).view(np.int32)


def _mixed(found: Seeds, word: Seeds) -> Seeds:
    return _turned(found ^ _turned(word * _FIRST, 15) * _SECOND, 13) * _FIVE + _ADDED


def _turned(words: Seeds, by: int) -> Seeds:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))


def hashed(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the hash of some values, with the term's seed."""
    function: Callable[[Letters, Any], Seeds] = hashes if term.kind == "XxHash64" else murmur3
    kind, unsigned = (np.int64, np.uint64) if term.kind == "XxHash64" else (np.int32, np.uint32)
    values = of.values(term, reached)
    if any(isinstance(value, pc.Expression) for value in values) or not all(map(_is_hashed, term.children)):
        return None
    found = np.array([term.value], kind).view(unsigned)
    for child, value in zip(term.children, values, strict=True):
        column = pa.array([value.as_py()], child.type) if isinstance(value, pa.Scalar) else value
        found = _with(found, column.cast(child.type), function).view(unsigned)
    result = pa.array(found.view(kind))
    return result[0] if all(isinstance(value, pa.Scalar) for value in values) else result


def _is_hashed(child: Term) -> bool:
    return any(each(child.type) for each in _HASHED)


def _with(seeds: Seeds, column: pa.Array, function: Callable[[Letters, Any], Seeds]) -> Seeds:
    """Return hashes of values with their seeds; one of either may be that of all."""
    found: Seeds
    if kinds.is_string(column.type) and len(column) == 1:
        ((_, letters),) = letters_of_texts(column)
        found = function(letters, seeds).view(seeds.dtype)
    elif kinds.is_string(column.type):
        each = np.broadcast_to(seeds, len(column))
        found = np.array(each)
        for places, letters in letters_of_texts(column):
            found[places] = function(letters, each[places]).view(seeds.dtype)
    else:
        whole = pa.int32() if kinds.is_date32(column.type) else pa.int64()
        plain = column.cast(whole) if kinds.is_timestamp(column.type) or kinds.is_date32(column.type) else column
        zero = pa.array([0], pa.int8()).cast(plain.type)[0]
        found = function(letters_of(plain.fill_null(zero) if plain.null_count else plain), seeds).view(seeds.dtype)
    if not column.null_count:
        return found
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), found, seeds)


FUNCTIONS: dict[str, Function] = {"XxHash64": hashed, "Murmur3Hash": hashed}
