"""Taxi trips, or made-up ones, whose places crowd somewhere else from time to time (Stark, Figure 6)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.workloads.zorder import ZOrder

TAXI = Path(__file__).parents[2] / ".." / "shared" / "data" / "nyc_taxi_debs2015_first_hour.csv"
CITY = ZOrder(-74.05, 40.62, -73.75, 40.92, bits=10)
"""Cells of some 30 m."""
HOT_SHARE = 0.7
"""Of the trips, begins in the crowded place of the phase."""
CROWDS = (None, (-73.986, 40.7565), (-73.9925, 40.7265))
"""By phase: nowhere, Times Square, the Bowery."""
CROWD = 0.04
"""A crowd is spread like the trips that begin nearest to its middle, so large a share of all."""
STREET = 0.0008
"""Degrees around a real place that trips are drawn from."""
ZIPF_CELLS = 960


def real_places() -> tuple[np.ndarray, np.ndarray]:
    """Return longitudes and latitudes where trips began; from a normal distribution where there is no file."""
    if not TAXI.exists():
        rng = np.random.default_rng(0)
        return rng.normal(-73.98, 0.025, 10_000), rng.normal(40.75, 0.03, 10_000)
    table = pa.csv.read_csv(TAXI, read_options=pa.csv.ReadOptions(autogenerate_column_names=True))
    x, y = table["f6"].to_numpy(), table["f7"].to_numpy()
    inside = (x > CITY.west) & (x < CITY.east) & (y > CITY.south) & (y < CITY.north)
    return x[inside], y[inside]


def taxi_cells(rng: np.random.Generator, rows: int, phase: int) -> np.ndarray:
    """Return the Z-order keys of the cells in which trips begin."""
    x, y = real_places()
    chosen = rng.integers(0, len(x), rows)
    crowd = CROWDS[phase % len(CROWDS)]
    if crowd is not None:
        near = np.argsort((x - crowd[0]) ** 2 + (y - crowd[1]) ** 2)[: int(CROWD * len(x))]
        hot = rng.random(rows) < HOT_SHARE
        chosen[hot] = near[rng.integers(0, len(near), int(hot.sum()))]
    jitter = rng.normal(0, STREET, (2, rows))
    return CITY.key(x[chosen] + jitter[0], y[chosen] + jitter[1])


def zipf_cells(rng: np.random.Generator, rows: int, phase: int) -> np.ndarray:
    """Return cells whose popularity falls with the distance from a middle, which moves; Zipf(1.1) in its rank."""
    weights = 1 / np.arange(1, ZIPF_CELLS + 1) ** 1.1
    ranks = rng.choice(ZIPF_CELLS, rows, p=weights / weights.sum())
    middle = (phase % 3) * ZIPF_CELLS // 3 + 70
    away = np.where(ranks % 2, (ranks + 1) // 2, -(ranks // 2))
    return ((middle + away) % ZIPF_CELLS).astype(np.int64)


def trips(cells: np.ndarray, rng: np.random.Generator, minute: int = 0) -> pa.Table:
    """Return trips that begin in these cells: cell, taxi, minute, fare in cents, tip."""
    rows = len(cells)
    fares = np.round(rng.gamma(4.0, 300.0, rows)).astype(np.int64) + 250
    return pa.table(
        {
            "cell": cells,
            "taxi": rng.integers(0, 13_000, rows).astype(np.int32),
            "minute": (minute + rng.integers(0, 5, rows)).astype(np.int32),
            "fare": fares,
            "tip": np.round(fares * rng.random(rows) * 0.25) / 100,
        }
    )


def write(table: pa.Table, path: Path) -> None:
    """Write a dataset as Parquet in two row groups, so that two tasks read it."""
    pq.write_table(table, path, row_group_size=max(1, table.num_rows // 2))


def bounds(cells: np.ndarray, partitions: int, last: int) -> list[int]:
    """Return the first cells of partitions with about as many of these trips each, ascending.

    Args:
        cells: Of some trips.
        partitions: How many.
        last: Number of cells; where trips are too few for so many distinct bounds, others are between them.
    """
    found = set(np.quantile(cells, np.arange(1, partitions) / partitions, method="lower").astype(int).tolist()) - {0}
    spare = iter(np.random.default_rng(1).permutation(np.arange(1, last)).tolist())
    while len(found) < partitions - 1:
        found.add(next(spare))
    return sorted(found)


def medians(rows: pa.Table) -> pa.Table:
    """Return trips, taxis and the median fare of each cell: needs all rows of a cell in one place. O(n log n)."""
    cells, fares = rows["cell"].to_numpy(), rows["fare"].to_numpy()
    order = np.lexsort((fares, cells))
    cells, fares = cells[order], fares[order]
    starts = np.flatnonzero(np.r_[len(cells) > 0, cells[1:] != cells[:-1]]) if len(cells) else np.zeros(0, int)
    counts = np.diff(np.r_[starts, len(cells)])
    low, high = fares[starts + (counts - 1) // 2], fares[starts + counts // 2]
    return pa.table({"cell": cells[starts], "trips": counts.astype(np.int64), "median": (low + high) / 2})


TRIPS = "cell bigint, taxi int, minute int, fare bigint, tip double"
"""Schema of `trips`, so that Spark does not look for it in a job."""
MEDIANS = "cell bigint, trips bigint, median double"
"""Schema of `medians`."""


def in_cells(rows: pa.Table, first: int, last: int) -> pa.Table:
    """Return the trips of the cells in [first, last)."""
    cell = pc.field("cell")
    return rows.filter((cell >= first) & (cell < last))
