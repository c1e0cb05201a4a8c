"""New York taxis: a chain of stateless steps over trips, then means and sums over 2 s, every second.

The trips of the first hour of 2013 (DEBS 2015 grand challenge) are drawn again and again when the file is there, else
trips that are made up with the same columns and a similar skew.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from benchmarks.workloads.base import SECOND, Ints, Workload, window_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from transom.api.app import App
    from transom.api.streams import Stream

DATA = Path(__file__).parents[2] / ".." / "shared" / "data" / "nyc_taxi_debs2015_first_hour.csv"
WEST, NORTH, CELL_LON, CELL_LAT = -74.05, 40.9, 0.02, 0.015
"""Corner of the grid of cells, and their size: degrees, about 1.7 km."""
CELLS = 20
_USED = {"f4": "seconds", "f5": "miles", "f6": "lon", "f7": "lat", "f10": "payment", "f11": "fare", "f14": "tip"}


@cache
def trips() -> pa.Table:
    """Return trips to draw from: seconds, miles, lon, lat, payment, fare, tip."""
    if DATA.exists():
        read = csv.read_csv(DATA, read_options=csv.ReadOptions(autogenerate_column_names=True))
        table = read.select(list(_USED)).rename_columns(list(_USED.values()))
        return table.set_column(0, "seconds", table["seconds"].cast(pa.int64()))
    random = np.random.default_rng(2013)
    count = 10_000
    miles = random.gamma(1.5, 1.8, count)
    fare = np.round(2.5 + 2.5 * miles, 1)
    return pa.table(
        {
            "seconds": (60 + 200 * miles).astype(np.int64),
            "miles": miles,
            "lon": np.where(random.random(count) < 0.02, 0.0, random.normal(-73.98, 0.03, count)),
            "lat": random.normal(40.75, 0.03, count),
            "payment": np.where(random.random(count) < 0.55, "CRD", "CSH"),
            "fare": fare,
            "tip": np.where(random.random(count) < 0.5, np.round(fare * 0.2, 2), 0.0),
        }
    )


def columns(random: np.random.Generator, at: Ints) -> dict[str, Any]:
    """Return trips drawn at random."""
    known = trips()
    drawn = known.take(pa.array(random.integers(0, len(known), len(at))))
    return {name: pc.cast(drawn[name].combine_chunks(), drawn[name].type) for name in drawn.column_names}


def paid(frame: DataFrame) -> DataFrame:
    """Return trips with a place and a fare: their cell, fare in cents, pace, and whether they were paid by card."""
    return (
        frame.where("lon < -70 AND lat > 40 AND miles >= 0")
        .selectExpr(
            "*",
            f"CAST(floor((lon - {WEST}) / {CELL_LON}) AS INT) AS x",
            f"CAST(floor(({NORTH} - lat) / {CELL_LAT}) AS INT) AS y",
        )
        .where(f"x BETWEEN 0 AND {CELLS - 1} AND y BETWEEN 0 AND {CELLS - 1}")
        .selectExpr("*", f"x * {CELLS} + y AS cell", "CAST(round(fare * 100) AS BIGINT) AS cents")
        .where("cents > 0")
        .selectExpr("*", "payment = 'CRD' AS card", "CAST(round(tip * 100) AS BIGINT) AS tips")
    )


def query(app: App, streams: Sequence[Stream]) -> Any:
    """Return fares, tips and trips per cell."""
    import transom as tm

    values = {"n": tm.count(), "cents": tm.sum("cents"), "tips": tm.sum("tips"), "most": tm.max("cents")}
    return streams[0].map(paid).group_by("cell").window(tm.sliding("2 seconds", every="1 second")).agg(**values)


def frame(inputs: Sequence[DataFrame]) -> DataFrame:
    """Return the same in plain Spark."""
    from pyspark.sql import functions as F

    values = [
        F.count(F.lit(1)).alias("n"),
        F.sum("cents").alias("cents"),
        F.sum("tips").alias("tips"),
        F.max("cents").alias("most"),
    ]
    grouped = paid(inputs[0]).groupBy(F.window("ts", "2 seconds", "1 second"), "cell").agg(*values)
    return grouped.select(*window_columns(F.col("window")), "cell", "n", "cents", "tips", "most")


TAXI = Workload(
    name="nyt",
    schema="seconds bigint, miles double, lon double, lat double, payment string, fare double, tip double",
    inputs=1,
    rate=7_000,
    length=2 * SECOND,
    slide=SECOND,
    limit=SECOND,
    columns=columns,
    query=query,
    frame=frame,
)
