"""The event time of rows: how it is computed, and which rows have one that can be used."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from transom.engine.spark.columns import TIME, first_line, is_case_sensitive, micros_or_null, to_column
from transom.errors import DefinitionError, SourceError
from transom.model.expression import Expression
from transom.model.time import FIRST_EVENT, LAST_EVENT, Micros
from transom.sources.base import ARRIVAL, CORRUPT, ORIGIN, PARTITION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

NO_TIME, OUT_OF_RANGE, TOO_FAR_AHEAD = "null event time", "event time out of range", "too far ahead"
"""Why a row without a usable event time is a dead letter."""


ARRIVED = "_arrival"
"""Column with the time at which a row arrived in its source, where a stream's rows have it."""


def names_arrival(event_time: Expression) -> bool:
    """Tell whether an event time may be made of the time of arrival."""
    return re.search(rf"(?<![\w.]){ARRIVED}\b", event_time.text) is not None


def with_arrival(given: StructType) -> StructType:
    """Return the columns of a source with the time of arrival, unless they have that name already."""
    from pyspark.sql.types import StructField, StructType, TimestampType

    taken = any(name.lower() == ARRIVED for name in given.names)
    return given if taken else StructType([*given, StructField(ARRIVED, TimestampType())])


def arrived(raw: DataFrame) -> DataFrame:
    """Return the rows of a source with the time of their arrival, unless a column has that name already.

    Raises:
        SourceError: The source does not tell it.
    """
    from pyspark.sql import functions as F

    if any(name.lower() == ARRIVED for name in raw.columns):
        return raw
    if ARRIVAL not in raw.columns:
        raise SourceError(
            f"event_time: {ARRIVED} is not known, since this source does not tell when rows arrived.",
            "Use a time that is in the rows.",
        )
    return raw.withColumn(ARRIVED, F.timestamp_micros(ARRIVAL))


def time_columns(raw: DataFrame, event_time: Expression) -> tuple[Column, Column]:
    """Return the event time of a stream's rows in microseconds, a bigint: as written, and as it is computed.

    They differ for expressions only: what is computed is null where the expression raises.

    Raises:
        DefinitionError: The event time is no timestamp.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    column = to_column(event_time, raw.columns, is_case_sensitive(raw))
    try:
        kind = raw.select(column).schema[0].dataType.typeName()
    except AnalysisException as error:
        raise DefinitionError(
            f"event_time: {event_time.text!r} is not in the stream: {first_line(error)}.",
            f"The columns are {', '.join(raw.columns)}.",
        ) from error
    advice = {
        "long": f'Write event_time="timestamp_millis({event_time.text})" (or timestamp_seconds, timestamp_micros).',
        "integer": f'Write event_time="timestamp_seconds({event_time.text})".',
        "string": f'Write event_time="try_to_timestamp({event_time.text})", or timestamp in the schema.',
    }
    if kind not in ("timestamp", "timestamp_ntz", "date"):
        raise DefinitionError(
            f"event_time: {event_time.text!r} has type {kind}, not timestamp.",
            advice.get(kind, "Give a column or an expression of type timestamp."),
        )
    written = F.unix_micros(column.cast("timestamp"))
    is_column = kind == "timestamp" and event_time.column is None and event_time.text in raw.columns
    return written, written if is_column else micros_or_null(column)


def unusable(ahead: Micros | None) -> dict[str, str]:
    """Return the reasons for which a row's event time cannot be used, each with its SQL condition; one at most holds.

    Args:
        ahead: Largest event time that is believed; None for no bound.
    """
    reasons = {NO_TIME: f"{TIME} IS NULL", OUT_OF_RANGE: f"{TIME} < {FIRST_EVENT}L"}
    if ahead is None:
        reasons[OUT_OF_RANGE] += f" OR {TIME} > {LAST_EVENT}L"
    else:
        reasons[TOO_FAR_AHEAD] = f"{TIME} > {min(ahead, LAST_EVENT)}L"
    return reasons


def believed(ahead: Micros | None) -> str:
    """Return the SQL condition that a row's event time can be used; false, not null, where it is null."""
    last = LAST_EVENT if ahead is None else min(ahead, LAST_EVENT)
    return f"{TIME} IS NOT NULL AND {TIME} BETWEEN {FIRST_EVENT}L AND {last}L"


def good_rows(timed: DataFrame, ahead: Micros | None, columns: Sequence[str]) -> DataFrame:
    """Return the rows that the queries see: parsed, with a time that is not null, in range and not too far ahead.

    Args:
        timed: Rows with TIME.
        ahead: Largest event time that is believed.
        columns: Names of the columns that the source gave.
    """
    condition = believed(ahead)
    if CORRUPT in columns:
        condition = f"{CORRUPT} IS NULL AND {condition}"
    extra = [name for name in (CORRUPT, PARTITION, ARRIVAL, ORIGIN) if name in columns]
    good = timed.where(condition)
    return good.drop(*extra) if extra else good
