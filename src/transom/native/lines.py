"""JSON lines as columns, of blocks of which it is certain what Spark's reader makes of every line.

Programs write JSON in one form: the same keys in the same order, the same blanks. So the first line of a block is taken
apart into values and what is around them, which the others must have, too, where their commas are or, if texts hold
commas, their quotation marks. What is the same everywhere needs no parser any more: what lies between are texts without
escapes, and numbers. A block with anything else is Spark's to judge.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.native.pieces import Piece, count, pieces
from transom.native.separated import Letters, is_plain_text
from transom.native.shapes import BACKSLASH, COMMA, QUOTE, Shape, shape_of
from transom.native.values import UncertainError, certain_values, check_literals, is_readable

_NEWLINE = 10
MOST_BYTES = 16 << 20
"""Of lines that are read together: Spark's parser takes no text of more than 20,000,000 characters."""


@dataclass(frozen=True)
class LineReader:
    """Reads blocks of JSON lines as Spark's reader does, with all declared columns checked, or not at all.

    Args:
        schema: The declared columns.
        reserved: Names that no key may have, such as that of the column of corrupt records.
        utc: Whether times without an offset are those of UTC; else they are Spark's.
        wanted: Columns that something is made of; of the others, which are looked at as strictly, texts are null. None
            for all.

    Raises:
        ValueError: A column's type is none of those that are read.
    """

    schema: pa.Schema
    reserved: Collection[str] = ()
    utc: bool = False
    wanted: Collection[str] | None = None

    def __post_init__(self) -> None:
        unknown = [str(field) for field in self.schema if not is_readable(field.type)]
        if unknown:
            raise ValueError(f"not read without Spark: {', '.join(unknown)}")

    def read(self, lines: bytes | memoryview) -> pa.RecordBatch | None:
        """Return the rows of some lines, in their order, or None when Spark has to judge.

        Args:
            lines: Whole lines, each with its newline; what is returned holds copies.
        """
        if len(lines) > MOST_BYTES:
            return None
        letters = np.frombuffer(lines, np.uint8)
        if not _is_simple(letters):
            return None
        shape = shape_of(_first_line(lines))
        if shape is None or not self._takes(shape):
            return None
        for separator in (COMMA, QUOTE):
            try:
                found = pieces(letters, shape, separator)
                # When all quotation marks belong to the shape, none is inside a text; those that separate do.
                others = 0 if separator == QUOTE else found[0].rows * shape.count(QUOTE)
                if count(letters, BACKSLASH if separator == QUOTE else QUOTE, BACKSLASH) == others:
                    return self._columns(found, shape)
            except UncertainError:
                continue
        return None

    def _takes(self, shape: Shape) -> bool:
        """Tell whether the keys are different ones for Spark, too, and mean declared columns only by their names."""
        keys = [value.key for value in shape.values]
        folded = {name.lower() for name in self.schema.names}
        strange = [key for key in keys if key not in self.schema.names and key.lower() in folded]
        return len(set(keys)) == len(keys) and not strange and not any(key in self.reserved for key in keys)

    def _columns(self, pieces: Sequence[Piece], shape: Shape) -> pa.RecordBatch:
        found: dict[str, pa.Array] = {}
        for value, piece in zip(shape.values, pieces, strict=True):
            if value.key in self.schema.names:
                kind = self.schema.field(value.key).type
                if value.text and pa.types.is_string(kind) and self.wanted is not None and value.key not in self.wanted:
                    continue  # each is a text, whatever it is
                found[value.key] = certain_values(piece.texts(), value.text, kind, self.utc)
            elif not value.text:
                check_literals(piece.texts())
        rows = pieces[0].rows
        columns = [found[each.name] if each.name in found else pa.nulls(rows, each.type) for each in self.schema]
        return pa.record_batch(columns, schema=self.schema)


def _first_line(lines: bytes | memoryview) -> str:
    """Return the first of some lines without its newline."""
    size = 1 << 10
    while (end := bytes(lines[:size]).find(b"\n")) < 0:
        size *= 4
    return bytes(lines[:end]).decode()


def _is_simple(letters: Letters) -> bool:
    """Tell whether every reader sees the same characters, and the last line has an end."""
    return len(letters) > 0 and letters[-1] == _NEWLINE and is_plain_text(letters)
