"""`transom compact` and `transom checkpoint`: looking after what runs leave behind."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table
from transom.sinks.compact import compact

from transom.checkpoint.inspect import describe
from transom.errors import SinkError


def compact_results(directory: Path, *, before_cut: int | None) -> None:
    """Merge the small files of a sink and say what happened.

    Raises:
        SinkError: The directory is not there, or holds no results.
    """
    if not directory.is_dir():
        raise SinkError(f"There is no directory {directory}.", "Give the directory of one query's results.")
    before = _sizes(directory)
    compact(directory, before_cut=before_cut)
    after = _sizes(directory)
    print(
        f"{directory}: {len(before):,} files of {sum(before):,} bytes became "
        f"{len(after):,} files of {sum(after):,} bytes."
    )


def show_checkpoint(directory: Path, *, as_json: bool) -> None:
    """Print what a checkpoint holds.

    Raises:
        CheckpointError: It is not a checkpoint, or is damaged.
    """
    found = describe(directory)
    if as_json:
        print(json.dumps(found, default=str))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), show_header=False)
    for key, value in found.items():
        if isinstance(value, list):
            value = "\n".join(
                item if isinstance(item, str) else json.dumps(item, default=str) for item in value
            )
        table.add_row(str(key).replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
    Console(highlight=False, soft_wrap=True).print(table)


def _sizes(directory: Path) -> list[int]:
    return [path.stat().st_size for path in directory.glob("part-*") if path.is_file()]
