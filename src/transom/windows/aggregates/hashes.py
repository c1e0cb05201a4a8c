"""Spark's `xxhash64` of columns: the hash of a value's bytes, with a seed; of all values at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Letters: TypeAlias = "npt.NDArray[np.uint8]"
Words: TypeAlias = "npt.NDArray[np.uint64]"

SEED = 42
_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH = map(
    np.uint64,
    (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    ),
)


def xxhash64(values: pa.Array) -> npt.NDArray[np.int64]:
    """Return the hashes of values that are not null: whole numbers, floats, truths, dates, times or texts; O(bytes).

    >>> xxhash64(pa.array([1], pa.int32())).tolist(), xxhash64(pa.array(["Spark"])).tolist()
    ([-6698625589789238999], [-4294468057691064905])

    Raises:
        TypeError: Values of another type.
    """
    return _of_texts(values) if pa.types.is_string(values.type) else hashes(letters_of(values), np.uint64(SEED))


def letters_of(values: pa.Array) -> Letters:
    """Return the bytes of values of which their hash is made, a row for each; not of texts, whose lengths differ.

    Raises:
        TypeError: Values of another type.
    """
    kind = values.type
    if pa.types.is_floating(kind):
        numbers = values.to_numpy(zero_copy_only=False) + 0.0  # -0.0 is 0.0
        return _letters(np.where(np.isnan(numbers), numbers.dtype.type("nan"), numbers))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        wide = pa.int64() if pa.types.is_int64(kind) else pa.int32()
        return _letters(values.cast(wide).to_numpy(zero_copy_only=False))
    if pa.types.is_date32(kind):
        return _letters(values.cast(pa.int32()).to_numpy())
    if pa.types.is_timestamp(kind):
        return _letters(values.cast(pa.int64()).to_numpy())
    raise TypeError(f"hash of {kind}")


def letters_of_texts(texts: pa.StringArray) -> Iterator[tuple[npt.NDArray[np.intp], Letters]]:
    """Yield the bytes of texts of one length after the other: their places, and a row for each."""
    if not len(texts):
        return
    edges = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    lengths = np.diff(edges)
    for length in np.unique(lengths).tolist():
        (places,) = np.nonzero(lengths == length)
        yield places, letters[edges[places, None] + np.arange(length)]


def _letters(numbers: npt.NDArray[Any]) -> Letters:
    found = np.ascontiguousarray(numbers)
    return found.view(np.uint8).reshape(len(found), found.dtype.itemsize)


def _of_texts(texts: pa.StringArray) -> npt.NDArray[np.int64]:
    """Return the hashes of texts: of each different one once, those of one length together."""
    coded = texts.dictionary_encode()
    known = coded.dictionary
    found = np.zeros(len(known), np.int64)
    for places, letters in letters_of_texts(known):
        found[places] = hashes(letters, np.uint64(SEED))
    chosen: npt.NDArray[np.int64] = found[coded.indices.to_numpy()]
    return chosen


def hashes(letters: Letters, seeds: Words | np.uint64) -> npt.NDArray[np.int64]:
    """Return the hash of each row of bytes, with one seed or that of each row; one row may be that of all seeds."""
    length = letters.shape[1]
    with np.errstate(over="ignore"):
        found = np.zeros(len(letters), np.uint64) + (seeds + _FIFTH)
        done = length - length % 32
        if done:
            found = _of_blocks(words_of(letters[:, :done], np.uint64), seeds)
        found = found + np.uint64(length)
        end = length - length % 8
        for word in words_of(letters[:, done:end], np.uint64).T:
            found = found ^ _turned(word * _SECOND, 31) * _FIRST
            found = _turned(found, 27) * _FIRST + _FOURTH
        if length - end >= 4:
            found = found ^ words_of(letters[:, end : end + 4], np.uint32)[:, 0].astype(np.uint64) * _FIRST
            found = _turned(found, 23) * _SECOND + _THIRD
            end += 4
        for letter in letters[:, end:].T:
            found = found ^ letter.astype(np.uint64) * _FIFTH
            found = _turned(found, 11) * _FIRST
        found = (found ^ (found >> np.uint64(33))) * _SECOND
        found = (found ^ (found >> np.uint64(29))) * _THIRD
        mixed: npt.NDArray[np.int64] = (found ^ (found >> np.uint64(32))).view(np.int64)
        return mixed


def _of_blocks(words: Words, seeds: Words | np.uint64) -> Words:
    """Return what is known after the blocks of 32 bytes: four sums, put together."""
    none = np.zeros(len(words), np.uint64)
    sums = [none + start for start in (seeds + _FIRST + _SECOND, seeds + _SECOND, seeds, seeds - _FIRST)]
    for place, word in enumerate(words.T):
        sums[place % 4] = _turned(sums[place % 4] + word * _SECOND, 31) * _FIRST
    found: Words = sum(_turned(each, by) for each, by in zip(sums, (1, 7, 12, 18), strict=True))  # type: ignore[assignment]
    for each in sums:
        found = (found ^ _turned(each * _SECOND, 31) * _FIRST) * _FIRST + _FOURTH
    return found


def words_of(letters: Letters, kind: type[np.uint64] | type[np.uint32]) -> npt.NDArray[Any]:
    """Return rows of bytes as rows of words."""
    little = np.dtype(kind).newbyteorder("<")
    if not letters.size:
        return np.zeros((len(letters), letters.shape[1] // little.itemsize), little)
    return np.ascontiguousarray(letters).view(little)


def _turned(words: Words, by: int) -> Words:
    return (words << np.uint64(by)) | (words >> np.uint64(64 - by))
