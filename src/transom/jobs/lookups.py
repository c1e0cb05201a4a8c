"""Lookups in TOML jobs: `[[lookup]]` tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from transom.jobs.keys import Keys, Table
from transom.jobs.selections import InputSpec, parse_input

if TYPE_CHECKING:
    from transom.api.app import App

_KEYS = ("name", "source", "table", "on", "how", "refresh")
_TABLES = ("parquet", "delta", "sql")


@dataclass(frozen=True)
class LookupSpec:
    """One `[[lookup]]` table."""

    kind: ClassVar[str] = "lookup"
    name: str
    source: InputSpec
    table: tuple[str, str]
    """Its kind, and what of that kind."""
    on: tuple[str, ...]
    how: str = "inner"
    refresh: str | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of what it reads."""
        return (self.source.source,)

    def add(self, app: App, rows: Mapping[str, Any]) -> Any:
        """Return the rows."""
        import transom as tm

        kind, argument = self.table
        table = getattr(tm.tables, kind)(argument)
        seen = self.source.of(rows)
        return seen.lookup(table, self.on, how=self.how, refresh=self.refresh, name=self.name)


def parse_lookup(file: str, table: Table, known: Sequence[str]) -> LookupSpec:
    """Return the lookup that a table describes.

    Args:
        file: Name of the file, for errors.
        table: The table.
        known: Names of what may be read.

    Raises:
        JobFileError: A key is unknown, missing or of the wrong type, or a source is unknown.
    """
    name = table.get("name")
    keys = Keys(file, f"[[lookup]] {name!r}" if name else "[[lookup]]", table, _KEYS)
    inner = keys.need("table", dict)
    where = Keys(file, f"{keys.where} table", inner, _TABLES)
    if len(inner) != 1:
        raise where.error("it needs one table", 'Write for example table = {parquet = "zones"}.')
    (kind,) = inner
    return LookupSpec(
        name=keys.need("name", str),
        source=parse_input(keys, "source", known),
        table=(kind, where.need(kind, str)),
        on=keys.texts("on", needed=True),
        how=keys.get("how", str, "inner"),
        refresh=keys.get("refresh", str),
    )
