"""JSON lines as columns, of blocks of which it is certain what Spark's reader makes of every line.

Programs write JSON in one form: the same keys in the same order, the same blanks. So the first line of a block is taken
apart, and the others are split where it was, by Arrow's CSV reader, at commas or at quotation marks. Then each piece is
compared with what was there in the first line. What is the same everywhere needs no parser any more: what lies between
are texts without escapes, and numbers. A block with anything else is Spark's to judge.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from transom.native.separated import Letters, is_plain_text, separated
from transom.native.shapes import COMMA, QUOTE, Shape, shape_of
from transom.native.values import UncertainError, certain_values, check_around, check_literals, is_readable

_NEWLINE, _BLANK = 10, 32
MOST_BYTES = 16 << 20
"""Of lines that are read together: Spark's parser takes no text of more than 20,000,000 characters."""


@dataclass(frozen=True)
class LineReader:
    """Reads blocks of JSON lines as Spark's reader does, with all declared columns checked, or not at all.

    Args:
        schema: The declared columns.
        reserved: Names that no key may have, such as that of the column of corrupt records.
        utc: Whether times without an offset are those of UTC; else they are Spark's.

    Raises:
        ValueError: A column's type is none of those that are read.
    """

    schema: pa.Schema
    reserved: Collection[str] = ()
    utc: bool = False

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
        rows = _count(letters, "\n")
        if not _is_simple(letters, rows):
            return None
        first = bytes(lines[: int(np.argmax(letters == _NEWLINE))]).decode()
        for separator in (COMMA, QUOTE):
            shape = shape_of(first, separator)
            if shape is None or not self._takes(shape):
                return None
            try:
                return self._columns(_pieces(letters, rows, shape, separator), shape, rows)
            except UncertainError:
                continue
        return None

    def _takes(self, shape: Shape) -> bool:
        """Tell whether the keys are different ones for Spark, too, and mean declared columns only by their names."""
        keys = [value.key for value in shape.values]
        folded = {name.lower() for name in self.schema.names}
        strange = [key for key in keys if key not in self.schema.names and key.lower() in folded]
        return len(set(keys)) == len(keys) and not strange and not any(key in self.reserved for key in keys)

    def _columns(self, pieces: Sequence[pa.StringArray], shape: Shape, rows: int) -> pa.RecordBatch:
        found: dict[str, pa.Array] = {}
        for part, piece in zip(shape.parts, pieces, strict=True):
            check_around(part, piece)
            if part.value is not None and part.value.key in self.schema.names:
                kind = self.schema.field(part.value.key).type
                found[part.value.key] = certain_values(part, piece, kind, self.utc)
            elif part.value is not None and not part.value.text:
                check_literals(part, piece)
        columns = [found[each.name] if each.name in found else pa.nulls(rows, each.type) for each in self.schema]
        return pa.record_batch(columns, schema=self.schema)


def _is_simple(letters: Letters, newlines: int) -> bool:
    """Tell whether every reader sees the same characters, and only newlines end lines."""
    if not len(letters) or letters[0] != ord("{") or letters[-1] != _NEWLINE or _count(letters, "\\"):
        return False
    if np.count_nonzero(letters < _BLANK) != newlines:
        return False
    return is_plain_text(letters)


def _count(letters: Letters, letter: str) -> int:
    return int(np.count_nonzero(letters == ord(letter)))


def _pieces(letters: Letters, rows: int, shape: Shape, separator: str) -> list[pa.StringArray]:
    """Return the pieces of all lines, one array for each piece of the first line.

    Raises:
        UncertainError: Some line has others.
    """
    if separator != QUOTE and _count(letters, QUOTE) != rows * shape.quotes:
        raise UncertainError  # when all of them belong to the shape, none is inside a text
    splitting = arrow_csv.ParseOptions(
        delimiter=separator, quote_char=False, double_quote=False, escape_char=False, ignore_empty_lines=False
    )
    return separated(letters, rows, len(shape.parts), splitting)
