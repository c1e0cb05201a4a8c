"""Rows made of other rows in TOML jobs: `[[join]]`, `[[lookup]]` and the like, whose names queries give as source."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transom.jobs.joins import JoinSpec, parse_join
from transom.jobs.keys import Keys, Table
from transom.jobs.lookups import LookupSpec, parse_lookup
from transom.jobs.streams import DeduplicateSpec, UnionSpec, parse_deduplicate, parse_union

RowsSpec = JoinSpec | LookupSpec | DeduplicateSpec | UnionSpec
_PARSERS: dict[str, Callable[[str, Table, Sequence[str]], RowsSpec]] = {
    "join": parse_join,
    "lookup": parse_lookup,
    "deduplicate": parse_deduplicate,
    "union": parse_union,
}
KINDS = tuple(_PARSERS)
"""Keys of the tables at the top of a file."""


def parse_rows(top: Keys, sources: Sequence[str]) -> tuple[RowsSpec, ...]:
    """Return what the tables describe, each after what it reads.

    Args:
        top: The file.
        sources: Names of the sources.

    Raises:
        JobFileError: A key is unknown, missing or of the wrong type, a name is taken or unknown, or there is a circle.
    """
    tables = [(kind, table) for kind in KINDS if kind in top.table for table in top.tables(kind)]
    named = [*sources, *(str(table["name"]) for _, table in tables if "name" in table)]
    waiting = [_PARSERS[kind](top.file, table, named) for kind, table in tables]
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
