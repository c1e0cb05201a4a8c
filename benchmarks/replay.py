"""Feeds as files that become visible on a schedule, many inputs at once, in real time.

`python -m benchmarks.replay PLAN BEGIN` renames the drafts that PLAN names (JSON lines: microseconds from the
beginning, draft, target) at BEGIN (microseconds since the epoch) plus their time, and prints the largest delay in
seconds.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.workloads.base import LONGEST_DELAY, SECOND, Feed, Ints

EVERY = SECOND // 4
"""Microseconds between two files of an input."""


@dataclass(frozen=True)
class Schedule:
    """The files of one input."""

    directory: Path
    visible: Ints
    """When each becomes visible, microseconds from the beginning."""
    newest: Ints
    """Largest event time in it and before, microseconds from 0."""
    rows: int

    def sweeping(self, end: int) -> int | None:
        """Return when the watermark that completes a window ending at `end` (from 0) becomes visible; None if never."""
        first = int(np.searchsorted(self.newest, end + LONGEST_DELAY))
        return int(self.visible[first]) if first < len(self.newest) else None


def write(feed: Feed, directory: Path, every: int = EVERY) -> Schedule:
    """Write a feed as Parquet files: each holds what arrives within `every`, and is visible at the end of that time."""
    directory.mkdir(parents=True)
    number = feed.arrival // every
    edges = np.flatnonzero(np.diff(number, prepend=-1, append=number[-1] + 1))
    at = np.maximum.accumulate(feed.rows.column("at").to_numpy())
    for first, last in itertools.pairwise(edges):
        rows = feed.rows.slice(first, last - first)
        pq.write_table(rows, directory / f"{number[first]:06d}.parquet", compression="none", write_statistics=False)
    return Schedule(directory, (number[edges[:-1]] + 1) * every, at[edges[1:] - 1], len(at))


def prepare(schedules: dict[Path, Schedule], until: int, plan: Path) -> None:
    """Make drafts beside the targets, and write the plan of when they become visible.

    Args:
        schedules: By target directory.
        until: What becomes visible later, in microseconds, is left out.
        plan: Where the plan goes.
    """
    moves = []
    for target, schedule in schedules.items():
        target.mkdir(parents=True)
        drafts = target.with_name(f".{target.name}")
        drafts.mkdir()
        for path, moment in zip(sorted(schedule.directory.iterdir()), schedule.visible.tolist(), strict=True):
            if moment <= until:
                (drafts / path.name).write_bytes(path.read_bytes())
                moves.append((moment, str(drafts / path.name), str(target / path.name)))
    plan.write_text("".join(json.dumps(move) + "\n" for move in sorted(moves)))


def start(plan: Path, begin: int) -> subprocess.Popen[bytes]:
    """Begin the replay in a process of its own, at a moment in microseconds since the epoch."""
    arguments = [sys.executable, "-m", "benchmarks.replay", str(plan), str(begin)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE)


def replay(plan: Path, begin: int) -> float:
    """Rename all files on schedule; return the largest delay in seconds."""
    slip = 0.0
    for line in plan.read_text().splitlines():
        moment, draft, target = json.loads(line)
        wait = (begin + moment) / 1e6 - time.time()
        if wait > 0:
            time.sleep(wait)
        os.utime(draft)
        os.rename(draft, target)
        slip = max(slip, time.time() - (begin + moment) / 1e6)
    return slip


if __name__ == "__main__":
    print(replay(Path(sys.argv[1]), int(sys.argv[2])), flush=True)
