"""The demo's queries; an example of what a user writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import transom as tm
from transom.demo.flights import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_PER_CUT = 4_000
"""Rows per micro-batch: about four days, so that one run has many of them, as a live stream would."""
DELAY = "2 hours"
"""Time that windows wait for flights that leave late; some leave later still."""
DAY_OFFSET = "5 hours"
"""Days begin at midnight in New York's standard time, all year."""


def build(spark: SparkSession, out: Path, show: Callable[[tm.WindowResults], object]) -> tm.App:
    """Return the application that reads `out/input` and writes `out/results/<query>`.

    Args:
        spark: The session.
        out: The demo's directory.
        show: Called with the departures of each hour as they become known.
    """
    app = tm.App(
        spark,
        checkpoint=str(out / "checkpoint"),
        name="demo",
        max_rows_per_cut=ROWS_PER_CUT,
        longest_wait="1 second",  # rows whose window is far off are left alone for longer otherwise
    )
    flights = app.stream(
        tm.sources.files(str(out / "input" / "*.json"), schema=SCHEMA),
        event_time="event_time",
        watermark=tm.watermark(DELAY),
        name="flights",
    )
    delays(flights).to(tm.sinks.parquet(str(out / "results" / "delays")), name="delays")
    destinations(flights).to(tm.sinks.parquet(str(out / "results" / "destinations")), name="destinations")
    hourly(flights).to(tm.sinks.parquet(str(out / "results" / "hourly")), name="hourly")
    board(flights).to(tm.sinks.foreach(show), name="board")
    return app


def day() -> tm.Window:
    """Return the windows of whole days."""
    return tm.tumbling("1 day", offset=DAY_OFFSET)


def delays(flights: tm.Stream) -> tm.Query:
    """Return how late each airline leaves each airport: by the hour, by the quarter of a day, by the day."""
    windows = flights.group_by("origin", "carrier").window("1 hour", tm.tumbling("6 hours", offset=DAY_OFFSET), day())
    return windows.agg(
        flights=tm.count(),
        cancelled=tm.sum("int(cancelled)"),
        mean_delay=tm.avg("delay_minutes"),
        p95_delay=tm.quantile("delay_minutes", 0.95),
    )


def destinations(flights: tm.Stream) -> tm.Query:
    """Return where people go: the ten busiest destinations of each day, from all airports together."""
    return flights.window(day()).agg(busiest=tm.top_k("dest", 10), flights=tm.count())


def hourly(flights: tm.Stream) -> tm.Query:
    """Return what happened in the hour that has just passed, every quarter of an hour."""
    hours = flights.group_by("origin").window(tm.sliding("1 hour", every="15 minutes"))
    return hours.agg(
        flights=tm.count(),
        cancelled=tm.sum("int(cancelled)"),
        mean_delay=tm.avg("delay_minutes"),
        worst_delay=tm.max("delay_minutes"),
    )


def board(flights: tm.Stream) -> tm.Query:
    """Return the same for whole hours, for the screen. It shares panes and aggregates with the query above."""
    return flights.group_by("origin").window("1 hour").agg(flights=tm.count(), mean_delay=tm.avg("delay_minutes"))
