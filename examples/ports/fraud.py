"""A fraud detector: a payment of less than 1 that is followed by one of more than 500 within a minute, of one account.

Payments may be sent twice; who has an account stands in a table beside the stream. The same as fraud.toml.

transom run examples/ports/fraud.py --once --close-all
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

import transom as tm

INPUT, OUT = "examples/ports/fraud", "ports-example/fraud"


def build(spark: SparkSession, checkpoint: str = f"{OUT}/ckpt") -> tm.App:
    """Return the application; what `transom run` calls."""
    app = tm.App(spark, checkpoint=checkpoint, name="fraud")
    payments = app.stream(
        tm.sources.files(f"{INPUT}/payments.json", schema="id string, account string, amount double, at timestamp"),
        event_time="at",
        watermark="30 seconds",
        name="payments",
    )
    accounts = tm.tables.sql(f"SELECT account, owner FROM json.`{INPUT}/accounts.json`")
    owned = payments.deduplicate("id", within="1 hour").lookup(accounts, on="account", how="left", refresh="10 minutes")
    suspicious = app.join(
        owned.where("amount < 1").map(small),
        owned.where("amount > 500").map(large),
        on="account",
        between=("0 seconds", "1 minute"),
        event_time="right",
    )
    suspicious.rows().to(tm.sinks.json(f"{OUT}/alerts"), name="alerts")
    losses = suspicious.group_by("owner").window("1 day").agg(alerts=tm.count(), loss=tm.sum("large"))
    losses.to(tm.sinks.json(f"{OUT}/losses"), name="losses")
    return app


def small(payments: DataFrame) -> DataFrame:
    """The first of two payments; event times stay with the rows as `_event_micros`."""
    return payments.selectExpr("account", "owner", "amount AS small", "_event_micros")


def large(payments: DataFrame) -> DataFrame:
    """The second one."""
    return payments.selectExpr("account", "amount AS large", "at", "_event_micros")
