"""From streams as defined to streams that run, or that can be explained; parents are opened before children."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from transom.checkpoint.store import Checkpoint
from transom.engine.changes.records import Register, streams_begun
from transom.engine.cluster.merges import GroupExecutors, Here
from transom.engine.cluster.merging import SparkGroupExecutors, usual_groups
from transom.engine.execution.workers import wake_workers
from transom.engine.loop.unstartable import orphans, unstartable, without
from transom.engine.spark.columns import TIME
from transom.engine.spark.compile import Compiled, compile_queries
from transom.engine.spark.deadletters import DIRECTORY as LETTERS
from transom.engine.spark.deadletters import Letters
from transom.engine.spark.session import is_ansi
from transom.engine.streams.definition import StreamDefinition
from transom.engine.streams.feed import OUTSIDE
from transom.engine.streams.stream import RunningStream
from transom.engine.streams.tableversions import COPIES
from transom.errors import CheckpointError, JobChangedError, SourceError
from transom.model.sessions import is_connect
from transom.model.time import Clock
from transom.settings import Settings
from transom.sources.base import Source
from transom.sources.shared import SourceReader
from transom.storage.hadoop import require_spark_reads
from transom.windows.operators import Schema
from transom.windows.query import WindowedQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FILES = "files"
"""Directory of the checkpoint with partials that are in files, by stream."""
SOURCES = "sources"
"""Directory of the checkpoint with what sources keep, by the stream that each belongs to."""


def open_streams(
    definitions: Sequence[StreamDefinition],
    session: SparkSession,
    checkpoint: Checkpoint,
    clock: Clock,
    settings: Settings,
    closes_all: bool,
) -> tuple[dict[str, RunningStream], dict[str, str]]:
    """Return the streams, ready for recovery, and the queries that failed earlier and cannot be compiled any more.

    Args:
        definitions: The streams with queries, parents first.
        session: Transom's Spark session.
        checkpoint: Open checkpoint; sources and dead letters get directories in it.
        clock: The time.
        settings: Whether queries share partials; number of key groups, and the memory for partials in files.
        closes_all: Close at the end of the input also the windows that the watermark has not reached.

    Returns:
        The streams by name; the queries with the reason.

    Raises:
        DefinitionError: A query cannot work on its stream.
        SourceError: A source cannot be opened.
        CheckpointError: Spark cannot write where the checkpoint is.
    """
    streams: dict[str, RunningStream] = {}
    lost: dict[str, str] = {}
    if settings.lane == "auto":
        wake_workers(session, [definition.source for definition in definitions])
    require_spark_reads(session, checkpoint.path, "checkpoint", CheckpointError)
    share = settings.share
    saved = checkpoint.snapshot.state if checkpoint.snapshot else {}
    known = Register.at_end(saved, checkpoint.records).known
    begun = streams_begun(saved, checkpoint.records) | {query.stream for query in known.values()}
    _require_sources(definitions, begun, checkpoint)
    _forget_sources(definitions, begun, checkpoint)
    for definition in definitions:
        source = definition.source
        if missing := orphans(definition, lost):
            lost.update(missing)
            continue
        definition.feed.learn({name: (stream.definition, stream.compiled) for name, stream in streams.items()}, session)
        source.open(session, checkpoint.directory(SOURCES, definition.source_name), clock)
        if definition.rows_of is not None:
            definition = replace(definition, columns=_schema(definition.rows_of, session, clock))
        compiles = partial(_compiled, session, definition, share)
        if missing := unstartable(definition, known, compiles):
            lost.update(missing)
            definition = without(definition, missing)
        letters = Letters(checkpoint.directory(LETTERS, definition.name), checkpoint.check_writer)
        if definition.name not in begun:
            letters = replace(letters, earlier=letters.last())
        files = checkpoint.directory(FILES, definition.name)
        tables = partial(checkpoint.directory, COPIES, definition.name)
        executors: GroupExecutors = Here(files)
        if not is_connect(session):
            groups = settings.key_groups or usual_groups(session, settings.max_executors or 0)
            worker, driver = settings.worker_bytes, settings.driver_bytes
            executors = SparkGroupExecutors(session, files, clock, groups, worker, driver)
        mine = {name: query.definition for name, query in known.items() if query.stream == definition.name}
        stream = RunningStream(
            definition,
            session,
            is_ansi(session),
            letters,
            clock.now(),
            share,
            executors,
            mine,
            closes_all and definition.leaving is None,
            tables,
        )
        streams[definition.name] = stream
        stream.feed.bind(stream, streams)
        if isinstance(source, SourceReader):
            source.needed = stream.needed
    return streams, lost


def _require_sources(definitions: Sequence[StreamDefinition], begun: Set[str], checkpoint: Checkpoint) -> None:
    """Refuse a stream whose source belonged to one that has left the job: what it keeps would not be found.

    In a store there are no empty directories, so what is missing there is only known to the source.

    Args:
        definitions: The streams.
        begun: Those that the checkpoint knows.
        checkpoint: The checkpoint.

    Raises:
        JobChangedError: There is one.
    """
    if not isinstance(checkpoint.path, Path):
        return
    there, left = set(checkpoint.names_in(SOURCES)), checkpoint.others_in(SOURCES, [d.source_name for d in definitions])
    for each in definitions if left else ():
        known = each.feed is OUTSIDE and each.name in begun
        if known and checkpoint.others_in(SOURCES, [each.source_name]) == there:
            raise JobChangedError(
                f"The stream {each.name!r} read its source together with one that is not in the job any more, and what "
                "the source keeps in the checkpoint is under the name of that one.",
                f"Leave that one in the job, one of {', '.join(sorted(left))}; or start with a new checkpoint.",
            )


def _forget_sources(definitions: Sequence[StreamDefinition], begun: Set[str], checkpoint: Checkpoint) -> None:
    """Remove what sources of streams keep that are new to the checkpoint: it is of earlier streams of their names.

    Those may have read something else, and files that they have read may be gone. Rows that streams keep of others are
    named by the log, or removed by who keeps them.

    Args:
        definitions: The streams.
        begun: Those that the checkpoint knows.
        checkpoint: The checkpoint.
    """
    new = {each.source_name for each in definitions if each.feed is OUTSIDE}
    for name in new - {each.source_name for each in definitions if each.name in begun}:
        checkpoint.clear(SOURCES, name)


def _compiled(session: SparkSession, definition: StreamDefinition, share: bool, query: WindowedQuery) -> Compiled:
    return compile_queries(session, definition.schema, definition.rows, [query], share)


def compile_aside(
    definitions: Sequence[StreamDefinition], session: SparkSession, clock: Clock, share: bool
) -> tuple[list[tuple[StreamDefinition, Compiled]], Mapping[str, Schema]]:
    """Return the streams with their queries compiled, and the columns of each; no checkpoint is needed.

    Args:
        definitions: The streams with queries, parents first.
        session: Transom's Spark session.
        clock: The time.
        share: Whether queries share partials.

    Raises:
        DefinitionError: A query cannot work on its stream.
        SourceError: A source cannot be opened.
    """
    parts: list[tuple[StreamDefinition, Compiled]] = []
    columns: dict[str, Schema] = {}
    for definition in definitions:
        definition.feed.learn({part[0].name: part for part in parts}, session)
        definition.feed.check(definition.rows, definition.queries, session)
        schema = _schema(definition.source, session, clock)
        columns[definition.name] = tuple((f.name, f.dataType.simpleString()) for f in schema if f.name != TIME)
        parts.append((definition, compile_queries(session, schema, definition.rows, definition.queries, share)))
    return parts, columns


def _schema(source: Source, session: SparkSession, clock: Clock) -> StructType:
    """Return a source's schema; opens it aside when it does not know it before, as a generator does not."""
    try:
        return source.schema
    except SourceError:
        with tempfile.TemporaryDirectory(prefix="transom-explain-") as directory:
            try:
                source.open(session, Path(directory), clock)
                return source.schema
            finally:
                source.close()
