"""Rows that a table of a TOML job reads: a source by its name, or some of its rows and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transom.jobs.keys import Keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INPUT = ("source", "where", "select")


@dataclass(frozen=True)
class InputSpec:
    """What a join, lookup or the like reads."""

    source: str
    where: str | None = None
    select: tuple[str, ...] = ()

    def of(self, rows: Mapping[str, Any]) -> Any:
        """Return the rows, given those of each name."""
        return selected(rows[self.source], self.where, self.select)


def parse_input(keys: Keys, key: str, known: Sequence[str]) -> InputSpec:
    """Return what is read, a name or a table.

    Args:
        keys: The table that reads.
        key: The key in it.
        known: Names of what may be read.

    Raises:
        JobFileError: A key is unknown, missing or of the wrong type, or there is no such source.
    """
    return input_of(keys, key, keys.need(key, (str, dict)), known)


def input_of(keys: Keys, key: str, value: Any, known: Sequence[str]) -> InputSpec:
    """Return what a value means, see `parse_input`."""
    inner = Keys(keys.file, f"{keys.where} {key}", {"source": value} if isinstance(value, str) else value, _INPUT)
    source = inner.need("source", str)
    if source not in known:
        raise inner.error(f"there is no source {source!r}", f"The sources are: {', '.join(known)}.")
    return InputSpec(source, inner.get("where", str), inner.texts("select"))


def selected(rows: Any, where: str | None, select: tuple[str, ...]) -> Any:
    """Return the rows that satisfy a condition, with some columns."""
    rows = rows if where is None else rows.where(where)
    return rows.map(_selection(select)) if select else rows


def _selection(columns: tuple[str, ...]) -> Any:
    def select(frame: DataFrame) -> DataFrame:
        return frame.selectExpr(*columns)

    return select
