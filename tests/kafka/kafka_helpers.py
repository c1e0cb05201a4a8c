"""What the tests of Kafka have in common."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import transom as tm
from transom.model.time import ManualClock
from transom.sources.base import CORRUPT, ORIGIN, PARTITION

SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND
SCHEMA = "id bigint, name string"


def fresh(what: str = "t") -> str:
    return f"{what}-{uuid.uuid4().hex[:8]}"


def ids(first: int, end: int) -> list[str]:
    return [json.dumps({"id": i, "name": f"n{i}"}) for i in range(first, end)]


@contextmanager
def opened(
    broker: Any, spark: Any, directory: Path, topics: Any = None, format: Any = None, **options: Any
) -> Iterator[Any]:
    """Open a source; looking twice at topics takes `later`."""
    source = tm.sources.kafka(broker.servers, topics, format or tm.json(SCHEMA), **options)
    directory.mkdir(exist_ok=True)
    source.open(spark, directory, ManualClock(NOON))
    try:
        yield source
    finally:
        source.close()


def later(source: Any, until: Callable[[Any], bool] = lambda end: True) -> Any:
    """Return what a look finds after the time in which nobody looks for new topics; brokers may need some looks."""
    for _ in range(500):
        source._clock.advance(2 * SECOND)
        if until(end := source.latest()):
            return end
    raise AssertionError(f"still {end}")


def read(source: Any, spark: Any, start: Any, end: Any) -> list[tuple[Any, ...]]:
    """Return the good rows of a range without what is gone, with the names of their partitions."""
    frame = source.read(spark, start, end, tuple(source.unfit(start, end)))
    hidden = [name for name in frame.columns if name.startswith("_source") or name == CORRUPT]
    rows = frame.where(f"{CORRUPT} IS NULL").collect()
    found = [
        (source.partitions[row[PARTITION]], *(row[name] for name in frame.columns if name not in hidden))
        for row in rows
    ]
    return sorted(found, key=lambda row: [(value is not None, value) for value in row])


def corrupt(source: Any, spark: Any, start: Any, end: Any) -> list[tuple[str, int, int, str]]:
    """Return where the messages are that cannot be read, and their texts."""
    rows = source.read(spark, start, end).where(f"{CORRUPT} IS NOT NULL").collect()
    return sorted((*row[ORIGIN], row[CORRUPT]) for row in rows)


def letters(checkpoint: Path) -> list[dict[str, Any]]:
    files = sorted((checkpoint / "dead-letters").rglob("*.parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


class KilledError(BaseException):
    """Ends a run as a kill does: nothing handles it."""


def is_killed(app: tm.App, step: str, number: int) -> bool:
    """Run an application to the end of its source, or kill it when a step comes that often; tell whether it was."""
    seen = 0

    def on_step(name: str) -> None:
        nonlocal seen
        seen += name == step
        if name == step and seen == number:
            raise KilledError

    app._on_step = on_step
    try:
        app.run(once=True, close_all=True)
    except KilledError:
        return True
    return False
