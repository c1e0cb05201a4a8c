"""Taxi trips: several windows over one stream, written once for `transom run` and for Python.

transom run examples/trips.py --once --close-all
python examples/trips.py
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import transom as tm

SCHEMA = "zone string, fare double, pickup_at timestamp"
ROOT = Path("trips-example")


def build(spark: SparkSession, checkpoint: str = str(ROOT / "ckpt")) -> tm.App:
    """Return the application; what `transom run` calls."""
    write_trips(ROOT / "trips")
    app = tm.App(spark, checkpoint=checkpoint)
    trips = app.stream(
        tm.sources.files(str(ROOT / "trips" / "*.json"), schema=SCHEMA),
        event_time="pickup_at",
        watermark=tm.watermark("30 seconds"),
        name="trips",
    )
    paid = trips.map(paid_trips)
    (
        paid.group_by("zone")
        .window("1 minute", "5 minutes", tm.sliding("1 hour", every="1 minute"))
        .agg(trips=tm.count(), fare=tm.avg("fare"), p95=tm.quantile("fare", 0.95))
        .within("2 seconds", quantile=0.99)
        .to(tm.sinks.parquet(str(ROOT / "out" / "fares")), name="fares")
    )
    (
        paid.window(tm.tumbling("1 day", offset="4 hours"))
        .agg(trips=tm.count(), turnover=tm.sum("fare"), zones=tm.top_k("zone", 3))
        .to(tm.sinks.json(str(ROOT / "out" / "days")), name="days")
    )
    return app


def paid_trips(trips: DataFrame) -> DataFrame:
    """Any PySpark transformation that keeps rows apart; here a filter."""
    return trips.where("fare > 0")


def write_trips(directory: Path, trips: int = 20_000) -> None:
    """Write two days of made-up trips, once; a few come late."""
    if directory.is_dir():
        return
    directory.mkdir(parents=True)
    chance = random.Random(7)
    start = datetime(2026, 3, 1, tzinfo=UTC)
    rows = []
    for number in range(trips):
        at = start + timedelta(seconds=number * 172_800 / trips)
        late = timedelta(seconds=chance.expovariate(1 / 10))
        row = {
            "zone": f"zone {chance.randrange(12)}",
            "fare": round(chance.lognormvariate(2.5, 0.6), 2) if chance.random() > 0.02 else 0.0,
            "pickup_at": at.isoformat(),
        }
        rows.append((at + late, json.dumps(row)))
    rows.sort()
    for first in range(0, trips, 2_000):
        text = "".join(row + "\n" for _, row in rows[first : first + 2_000])
        (directory / f"trips-{first:06d}.json").write_text(text)


if __name__ == "__main__":
    session = tm.session_builder().master("local[2]").getOrCreate()
    final = build(session).run(once=True, close_all=True)
    for query in final.queries:
        print(f"{query.name}: {query.windows} windows, {query.result_rows} rows")
