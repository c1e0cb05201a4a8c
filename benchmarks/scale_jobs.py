"""Jobs of any size: 1 to 1,000 queries, 100 to 10 million keys, several streams; and the right results of each."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.ysb import PAGES, QUERIES, Events, Query

VIEWS = Events(rate=10_000, per_file=50_000)
"""The events of the queries and streams."""
SHARE = PAGES // 10
"""Pages of a condition: a tenth of the views."""
OF_A_STREAM = 4
"""Queries of each stream: all windows and both keys."""


def queries(count: int) -> tuple[Query, ...]:
    """Return so many queries, up to 1,472: the 16 over all views, then over the pages of one condition after the other.

    >>> [query.pages for query in queries(33)[15::16]], queries(17)[16].name
    ([None, (0, 10)], 'q00-0')
    """
    rounds = range(-(-count // len(QUERIES)))
    found = [query if not each else _of_pages(query, each - 1) for each in rounds for query in QUERIES]
    return tuple(found[:count])


def _of_pages(query: Query, number: int) -> Query:
    if number > PAGES - SHARE:
        raise ValueError("There are no more conditions.")
    return replace(query, name=f"{query.name}-{number}", pages=(number, number + SHARE))


@dataclass(frozen=True)
class Readings:
    """Readings of many keys: file n has rows n x `per_file` on, and each key comes as often as any other, or once more.

    Args:
        keys: Distinct ones.
        rate: Rows per second of event time.
        per_file: Rows in each file.
    """

    keys: int
    rate: int
    per_file: int

    @property
    def name(self) -> str:
        """Name of the directory in the cache."""
        return f"readings-v1-{self.keys}-{self.rate}ps-{self.per_file}"


SCHEMA = "key bigint, value bigint, at bigint"
"""Of a reading; `at` is milliseconds since the epoch."""
START_MS = 1_700_000_100_000
"""Event time of the first; a multiple of the longest window."""
WINDOWS = (10, 300)
"""Seconds of the windows of the queries over readings."""
_STEP = 7_368_787
"""By it keys one after the other are apart. All come before one comes again, as it is odd and no multiple of 5."""

Ints = npt.NDArray[np.int64]


def readings(shape: Readings, start: int, rows: int) -> tuple[Ints, Ints, Ints]:
    """Return keys, values and event times of so many readings from number `start` on."""
    number = np.arange(start, start + rows, dtype=np.int64)
    return number * _STEP % shape.keys, number * 31 % 1_009, START_MS + number * 1_000 // shape.rate


def write_readings(cache_dir: Path, shape: Readings, files: int) -> Path:
    """Make sure that so many files exist in a directory of their own, and return it."""
    directory = cache_dir / shape.name / f"to-{files}"
    directory.mkdir(parents=True, exist_ok=True)
    for index in range(files):
        path = directory / f"readings-{index:06}.json"
        if not path.exists():
            draft = path.with_name(f".{path.name}.{os.getpid()}")
            draft.write_bytes(_lines(*readings(shape, index * shape.per_file, shape.per_file)))
            draft.rename(path)
    return directory


def _lines(keys: Ints, values: Ints, times: Ints) -> bytes:
    numbers = [pa.array(each).cast(pa.string()) for each in (keys, values, times)]
    parts = [pa.scalar('{"key":'), numbers[0], pa.scalar(',"value":'), numbers[1], pa.scalar(',"at":'), numbers[2]]
    lines = pc.binary_join_element_wise(*parts, pa.scalar("}\n"), "")
    end = np.frombuffer(lines.buffers()[1], np.int32)[len(lines)]
    return bytes(lines.buffers()[2].slice(0, int(end)))


def right_sums(shape: Readings, rows: int, window: int) -> pa.Table:
    """Return window start (microseconds), key, count and sum of the values over the first readings, in order."""
    keys, values, times = readings(shape, 0, rows)
    pieces = []
    starts = times // (window * 1_000)
    for start in np.unique(starts).tolist():
        first, last = np.searchsorted(starts, [start, start + 1])
        inside = slice(int(first), int(last))
        counts = np.bincount(keys[inside], minlength=shape.keys)
        sums = np.bincount(keys[inside], values[inside], shape.keys).astype(np.int64)  # exact below 2 ** 53
        there = np.flatnonzero(counts)
        pieces.append(np.stack([np.full(len(there), start * window * 1_000_000), there, counts[there], sums[there]]))
    columns = np.concatenate(pieces, axis=1)
    return pa.table(dict(zip(("window_start", "key", "n", "total"), map(pa.array, columns), strict=True)))
