"""The job of the testbed: how often each key came in windows as long as a tick; a file tells when they were there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import transom as tm

SCHEMA = "key bigint, at bigint"


def build(spark: Any, checkpoint: str, site: Any) -> tm.App:
    """Return the application of a site."""
    out = Path(os.environ["TESTBED"]) / "results"
    out.mkdir(exist_ok=True)

    def seen(results: Any) -> None:
        draft = out / f"{results.cut}.draft"
        pq.write_table(results.table, draft)
        draft.rename(out / f"{results.cut:012d}.parquet")

    app = tm.App(spark, checkpoint, site=site)
    rows = site.source("rows", tm.sources.files("none/*.json", schema=SCHEMA))
    stream = app.stream(rows, event_time="timestamp_micros(at)", watermark="0 seconds", name="rows")
    stream.group_by("key").window("2 seconds").agg(rows=tm.count()).within("2 seconds").to(
        tm.sinks.foreach(seen), name="keys"
    )
    return app
