"""What the demo found, for people and for programs."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from transom.engine.loop.progress import Progress
from transom.model.time import MICROS_PER_SECOND, Micros

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 5
"""Rows of each table in the summary."""
LEAST_FLIGHTS = 20
"""An hour with fewer flights is no worst hour: one delayed flight at night would win."""
ZONE = "America/New_York"


def summarise(final: Progress, out: Path, took: Micros) -> dict[str, Any]:
    """Return the summary as plain values, reading the results back from their files.

    Args:
        final: The last progress of the run.
        out: The demo's directory.
        took: Duration of the run in microseconds.
    """
    stream = final.streams[0]
    return {
        "event": "summary",
        "rows": stream.rows,
        "seconds": took / MICROS_PER_SECOND,
        "rows_per_second": stream.rows * MICROS_PER_SECOND / max(took, 1),
        "batches": stream.cuts,
        "dead_letters": len(_read(out / "checkpoint" / "dead-letters" / stream.name)),
        "queries": [
            {
                "name": query.name,
                "windows": query.windows,
                "result_rows": query.result_rows,
                "late_rows": query.late_rows,
                "failure": query.failure,
            }
            for query in final.queries
        ],
        "worst_hours": worst_hours(_read(out / "results" / "hourly")),
        "busiest_destinations": busiest(_read(out / "results" / "destinations")),
        "out": str(out),
    }


def worst_hours(hourly: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the whole hours with the longest mean delay, longest first."""
    if hourly.empty:
        return []
    start = hourly["window_start"].dt.tz_convert(ZONE)
    whole = hourly[(start.dt.minute == 0) & (hourly["flights"] >= LEAST_FLIGHTS)]
    worst = whole.sort_values(["mean_delay", "window_start"], ascending=[False, True]).head(SHOWN)
    return [
        {
            "hour": row.window_start.tz_convert(ZONE).strftime("%a %d %b %Y %H:%M"),
            "origin": row.origin,
            "flights": int(row.flights),
            "cancelled": int(row.cancelled),
            "mean_delay_minutes": round(float(row.mean_delay), 1),
        }
        for row in worst.itertuples()
    ]


def busiest(destinations: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the destinations with most flights, counting those of the days on which they are in the top ten."""
    days: Counter[str] = Counter()
    flights: Counter[str] = Counter()
    if not destinations.empty:
        for entry in itertools.chain.from_iterable(destinations["busiest"]):
            days[entry["item"]] += 1
            flights[entry["item"]] += int(entry["count"])
    ranked = sorted(flights, key=lambda dest: (-flights[dest], dest))[:SHOWN]
    return [{"dest": dest, "flights": flights[dest], "top_ten_days": days[dest]} for dest in ranked]


def render_summary(summary: dict[str, Any]) -> RenderableType:
    """Return the summary as a person reads it."""
    head = Text.assemble(
        (f"{summary['rows']:,} flights", "bold"),
        f" in {summary['seconds']:.0f} seconds, ",
        (f"{summary['rows_per_second']:,.0f} rows/s", "bold"),
        f", in {summary['batches']:,} micro-batches. ",
        f"{summary['dead_letters']:,} left so late that a query had closed all their windows; they are in the "
        "dead letters.",
    )
    queries = _table("query", ("windows", "result rows", "flights too late"))
    for query in summary["queries"]:
        failed = f"  failed: {query['failure']}" if query["failure"] else ""
        queries.add_row(
            query["name"] + failed,
            *(f"{query[key]:,}" for key in ("windows", "result_rows", "late_rows")),
        )
    hours = _table("worst hours (New York time)", ("airport", "flights", "cancelled", "mean delay"))
    for hour in summary["worst_hours"]:
        delay = f"{hour['mean_delay_minutes']:.0f} min"
        hours.add_row(hour["hour"], hour["origin"], str(hour["flights"]), str(hour["cancelled"]), delay)
    places = _table("busiest destinations", ("flights", "days in the top ten"))
    for place in summary["busiest_destinations"]:
        places.add_row(place["dest"], f"{place['flights']:,}", f"{place['top_ten_days']:,}")
    found = any(query["result_rows"] for query in summary["queries"])
    where = _where(Path(summary["out"])) if found else Text("It was stopped before a window was complete.")
    parts: list[RenderableType] = [head, queries, *(table for table in (hours, places) if table.row_count)]
    body = Group(*itertools.chain.from_iterable((part, "") for part in parts), where)
    return Panel(body, title="New York's departures of 2013", border_style="cyan", padding=(1, 2))


def _where(out: Path) -> Text:
    delays = out / "results" / "delays"
    return Text.assemble(
        ("Results: ", "bold"),
        f"{out / 'results'}/<query>/*.parquet\n",
        ("pandas:  ", "bold"),
        f'pandas.read_parquet("{delays}")\n',
        ("DuckDB:  ", "bold"),
        "SELECT carrier, avg(p95_delay) AS p95\n"
        f"         FROM '{delays}/*.parquet'\n"
        "         WHERE window_end - window_start = INTERVAL 1 HOUR\n"
        "         GROUP BY carrier ORDER BY p95 DESC;\n",
        ("Too late:", "bold"),
        f" transom dead-letters {out / 'checkpoint'}",
    )


def _table(first: str, columns: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold cyan")
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _read(directory: Path) -> pd.DataFrame:
    import pandas as pd
    import pyarrow.dataset

    if not directory.is_dir():
        return pd.DataFrame()
    files = sorted(str(path) for path in directory.rglob("*.parquet"))
    return pyarrow.dataset.dataset(files, format="parquet").to_table().to_pandas() if files else pd.DataFrame()
