"""Queries as an application has them side by side: views of ads counted over several windows, by few and many keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.workloads.base import SECOND, Workload, window_columns
from benchmarks.workloads.yahoo import columns, views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from transom.api.app import App
    from transom.api.streams import Stream


def counted(name: str, key: str, length: int, slide: int, rate: int, limit: int) -> Workload:
    """Return the workload that counts views by a key over windows; length, slide and limit in seconds."""

    def query(app: App, streams: Sequence[Stream]) -> Any:
        import transom as tm

        window = tm.sliding(f"{length} seconds", every=f"{slide} seconds")
        return streams[0].map(views).group_by(key).window(window).agg(n=tm.count(), newest=tm.max("ad"))

    def frame(inputs: Sequence[DataFrame]) -> DataFrame:
        from pyspark.sql import functions as F

        window = F.window("ts", f"{length} seconds", f"{slide} seconds")
        grouped = views(inputs[0]).groupBy(window, key).agg(F.count(F.lit(1)).alias("n"), F.max("ad").alias("newest"))
        return grouped.select(*window_columns(F.col("window")), key, "n", "newest")

    return Workload(
        name=name,
        schema="ad bigint, kind string, user bigint",
        inputs=1,
        rate=rate,
        length=length * SECOND,
        slide=slide * SECOND,
        limit=limit * SECOND,
        columns=columns,
        query=query,
        frame=frame,
    )


EVERYDAY = (
    counted("every20", "campaign", 20, 20, 2_000, 3),
    counted("every40by20", "campaign", 40, 20, 2_000, 3),
    counted("every30", "campaign", 30, 30, 6_000, 5),
    counted("users60", "user", 60, 60, 3_000, 10),
)
