"""Arrow tables as CSV (RFC 4180), column by column instead of value by value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

from transom.sinks.json_lines import encoded, joined

_BATCH = 100_000
_SPECIAL = r'^$|[",\r\n]|^\s|\s$'


def write_csv(table: pa.Table, file: IO[bytes]) -> None:
    """Write a line with the names of the columns, and one for each row; null is an empty field, "" an empty text."""
    file.write(header(table.column_names))
    for batch in table.to_batches(max_chunksize=_BATCH):
        if batch.num_rows:
            pieces: list[Any] = []
            for column in batch.columns:
                pieces += [pc.fill_null(fields(column), ""), ","]
            file.write(joined([*pieces[:-1], "\n"]))


def header(names: Sequence[str]) -> bytes:
    """Return the first line of a file with these columns."""
    return ",".join(_quoted(pa.array(names, pa.string())).to_pylist()).encode() + b"\n"


def header_of(file: IO[bytes]) -> bytes:
    """Return the first line of a file, of which a name may have line breaks in quotes."""
    line = file.readline()
    while line.count(b'"') % 2 and (more := file.readline()):
        line += more
    return line


def fields(column: pa.Array) -> pa.Array:
    """Return the field of each value; null where there is none."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return fields(column.dictionary_decode())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted(column)
    texts = encoded(column)
    if pa.types.is_nested(kind):
        return _quoted(texts)
    # What JSON quotes of other types are times, NaN and the like, and base64: nothing that has to be quoted here.
    return texts if pa.types.is_integer(kind) else pc.utf8_trim(texts, characters='"')


def _quoted(texts: pa.Array) -> pa.Array:
    """Return texts as fields: in quotes where they would be read as something else without."""
    special = pc.match_substring_regex(texts, _SPECIAL)
    if not pc.any(special).as_py():
        return texts
    quote, nothing = pa.scalar('"', texts.type), pa.scalar("", texts.type)
    inside = pc.replace_substring(texts, '"', '""')
    return pc.if_else(special, pc.binary_join_element_wise(quote, inside, quote, nothing), texts)
