"""Rows made of other rows in TOML jobs: `[[join]]`, `[[lookup]]` and the like, whose names queries give as source."""

from __future__ import annotations

from collections.abc import Sequence

from transom.jobs.joins import JoinSpec
from transom.jobs.keys import Keys, named_table
from transom.jobs.lookups import LookupSpec
from transom.jobs.rowspec import RowsSpec
from transom.jobs.streams import DeduplicateSpec, UnionSpec

_SPECS: tuple[type[RowsSpec], ...] = (JoinSpec, LookupSpec, DeduplicateSpec, UnionSpec)
KINDS = tuple(spec.kind for spec in _SPECS)
"""Keys of the tables at the top of a file."""


def parse_rows(top: Keys, sources: Sequence[str]) -> tuple[RowsSpec, ...]:
    """Return what the tables describe, each after what it reads.

    Args:
        top: The file.
        sources: Names of the sources.

    Raises:
        JobFileError: A key is unknown, missing or of the wrong type, a name is taken or unknown, or there is a circle.
    """
    tables = [(spec, table) for spec in _SPECS if spec.kind in top.table for table in top.tables(spec.kind)]
    named = [*sources, *(str(table["name"]) for _, table in tables if "name" in table)]
    waiting = [spec.parse(named_table(top.file, spec.kind, table, spec.known), named) for spec, table in tables]
    for spec in waiting:
        if named.count(spec.name) > 1:
            where = f"[[{spec.kind}]] {spec.name!r}"
            raise top.error(
                f"{where}: there is another source of that name", "Names are of one source, join or the like."
            )
    found: list[RowsSpec] = []
    known = set(sources)
    while waiting:
        ready = [spec for spec in waiting if known.issuperset(spec.reads)]
        if not ready:
            circle = ", ".join(repr(spec.name) for spec in waiting)
            raise top.error(f"{circle} read each other in a circle", "Let one of them read a source.")
        found += ready
        known.update(spec.name for spec in ready)
        waiting = [spec for spec in waiting if spec not in ready]
    return tuple(found)
