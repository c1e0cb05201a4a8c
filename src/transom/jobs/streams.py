"""Streams made of rows that others have given in TOML jobs: `[[deduplicate]]` and `[[union]]` tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from transom.jobs.keys import Keys
from transom.jobs.rowspec import RowsSpec
from transom.jobs.selections import InputSpec, input_of, parse_input

if TYPE_CHECKING:
    from transom.api.app import App


@dataclass(frozen=True)
class DeduplicateSpec(RowsSpec):
    """One `[[deduplicate]]` table."""

    kind: ClassVar[str] = "deduplicate"
    known: ClassVar[tuple[str, ...]] = ("name", "source", "keys", "within")
    source: InputSpec
    keys: tuple[str, ...]
    within: str

    @classmethod
    def parse(cls, keys: Keys, sources: Sequence[str]) -> Self:
        """Return what a table describes."""
        return cls(
            name=keys.need("name", str),
            source=parse_input(keys, "source", sources),
            keys=keys.texts("keys", needed=True),
            within=keys.need("within", str),
        )

    @property
    def reads(self) -> tuple[str, ...]:
        """The one source."""
        return (self.source.source,)

    def add(self, app: App, rows: Mapping[str, Any]) -> Any:
        """Return the stream of first rows."""
        return self.source.of(rows).deduplicate(self.keys, self.within, name=self.name)


@dataclass(frozen=True)
class UnionSpec(RowsSpec):
    """One `[[union]]` table."""

    kind: ClassVar[str] = "union"
    known: ClassVar[tuple[str, ...]] = ("name", "sources")
    sources: tuple[InputSpec, ...]

    @classmethod
    def parse(cls, keys: Keys, sources: Sequence[str]) -> Self:
        """Return the union that a table describes."""
        values = keys.need("sources", list)
        if len(values) < 2:
            raise keys.error("sources: a union has two or more", 'Write for example sources = ["eu", "us"].')
        for value in values:
            if not isinstance(value, (str, dict)):
                raise keys.error(f"sources: {value!r} is neither a name nor a table", 'Write for example ["eu", "us"].')
        return cls(keys.need("name", str), tuple(input_of(keys, "sources", value, sources) for value in values))

    @property
    def reads(self) -> tuple[str, ...]:
        """All sources."""
        return tuple(each.source for each in self.sources)

    def add(self, app: App, rows: Mapping[str, Any]) -> Any:
        """Return the stream of all rows."""
        first, *others = (each.of(rows) for each in self.sources)
        return first.union(*others, name=self.name)
