"""Results as text, for people."""

from __future__ import annotations

import re
import sys
import unicodedata
from datetime import UTC, datetime
from typing import IO, Any

import pyarrow as pa

from transom.errors import DefinitionError
from transom.model.arguments import shown
from transom.model.signatures import checked
from transom.sinks.base import WindowResults
from transom.sinks.owner import Claim
from transom.sinks.values import python_values


@checked
def console(limit: int = 20, stream: IO[str] | None = None) -> ConsoleSink:
    """Print results as text.

    Args:
        limit: Most rows that are shown of one cut.
        stream: Where to; by default the standard output at the time of printing.

    Raises:
        DefinitionError: A negative limit, or nothing that can be written to.
    """
    if limit < 0:
        raise DefinitionError("console: limit must not be negative.", "Leave it out for 20 rows.")
    if stream is not None and not hasattr(stream, "write"):
        raise DefinitionError(f"console: stream is {shown(stream)}.", "Give an open file, or leave it out.")
    return ConsoleSink(limit, stream)


class ConsoleSink:
    """See `console`, which makes it. Results that are written again after a crash are printed again."""

    def __init__(self, limit: int, stream: IO[str] | None) -> None:
        self._limit = limit
        self._stream = stream

    def describe(self) -> str:
        """Return what it is, in one line for people."""
        return "console"

    def open(self, query: str) -> None:
        """Do nothing: there is nothing to prepare."""

    def claim(self, claim: Claim) -> None:
        """Do nothing: what is printed belongs to nobody."""

    def recover(self, query: str, next_cut: int) -> None:
        """Do nothing: what was printed stays printed."""

    def write(self, results: WindowResults) -> None:
        """Print the first rows, in one piece."""
        text = format_results(results, self._limit) + "\n"  # not two pieces: others print from threads of their own
        print(text, end="", file=self._stream or sys.stdout, flush=True)

    def close(self) -> None:
        """Do nothing: the stream belongs to the caller."""


def format_results(results: WindowResults, limit: int) -> str:
    """Return results as an aligned text table; numbers to the right."""
    table = results.table
    count = f"{table.num_rows} row" + ("" if table.num_rows == 1 else "s")
    lines = [f"{results.query} (cut {results.cut}): {count}"]
    shown = table.slice(0, limit)
    if shown.num_rows:
        columns = []
        for name, column in zip(shown.schema.names, shown.columns, strict=True):
            texts = [plain_text(name), *(plain_text(_text(value)) for value in python_values(column))]
            width = max(map(_width, texts))
            right = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
            right = right or pa.types.is_decimal(column.type)
            gaps = [" " * (width - _width(text)) for text in texts]
            columns.append([gap + text if right else text + gap for gap, text in zip(gaps, texts, strict=True)])
        lines += ["  " + "  ".join(row).rstrip() for row in zip(*columns, strict=True)]
    if table.num_rows > limit:
        lines.append(f"  and {table.num_rows - limit} more")
    return "\n".join(lines)


_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def plain_text(text: str) -> str:
    r"""Return a text without what moves the cursor or changes the terminal: control characters are escaped.

    >>> print(plain_text(chr(27) + "[2J"))
    \x1b[2J
    """
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def plain_json(value: Any) -> Any:
    """Return a value of JSON with all its texts plain, names among them; see `plain_text`."""
    if isinstance(value, dict):
        return {plain_json(key): plain_json(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain_json(one) for one in value]
    return plain_text(value) if isinstance(value, str) else value


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            return value.astimezone(UTC).isoformat(sep=" ").replace("+00:00", "Z")
        return value.isoformat(sep=" ")
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
