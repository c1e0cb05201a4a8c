"""Lines divided into texts by Arrow's CSV reader, of which nothing is left to it but where pieces end."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as arrow_csv

from transom.native.values import UncertainError

Letters: TypeAlias = "npt.NDArray[np.uint8]"
_NOT_ASCII = 128


def is_plain_text(letters: Letters) -> bool:
    """Tell whether letters, one at least, are UTF-8 without byte order marks; O(letters)."""
    if letters.max() < _NOT_ASCII:
        return True
    try:
        return "\ufeff" not in letters.tobytes().decode()
    except UnicodeDecodeError:
        return False


def separated(letters: Letters, rows: int, columns: int, splitting: arrow_csv.ParseOptions) -> list[pa.StringArray]:
    """Return the pieces of all lines, one array for each column; O(letters).

    Args:
        letters: Lines, each with its newline.
        rows: How many there are.
        columns: How many pieces each has.
        splitting: Where a piece ends.

    Raises:
        UncertainError: Some line has others.
    """
    names = [str(number) for number in range(columns)]
    reading = arrow_csv.ReadOptions(use_threads=False, column_names=names, block_size=len(letters) + 1)
    texts = dict.fromkeys(names, pa.string())
    keeping = arrow_csv.ConvertOptions(column_types=texts, strings_can_be_null=False, check_utf8=False)
    try:
        table = arrow_csv.read_csv(pa.BufferReader(pa.py_buffer(letters)), reading, splitting, keeping)
    except pa.ArrowInvalid as error:
        raise UncertainError from error
    if table.num_rows != rows:
        raise UncertainError
    return [column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns]
