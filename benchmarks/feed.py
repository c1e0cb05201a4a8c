"""A process that makes files appear on a schedule in real time, and notes when each became visible.

`python -m benchmarks.feed SOURCE TARGET NOTES SECONDS` copies the files of SOURCE, in order of name, to a
draft beside TARGET and renames each into it, one every SECONDS. NOTES gets a JSON line per file: its
number, and the wall time in nanoseconds when it was due and when the rename returned.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PATIENCE_SECONDS = 120.0
"""Longest wait for one file of a closed loop."""


@dataclass(frozen=True)
class Arrival:
    """When a file was due and when it became visible, nanoseconds since the epoch."""

    number: int
    due: int
    visible: int


def feed(source: Path, target: Path, notes: Path, seconds: float) -> None:
    """Copy all files on the schedule; the first is due at once."""
    draft = target.with_name(f"{target.name}-draft")
    files = sorted(source.glob("*.json"))
    began = time.time_ns()
    with notes.open("w") as log:
        for number, path in enumerate(files):
            shutil.copyfile(path, draft)
            due = began + round(number * seconds * 1e9)
            wait = (due - time.time_ns()) / 1e9
            if wait > 0:
                time.sleep(wait)
            draft.touch()
            draft.rename(target / path.name)
            log.write(json.dumps({"number": number, "due": due, "visible": time.time_ns()}) + "\n")
            log.flush()


def one_by_one(source: Path, target: Path, done: Callable[[int], bool], alive: Callable[[], bool]) -> list[float]:
    """Make a file appear, wait until it is done, make the next appear: a closed loop.

    Args:
        source: Where the files are; they are taken in order of name.
        target: Where they appear.
        done: Tells whether file number n (from 0) is done; asked every two milliseconds.
        alive: Tells whether the engine still runs; asked when a file takes long.

    Returns:
        Seconds from the rename of each file until it was done.

    Raises:
        RuntimeError: The engine has ended, or a file is not done after two minutes.
    """
    draft = target.with_name(f"{target.name}-draft")
    taken = []
    for number, path in enumerate(sorted(source.glob("*.json"))):
        shutil.copyfile(path, draft)
        draft.rename(target / path.name)
        began = time.perf_counter()
        while not done(number):
            time.sleep(0.002)
            spent = time.perf_counter() - began
            if spent > PATIENCE_SECONDS or (spent > 1 and not alive()):
                raise RuntimeError(f"File {number} was not done after {spent:.0f} s.")
        taken.append(time.perf_counter() - began)
    return taken


def start(source: Path, target: Path, notes: Path, seconds: float) -> subprocess.Popen[bytes]:
    """Start feeding in a process of its own."""
    arguments = [str(source), str(target), str(notes), str(seconds)]
    return subprocess.Popen([sys.executable, "-m", "benchmarks.feed", *arguments])


def arrivals(notes: Path) -> list[Arrival]:
    """Read what a feeding process noted, in order of file."""
    return [Arrival(**json.loads(line)) for line in notes.read_text().splitlines()]


if __name__ == "__main__":
    feed(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]))
