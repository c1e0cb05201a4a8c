"""Rows at a pace that changes from second to second, as files of JSON lines that become visible in real time.

`python -m benchmarks.pacing TARGET NOTES BEGIN RATES` writes a file every 50 ms into TARGET, from BEGIN (microseconds
since the epoch) on. RATES is a file with the rows of each second, as JSON. A row happens in the 50 ms before its file
is there; NOTES gets a JSON line per file.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SECOND = 1_000_000
EVERY = SECOND // 20
"""Microseconds between two files."""
PAGES = 100
SCHEMA = "at bigint, page bigint"
_PAGES = [f'"page":{number}}}\n' for number in range(PAGES)]


@dataclass(frozen=True)
class Arrived:
    """A file."""

    name: str
    first: int
    """When its first row happened, microseconds since the epoch; the last one less than `EVERY` later."""
    rows: int
    visible: float
    """When it was there, seconds since the epoch."""


def lines(first: int, rows: int) -> str:
    """Return rows that happen evenly within `EVERY`, as JSON lines; every page has as many, or one more."""
    return "".join([f'{{"at":{first + EVERY * n // rows},{_PAGES[n * 37 % PAGES]}' for n in range(rows)])


def write(directory: Path, name: str, first: int, rows: int) -> float:
    """Write a file as a whole; return when it was there."""
    draft = directory.parent / f"{name}-draft"
    draft.write_text(lines(first, rows))
    draft.rename(directory / name)
    return time.time()


def backlog(directory: Path, rows: int, per_file: int) -> None:
    """Write files that are all there at once."""
    directory.mkdir(parents=True)
    for number in range(-(-rows // per_file)):
        write(directory, f"{number:07d}.json", number * EVERY, min(per_file, rows - number * per_file))


def feed(directory: Path, notes: Path, begin: int, rates: Sequence[int]) -> float:
    """Let files appear; return the largest delay in seconds."""
    slip, per_second = 0.0, SECOND // EVERY
    with notes.open("w") as log:
        for number in range(len(rates) * per_second):
            rate, part = rates[number // per_second], number % per_second
            rows = rate * (part + 1) // per_second - rate * part // per_second
            due = begin + (number + 1) * EVERY
            if not rows:
                continue
            name, first = f"{number:07d}.json", begin + number * EVERY
            draft = directory.parent / f"{directory.name}-draft"
            draft.write_text(lines(first, rows))
            time.sleep(max(0.0, due / SECOND - time.time()))
            draft.touch()
            draft.rename(directory / name)
            visible = time.time()
            slip = max(slip, visible - due / SECOND)
            log.write(json.dumps({"name": name, "first": first, "rows": rows, "visible": visible}) + "\n")
    return slip


def start(directory: Path, notes: Path, begin: int, rates: Sequence[int]) -> subprocess.Popen[bytes]:
    """Start feeding in a process of its own; the directory is made."""
    directory.mkdir(parents=True, exist_ok=True)
    plan = notes.with_suffix(".rates")
    plan.write_text(json.dumps(list(rates)))
    arguments = [str(directory), str(notes), str(begin), str(plan)]
    return subprocess.Popen([sys.executable, "-m", "benchmarks.pacing", *arguments], stdout=subprocess.PIPE)


def arrived(notes: Path) -> list[Arrived]:
    """Read what a feeding process noted, in order."""
    return [Arrived(**json.loads(line)) for line in notes.read_text().splitlines()]


if __name__ == "__main__":
    target, notes, begin, plan = sys.argv[1:]
    with contextlib.suppress(BrokenPipeError):  # nobody waits any more
        print(feed(Path(target), Path(notes), int(begin), json.loads(Path(plan).read_text())), flush=True)
