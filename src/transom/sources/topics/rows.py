"""The records of ranges of partitions as rows, by Spark's batch reader with explicit offsets."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from transom.errors import SourceError
from transom.model.formats import Format
from transom.model.sessions import is_connect, java_class
from transom.sources.base import ARRIVAL, CORRUPT, ORIGIN, PARTITION
from transom.sources.filesets.jsonlines import LINE, parse_json
from transom.sources.schemas import as_struct
from transom.sources.topics.book import Part

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

ABOUT = "_kafka"
ABOUT_TYPE = (
    "struct<key: binary, headers: array<struct<key: string, value: binary>>, topic: string, partition: int, "
    "offset: bigint, timestamp: timestamp>"
)
TOMBSTONE = "null (a message without a value)"
_RECORDS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
_HEADERS = ", headers array<struct<key: string, value: binary>>"
_VALUE, _TEXT, _ROW = "_source_value", "_source_text", "_source_row"
_END = b"Transom's end".hex()
"""Comes after a payload of Avro, to see that nothing else does."""


def schema_of(format: Format, about: bool) -> StructType:
    """Return the columns of the rows; needs a Spark session where the schema is text."""
    from pyspark.sql.types import StructField, StructType

    if format.kind == "text":
        columns = as_struct("value string")
    elif format.kind == "raw":
        columns = as_struct("key binary, value binary")
    elif format.kind == "avro":
        columns = _avro_schema(str(format.schema))
    else:
        assert format.schema is not None
        columns = as_struct(format.schema)
    columns = StructType([StructField(each.name, each.dataType, True) for each in columns.fields])
    return columns.add(ABOUT, as_struct(f"x {ABOUT_TYPE}")["x"].dataType, True) if about else columns


def read_ranges(
    spark: SparkSession,
    ranges: Sequence[tuple[Part, int, int]],
    index_of: Mapping[str, int],
    settings: Mapping[str, str],
    about: bool,
) -> DataFrame:
    """Return the records of some ranges, as Spark's reader gives them, and PARTITION.

    Args:
        spark: The session.
        ranges: Partition, first offset, offset after the last; those of a partition in order.
        index_of: Indices of partitions by their names.
        settings: Options of the reader.
        about: Whether headers are wanted.

    Raises:
        SourceError: The session lacks Spark's Kafka module.
    """
    if not ranges:
        return _no_records(spark)
    fixed = {**settings, "failOnDataLoss": "true", "includeHeaders": str(about).lower()}
    frames = []
    for some in _rounds(ranges):
        records = _load(spark, {**fixed, **_assigned(some)})
        frames.append(records.withColumn(PARTITION, _index([part for part, _, _ in some], index_of)))
    return functools.reduce(lambda a, b: a.unionByName(b), frames)


def _rounds(ranges: Sequence[tuple[Part, int, int]]) -> list[list[tuple[Part, int, int]]]:
    """Return ranges in groups with at most one of each partition, which is what Spark's reader takes."""
    rounds: list[list[tuple[Part, int, int]]] = []
    seen: dict[str, int] = {}
    for each in ranges:
        number = seen[each[0].key] = seen.get(each[0].key, -1) + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(each)
    return rounds


def _assigned(ranges: Sequence[tuple[Part, int, int]]) -> dict[str, str]:
    """Return the options of Spark's reader that say which ranges it reads."""
    assign: dict[str, list[int]] = {}
    begins: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for part, begin, end in ranges:
        assign.setdefault(part.topic, []).append(part.partition)
        begins.setdefault(part.topic, {})[str(part.partition)] = begin
        ends.setdefault(part.topic, {})[str(part.partition)] = end
    return {
        "assign": json.dumps(assign),
        "startingOffsets": json.dumps(begins),
        "endingOffsets": json.dumps(ends),
    }


