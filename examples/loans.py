"""Loans: five operators over windows of 10 minutes to a day, two of them on the results of two others.

The motivating job of "Enorm: Efficient Window-Based Computation in Large-Scale Distributed Stream Processing Systems"
(DEBS 2016, section 2): a lender watches its interest and approval rates, by area and as a whole. The applications are
made up, so that nothing has to be there before:

transom run examples/loans.py --once --close-all
transom explain examples/loans.py
python examples/loans.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import transom as tm

ROOT = Path("loans-example")
WINDOWS = ("10 minutes", "30 minutes", "1 hour", "6 hours", "24 hours")
LOANS = 20_000
COLUMNS = {
    "user": "concat('user ', pmod(xxhash64(id, 1), 5000))",
    "area": "element_at(array('north', 'east', 'south', 'west'), int(pmod(xxhash64(id, 2), 4)) + 1)",
    # An application every 10 seconds from 1 March 2026 on, up to a minute late.
    "date": "timestamp_seconds(1772323260 + id * 10 - pmod(xxhash64(id, 3), 60))",
    "approval": "pmod(xxhash64(id, 4), 100) < 60 + pmod(xxhash64(id, 2), 4) * 5",
    "amount": "double(1000 + pmod(xxhash64(id, 5), 49) * 1000)",
    "return": "(1000 + pmod(xxhash64(id, 5), 49) * 1000) * (1 + (3 + pmod(xxhash64(id, 6), 120) / 10) / 100)",
    "lendingTime": "int(6 + pmod(xxhash64(id, 7), 10) * 6)",
    "income": "double(20000 + pmod(xxhash64(id, 8), 800) * 100)",
}
"""An application as <user, area, date, approval, amount, return, lendingTime (months), income>."""


def build(spark: SparkSession, checkpoint: str = str(ROOT / "ckpt")) -> tm.App:
    """Return the application; what `transom run` calls."""
    app = tm.App(spark, checkpoint=checkpoint, name="loans")
    source = tm.sources.generator(COLUMNS, rows_per_second=5_000, rows=LOANS)
    add_queries(app.stream(source, event_time="date", watermark=tm.watermark("1 minute"), name="loans"), sink)
    return app


def sink(name: str) -> Any:
    """Return where the results of a query go."""
    return tm.sinks.parquet(str(ROOT / "out" / name))


def add_queries(loans: Any, sink: Callable[[str], Any]) -> None:
    """Add op1 to op5 to a stream of applications."""
    rated = loans.map(interest)
    by_area = rated.group_by("area").window(*WINDOWS)
    op2 = by_area.agg(rate=tm.avg("interest"), income=tm.avg("income"), loans=tm.count("interest"))
    op2.to(sink("interest_by_area"), name="interest_by_area")
    op3 = by_area.agg(rate=tm.avg("int(approval)"), applications=tm.count())
    op3.to(sink("approval_by_area"), name="approval_by_area")
    op4 = op2.results().map(of_ten_minutes).window(*WINDOWS)
    op4.agg(rate=weighted_mean("rate", "loans"), loans=tm.sum("loans")).to(sink("interest"), name="interest")
    op5 = op3.results().map(of_ten_minutes).window(*WINDOWS)
    op5.agg(rate=weighted_mean("rate", "applications"), applications=tm.sum("applications")).to(
        sink("approval"), name="approval"
    )


def interest(loans: DataFrame) -> DataFrame:
    """op1: the yearly interest rate of each approved loan, in percent."""
    yearly = (F.col("return") / F.col("amount") - 1) * 100 * 12 / F.col("lendingTime")
    return loans.withColumn("interest", F.when(F.col("approval"), yearly))


def of_ten_minutes(results: DataFrame) -> DataFrame:
    """The results of the shortest windows; the longer ones are made up of them."""
    return results.where("window_end - window_start = interval 10 minutes")


def weighted_mean(value: str, weight: str) -> Any:
    """An aggregate that Transom does not have: the mean of means, each counted as often as it has rows."""
    return tm.udaf(
        {"value": value, "weight": weight},
        partial=weighted_rows,
        merge=merged,
        result=lambda state: state["total"] / state["weight"] if state["weight"] else None,
        state="total double, weight bigint",
        returns="double",
        name="weighted_mean",
    )


def weighted_rows(rows: pa.Table) -> Mapping[str, Any]:
    """Return the sums over some results; a mean over no rows is null."""
    products = pc.multiply(rows["value"], pc.cast(rows["weight"], pa.float64()))
    return {"total": pc.sum(products, min_count=0).as_py(), "weight": pc.sum(rows["weight"], min_count=0).as_py()}


def merged(states: pa.Table) -> Mapping[str, Any]:
    """Return the sums over all parts."""
    return {"total": pc.sum(states["total"]).as_py(), "weight": pc.sum(states["weight"]).as_py()}


if __name__ == "__main__":
    session = tm.session_builder().master("local[2]").getOrCreate()
    final = build(session).run(once=True, close_all=True)
    for query in final.queries:
        print(f"{query.name}: {query.windows} windows, {query.result_rows} rows")
