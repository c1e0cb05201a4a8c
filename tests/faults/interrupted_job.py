"""A job over made-up rows that takes its time, and says on standard error how far it is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import transom as tm

ROWS, RATE = 3_000, 100
START = 1_600_000_000_000_000
DELAY = "IF(n < 1000, 0L, coalesce(try_cast(reflect('java.lang.System', 'getenv', 'DELAY_MS') AS BIGINT), 0L))"
"""Milliseconds per row, from the third micro-batch on."""


def build(spark, checkpoint):
    app = tm.App(spark, checkpoint, max_rows_per_cut=500)
    rows = tm.sources.generator({"at": "event_time", "key": "id % 3", "n": "id"}, RATE, rows=ROWS, start=START)
    stream = app.stream(rows, event_time="at", watermark=tm.watermark("1 second"))
    waits = f"reflect('java.lang.Thread', 'sleep', {DELAY}) IS NOT NULL OR n >= 0"  # true in any case
    slow = stream.map(lambda df: df.where(waits), deterministic=False)
    windows = slow.group_by("key").window("2 seconds", tm.sliding("6 seconds", every="3 seconds"))
    windows.agg(n=tm.count(), total=tm.sum("n")).to(tm.sinks.json(Path(checkpoint).parent / "out"), "sums")
    if "STEPS" in os.environ:
        app._on_step = lambda step: print(f"step: {step}", file=sys.stderr, flush=True)
    return app
