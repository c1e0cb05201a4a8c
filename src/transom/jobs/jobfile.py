"""Jobs written as TOML: read and checked key by key, without Spark; `building` makes an application of one.

Relative paths are relative to the working directory, not to the file.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transom.errors import JobFileError
from transom.jobs.keys import Keys, Table, read_table, standing_in
from transom.jobs.kinds import ANY, SOURCES, kinds
from transom.jobs.queries import QuerySpec, parse_query
from transom.jobs.rows import KINDS, parse_rows
from transom.jobs.rowspec import RowsSpec

_JOB = ("checkpoint", "name", "settings", "source", *KINDS, "query")
_WATERMARK = ("watermark", "idle_after", "max_ahead", "close_on_idle", "absent_after", "from_source")
_COMMON = ("name", "event_time", *_WATERMARK)


@dataclass(frozen=True)
class SourceSpec:
    """One `[source]` table."""

    name: str
    kind: str
    """`files`, `generator` or another one."""
    reads: Any
    """The path or paths of files, the generator's columns, or what else is read."""
    options: Table
    """The other arguments of the source's function."""
    event_time: str
    watermark: Table
    """Arguments of `transom.watermark`, with `delay` first."""


@dataclass(frozen=True)
class JobSpec:
    """A whole job file."""

    file: str
    sources: tuple[SourceSpec, ...]
    queries: tuple[QuerySpec, ...]
    checkpoint: str | None = None
    name: str | None = None
    settings: Table = field(default_factory=dict)
    rows: tuple[RowsSpec, ...] = ()
    """Rows made of those of sources, each after what it reads."""


def parse_job(text: str, file: str = "job.toml") -> JobSpec:
    """Return the job that a TOML text describes.

    Args:
        text: The TOML text.
        file: Name of the file, for errors.

    Raises:
        JobFileError: It is not TOML, a key is unknown, missing or of the wrong type.
    """
    try:
        job = read_table(text)
    except tomllib.TOMLDecodeError as error:
        raise JobFileError(f"{file} is not valid TOML: {error}.", "See https://toml.io for the syntax.") from error
    top = Keys(file, "", job, _JOB)
    tables = top.tables("source")
    sources = tuple(_source(file, table, number, len(tables)) for number, table in enumerate(tables))
    names = [source.name for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise top.error(f"two sources are named {name!r}", "Give each [[source]] a name of its own.")
    rows = parse_rows(top, names)
    names += [each.name for each in rows]
    queries: tuple[QuerySpec, ...] = ()
    for table in top.tables("query"):
        queries += (parse_query(file, table, names, queries),)
    for query in queries:
        if sum(other.name == query.name for other in queries) > 1:
            raise top.error(f"two queries are named {query.name!r}", "Give each [[query]] a name of its own.")
        if not query.sinks and all(query.name not in (other.parent, other.late_rows_of) for other in queries):
            raise top.error(f"the query {query.name!r} has no sink", 'Add for example sink = {parquet = "out"}.')
    settings = top.get("settings", dict, {})
    return JobSpec(file, sources, queries, top.get("checkpoint", str), top.get("name", str), settings, rows)


def load_job(path: Path) -> JobSpec:
    """Read and parse a TOML job.

    Raises:
        JobFileError: The file cannot be read, or is not a job.
    """
    try:
        return parse_job(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise JobFileError(f"The job file {path} cannot be read: {error}.", "Give the path of a TOML file.") from error


def _source(file: str, table: Table, number: int, count: int) -> SourceSpec:
    where = f"[source] number {number + 1}" if count > 1 else "[source]"
    where = f"[source] {table['name']!r}" if "name" in table else where
    known = kinds("sources")
    named = [known[name] for name in table if name in known]
    with standing_in(file, where):
        options = {name: kind.options for name, kind in known.items() if name in SOURCES or kind in named}
    keys = Keys(file, where, table, (*_COMMON, *known, *(key for some in options.values() for key in some)))
    if len(named) != 1:
        raise keys.error(f"it needs one of {', '.join(known)}", 'Write for example files = "trips/*.json".')
    kind = named[0]
    for key in table:
        if key not in (*_COMMON, kind.name, *options[kind.name]):
            raise keys.error(f"the key {key!r} does not go with {kind.name}", "Remove it.")
    # TOML has no null; "none" lifts a bound that is there by default.
    durations = {key: keys.get(key, (str, int)) for key in _WATERMARK[1:-1] if key in table}
    watermark: dict[str, Any] = {key: None if value == "none" else value for key, value in durations.items()}
    if "from_source" in table:
        watermark["from_source"] = keys.get("from_source", bool)
    for key in kind.required:
        keys.need(key, ANY)
    watermark["delay"] = keys.get("watermark", str, "0 seconds")
    return SourceSpec(
        name=keys.get("name", str, f"source{number + 1}" if number else "source"),
        kind=kind.name,
        reads=kind.argument(keys),
        options=kind.given(keys),
        event_time=keys.need("event_time", str),
        watermark=watermark,
    )
