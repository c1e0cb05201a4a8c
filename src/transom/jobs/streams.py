"""Streams made of rows that others have given in TOML jobs: `[[deduplicate]]` and `[[union]]` tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from transom.jobs.keys import Keys, Table
from transom.jobs.selections import InputSpec, input_of, parse_input

if TYPE_CHECKING:
    from transom.api.app import App

_DEDUPLICATE = ("name", "source", "keys", "within")
_UNION = ("name", "sources")


@dataclass(frozen=True)
class DeduplicateSpec:
    """One `[[deduplicate]]` table."""

    kind: ClassVar[str] = "deduplicate"
    name: str
    source: InputSpec
    keys: tuple[str, ...]
    within: str

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of what it reads."""
        return (self.source.source,)

    def add(self, app: App, rows: Mapping[str, Any]) -> Any:
        """Return the stream."""
        return self.source.of(rows).deduplicate(self.keys, self.within, name=self.name)


@dataclass(frozen=True)
class UnionSpec:
    """One `[[union]]` table."""

    kind: ClassVar[str] = "union"
    name: str
    sources: tuple[InputSpec, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of what it reads."""
        return tuple(each.source for each in self.sources)

    def add(self, app: App, rows: Mapping[str, Any]) -> Any:
        """Return the stream."""
        first, *others = (each.of(rows) for each in self.sources)
        return first.union(*others, name=self.name)


def parse_deduplicate(file: str, table: Table, known: Sequence[str]) -> DeduplicateSpec:
    """Return what a table describes, see `parse_union`."""
    name = table.get("name")
    keys = Keys(file, f"[[deduplicate]] {name!r}" if name else "[[deduplicate]]", table, _DEDUPLICATE)
    return DeduplicateSpec(
        name=keys.need("name", str),
        source=parse_input(keys, "source", known),
        keys=keys.texts("keys", needed=True),
        within=keys.need("within", str),
    )


def parse_union(file: str, table: Table, known: Sequence[str]) -> UnionSpec:
    """Return the union that a table describes.

    Args:
        file: Name of the file, for errors.
        table: The table.
        known: Names of what may be read.

    Raises:
        JobFileError: A key is unknown, missing or of the wrong type, or a source is unknown.
    """
    name = table.get("name")
    keys = Keys(file, f"[[union]] {name!r}" if name else "[[union]]", table, _UNION)
    values = keys.need("sources", list)
    if len(values) < 2:
        raise keys.error("sources: a union has two or more", 'Write for example sources = ["eu", "us"].')
    for value in values:
        if not isinstance(value, (str, dict)):
            raise keys.error(f"sources: {value!r} is neither a name nor a table", 'Write for example ["eu", "us"].')
    sources = tuple(input_of(keys, "sources", value, known) for value in values)
    return UnionSpec(keys.need("name", str), sources)
