"""The summary of the demo, for people and for programs."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from transom.demo.replay import Replayed
from transom.model.time import MICROS_PER_SECOND, Micros

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 5
"""Rows of each table in the summary."""
LEAST_FLIGHTS = 20
"""An hour with fewer flights is no worst hour: one delayed flight at night would win."""
ZONE = "America/New_York"


def summarise(replayed: Replayed, out: Path, first: Micros | None) -> dict[str, Any]:
    """Return the summary as plain values, reading the results back from their files.

    Args:
        replayed: What the runs measured.
        out: The demo's directory.
        first: How long the first result took, from the application's start; None if there was none.
    """
    final, closing = replayed.final, replayed.closing
    stream = final.streams[0]
    closed = {} if closing is None else {query.name: query for query in closing.queries}
    return {
        "event": "summary",
        "rows": stream.rows,
        "seconds": final.ran / MICROS_PER_SECOND,
        "first_result_seconds": None if first is None else first / MICROS_PER_SECOND,
        "caught_up": _speed(replayed.caught_up),
        "live": _speed(replayed.paced),
        "batches": stream.cuts,
        "dead_letters": len(_read(out / "checkpoint" / "dead-letters" / stream.name)),
        "queries": [
            {
                "name": query.name,
                "windows": query.windows + (closed[query.name].windows if closed else 0),
                "result_rows": query.result_rows + (closed[query.name].result_rows if closed else 0),
                "late_rows": query.late_rows,
                "latency_seconds": {name: value / MICROS_PER_SECOND for name, value in query.latency.items()},
                "failure": query.failure,
            }
            for query in final.queries
        ],
        "worst_hours": worst_hours(_read(out / "results" / "hourly")),
        "busiest_destinations": busiest(_read(out / "results" / "destinations")),
        "out": str(out),
    }


def _speed(measured: tuple[int, Micros] | None) -> dict[str, float] | None:
    if measured is None:
        return None
    rows, took = measured
    return {
        "rows": rows,
        "seconds": took / MICROS_PER_SECOND,
        "rows_per_second": rows * MICROS_PER_SECOND / max(took, 1),
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
    head = _head(summary)
    queries = _table("query", ("windows", "result rows", "live p50", "live p99", "too late"))
    for query in summary["queries"]:
        failed = f"  failed: {query['failure']}" if query["failure"] else ""
        queries.add_row(
            query["name"] + failed,
            *(f"{query[key]:,}" for key in ("windows", "result_rows")),
            *(_latency(query, name) for name in ("p50", "p99")),
            f"{query['late_rows']:,}",
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


def _head(summary: dict[str, Any]) -> Text:
    caught_up, live = summary["caught_up"], summary["live"]
    head = Text()
    if caught_up is None:
        head.append(f"{summary['rows']:,} flights were read before it was stopped. ")
    else:
        head.append(f"{caught_up['rows']:,} flights", "bold")
        head.append(f" that were there already took {caught_up['seconds']:.0f} seconds, ")
        head.append(f"{caught_up['rows_per_second']:,.0f} rows/s", "bold")
        if summary["first_result_seconds"] is not None:
            head.append(f"; the first result came after {summary['first_result_seconds']:.1f} seconds")
        head.append(". ")
    if live is not None:
        head.append(f"{live['rows']:,} more", "bold")
        head.append(
            f" came within {live['seconds']:.0f} seconds, as from a live source: the live columns are the times "
        )
        head.append("from a file that completes a window to its result. ")
    head.append(f"{summary['dead_letters']:,} left so late that a query had closed all their windows; they are in the ")
    head.append("dead letters.")
    return head


def _latency(query: dict[str, Any], name: str) -> str:
    seconds = query["latency_seconds"].get(name)
    return "-" if seconds is None else f"{seconds * 1000:,.0f} ms"


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
