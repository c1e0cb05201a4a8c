"""Jobs written as TOML: read, checked key by key, and turned into an `App` through the public interface.

`parse_job` needs no Spark; `build_job` makes the application. Relative paths are relative to the working
directory, not to the file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from transom.errors import DefinitionError, JobFileError, TransomError
from transom.jobs.joins import JoinSpec, add_join, parse_join, selected
from transom.jobs.keys import Keys, Table, standing_in
from transom.jobs.kinds import ANY, SOURCES, Types, kinds
from transom.jobs.queries import QuerySpec, parse_query
from transom.jobs.windows import make_window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from transom.api.app import App
    from transom.engine.changes.requests import Change

_JOB = ("checkpoint", "name", "settings", "source", "join", "query")
_WATERMARK = ("watermark", "idle_after", "max_ahead", "close_on_idle", "from_source")
_COMMON = ("name", "event_time", *_WATERMARK)
_REQUIRED: dict[str, Types] = {"schema": str, "regex": str, "rows_per_second": (int, float), "topic": str}
"""Types of options of sources that must be there."""


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
    joins: tuple[JoinSpec, ...] = ()


def parse_job(text: str, file: str = "job.toml") -> JobSpec:
    """Return the job that a TOML text describes.

    Args:
        text: The TOML text.
        file: Name of the file, for errors.

    Raises:
        JobFileError: It is not TOML, a key is unknown, missing or of the wrong type.
    """
    try:
        job = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise JobFileError(f"{file} is not valid TOML: {error}.", "See https://toml.io for the syntax.") from error
    top = Keys(file, "", job, _JOB)
    tables = top.tables("source")
    sources = tuple(_source(file, table, number, len(tables)) for number, table in enumerate(tables))
    names = [source.name for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise top.error(f"two sources are named {name!r}", "Give each [[source]] a name of its own.")
    joins: tuple[JoinSpec, ...] = ()
    for table in top.tables("join") if "join" in job else ():
        joins += (parse_join(file, table, names),)
        names.append(joins[-1].name)
    queries: tuple[QuerySpec, ...] = ()
    for table in top.tables("query"):
        queries += (parse_query(file, table, names, queries),)
    for query in queries:
        if sum(other.name == query.name for other in queries) > 1:
            raise top.error(f"two queries are named {query.name!r}", "Give each [[query]] a name of its own.")
        if not query.sinks and all(query.name not in (other.parent, other.late_rows_of) for other in queries):
            raise top.error(f"the query {query.name!r} has no sink", 'Add for example sink = {parquet = "out"}.')
    settings = top.get("settings", dict, {})
    return JobSpec(file, sources, queries, top.get("checkpoint", str), top.get("name", str), settings, joins)


def load_job(path: Path) -> JobSpec:
    """Read and parse a TOML job.

    Raises:
        JobFileError: The file cannot be read, or is not a job.
    """
    try:
        return parse_job(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise JobFileError(f"The job file {path} cannot be read: {error}.", "Give the path of a TOML file.") from error


class _NoSession:
    """Stands in for a Spark session while a job is only checked; building one asks nothing of it."""

    createDataFrame = None


def check_job(spec: JobSpec, checkpoint: str | None = None) -> None:
    """Find what is wrong with a job that is known without Spark, by building it once for nothing.

    Args:
        spec: The job.
        checkpoint: Directory to use instead of the file's.

    Raises:
        DefinitionError: Something in the job cannot work; the message names query and field.
    """
    build_job(spec, cast("SparkSession", _NoSession()), checkpoint)


def build_job(spec: JobSpec, spark: SparkSession, checkpoint: str | None = None) -> App:
    """Return the application of a job, ready to run.

    Args:
        spec: The job.
        spark: The session to run on.
        checkpoint: Directory to use instead of the file's.

    Raises:
        DefinitionError: Something in the job cannot work; the message names query and field.
    """
    import transom as tm
    from transom.settings import Settings

    directory = checkpoint or spec.checkpoint
    if directory is None:
        raise JobFileError(
            f"{spec.file} names no checkpoint.",
            'Add checkpoint = "directory" at its top, or give --checkpoint.',
        )
    Keys(spec.file, "[settings]", spec.settings, tuple(one.name for one in fields(Settings)))
    app = tm.App(spark, checkpoint=directory, name=spec.name, **spec.settings)
    queries = _Queries(spec, app)
    for source in spec.sources:
        with standing_in(spec.file, f"[source] {source.name!r}"):
            queries.rows[source.name] = app.stream(
                kinds("sources")[source.kind].make(source.reads, **source.options),
                event_time=source.event_time,
                watermark=tm.watermark(**source.watermark),
                name=source.name,
            )
    for join in spec.joins:
        with standing_in(spec.file, f"[[join]] {join.name!r}"):
            queries.rows[join.name] = add_join(app, join, queries.rows)
    for query in spec.queries:
        with standing_in(spec.file, f"[[query]] {query.name!r}"):
            queries.add(query)
    app._extend_with(queries.extend)
    return app


class _Queries:
    """Makes the queries of a job, those at the start and those that are added while it runs."""

    def __init__(self, spec: JobSpec, app: App) -> None:
        self._file = Path(spec.file).absolute()
        self._app = app
        self.rows: dict[str, Any] = {}
        """Stream of each source and join."""
        self._results: dict[str, Any] = {}
        self._mapped: dict[Any, Any] = {}

    def add(self, query: QuerySpec) -> Change | None:
        """Add a query; None when it has no sink, so that it counts from the first query on that reads it."""
        from transom.windows.aggregates.parse import parse_aggregate

        # Queries with the same filter and columns share one mapped stream, so that it is computed once.
        which = (query.source, query.parent, query.late_rows_of, query.where, query.select)
        if which not in self._mapped:
            self._mapped[which] = selected(self._seen(query), query.where, query.select)
        rows = self._mapped[which]
        if query.own_stream:
            rows = selected(self.rows[str(query.source)].apart(query.name), query.where, query.select)
        if query.rows:
            (sink,) = query.sinks
            written: Change = rows.rows().to(sink.make(), name=query.name, partition_by=query.partition_by)
            return written
        grouped = rows.group_by(*query.group_by)
        windowed = grouped.window(*map(make_window, query.windows), early=query.early, lateness=query.lateness or 0)
        aggregates = [parse_aggregate(text) for text in query.aggregates]
        columns = [column for column, _ in aggregates]
        for column in columns:
            if columns.count(column) > 1:
                raise DefinitionError(f"two aggregates are named {column!r}.", 'Name them, as in "avg(fare) as mean".')
        result = windowed.agg(**dict(aggregates))
        if query.fill is not None:
            result = result.fill(query.fill)
        if query.within is not None:
            result = result.within(query.within[0], quantile=query.within[1])
        change: Change | None = None
        if query.sinks:
            change = result.to([sink.make() for sink in query.sinks], name=query.name)
        self._results[query.name] = result
        return change

    def _seen(self, query: QuerySpec) -> Any:
        """Return the stream that a query reads."""
        if query.parent is not None:
            return self._results[query.parent].results(query.parent)
        if (late := query.late_rows_of) is not None:
            return self._results[late].late_rows(query.watermark, name=late)
        return self.rows[str(query.source)]

    def extend(self, job: str, names: Sequence[str]) -> list[Change]:
        """Add queries that the job file has by now to the running application.

        Args:
            job: Path of the file, which must be the one that the application was started from.
            names: The queries; none for all that the application does not have.

        Raises:
            JobFileError: It is another file, or cannot be read, or lacks a query.
        """
        if Path(job) != self._file:
            raise JobFileError(
                f"add: the application was started from {self._file}, not from {job}.",
                "Add the query to that file, so that a restart has it, too.",
            )
        found = {query.name: query for query in load_job(self._file).queries}
        for name in names:
            if name not in found:
                raise JobFileError(f"add: {self._file} has no query {name!r}.", f"It has {', '.join(found)}.")
        return [self._added(found[name]) for name in names or found if names or name not in self._app.names]

    def _added(self, query: QuerySpec) -> Change:
        """Add a query, and return what becomes of it, also when it cannot work."""
        from transom.engine.changes.requests import Change

        try:
            if query.source is not None and query.source not in self.rows:
                raise JobFileError(
                    f"add: the running application has no source {query.source!r}.", "Stop it, and start it again."
                )
            for read in (query.parent, query.late_rows_of):
                if read is not None and read not in self._app.names:
                    raise JobFileError(
                        f"add: the running application has no query {read!r}, which {query.name!r} reads.",
                        "Stop it, and start it again.",
                    )
            change = self.add(query)
            if change is None:
                raise JobFileError(f"add: the query {query.name!r} has no sink.", "Give it one.")
        except TransomError as error:
            change = Change(query.name, "add")
            change._refuse(error)
        return change


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
    watermark = {key: None if table[key] == "none" else table[key] for key in _WATERMARK[1:] if key in table}
    for key in kind.required:
        keys.need(key, _REQUIRED.get(key, ANY))
    watermark["delay"] = keys.get("watermark", str, "0 seconds")
    return SourceSpec(
        name=keys.get("name", str, f"source{number + 1}" if number else "source"),
        kind=kind.name,
        reads=keys.need(kind.name, kind.takes),
        options={key: _plain(table[key]) for key in options[kind.name] if key in table},
        event_time=keys.need("event_time", str),
        watermark=watermark,
    )


def _plain(value: Any) -> Any:
    """Return dates and times, which TOML has, as the ISO 8601 text that sources take."""
    return value.isoformat() if isinstance(value, date) else value
