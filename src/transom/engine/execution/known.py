"""Which streams' partials are made without Spark SQL, or why they are not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from transom.engine.spark.columns import quoted
from transom.engine.spark.compile import Compiled
from transom.engine.spark.lane import lane_plan
from transom.engine.spark.laneplan import LanePlan
from transom.engine.spark.lanesettings import setting_of
from transom.engine.spark.programs import OnlySparkError, empty_rows, runner_of
from transom.engine.streams.definition import StreamDefinition
from transom.model.sessions import is_connect
from transom.native import parquet
from transom.native.dialects import Dialect
from transom.native.evaluate import Runner
from transom.native.schedules import EVENT_TIME, ID
from transom.native.values import is_readable
from transom.sources.base import PlainFormat, Source
from transom.sources.filesets.source import FileSource
from transom.sources.generated import GeneratorSource
from transom.sources.inmemory import MemorySource
from transom.sources.shared import source_of
from transom.sources.topics.rows import has_kafka
from transom.sources.topics.source import KafkaSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def known_plan(session: SparkSession, definition: StreamDefinition, compiled: Compiled) -> LanePlan:
    """Return how partials of a stream's queries are made without Spark SQL.

    Raises:
        OnlySparkError: They are not; says why.
    """
    source = source_of(definition.source)
    form = _form_of(session, source)
    if form is None and not has_rows(source) and not is_generator(source):
        what = source.only_spark_reads if isinstance(source, FileSource) else source.describe()
        raise OnlySparkError(f"it reads {what}")
    if not is_connect(session) and (setting := setting_of(session, _settings_of(source, form))):
        raise OnlySparkError(f"only Spark knows what {setting} changes")
    plan = lane_plan(session, definition.schema, definition.rows, compiled)
    if isinstance(source, GeneratorSource):
        return replace(plan, made=_maker(session, source, plan))
    is_read = parquet.is_read if form == "parquet" else is_readable
    if form is not None and (unknown := [f"{f.name} ({f.type})" for f in plan.columns if not is_read(f.type)]):
        raise OnlySparkError(f"only Spark reads {', '.join(unknown)}")
    return plan


def why_spark(session: SparkSession, definition: StreamDefinition, compiled: Compiled) -> str | None:
    """Return why partials of a stream's queries are made by Spark SQL, in plain words; None where they are not."""
    try:
        known_plan(session, definition, compiled)
    except OnlySparkError as reason:
        return str(reason)
    return None


def _form_of(session: SparkSession, source: Source) -> PlainFormat | None:
    """Return the format of what a source reads, where it is read without Spark.

    Raises:
        OnlySparkError: It is not, and it is known why.
    """
    if isinstance(source, KafkaSource):
        if (why := source.why_spark) is not None:
            raise OnlySparkError(why)
        if not has_kafka(session):  # which says what to do
            raise OnlySparkError("the Spark session has no Kafka module, which reads what is in doubt")
        return "json"
    return source.plain_format if isinstance(source, FileSource) else None


def _settings_of(source: Source, form: PlainFormat | None) -> list[str]:
    """Return the first words of settings that matter to what is read, besides those of all."""
    topics = ["kafka"] if isinstance(source, KafkaSource) else []
    return topics if form is None else [*topics, "csv" if isinstance(form, Dialect) else form]


def has_rows(source: Source) -> bool:
    """Tell whether the rows of a source are in memory, as it gives them to Spark."""
    return isinstance(source, MemorySource) and type(source).read is MemorySource.read


def is_generator(source: Source) -> bool:
    """Tell whether the rows of a source are those of a generator, made by its expressions."""
    return isinstance(source, GeneratorSource) and type(source).read is GeneratorSource.read


def _maker(session: SparkSession, source: GeneratorSource, plan: LanePlan) -> Runner:
    """Return what makes the columns of a generator that a plan needs; one at least, for the number of rows.

    Raises:
        OnlySparkError: Only Spark computes one.
    """
    from pyspark.sql.types import LongType, StructField, StructType, TimestampType

    numbers = empty_rows(
        session, StructType([StructField(ID, LongType(), False), StructField(EVENT_TIME, TimestampType(), False)])
    )
    if not plan.columns.names:
        raise OnlySparkError("its rows have no columns")
    needed = [name for name in plan.columns.names if name in plan.wanted]
    return runner_of(source.over(numbers).select(*map(quoted, needed or plan.columns.names[:1])), numbers)
