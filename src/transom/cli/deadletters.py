"""`transom dead-letters`: the rows that no window could take."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from transom.checkpoint.files import checkpoint_at
from transom.checkpoint.opening import read_format
from transom.cli.consoles import plain_console
from transom.engine.spark.deadletters import DIRECTORY
from transom.errors import CheckpointError
from transom.sinks.printing import plain_text
from transom.sinks.values import python_values
from transom.storage.durable import opened
from transom.storage.places import Place

_FILE = re.compile(r"cut=(\d+)/[^/_.][^/]*\.parquet")


@dataclass(frozen=True)
class DeadLetters:
    """The dead letters of one stream."""

    stream: str
    directory: str
    """Where they are, in a directory for each micro-batch."""
    counts: dict[str, int]
    """Rows by reason."""
    samples: dict[str, list[dict[str, Any]]]
    """The first rows of each reason."""


def read_dead_letters(checkpoint: Place, limit: int) -> list[DeadLetters]:
    """Return the dead letters of every stream; memory grows with the samples only.

    Args:
        checkpoint: The checkpoint directory of an application.
        limit: Sample rows per reason.

    Raises:
        CheckpointError: The directory is not there, or no checkpoint, or a file in it is damaged.
    """
    checkpoint = checkpoint_at(checkpoint)
    root = checkpoint / DIRECTORY
    try:
        if not checkpoint.is_dir():
            raise CheckpointError(f"There is no directory {checkpoint}.", "Give the checkpoint of an application.")
        if not root.exists() and read_format(checkpoint) is None:
            raise CheckpointError(f"There is no checkpoint in {checkpoint}.", "Give the checkpoint of an application.")
        streams = sorted(path for path in root.iterdir() if path.is_dir()) if root.exists() else []
        return [_read_stream(stream, limit) for stream in streams]
    except (OSError, pa.ArrowException) as error:
        raise CheckpointError(
            f"The dead letters in {root} cannot be read: {error}.",
            "If a file is damaged, move it away; results do not depend on it.",
        ) from error


def _read_stream(directory: Place, limit: int) -> DeadLetters:
    counts: Counter[str] = Counter()
    samples: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for batch in _batches(directory):
        reasons = python_values(batch.column("reason")) if "reason" in batch.schema.names else ["unknown"] * len(batch)
        for row, reason in enumerate(reasons):
            counts[reason] += 1
            if len(samples[reason]) < limit:
                one = batch.slice(row, 1)
                values = [python_values(column)[0] for column in one.columns]
                samples[reason].append(dict(zip(one.schema.names, values, strict=True)))
    return DeadLetters(directory.name, str(directory), dict(counts.most_common()), dict(samples))


def _batches(directory: Place) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the files of a stream, each with its cut; those that are being written have hidden names."""
    for name in sorted(_names(directory)):
        found = _FILE.fullmatch(name)
        if found is None:
            continue
        with opened(directory / name) as file:
            # Spark writes times in a way that Arrow takes for nanoseconds, of which 64 bits hold 1677 to 2262 only.
            letters = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
            for batch in letters.iter_batches(batch_size=10_000):
                yield batch.append_column("cut", pa.array([int(found[1])] * len(batch), pa.int32()))


def _names(directory: Place) -> Iterator[str]:
    """Yield the names of all files below a directory, relative to it."""
    if isinstance(directory, Path):
        return (path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())
    return (entry.name for entry in directory.walk())


def show_dead_letters(checkpoint: Path, *, limit: int, as_json: bool) -> None:
    """Print the dead letters of an application."""
    streams = read_dead_letters(checkpoint, limit)
    if as_json:
        for stream in streams:
            print(json.dumps(stream.__dict__, default=_text))
        return
    console = plain_console()
    if not any(stream.counts for stream in streams):
        console.print(f"No dead letters in {checkpoint}: every row has been taken by a window.")
    for stream in streams:
        if stream.counts:
            console.print(_render(stream), soft_wrap=True)


def _render(stream: DeadLetters) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column("reason")
    table.add_column("rows", justify="right")
    for reason, count in stream.counts.items():
        table.add_row(Text(plain_text(reason)), f"{count:,}")
    head = Text(f"stream {stream.stream}", style="bold")
    parts: list[RenderableType] = [head.append(f"  in {stream.directory}", style="not bold dim"), table]
    for reason, rows in stream.samples.items():
        if rows:
            parts.append(Text(f"{plain_text(reason)}, for example:", style="bold yellow"))
        for row in rows:
            shown = {key: value for key, value in row.items() if key not in ("reason", "record") and value is not None}
            details = "  ".join(f"{key}={_text(value)}" for key, value in shown.items())
            parts.append(Text(f"  {plain_text(str(row.get('record')))}"))
            parts.append(Text(f"    {plain_text(details)}", style="dim"))
    return Group(*parts)


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
