"""Lines of CSV files as columns, of blocks of which it is certain what Spark's reader makes of every line.

Readers of CSV differ in what they make of quotation marks that are not around a value, of escapes, of lines with more
or fewer values, and of values that are not written as everybody writes them. A block with any of these is Spark's to
judge. What is left Arrow splits into texts, which are read as the declared types.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from transom.native.dialects import SPARKS, Dialect
from transom.native.separated import Letters, is_plain_text, separated
from transom.native.values import UncertainError, certain_literals, certain_texts, is_readable, is_text

_TAB, _NEWLINE, _RETURN, _BLANK, _QUOTE, _BACKSLASH = 9, 10, 13, 32, 34, 92
_NOT_MARKS = bytes(set(range(256)) - {_NEWLINE, _QUOTE})
MOST_BYTES = 16 << 20
"""Of lines that are read together."""
LONGEST = 1 << 19
"""Bytes of a line: Spark's parser has other ways for those that are longer than its buffer of 1 Mi characters."""
MOST_COLUMNS = 10_000
"""Spark's parser takes twice as many."""
_WHITE = " \t"
"""What a line may be made of that Spark leaves out."""


@dataclass(frozen=True)
class CsvReader:
    """Reads blocks of lines of CSV files as Spark's reader does, with all declared columns checked, or not at all.

    Args:
        schema: The declared columns, which are those of each line.
        dialect: How the files are written.
        utc: Whether times without an offset are those of UTC; else they are Spark's.

    Raises:
        ValueError: A column's type is none of those that are read.
    """

    schema: pa.Schema
    dialect: Dialect = SPARKS
    utc: bool = False

    def __post_init__(self) -> None:
        unknown = [str(field) for field in self.schema if not is_readable(field.type)]
        if unknown:
            raise ValueError(f"not read without Spark: {', '.join(unknown)}")

    def read(self, lines: bytes | memoryview, first: bool = False) -> pa.RecordBatch | None:
        """Return the rows of some lines, in their order, or None when Spark has to judge.

        Args:
            lines: Whole lines, each with its newline; what is returned holds copies.
            first: Whether they are the first ones of a file.
        """
        if len(lines) > MOST_BYTES or len(self.schema) > MOST_COLUMNS:
            return None
        letters = np.frombuffer(lines, np.uint8)
        if not _is_simple(letters) or not self._is_quoted_as_usual(letters):
            return None
        if first and self.dialect.header:
            end = int(np.argmax(letters == _NEWLINE)) + 1
            if not self._takes(bytes(lines[:end]).decode().removesuffix("\n").removesuffix("\r")):
                return None
            letters = letters[end:]
        try:
            texts = _split(letters, self.dialect, len(self.schema))
            columns = [self._column(text, field.type) for text, field in zip(texts, self.schema, strict=True)]
        except UncertainError:
            return None
        return pa.record_batch(columns, schema=self.schema)

    def _takes(self, header: str) -> bool:
        """Tell whether Spark takes a header."""
        names = header.split(self.dialect.separator)
        if not header.strip(_WHITE) or len(names) > MOST_COLUMNS:
            return False
        plain = [name[1:-1] if name.startswith('"') and name.endswith('"') else name for name in names]
        return not self.dialect.named or (plain == self.schema.names and not any('"' in name for name in plain))

    def _is_quoted_as_usual(self, letters: Letters) -> bool:
        """Tell whether quotation marks are around whole values only, and none is inside, but for doubled ones."""
        places = np.flatnonzero(letters == _QUOTE)
        if not len(places):
            return True
        doubled, separator = self.dialect.doubled, ord(self.dialect.separator)
        if len(places) % 2 or (not doubled and (letters == _BACKSLASH).any()):
            return False
        opening, closing = places[0::2], places[1::2]
        if self.dialect.null and (opening + 1 == closing).any():
            return False  # an empty text, which is not null
        before, after = letters[opening - 1], letters[closing + 1]
        before[0] = before[0] if opening[0] else _NEWLINE
        begins = (before == separator) | (before == _NEWLINE)
        ends = (after == separator) | (after == _NEWLINE) | (after == _RETURN)
        if doubled:
            begins, ends = begins | (before == _QUOTE), ends | (after == _QUOTE)
        if not begins.all() or not ends.all():
            return False
        marks = np.frombuffer(letters.tobytes().translate(None, _NOT_MARKS), np.uint8)
        newlines = np.flatnonzero(marks == _NEWLINE)
        return not ((newlines - np.arange(len(newlines))) % 2).any()  # none is inside a value

    def _column(self, texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
        """Return texts as the values of a type that they are.

        Raises:
            UncertainError: Spark may make something else of one of them.
        """
        nulls = pc.equal(texts, "")
        if self.dialect.null:
            nulls = pc.or_(nulls, pc.equal(texts, self.dialect.null))
        if pc.any(nulls).as_py():
            texts = pc.if_else(nulls, pa.scalar(None, pa.string()), texts)
        if texts.null_count == len(texts):
            return pa.nulls(len(texts), kind)
        if is_text(kind):
            return certain_texts(texts, kind, self.utc)
        return certain_literals(pc.ascii_lower(texts) if pa.types.is_boolean(kind) else texts, kind)


def _is_simple(letters: Letters) -> bool:
    """Tell whether every reader sees the same characters, and only newlines end lines, or returns before them."""
    if not len(letters) or letters[-1] != _NEWLINE:
        return False
    control = np.flatnonzero((letters < _BLANK) & (letters != _NEWLINE))
    if len(control):
        found = letters[control]
        returns = found == _RETURN
        if not (returns | (found == _TAB)).all() or (letters[control[returns] + 1] != _NEWLINE).any():
            return False
    return is_plain_text(letters)


def _split(letters: Letters, dialect: Dialect, columns: int) -> list[pa.StringArray]:
    """Return the values of all lines as texts, one array for each column.

    Raises:
        UncertainError: Some line has others, is blank, or is too long.
    """
    if not len(letters):
        return [pa.array([], pa.string())] * columns
    splitting = arrow_csv.ParseOptions(delimiter=dialect.separator, double_quote=dialect.doubled, escape_char=False)
    found = separated(letters, int(np.count_nonzero(letters == _NEWLINE)), columns, splitting)
    if sum(pc.max(pc.binary_length(texts)).as_py() for texts in found) > LONGEST:
        raise UncertainError
    if columns == 1 or dialect.separator <= " ":
        _check_not_blank(found)
    return found


def _check_not_blank(columns: list[pa.StringArray]) -> None:
    """See that no line is blank: Spark leaves it out.

    Raises:
        UncertainError: One is.
    """
    blank: pa.Array = True
    for texts in columns:
        blank = pc.and_(blank, pc.equal(pc.ascii_trim(texts, _WHITE), ""))
        if not pc.any(blank).as_py():
            return
    raise UncertainError
