"""Lookups in TOML jobs: `[[lookup]]` tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from transom.jobs.keys import Keys
from transom.jobs.rowspec import RowsSpec
from transom.jobs.selections import InputSpec, parse_input

if TYPE_CHECKING:
    from transom.api.app import App

_TABLES = ("parquet", "delta", "sql")


@dataclass(frozen=True)
class LookupSpec(RowsSpec):
    """One `[[lookup]]` table."""

    kind: ClassVar[str] = "lookup"
    known: ClassVar[tuple[str, ...]] = ("name", "source", "table", "on", "how", "refresh")
    source: InputSpec
    table: tuple[str, str]
    """Its kind, and what of that kind."""
    on: tuple[str, ...]
    how: str = "inner"
    refresh: str | None = None

    @classmethod
    def parse(cls, keys: Keys, sources: Sequence[str]) -> Self:
        """Return the lookup that a table describes."""
        inner = keys.need("table", dict)
        where = Keys(keys.file, f"{keys.where} table", inner, _TABLES)
        if len(inner) != 1:
            raise where.error("it needs one table", 'Write for example table = {parquet = "zones"}.')
        (kind,) = inner
        return cls(
            name=keys.need("name", str),
            source=parse_input(keys, "source", sources),
            table=(kind, where.need(kind, str)),
            on=keys.texts("on", needed=True),
            how=keys.get("how", str, "inner"),
            refresh=keys.get("refresh", str),
        )

    @property
    def reads(self) -> tuple[str, ...]:
        """The one source."""
        return (self.source.source,)

    def add(self, app: App, rows: Mapping[str, Any]) -> Any:
        """Return the rows with what was found."""
        import transom as tm

        kind, argument = self.table
        table = getattr(tm.tables, kind)(argument)
        seen = self.source.of(rows)
        return seen.lookup(table, self.on, how=self.how, refresh=self.refresh, name=self.name)
