"""The job of Table I: queries over one stream, each with a condition, so that a site has one job in each tick."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import transom as tm
from benchmarks.wide_table import VALUES

WINDOW = 240
"""Seconds: a multiple of most intervals, so that what gathers in one is of one pane."""
LIMIT = "20 seconds"


def schema_of(workload: str) -> str:
    """Return the columns of the rows."""
    if workload == "words":
        return "q int, key string, at bigint"
    return "q int, key bigint, at bigint, " + ", ".join(f"{name} bigint" for name in VALUES)


def aggregates_of(workload: str) -> dict[str, Any]:
    """Return what is computed of each key."""
    found: dict[str, Any] = {"n": tm.count()}
    if workload != "words":
        for name in VALUES:
            found |= {f"{name}_{what}": getattr(tm, what)(name) for what in ("sum", "min", "max")}
    return found


def build(spark: Any, checkpoint: str, site: Any) -> tm.App:
    """Return the application of a site."""
    work = Path(os.environ["TESTBED"])
    given = json.loads((work / "table.json").read_text())
    app = tm.App(spark, checkpoint, site=site, poll="200 ms")  # rows come every two seconds
    rows = site.source("rows", tm.sources.files("none/*.parquet", schema=schema_of(given["workload"])))
    stream = app.stream(rows, event_time="timestamp_micros(at)", watermark="0 seconds", name="rows")
    for number, name in enumerate(given["queries"]):
        query = stream.where(f"q = {number}").group_by("key").window(f"{WINDOW} seconds")
        query.agg(**aggregates_of(given["workload"])).within(LIMIT).to(
            tm.sinks.parquet(str(work / "results" / name)), name=name
        )
    return app
