"""The Yahoo streaming benchmark: views of ads, counted per campaign. 10,000 events per second and query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.workloads.base import SECOND, Ints, Workload, window_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from transom.api.app import App
    from transom.api.streams import Stream

ADS, CAMPAIGNS = 1_000, 100
KINDS = ("view", "click", "purchase")


def columns(random: np.random.Generator, at: Ints) -> dict[str, Any]:
    """Return the ads, kinds and users of events."""
    count = len(at)
    kinds = pa.DictionaryArray.from_arrays(random.integers(0, len(KINDS), count, dtype=np.int32), pa.array(KINDS))
    return {
        "ad": pa.array(random.integers(0, ADS, count)),
        "kind": kinds.cast(pa.string()),
        "user": pa.array(random.integers(0, 10_000, count)),
    }


@cache
def campaigns(spark: SparkSession) -> DataFrame:
    """Return the table of ads and their campaigns."""
    ads = np.arange(ADS)
    return spark.createDataFrame(pa.table({"ad": ads, "campaign": ads // (ADS // CAMPAIGNS)}))


def views(frame: DataFrame) -> DataFrame:
    """Return the views with their campaigns."""
    from pyspark.sql import functions as F

    return frame.where("kind = 'view'").join(F.broadcast(campaigns(frame.sparkSession)), "ad")


def workload(name: str, seconds: int, limit: int) -> Workload:
    """Return the workload with windows of so many seconds."""

    def query(app: App, streams: Sequence[Stream]) -> Any:
        import transom as tm

        return streams[0].map(views).group_by("campaign").window(f"{seconds} seconds").agg(n=tm.count())

    def frame(inputs: Sequence[DataFrame]) -> DataFrame:
        from pyspark.sql import functions as F

        counted = views(inputs[0]).groupBy(F.window("ts", f"{seconds} seconds"), "campaign").count()
        return counted.select(*window_columns(F.col("window")), "campaign", F.col("count").alias("n"))

    return Workload(
        name=name,
        schema="ad bigint, kind string, user bigint",
        inputs=1,
        rate=10_000,
        length=seconds * SECOND,
        slide=seconds * SECOND,
        limit=limit,
        columns=columns,
        query=query,
        frame=frame,
    )


YAHOO = workload("ysb", 3, 3 * SECOND // 2)
YAHOO_LONG = replace(workload("ysb10", 10, 5 * SECOND), rate=5_000)
"""The same over 10 s, with more time for the results and half the rate."""
