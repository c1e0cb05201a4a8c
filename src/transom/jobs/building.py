"""Makes an `App` of a job file, through the public interface; also of what the file has more by now, while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from transom.errors import DefinitionError, JobFileError, TransomError
from transom.jobs.jobfile import JobSpec, load_job
from transom.jobs.keys import Keys, standing_in
from transom.jobs.kinds import kinds
from transom.jobs.queries import QuerySpec
from transom.jobs.selections import selected
from transom.jobs.windows import make_window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from transom.api.app import App
    from transom.engine.changes.requests import Change
    from transom.sites.here import LocalSite


class _NoSession:
    """Stands in for a Spark session while a job is only checked; building one asks nothing of it."""

    createDataFrame = None


def check_job(spec: JobSpec, checkpoint: str | None = None, site: LocalSite | None = None) -> None:
    """Find what is wrong with a job that is known without Spark, by building it once for nothing.

    Args:
        spec: The job.
        checkpoint: Directory to use instead of the file's.
        site: The site that this one is, if several run the job.

    Raises:
        DefinitionError: Something in the job cannot work; the message names query and field.
    """
    app = build_job(spec, cast("SparkSession", _NoSession()), checkpoint, site)
    if site is not None:
        site.check(app._definitions(), app.settings)


def build_job(spec: JobSpec, spark: SparkSession, checkpoint: str | None = None, site: LocalSite | None = None) -> App:
    """Return the application of a job, ready to run.

    Args:
        spec: The job.
        spark: The session to run on.
        checkpoint: Directory to use instead of the file's.
        site: The site that this one is, if several run the job.

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
    with standing_in(spec.file, "[settings]"):
        Settings.of(spec.settings)
    app = tm.App(spark, checkpoint=directory, name=spec.name, site=site, **spec.settings)
    queries = _Queries(spec, app)
    for source in spec.sources:
        with standing_in(spec.file, f"[source] {source.name!r}"):
            made = kinds("sources")[source.kind].make(source.reads, **source.options)
            queries.rows[source.name] = app.stream(
                made if site is None else site.source(source.name, made),
                event_time=source.event_time,
                watermark=tm.watermark(**source.watermark),
                name=source.name,
            )
    for made in spec.rows:
        with standing_in(spec.file, f"[[{made.kind}]] {made.name!r}"):
            queries.rows[made.name] = made.add(app, queries.rows)
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
        """The rows of each source, join and the like."""
        self._results: dict[str, Any] = {}
        self._mapped: dict[Any, Any] = {}

    def add(self, query: QuerySpec) -> Change | None:
        """Add a query; None when it has no sink, so that it counts from the first query on that reads it."""
        from transom.windows.aggregates.parse import parse_aggregate

        # Queries with the same filter and columns share one mapped stream, so that it is computed once.
        which = (query.source, query.parent, query.parent_early, query.late_rows_of, query.where, query.select)
        if which not in self._mapped:
            self._mapped[which] = selected(self._seen(query), query.where, query.select)
        rows = self._mapped[which]
        if query.own_stream:
            if not hasattr(self.rows[str(query.source)], "apart"):
                raise DefinitionError(
                    f"own_stream: {query.source!r} is no source but rows made of one.",
                    "Leave it out, or read a source.",
                )
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
        if query.having is not None:
            result = result.having(query.having)
        if query.results:
            result = result.select(**dict(query.results))
        if query.rename:
            result = result.rename(**dict(query.rename))
        if query.fill is not None:
            result = result.fill(query.fill, query.for_at_most)
        if query.within is not None:
            limit, quantile = query.within
            result = result.within(limit, quantile, on_overload=query.on_overload, keep=query.keep)
        change: Change | None = None
        if query.sinks:
            change = result.to([sink.make() for sink in query.sinks], name=query.name)
        self._results[query.name] = result
        return change

    def _seen(self, query: QuerySpec) -> Any:
        """Return the stream that a query reads."""
        if query.parent is not None:
            return self._results[query.parent].results(query.parent, early=query.parent_early)
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
