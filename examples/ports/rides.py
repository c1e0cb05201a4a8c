"""Taxi rides and their fares, which come up to two hours later.

The tips of each driver by the hour, the highest of them, and the rides for which no fare came. The same as rides.toml.

transom run examples/ports/rides.py --once --close-all
"""

from __future__ import annotations

from pyspark.sql import SparkSession

import transom as tm

INPUT, OUT = "examples/ports/rides", "ports-example/rides"
RIDES = "ride bigint, driver string, started timestamp"
FARES = "ride bigint, tip double, total double, paid timestamp"


def build(spark: SparkSession, checkpoint: str = f"{OUT}/ckpt") -> tm.App:
    """Return the application; what `transom run` calls."""
    app = tm.App(spark, checkpoint=checkpoint, name="rides")
    rides = app.stream(
        tm.sources.files(f"{INPUT}/rides.json", schema=RIDES), event_time="started", watermark="1 minute", name="rides"
    )
    fares = app.stream(
        tm.sources.files(f"{INPUT}/fares.json", schema=FARES), event_time="paid", watermark="1 minute", name="fares"
    )
    later = ("0 seconds", "2 hours")
    paid = app.join(rides, fares, on="ride", between=later)
    tips = paid.group_by("driver").window("1 hour").agg(rides=tm.count(), tips=tm.sum("tip"))
    tips.to(tm.sinks.json(f"{OUT}/tips"), name="tips")
    tips.results().window("1 hour").agg(tips=tm.max("tips")).to(tm.sinks.json(f"{OUT}/best"), name="best")
    unpaid = app.join(rides, fares, on="ride", between=later, how="left_anti")
    unpaid.rows().to(tm.sinks.json(f"{OUT}/missing"), name="missing")
    return app
