"""`transom sites`: how sites stand with one another, as they have written it last."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from transom.checkpoint.lock import is_held
from transom.checkpoint.names import LOCK_FILE
from transom.cli.consoles import plain_console
from transom.jobs.sitefile import load_site
from transom.model.time import format_duration, format_time
from transom.sinks.printing import plain_json
from transom.sites.status import read_status


def show_sites(files: Sequence[Path], *, as_json: bool) -> None:
    """Print links, flows, and which site holds back windows.

    Raises:
        TransomError: A site's file cannot be read, or the site has never run.
    """
    found = []
    for path in files:
        checkpoint = Path(load_site(path).checkpoint)
        found.append({**read_status(checkpoint), "runs": is_held(checkpoint / LOCK_FILE)})
    if as_json:
        print(json.dumps({"sites": found}))
        return
    console = plain_console()
    for status in map(plain_json, found):
        runs = "runs" if status["runs"] else "does not run now"
        rest = f" {runs}; as of {format_time(status['at'])}{_plan(status)}"
        console.print(Text.assemble((status["site"], "bold"), rest))
        for each in status.get("waits", ()):
            console.print(Text(f"the end of its run waits: {each}"))
        for table in (_links(status), _leaving(status), _arriving(status)):
            if table.row_count:
                console.print(table)
        console.print()


def _plan(status: dict[str, Any]) -> str:
    """Return which plan a site follows, and whether the coordinator answers; nothing where there is none."""
    if status.get("coordinator") is None:
        return ""
    follows = f"; follows plan {status['plan']}" if status["plan"] else "; has no plan yet"
    return follows + (f". {status['coordinator']}" if status["coordinator"] else "")


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold", min_width=max(map(len, heading.split()), default=0))
    return table


def _rate(rate: float) -> str:
    return f"{8 * rate / 1e6:.3g} Mbit/s" if rate else "-"


def _links(status: dict[str, Any]) -> Table:
    table = _table("link to", "state", "stated", "measured", "used", "queued")
    for link in status["links"]:
        state = "open" if link["open"] else "down"
        rates = [_rate(link.get(name, 0.0)) for name in ("stated", "measured", "used")]
        table.add_row(link["to"], state, *rates, f"{link['queued_bytes']:,} B")
    return table


def _leaving(status: dict[str, Any]) -> Table:
    table = _table("leaves", "queries", "way", "every", "parcel", "latency", "cuts arrived", "outbox", "")
    for flow in status["leaving"]:
        way = _way(flow, status["site"])
        cuts = f"{flow['arrived_cut']:,} of {flow['committed_cut']:,}"
        every, outbox = format_duration(flow["interval_micros"]), f"{flow['outbox_bytes']:,} B"
        names, refused, size = ", ".join(flow["queries"]), flow["refused"] or "", flow.get("parcel_bytes")
        parcel = "-" if size is None else f"{size:,} B"
        table.add_row(flow["flow"], names, way, every, parcel, _latency(flow), cuts, outbox, refused)
    return table


def _latency(flow: dict[str, Any]) -> str:
    """Return what the plan says of a flow's latency, and its limit.

    >>> _latency({"latency_seconds": 1.25, "limit_micros": 2_000_000})
    '1.2 s of 2 seconds'
    """
    planned = f"{flow['latency_seconds']:.2g} s" if flow["latency_seconds"] else "-"
    limit = flow["limit_micros"]
    return planned if limit is None else f"{planned} of {format_duration(limit)}"


def _way(flow: dict[str, Any], site: str) -> str:
    """Return the way of a flow from a site as text.

    >>> _way({"tree": [["north", "relay"], ["relay", "home"]], "destination": "home"}, "north")
    'north > relay > home'
    """
    parents = dict(flow["tree"])
    way = [site]
    while way[-1] in parents and len(way) <= len(parents):
        way.append(parents[way[-1]])
    return " > ".join(way) if way[-1] == flow["destination"] else f"{site} > {flow['destination']}"


def _arriving(status: dict[str, Any]) -> Table:
    table = _table("arrives", "queries", "cuts of sites", "watermark (UTC)", "wait for", "inbox", "late rows")
    for flow in status["arriving"]:
        cuts = ", ".join(f"{site} {cut:,}" for site, cut in sorted(flow["sources"].items()))
        watermark = "-" if flow["watermark"] is None else format_time(flow["watermark"])
        late = ", ".join(
            f"{query}: {rows:,} of {site}"
            for query, sites in flow["late_rows"].items()
            for site, rows in sorted(sites.items())
        )
        waits = flow["held_back_by"] or "-"
        if left_out := ", ".join(flow.get("left_out", ())):
            waits = f"not {left_out}" if waits == "-" else f"{waits}, not {left_out}"
        inbox = f"{flow['inbox_bytes']:,} B"
        table.add_row(flow["flow"], ", ".join(flow["queries"]), cuts, watermark, waits, inbox, late)
    return table
