"""Clicks of web and app: sessions of each user, which end after half an hour without a click, and pages by the hour.

The same as clickstream.toml.

transom run examples/ports/clickstream.py --once --close-all
"""

from __future__ import annotations

from pyspark.sql import SparkSession

import transom as tm

INPUT, OUT = "examples/ports/clickstream", "ports-example/clickstream"
SCHEMA = "id string, user string, page string, at timestamp"


def build(spark: SparkSession, checkpoint: str = f"{OUT}/ckpt") -> tm.App:
    """Return the application; what `transom run` calls."""
    app = tm.App(spark, checkpoint=checkpoint, name="clickstream")
    web, phone = (
        app.stream(
            tm.sources.files(f"{INPUT}/{name}.json", schema=SCHEMA),
            event_time="at",
            watermark="10 minutes",
            name=name,
        )
        for name in ("web", "app")
    )
    clicks = web.union(phone.where("page IS NOT NULL")).deduplicate("id", within="1 day")
    sessions = clicks.group_by("user").window(tm.session_window("30 minutes"))
    sessions.agg(clicks=tm.count(), first=tm.first("page"), last=tm.last("page")).to(
        tm.sinks.json(f"{OUT}/sessions"), name="sessions"
    )
    pages = clicks.window("1 hour").agg(clicks=tm.count(), users=tm.approx_count_distinct("user"))
    pages.to(tm.sinks.json(f"{OUT}/pages"), name="pages")
    return app