def _no_records(spark: SparkSession) -> DataFrame:
    """Return no records, with their columns."""
    from pyspark.sql import functions as F

    columns = as_struct(_RECORDS + _HEADERS)
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in columns.fields]
    return spark.range(0, 0, 1, 1).select(*nulls, F.lit(0).cast("int").alias(PARTITION))


def _load(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return what Spark's reader gives.

    Raises:
        SourceError: The session lacks Spark's Kafka module.
    """
    from pyspark.errors import AnalysisException

    try:
        return spark.read.format("kafka").options(**options).load()
    except AnalysisException as error:
        if "DATA_SOURCE_NOT_FOUND" not in str(error) and "Failed to find data source: kafka" not in str(error):
            raise
        raise SourceError(
            "kafka: the Spark session has no Kafka module.",
            "Make it with tm.session_builder(kafka=True), or give spark-submit the --packages of the guide.",
        ) from None


def has_kafka(session: SparkSession) -> bool:
    """Tell whether a session has Spark's Kafka module; it is taken for true on Spark Connect, which nobody can ask."""
    from py4j.java_gateway import JavaClass

    if is_connect(session):
        return True
    return isinstance(java_class(session, "org.apache.spark.sql.kafka010.KafkaSourceProvider"), JavaClass)


def _index(parts: Sequence[Part], index_of: Mapping[str, int]) -> Column:
    """Return the index of the partition of a record, by lists of indices for each topic."""
    from pyspark.sql import functions as F

    lists: dict[str, dict[int, int]] = {}
    for part in parts:
        lists.setdefault(part.topic, {})[part.partition] = index_of[part.key]
    cases = []
    for topic, known in lists.items():
        indices = ", ".join(str(known.get(number, -1)) for number in range(max(known) + 1))
        cases.append(f"WHEN '{topic}' THEN array({indices})[partition]")
    return F.expr(f"CASE topic {' '.join(cases)} ELSE -1 END")


def rows_of(records: DataFrame, format: Format, schema: StructType, about: bool, keep_tombstones: bool) -> DataFrame:
    """Return records as rows of the schema, with the optional columns.

    Args:
        records: What `read_ranges` returned.
        format: How the payloads are written.
        schema: What `schema_of` returned.
        about: Whether the rows have what is known of each message.
        keep_tombstones: Whether messages without a value are rows or dead letters; else they are left out.
    """
    from pyspark.sql import functions as F

    if not keep_tombstones:
        records = records.where("value IS NOT NULL")
    extra = [F.expr(f"unix_micros(timestamp) AS {ARRIVAL}"), F.col(PARTITION)]
    extra.append(F.struct("topic", "partition", "offset").alias(ORIGIN))
    if about:
        extra.append(F.struct("key", "headers", "topic", "partition", "offset", "timestamp").alias(ABOUT))
    kept = [ARRIVAL, PARTITION, ORIGIN, *([ABOUT] if about else [])]
    names = [name for name in schema.names if name != ABOUT or not about]
    if format.kind == "raw":
        rows = records.select("key", "value", *extra)
        corrupt = F.lit(None).cast("string")
    else:
        held = records.select(F.col("value").alias(_VALUE), *extra)
        rows, corrupt = _parsed(held, format, schema, names, kept)
    shown = [F.col(f"`{name.replace('`', '``')}`") for name in names]
    out = [*shown, *([F.col(ABOUT)] if about else []), corrupt.alias(CORRUPT)]
    return rows.select(*out, PARTITION, ARRIVAL, ORIGIN)


def _parsed(
    held: DataFrame, format: Format, schema: StructType, names: Sequence[str], kept: Sequence[str]
) -> tuple[DataFrame, Column]:
    """Return the rows with their columns, and the text of those that cannot be parsed."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructType

    columns = StructType([field for field in schema.fields if field.name in names])
    text = F.col(_VALUE).cast("string")
    gone = F.when(F.col(_VALUE).isNull(), F.lit(TOMBSTONE))
    if format.kind == "json":
        rows = parse_json(held.select(text.alias(LINE), _VALUE, *kept), columns, format.options, [_VALUE, *kept])
        return rows, F.coalesce(gone, F.col(CORRUPT))
    if format.kind == "text":
        rows = held.select(text.alias("value"), _VALUE, *kept)
        bad = F.when(~F.expr("is_valid_utf8(value)"), F.expr("make_valid_utf8(value)"))
        return rows, F.coalesce(gone, bad)
    if format.kind == "csv":
        parsing = {**format.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        whole = StructType([*columns.fields]).add(CORRUPT, StringType(), True)
        made = F.from_csv(F.col(_TEXT), _ddl(whole), parsing)
        rows = held.select(text.alias(_TEXT), _VALUE, *kept).withColumn(_ROW, made)
        row = F.col(_ROW)
        sound = F.expr(f"is_valid_utf8({_TEXT})") & row.isNotNull() & row.getField(CORRUPT).isNull()
        if len(names) > 1:  # Spark makes nulls of an empty line, which has one column
            sound &= F.col(_TEXT) != ""
    else:
        rows = held.select(F.base64(_VALUE).alias(_TEXT), _VALUE, *kept).withColumn(_ROW, _from_avro(format))
        row = F.col(_ROW).getField("row")
        sound = F.col(_ROW).getField("end") == F.expr(f"X'{_END}'")
    bad = F.when(~F.coalesce(sound, F.lit(False)), F.expr(f"make_valid_utf8({_TEXT})"))
    fields = [row.getField(name).alias(name) for name in names]
    return rows.select(*fields, F.coalesce(gone, bad).alias(CORRUPT), *kept), F.col(CORRUPT)


def _ddl(columns: StructType) -> str:
    return ", ".join(f"`{field.name.replace('`', '``')}` {field.dataType.simpleString()}" for field in columns.fields)


def _from_avro(format: Format) -> Column:
    """Return the payload as a struct of `row` and `end`, which is `_END` for one that is a record and nothing else.

    Of a record that it cannot read Spark makes a row of nulls, as if that had been sent, and what is behind a record it
    leaves out. So the payload is read as an array of one element, the record and an end: without either it is null.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    value = f"substr({_VALUE}, {format.skip + 1})" if format.skip else _VALUE
    end = f'{{"type": "fixed", "name": "transom_end", "size": {len(_END) // 2}}}'
    fields = f'[{{"name": "row", "type": {format.schema}}}, {{"name": "end", "type": {end}}}]'
    message = f'{{"type": "record", "name": "transom_message", "fields": {fields}}}'
    one = F.expr(f"concat(X'02', {value}, X'{_END}00')")
    return from_avro(one, f'{{"type": "array", "items": {message}}}', {"mode": "PERMISSIVE"})[0]


def _avro_schema(schema: str) -> StructType:
    """Return the columns of an Avro schema, as Spark has them.

    Raises:
        SourceError: There is no session yet, or it lacks Spark's Avro module.
        DefinitionError: It is no schema of a record.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro
    from pyspark.sql.types import StructType

    from transom.errors import DefinitionError

    spark = SparkSession.getActiveSession()
    if spark is None:
        raise SourceError("kafka: an Avro schema can only be read with a Spark session.", "Start Spark first.")
    try:
        found = spark.range(0).select(from_avro(F.lit(b""), schema).alias("x")).schema["x"].dataType
    except (PySparkException, TypeError) as error:
        if "avro" in str(error).lower() and "schema" not in str(error).lower().replace("org.apache.spark.sql.avro", ""):
            raise SourceError(
                "kafka: the Spark session has no Avro module (spark-avro).",
                "Make it with tm.session_builder(kafka=True), or give spark-submit the --packages of the guide.",
            ) from None
        raise DefinitionError(
            f"avro: the schema cannot be read: {str(error).splitlines()[0]}.", "Give Avro's JSON."
        ) from None
    if not isinstance(found, StructType):
        raise DefinitionError(f"avro: the schema is that of {found.simpleString()}, not of a record.", "Give a record.")
    return found
