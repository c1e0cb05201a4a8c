"""The application that the fault tests kill; as a script, one that kills itself.

    python faults_app.py DIRECTORY STEP NUMBER

runs it on the files in DIRECTORY and ends it with SIGKILL at that occurrence of a step of the loop, or inside a
sink (STEP "sink": before a result file gets its name, "named": after it has it). "none" lets it finish.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import transom as tm
from transom.model.time import ManualClock

NOON = 1_700_000_000_000_000
STEPS = [
    "cut logged",
    "windows closed",
    "job done",
    "partials written",
    "committed",
    "delivered",
    "delivery logged",
    "before snapshot",
    "after snapshot",
]
FILES = 5


class Killed(BaseException):
    """Ends a run as a kill does: nothing handles it, and nothing is written after it."""


def write_input(directory: Path, files: int = FILES) -> None:
    """Write JSON files of 12 rows, each over 8 s of event time; the fourth also holds rows late for short windows."""
    directory.mkdir(parents=True)
    numbers = random.Random(7)
    for i in range(files):
        rows = []
        for n in range(12):
            at = 8 * i + n * 0.6
            if i == 3 and n % 4 == 0:
                at -= 17
            rows.append({"zone": numbers.choice("abc"), "size": n * i, "fare": n / 4 + i, "at": at})
        path = directory / f"{i:03d}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (1_600_000_000 + i,) * 2)


def make_app(spark: Any, root: Path, checkpoint: Path | None = None, **settings: Any) -> tm.App:
    """Return the application over `root`/in, with its checkpoint in `root`/checkpoint and results in `root`/out."""
    options = {"max_rows_per_cut": 1, "snapshot_bytes": 6_000, **settings}
    app = tm.App(spark, checkpoint or root / "checkpoint", clock=ManualClock(NOON), **options)
    source = tm.sources.files(str(root / "in" / "*.json"), schema="zone string, size long, fare double, at double")
    stream = app.stream(
        source, event_time="timestamp_micros(CAST(at * 1e6 AS BIGINT))", watermark=tm.watermark("2 seconds")
    )
    keyed = stream.group_by("zone")
    windows = ("5 seconds", tm.sliding("20 seconds", every="10 seconds"))
    fares = keyed.window(*windows).agg(n=tm.count(), size=tm.sum("size"), fare=tm.avg("fare"))
    fares.to(tm.sinks.parquet(root / "out" / "fares"), "fares")
    ranks = keyed.window("10 seconds").agg(middle=tm.quantile("fare", 0.5), sizes=tm.collect_list("size", limit=1000))
    ranks.to(tm.sinks.parquet(root / "out" / "ranks"), "ranks")
    stream.window("10 seconds").agg(n=tm.count(), size=tm.sum("size")).to(
        tm.sinks.json(root / "out" / "total"), "total"
    )
    return app


def results(root: Path, out: str = "out") -> dict[str, list[str]]:
    """Return the rows of every result file, as sorted text by query: more, fewer or other rows all show."""
    found: dict[str, list[str]] = {}
    for path in sorted((root / out).glob("*/part-*")):
        if path.suffix == ".json":
            rows = [json.loads(line) for line in path.read_text().splitlines()]
        else:
            rows = pq.read_table(path).to_pylist()
        found.setdefault(path.parent.name, []).extend(json.dumps(row, default=str, sort_keys=True) for row in rows)
    return {name: sorted(rows) for name, rows in found.items()}


def dead_letters(root: Path) -> list[str]:
    """Return the dead letters as sorted text."""
    all_files = (root / "checkpoint" / "dead-letters").rglob("*.parquet")
    files = (file for file in all_files if not any(part.startswith(".") for part in file.relative_to(root).parts))
    return sorted(str(row) for file in files for row in pq.ParquetFile(file).read().to_pylist())


def at_step(step: str, number: int, act: Callable[[], None]) -> Callable[[str], None]:
    """Return what acts at an occurrence of a step; "any" counts all steps."""
    counts: Counter[str] = Counter()

    def on_step(name: str) -> None:
        counts[name] += 1
        counts["any"] += 1
        if counts[step] == number and step in (name, "any"):
            act()

    return on_step


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_in_sink(number: int, before: bool) -> None:
    """Kill at the n-th renaming of a result file, before or after it."""
    rename = os.replace
    count = 0

    def replace(old: Any, new: Any) -> None:
        nonlocal count
        count += Path(new).name.startswith("part-")
        if before and count == number:
            _kill()
        rename(old, new)
        if count == number:
            _kill()

    os.replace = replace  # type: ignore[assignment]


def main() -> None:
    root, step, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    builder = tm.session_builder().master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    app = make_app(spark, root)
    app._on_step = at_step(step, number, _kill)
    if step in ("sink", "named"):
        _kill_in_sink(number, before=step == "sink")
    print("ready", flush=True)
    app.run(once=True, close_all=True)
    spark.stop()


if __name__ == "__main__":
    main()
