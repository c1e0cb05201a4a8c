"""Columns of partials that tell one another: what other columns say of a row is not sent again.

Of a key that had one row, sum, least and largest are one number; of one that had two, the sum is that of both others.
Where intervals are short most keys are such. So before a column is written it is looked which rows of it are equal to
an earlier column, or to the sum or difference of two; these are a bit each, and the other rows follow as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.sites.columns import Ints, Reader, Writer, as_ints, damaged

Values: TypeAlias = NDArray[Any]
"""Of int64 or float64."""

Guess: TypeAlias = tuple[int, int, int]
"""What is done with which two columns, by place."""
DONE: tuple[Callable[[Values, Values], Values], ...] = (lambda one, _: one, np.add, np.subtract)

NEAR = 5
"""Columns before one that may tell it."""
SAMPLE = 128
"""Rows that are looked at first."""
SHARE = 1 / 32
"""Of those have to be equal for a column to be looked at further."""
MOST_TRIED, MOST_GUESSES = 4, 2
LEAST_WIDTH = 2
"""Bytes of a value that are worth a look."""


class Related:
    """The columns of one table in their order, as they are written or read."""

    def __init__(self) -> None:
        self._known: list[tuple[str, Values] | None] = []
        """Kind and values of each column so far; None for those that tell nothing."""
        self._samples: dict[str, dict[int, Values]] = {}
        """By kind and place, samples of the last columns that are worth a look."""

    def write(self, writer: Writer, array: pa.Array) -> None:
        """Write the next column.

        Raises:
            SiteError: Its type cannot travel.
        """
        kind = _kind(array.type)
        values = None if not kind or array.null_count else _values(array)
        guesses: list[Guess] = []
        rest = array
        if values is not None:
            left = np.arange(len(values))
            masks = []
            for guess in self._candidates(kind, values):
                if len(guesses) == MOST_GUESSES or not len(left):
                    break
                equal = _bits(self._guessed(guess)) == _bits(values)
                hits = equal[left] if guesses else equal
                if np.count_nonzero(hits) * LEAST_WIDTH > len(left) / 8 + 8:
                    guesses.append(guess)
                    masks.append(np.packbits(hits).tobytes())
                    left = left[~hits]
            if guesses:
                rest = array.take(pa.array(left))
        writer.notes.append([number for guess in guesses for number in guess])
        for mask in masks if guesses else ():
            writer.raw(mask)
        writer.column(rest)
        self._known.append(None if values is None else (kind, values))

    def _candidates(self, kind: str, values: Values) -> list[Guess]:
        """Return what may tell the next column, what tells most rows of a sample first; remember its own sample."""
        sample = values[:: max(1, len(values) // SAMPLE)]
        bits = _bits(sample)
        if not len(bits) or int(bits.max()) - int(bits.min()) < 1 << 8 * (LEAST_WIDTH - 1):
            return []
        near = self._samples.setdefault(kind, {})
        found: list[tuple[int, Guess]] = []
        if near:
            places, columns = list(near), np.array(list(near.values()))
            pairs = _pairs(len(places))
            with np.errstate(all="ignore"):
                made = [DONE[done](columns[one], columns[two]) for done, (one, two) in enumerate(pairs)]
            equal = _bits(np.concatenate(made)) == bits
            hits = equal.sum(axis=1, dtype=np.uint32)
            for row in np.flatnonzero(hits > SHARE * len(bits)).tolist():
                done, one, two = _guesses(len(places))[row]
                found.append((-int(hits[row]), (done, places[one], places[two])))
        near[len(self._known)] = sample
        while len(near) > NEAR:
            del near[next(iter(near))]
        return [guess for _, guess in sorted(found)[:MOST_TRIED]]

    def _guessed(self, guess: Guess) -> Values:
        done, *places = guess
        one, two = (self._known[place] for place in places)
        assert one is not None
        assert two is not None
        with np.errstate(all="ignore"):
            return DONE[done](one[1], two[1])

    def read(self, reader: Reader, type_: pa.DataType, count: int) -> pa.Array:
        """Return the next column, of so many rows.

        Raises:
            SiteError: It is damaged.
        """
        kind, guesses = _kind(type_), self._checked(reader.note(), _kind(type_))
        if not guesses:
            array = reader.column(type_, count)
            self._known.append(None if not kind or array.null_count else (kind, _values(array)))
            return array
        values, left = np.empty(count, np.float64 if kind == "float" else np.int64), np.arange(count)
        for guess in guesses:
            bits = np.unpackbits(np.frombuffer(reader.raw(), np.uint8))
            if not len(left) <= len(bits) < len(left) + 8:
                raise damaged("rows that other columns tell are miscounted")
            hits = bits[: len(left)].astype(bool)
            values[left[hits]] = self._guessed(guess)[left[hits]]
            left = left[~hits]
        reader.spend(count - len(left))
        rest = reader.column(type_, len(left))
        if rest.null_count:
            raise damaged("a column has nulls that other columns tell")
        values[left] = _values(rest)
        self._known.append((kind, values))
        return _array(values, type_)

    def _checked(self, note: Any, kind: str) -> list[Guess]:
        """Return the guesses that a note tells.

        Raises:
            SiteError: It tells of columns that cannot be meant.
        """
        if not isinstance(note, list) or len(note) % 3 or len(note) > 3 * MOST_GUESSES:
            raise damaged("a column is told by something else than columns")
        found = [(note[at], note[at + 1], note[at + 2]) for at in range(0, len(note), 3)]
        for done, *places in found:
            if type(done) is not int or not 0 <= done < len(DONE):
                raise damaged(f"{done!r} is not what is done with columns")
            for place in places:
                there = type(place) is int and 0 <= place < len(self._known)
                known = self._known[place] if there else None
                if known is None or known[0] != kind:
                    raise damaged(f"a column is told by {place!r}, which is none of its kind")
        return found


def _kind(type_: pa.DataType) -> str:
    """Return which columns may tell one of a type; empty for none."""
    if pa.types.is_integer(type_) and not pa.types.is_uint64(type_):
        return "whole"
    if pa.types.is_float64(type_):
        return "float"
    return str(type_) if pa.types.is_timestamp(type_) else ""


def _values(array: pa.Array) -> Values:
    if pa.types.is_float64(array.type):
        return np.asarray(array.to_numpy(zero_copy_only=False), np.float64)
    return as_ints(array)


def _array(values: Values, type_: pa.DataType) -> pa.Array:
    plain = pa.array(values)
    return plain.view(type_) if pa.types.is_timestamp(type_) else plain.cast(type_)


@cache
def _pairs(number: int) -> tuple[tuple[Ints, Ints], ...]:
    """Return the pairs of so many columns that each of `DONE` is tried with."""
    all_of, (low, high) = np.arange(number), np.triu_indices(number, 1)
    return (all_of, all_of), (low, high), (np.append(low, high), np.append(high, low))


@cache
def _guesses(number: int) -> list[Guess]:
    """Return the guesses of `_pairs` one after another."""
    pairs = enumerate(_pairs(number))
    return [(done, one, two) for done, pair in pairs for one, two in zip(*map(np.ndarray.tolist, pair), strict=True)]


def _bits(values: Values) -> NDArray[np.int64]:
    """Return values such that equal ones are the same to the bit."""
    return np.ascontiguousarray(values).view(np.int64)
