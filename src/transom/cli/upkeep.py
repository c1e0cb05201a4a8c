"""`transom compact` and `transom checkpoint`: looking after what runs leave behind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from transom.checkpoint.files import checkpoint_at
from transom.checkpoint.inspect import describe
from transom.cli.consoles import plain_console
from transom.errors import SinkError
from transom.model.time import format_time
from transom.sinks.compaction import compact
from transom.storage.places import ObjectPath, place


def compact_results(directory: Path, *, before_cut: int | None) -> None:
    """Merge the small files of a sink and say what happened.

    Raises:
        SinkError: The directory is not there, or holds no results.
    """
    where = place(directory, "compact", SinkError)
    shown = where if isinstance(where, ObjectPath) else directory
    if not where.is_dir():
        raise SinkError(f"There is no directory {shown}.", "Give the directory of one query's results.")
    done = compact(str(where), before_cut=before_cut)
    print(
        f"{shown}: {done.files_before:,} files of {done.bytes_before:,} bytes became "
        f"{done.files_after:,} files of {done.bytes_after:,} bytes."
    )


def show_checkpoint(directory: Path, *, as_json: bool) -> None:
    """Print what a checkpoint holds.

    Raises:
        CheckpointError: It is not a checkpoint, or is damaged.
    """
    where = checkpoint_at(directory)
    found = describe(where)
    if as_json:
        print(json.dumps(found, default=str))
        return
    plain_console().print(render_checkpoint(str(where) if isinstance(where, ObjectPath) else str(directory), found))


def render_checkpoint(shown: str, found: Mapping[str, Any]) -> RenderableType:
    """Return what `describe` found as a person reads it; each log record on one line, cut to fit."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    writer, snapshot, sizes = found.get("writer"), found.get("snapshot"), found.get("bytes", {})
    table.add_row("checkpoint", shown)
    table.add_row("format", str(found.get("format")))
    table.add_row("id", str(found.get("id")))
    table.add_row("openings", str(found.get("epoch")))
    if writer:
        since = f", since {format_time(writer['since'])}" if isinstance(writer.get("since"), int) else ""
        table.add_row("last writer", f"process {writer.get('pid')} on {writer.get('host')}{since}")
    if snapshot:
        rows = sum(snapshot["rows"].values())
        table.add_row("snapshot", f"{snapshot['file']} ({rows:,} rows in {len(snapshot['rows']):,} tables)")
    table.add_row("size", ", ".join(f"{name} {size:,} bytes" for name, size in sizes.items()))
    table.add_row("records", f"{found.get('records', 0):,} since the snapshot; the newest:")
    for record in found.get("last_records", ()):
        table.add_row("", json.dumps(record, default=str))
    if found.get("torn_bytes"):
        table.add_row("torn", f"{found['torn_bytes']:,} bytes of an incomplete record, dropped at the next start")
    return table
