"""What an application would run, found out without running it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from transom.engine.execution.known import why_spark
from transom.engine.explain.explain import explain
from transom.engine.explain.explanation import Explanation
from transom.engine.loop.opening import compile_aside
from transom.engine.spark.session import active_session_kept, private_session
from transom.engine.streams.definition import StreamDefinition
from transom.model.time import Clock
from transom.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def explained(
    spark: SparkSession,
    name: str,
    definitions: Sequence[StreamDefinition],
    sinks: Mapping[str, str],
    clock: Clock,
    settings: Settings,
) -> Explanation:
    """Return what will run and what is shared.

    Args:
        spark: The user's session, which stays as it is.
        name: Of the application.
        definitions: Its streams.
        sinks: Where the results of each query go, in one line for people.
        clock: The time.
        settings: Of the application.

    Raises:
        DefinitionError: A query cannot work on its stream.
        SourceError: A source cannot be opened.
    """
    session = private_session(spark)
    with active_session_kept(spark):
        parts, columns = compile_aside(definitions, session, clock, settings.share)
        lanes = {part[0].name: why_spark(session, *part) for part in parts} if settings.lane == "auto" else {}
    planning = {"plan": settings.plan, "max_executors": settings.max_executors}
    return explain(name, parts, sinks, columns, settings.tier, lanes, planning)
