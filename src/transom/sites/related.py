"""Columns of partials that tell one another: what other columns say of a row is not sent again.

Of a key that had one row, sum, least and largest are one number; of one that had two, the sum is that of both others.
Where intervals are short most keys are such. So before a column is written it is looked which rows of it are equal to
an earlier column, or to the sum or difference of two; these are a bit each, and the other rows follow as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
Mask: TypeAlias = NDArray[np.bool_]
Tried: TypeAlias = "tuple[Guess, Mask | None]"
"""A guess, and of which rows it is right if that is known."""
DONE: tuple[Callable[[Values, Values], Values], ...] = (lambda one, _: one, np.add, np.subtract)

NEAR = 5
"""Columns before one that may tell it."""
SAMPLE = 128
"""Rows that are looked at first."""
SHARE = 1 / 32
"""Of those have to be equal for a column to be looked at further."""
MOST_TRIED, MOST_GUESSES = 4, 2
MOST_AT_ONCE = 1 << 14
"""Rows of a table whose columns are looked at together."""
AGAIN = 16
"""Parcels of a flow for which what tells columns is looked for once."""
MORE = 2
"""With so many times the rows it is looked for again."""
LEAST_WIDTH = 2
"""Bytes of a value that are worth a look."""


_WHOLE = {pa.type_for_alias(f"{sign}int{bits}").id for sign in ("", "u") for bits in (8, 16, 32, 64)} - {pa.uint64().id}


class Told:
    """What told the columns of the last parcels of a flow, as far as it was looked for: sums stay sums."""

    def __init__(self) -> None:
        self.guesses: list[list[Guess]] = []
        """Of each column in turn."""
        self._parcels, self._rows = 0, 0

    def looks(self, rows: int) -> bool:
        """Tell whether it is to be looked for again, in a table of so many rows; then it is forgotten."""
        self._parcels -= 1
        if self._parcels >= 0 and rows <= MORE * self._rows:
            return False
        self.guesses, self._parcels, self._rows = [], AGAIN - 1, rows
        return True


class Related:
    """The columns of one table in their order, as they are written or read.

    Args:
        told: What told the columns of earlier tables, for one that is written; None to look.
        rows: Of the table, with that.
    """

    def __init__(self, told: Told | None = None, rows: int = 0) -> None:
        self._told = Told() if told is None else told
        self._looks = self._told.looks(rows)
        self._known: list[tuple[str, Values] | None] = []
        """Kind and values of each column so far; None for those that tell nothing."""
        self._samples: dict[str, dict[int, Values]] = {}
        """By kind and place, samples of the last columns that are worth a look."""

    def write_all(self, writer: Writer, columns: Sequence[pa.Array], order: Ints) -> None:
        """Write all columns of a table.

        Args:
            writer: Takes them.
            columns: The columns.
            order: The places of their rows in the order in which they are written.

        Raises:
            SiteError: The type of one cannot travel.
        """
        block = None if self._looks or len(order) > MOST_AT_ONCE else _Block.of(columns, order, self._told.guesses)
        for place, column in enumerate(columns):
            if block is not None and place in block.rows:
                row = block.rows[place]
                self._write(writer, "whole", block.values[row], block.guesses[row], block.bounds[row])
            else:
                self.write(writer, column, order)

    def write(self, writer: Writer, array: pa.Array, order: Ints | None = None) -> None:
        """Write the next column.

        Args:
            writer: Takes it.
            array: The column.
            order: The places of its rows in the order in which they are written; None for that in which they are.

        Raises:
            SiteError: Its type cannot travel.
        """
        kind = _kind(array.type)
        if not kind or array.null_count:
            writer.notes.append([])
            writer.column(array if order is None else array.take(pa.array(order)))
            self._note(None, [])
            return
        values = _values(array) if order is None else _values(array)[order]
        guesses = ((guess, None) for guess in self._candidates(kind, values))
        self._write(writer, kind, values, guesses, None)

    def _write(
        self, writer: Writer, kind: str, values: Values, tried: Iterable[Tried], bounds: tuple[int, int] | None
    ) -> None:
        """Write a column that others may tell, given its least and largest value if they are known."""
        guesses: list[Guess] = []
        masks = []
        rest: Mask | None = None
        left = len(values)
        for guess, equal in tried:
            if len(guesses) == MOST_GUESSES or not left:
                break
            same = _bits(self._guessed(guess, kind)) == _bits(values) if equal is None else equal
            hits = same if rest is None else same[rest]
            told = int(np.count_nonzero(hits))
            if told * LEAST_WIDTH > left / 8 + 8:
                guesses.append(guess)
                masks.append(np.packbits(hits).tobytes())
                rest = ~same if rest is None else rest & ~same
                left -= told
        writer.notes.append([number for guess in guesses for number in guess])
        for mask in masks:
            writer.raw(mask)
        if rest is None:
            writer.numbers(values, bounds)
        else:
            writer.numbers(values[rest])
        self._note((kind, values), guesses)

    def _note(self, known: tuple[str, Values] | None, guesses: list[Guess]) -> None:
        self._known.append(known)
        if self._looks:
            self._told.guesses.append(guesses)

    def _candidates(self, kind: str, values: Values) -> list[Guess]:
        """Return what may tell the next column, what is likely to tell most rows first."""
        if self._looks:
            return self._found(kind, values)
        known = self._told.guesses[len(self._known)] if len(self._known) < len(self._told.guesses) else []
        return [guess for guess in known if self._is_there(guess, kind)]

    def _is_there(self, guess: Guess, kind: str) -> bool:
        _, *places = guess
        return all((known := self._known[place]) is not None and known[0] == kind for place in places)

    def _found(self, kind: str, values: Values) -> list[Guess]:
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

    def _guessed(self, guess: Guess, kind: str) -> Values:
        done, *places = guess
        one, two = (self._known[place] for place in places)
        assert one is not None
        assert two is not None
        if kind != "float":
            return DONE[done](one[1], two[1])
        with np.errstate(all="ignore"):
            return DONE[done](one[1], two[1])

    def read(self, reader: Reader, type_: pa.DataType, count: int) -> pa.Array:
        """Return the next column, of so many rows.

        Raises:
            SiteError: It is damaged.
        """
        kind = _kind(type_)
        guesses = self._checked(reader.note(), kind)
        if not guesses:
            nulls = reader.number(count)
            if not kind or nulls:
                self._known.append(None)
                return reader.rest(type_, count, nulls)
            numbers = reader.floats(count) if kind == "float" else reader.ints(count)
            self._known.append((kind, numbers))
            return _array(numbers, type_)
        values, left = np.empty(count, np.float64 if kind == "float" else np.int64), count
        rest: Mask | None = None
        for guess in guesses:
            bits = np.unpackbits(np.frombuffer(reader.raw(), np.uint8))
            if not left <= len(bits) < left + 8:
                raise damaged("rows that other columns tell are miscounted")
            hits = bits[:left].view(np.bool_)
            if rest is None:
                told = hits
            else:
                told = np.zeros(count, np.bool_)
                told[rest] = hits
            np.copyto(values, self._guessed(guess, kind), where=told)
            rest = ~told if rest is None else rest & ~told
            left -= int(np.count_nonzero(hits))
        reader.spend(count - left)
        if reader.number(left):
            raise damaged("a column has nulls that other columns tell")
        values[rest] = reader.floats(left) if kind == "float" else reader.ints(left)
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


@dataclass(frozen=True)
class _Block:
    """Columns of whole numbers without nulls as a matrix, so that much is done with all of them at once."""

    rows: Mapping[int, int]
    """The row of each of those columns, by its place."""
    values: NDArray[np.int64]
    bounds: Sequence[tuple[int, int]]
    """The least and the largest value of each row."""
    guesses: Sequence[list[Tried]]
    """What may tell each row, with where it does."""

    @classmethod
    def of(cls, columns: Sequence[pa.Array], order: Ints, told: Sequence[list[Guess]]) -> _Block | None:
        """Return those of some columns, their rows in an order, and what may tell them; None if there are none."""
        places = [at for at, each in enumerate(columns) if each.type.id in _WHOLE and not each.null_count]
        if not places or not len(order):
            return None
        rows = {place: row for row, place in enumerate(places)}
        values = np.stack([as_ints(columns[place]) for place in places])[:, order]
        bounds = list(zip(values.min(axis=1).tolist(), values.max(axis=1).tolist(), strict=True))
        tried = [
            (at, guess)
            for at, known in enumerate(told[: len(columns)])
            for guess in known
            if at in rows and guess[1] in rows and guess[2] in rows
        ]
        equal: dict[tuple[int, Guess], Mask] = {}
        for done, make in enumerate(DONE):
            if mine := [each for each in tried if each[1][0] == done]:
                of, one, two = np.array([(rows[at], rows[guess[1]], rows[guess[2]]) for at, guess in mine]).T
                equal.update(zip(mine, make(values[one], values[two]) == values[of], strict=True))
        guesses: list[list[Tried]] = [[] for _ in places]
        for at, guess in tried:
            guesses[rows[at]].append((guess, equal[at, guess]))
        return cls(rows, values, bounds, guesses)


def _kind(type_: pa.DataType) -> str:
    """Return which columns may tell one of a type; empty for none."""
    if type_.id in _WHOLE:
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
    if plain.type.equals(type_):
        return plain
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
