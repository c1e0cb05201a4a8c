"""Batch baselines: DuckDB and Polars over the same files, each with its best plan for many queries.

Both parse once, filter and join once, aggregate once to panes of ten seconds per campaign and page, and
make every query from the panes; a sliding window is its panes repeated once for each window that holds
them.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from benchmarks import ysb
from benchmarks.ysb import PANE, QUERIES, Query

_PANE_MS = PANE * 1_000
_DUCKDB_COLUMNS = (
    "{user_id: 'VARCHAR', page_id: 'VARCHAR', ad_id: 'VARCHAR', ad_type: 'VARCHAR', event_type: 'VARCHAR', "
    "event_time: 'BIGINT', ip_address: 'VARCHAR'}"
)
_POLARS_SCHEMA = {
    name: pl.Int64 if kind == "bigint" else pl.String
    for name, kind in (column.split() for column in ysb.SCHEMA.split(", "))
}


def _cores() -> int:
    return int(os.environ.get("BENCHMARK_CORES", "2"))


def run_duckdb(source: Path, output: Path, queries: tuple[Query, ...]) -> None:
    """Compute the queries with DuckDB and write one Parquet file each."""
    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {_cores()}")
        connection.register("ads", ysb.ads())
        connection.execute(
            f"""CREATE TEMP TABLE panes AS
            SELECT event_time // {_PANE_MS} AS pane, campaign_id, page_id, count(*) AS n,
                max(event_time) AS last
            FROM read_json('{source}/*.json', format = 'newline_delimited', columns = {_DUCKDB_COLUMNS})
            JOIN ads USING (ad_id) WHERE event_type = 'view' GROUP BY ALL"""
        )
        connection.execute(
            """CREATE TEMP TABLE campaign_panes AS
            SELECT pane, campaign_id, sum(n) AS n, max(last) AS last FROM panes GROUP BY ALL"""
        )
        for query in queries:
            (output / query.name).mkdir(parents=True)
            panes, step = query.window // PANE, query.slide // PANE
            keys = ", ".join(query.keys)
            table = "panes" if query.by_page else "campaign_panes"
            last = ", max(last) AS last" if query.last else ""
            first = f"pane // {step} * {step}"
            spread = f", range({panes // step}) AS r(i)" if panes > step else ""
            shift = f" - i * {step}" if panes > step else ""
            start = f"({first}{shift}) * {_PANE_MS * 1_000}"
            connection.execute(
                f"""COPY (SELECT {start} AS window_start, {start} + {query.window * 1_000_000} AS window_end,
                {keys}, sum(n)::BIGINT AS n{last} FROM {table}{spread} GROUP BY window_start, {keys})
                TO '{output / query.name}/result.parquet' (FORMAT parquet)"""
            )


def run_polars(source: Path, output: Path, queries: tuple[Query, ...]) -> None:
    """Compute the queries with Polars and write one Parquet file each."""
    ads = pl.LazyFrame(pl.from_arrow(ysb.ads()))
    panes = (
        pl.scan_ndjson(source / "*.json", schema=_POLARS_SCHEMA)
        .filter(pl.col("event_type") == "view")
        .join(ads, on="ad_id")
        .group_by((pl.col("event_time") // _PANE_MS).alias("pane"), "campaign_id", "page_id")
        .agg(n=pl.len().cast(pl.Int64), last=pl.col("event_time").max())
        .collect(engine="streaming")
    )
    for query in queries:
        (output / query.name).mkdir(parents=True)
        count, step = query.window // PANE, query.slide // PANE
        rows = panes.lazy()
        if not query.by_page:
            rows = rows.group_by("pane", "campaign_id").agg(pl.col("n").sum(), pl.col("last").max())
        if count > step:
            shifts = pl.LazyFrame({"shift": list(range(0, count, step))})
            rows = rows.join(shifts, how="cross")
            first = pl.col("pane") // step * step - pl.col("shift")
        else:
            first = pl.col("pane") // step * step
        values = [pl.col("n").sum()] + ([pl.col("last").max()] if query.last else [])
        (
            rows.group_by((first * (_PANE_MS * 1_000)).alias("window_start"), *query.keys)
            .agg(values)
            .with_columns(window_end=pl.col("window_start") + query.window * 1_000_000)
            .collect()
            .write_parquet(output / query.name / "result.parquet")
        )


ENGINES: dict[str, Callable[[Path, Path, tuple[Query, ...]], None]] = {
    "duckdb": run_duckdb,
    "polars": run_polars,
}


def catchup(engine: str, source: str, output: str, count: int) -> dict[str, Any]:
    """Run the first `count` queries and return the seconds that it took."""
    shutil.rmtree(output, ignore_errors=True)
    Path(output).mkdir(parents=True)
    started = time.perf_counter()
    ENGINES[engine](Path(source), Path(output), QUERIES[:count])
    return {"seconds": time.perf_counter() - started}


OPERATIONS: dict[str, Callable[..., Any]] = {"catchup": catchup}
