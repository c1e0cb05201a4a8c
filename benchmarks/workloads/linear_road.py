"""Linear Road: tolls from speeds, traffic and accidents, three sub-streams that are joined window by window.

The position reports are generated here: cars enter an expressway of 100 segments, keep a speed around their own, and a
few of them stop in a segment for a while, which is an accident; the cars behind are slowed down. A toll is due in a
segment that is slow and full and where nobody stands. Windows are 5 s long and slide by 3 s; the two joins tumble by
3 s over the results, so that each joins those of one window.

Source: A. Arasu et al., Linear Road: A Stream Data Management Benchmark, VLDB 2004; windows and rates as in the Klink
paper, section 6.1.1: 6,500 events in 2 s of each of the sub-streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.workloads.base import SECOND, Floats, Ints, Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from transom.api.app import App
    from transom.api.streams import Stream

SEGMENTS, DIRECTIONS, MILE = 100, 2, 5_280
"""Segments of a mile, in feet."""
CARS = 6_500
REPORTS_EVERY = 2.0
"""Seconds between two reports of a car, so that so many cars give the paper's rate."""
ACCIDENTS, ACCIDENT_SECONDS = 4, 20.0
"""Places where cars stand at any moment, and for how long."""
SLOW, FULL = 40, 50
"""A toll is due below this mean speed (miles per hour) and above this number of reports."""
KEYS = ("dir", "seg")


def columns(random: np.random.Generator, at: Ints) -> dict[str, Any]:
    """Return the position reports of these moments: car, speed (mph), lane, dir, seg, pos (feet)."""
    count = len(at)
    car = np.arange(count) % CARS
    usual = np.clip(random.normal(55, 12, CARS), 20, 100)
    enters = random.uniform(0, SEGMENTS * MILE, CARS)
    direction = random.integers(0, DIRECTIONS, CARS)
    seconds = at / SECOND
    position = (enters[car] + usual[car] * MILE / 3_600 * seconds) % (SEGMENTS * MILE)
    segment = (position // MILE).astype(np.int64)
    where = direction[car] * SEGMENTS + segment
    stands, slowed = _accidents(random, seconds, where)
    speed = np.maximum(0, np.round(usual[car] + random.normal(0, 3, count))).astype(np.int64)
    speed = np.where(slowed, speed // 3, speed)
    speed = np.where(stands & (random.random(count) < 0.2), 0, speed)
    return {
        "car": pa.array(car.astype(np.int64)),
        "speed": pa.array(speed),
        "lane": pa.array(random.integers(0, 5, count)),
        "dir": pa.array(direction[car]),
        "seg": pa.array(segment),
        "pos": pa.array(position.astype(np.int64)),
    }


def _accidents(random: np.random.Generator, seconds: Floats, where: Ints) -> tuple[Any, Any]:
    """Tell which reports come from a place with an accident, and which from up to four segments before one."""
    if not len(seconds):
        return np.zeros(0, bool), np.zeros(0, bool)
    period = (seconds // ACCIDENT_SECONDS).astype(np.int64)
    places = random.integers(0, SEGMENTS * DIRECTIONS, (int(period.max()) + 1, ACCIDENTS))
    behind = places[period] - where[:, None]
    return (behind == 0).any(axis=1), ((behind >= 0) & (behind < 5)).any(axis=1)


def query(app: App, streams: Sequence[Stream]) -> Any:
    """Return the tolls of each segment: three aggregations, joined."""
    import transom as tm

    window = tm.sliding("5 seconds", every="3 seconds")
    join = tm.tumbling("3 seconds", offset="2 seconds")
    label = streams[0].name
    values: list[dict[str, Any]] = [
        {"total": tm.sum("speed"), "reports": tm.count()},
        {"cars": tm.count()},
        {"standing": tm.sum("IF(speed = 0, 1L, 0L)")},
    ]
    parts = []
    for stream, some in zip(streams, values, strict=True):
        results = stream.group_by(*KEYS).window(window).agg(**some).results(f"{label}-{'-'.join(some)}")
        parts.append(results.map(lambda frame, names=(*KEYS, *some): frame.selectExpr("_event_micros", *names)))
    first = app.join(parts[0], parts[1], on=KEYS, window=join, name=f"{label}-join1")
    both = first.map(lambda frame: frame.selectExpr("_event_micros", *KEYS, "total", "reports", "cars"))
    second = app.join(both, parts[2], on=KEYS, window=join, name=f"{label}-join2")
    return second.group_by(*KEYS).window(join).agg(toll=tm.sum(TOLL), standing=tm.sum("standing"))


def frame(inputs: Sequence[DataFrame]) -> DataFrame:
    """Return the same in plain Spark: windowed aggregations, joined on window and segment."""
    from pyspark.sql import functions as F

    values = [
        [F.sum("speed").alias("total"), F.count(F.lit(1)).alias("reports")],
        [F.count(F.lit(1)).alias("cars")],
        [F.sum(F.expr("IF(speed = 0, 1L, 0L)")).alias("standing")],
    ]
    grouped = [
        rows.groupBy(F.window("ts", "5 seconds", "3 seconds"), *KEYS).agg(*some)
        for rows, some in zip(inputs, values, strict=True)
    ]
    joined = grouped[0].join(grouped[1], ["window", *KEYS]).join(grouped[2], ["window", *KEYS])
    return joined.select(
        (F.col("window.end") - F.expr("INTERVAL 3 SECONDS")).alias("window_start"),
        F.col("window.end").alias("window_end"),
        *KEYS,
        F.expr(TOLL).alias("toll"),
        "standing",
    )


TOLL = f"IF(standing = 0 AND total < {SLOW} * reports AND cars > {FULL}, 2 * (cars - {FULL}) * (cars - {FULL}), 0L)"

LINEAR_ROAD = Workload(
    name="lrb",
    schema="car bigint, speed bigint, lane bigint, dir bigint, seg bigint, pos bigint",
    inputs=3,
    rate=int(CARS / REPORTS_EVERY),
    length=5 * SECOND,
    slide=3 * SECOND,
    limit=3 * SECOND // 2,
    columns=columns,
    query=query,
    frame=frame,
)
