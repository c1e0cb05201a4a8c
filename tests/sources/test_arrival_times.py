"""The time of arrival as a column: in event times, and in what queries see of the rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import transom as tm
from transom.errors import SourceError
from transom.model.time import ManualClock
from transom.sources.inmemory import MemorySource

NOON = 1_772_366_400_000_000  # 2026-03-01 12:00:00 UTC
SECOND = 1_000_000


@pytest.mark.parametrize("as_column", [False, True])
def test_rows_without_a_time_have_that_of_their_file(spark: SparkSession, tmp_path: Path, as_column: bool) -> None:
    for number, ts in enumerate(['"2026-03-01T11:00:05Z"', "null"]):
        file = tmp_path / f"{number}.json"
        file.write_text(f'{{"k": "{number}", "ts": {ts}}}\n')
        os.utime(file, (NOON // SECOND + number, NOON // SECOND + number))
    app = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(NOON + 60 * SECOND))
    source = tm.sources.files(str(tmp_path / "*.json"), schema="k string, ts timestamp")
    time: Any = F.coalesce(F.col("ts"), F.col("_arrival")) if as_column else "coalesce(ts, _arrival)"
    rows = app.stream(source, event_time=time, watermark=tm.watermark("1 hour", max_ahead=None))
    late = rows.where("ts IS NULL OR _arrival > ts + INTERVAL 10 MINUTES")
    sink = tm.sinks.memory()
    late.group_by("k").window("1 hour").agg(arrived=tm.max("unix_micros(_arrival)")).to(sink, "q")
    progress = app.run(once=True, close_all=True)
    assert progress.queries[0].failure is None
    found = {row["k"]: (row["window_start"].hour, row["arrived"]) for row in sink.rows("q")}
    assert found == {"0": (11, NOON), "1": (12, NOON + SECOND)}


def test_a_source_that_does_not_tell(spark: SparkSession, tmp_path: Path) -> None:
    class Silent(MemorySource):
        def read(self, *args: Any) -> DataFrame:
            return super().read(*args).drop("_source_arrival")

    source = Silent(spark.createDataFrame([], "k string, ts timestamp").schema, 1)
    source.add([("a", None)])
    app = tm.App(spark, tmp_path / "checkpoint")
    rows = app.stream(source, event_time="coalesce(ts, _arrival)")
    rows.window("1 hour").agg(n=tm.count()).to(tm.sinks.memory(), "q")
    with pytest.raises(SourceError, match="_arrival is not known, since this source does not tell when rows arrived"):
        app.run(once=True)


def test_a_column_of_that_name_stays_what_it_is(spark: SparkSession, tmp_path: Path) -> None:
    source, sink = tm.sources.memory("_arrival timestamp"), tm.sinks.memory()
    source.add([(None,)])
    app = tm.App(spark, tmp_path / "checkpoint")
    app.stream(source, event_time="_arrival").window("1 hour").agg(n=tm.count()).to(sink, "q")
    progress = app.run(once=True, close_all=True)
    assert progress.streams[0].dead_letters == {"null event time": 1}
