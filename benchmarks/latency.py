"""Result latency of paced runs, measured outside the engines; processor time of a tree of processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.feed import Arrival
from benchmarks.results import result_files
from benchmarks.ysb import BASE_MS, Events, Query


@dataclass(frozen=True)
class Closing:
    """One window of one query: the file that closed it, and how long its result took from there."""

    query: str
    window_end_ms: int
    file: int
    seconds: float


def closing_file(events: Events, window_end_ms: int) -> int:
    """Return the number of the first file with an event at the window's end or later (delay zero).

    >>> closing_file(Events(rate=10_000, per_file=10_000), BASE_MS + 10_000)
    10
    """
    first_event = -(-(window_end_ms - BASE_MS) * events.rate // 1_000)
    return first_event // events.per_file


def closings(
    events: Events, arrived: Sequence[Arrival], output: Path, queries: Sequence[Query], warm_up: int
) -> list[Closing]:
    """Return every written window whose closing file is not one of the first `warm_up`.

    A result is visible when its file last changed its place or content (`st_ctime`, which a rename moves
    too). A window whose rows lie in several files is visible with the last of them.
    """
    visible = {arrival.number: arrival.visible for arrival in arrived}
    found = []
    for query in queries:
        latest: dict[int, int] = {}
        for path in result_files(output / query.name):
            moment = path.stat().st_ctime_ns
            ends = pc.unique(pq.ParquetFile(path).read(columns=["window_end"])["window_end"])
            for end in ends.cast(pa.timestamp("us", ends.type.tz)).cast(pa.int64()).to_pylist():
                latest[end // 1_000] = max(moment, latest.get(end // 1_000, 0))
        for end, moment in sorted(latest.items()):
            number = closing_file(events, end)
            if number >= warm_up and number in visible:
                found.append(Closing(query.name, end, number, (moment - visible[number]) / 1e9))
    return found


def expected_closings(events: Events, files: int, queries: Sequence[Query], warm_up: int) -> int:
    """Return how many windows the files `warm_up` to `files` close, over all queries."""
    count = 0
    for query in queries:
        step = query.slide * 1_000
        end = -(-(BASE_MS + 1) // step) * step
        while closing_file(events, end) < files:
            count += closing_file(events, end) >= warm_up
            end += step
    return count


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process and all its descendants, with those that have ended."""
    total = 0.0
    root = psutil.Process(pid)
    for process in [root, *root.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
