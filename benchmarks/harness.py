"""Shared parts of all benchmarks: repeats, medians, intervals, tables, the last line, the limit of --quick."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import plots, ysb

CORES = 2
"""Threads given to every engine."""
QUICK_SECONDS = 300
"""`--quick` ends within this time."""
PACKAGES = ("transom", "pyspark", "pyarrow", "numpy", "duckdb", "polars")

_T95 = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
)
"""Two-sided 95 % quantiles of Student's t for 1 to 15 degrees of freedom."""


@dataclass(frozen=True)
class Interval:
    """A paired ratio: its median over the repeats, and a 95 % interval (NaN with fewer than two repeats)."""

    median: float
    low: float
    high: float
    repeats: int

    def __str__(self) -> str:
        if math.isnan(self.low):
            return f"{self.median:.2f} (one repeat, no interval)"
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Interval:
    """Compare two engines over repeats that were run in turn.

    The interval is Student's t over the logarithms of the ratios of each pair, so that it is the same
    whichever engine is on top.

    Raises:
        ValueError: There is no pair.

    >>> str(paired_ratio([2.0, 2.0], [1.0, 1.0]))
    '2.00 [2.00, 2.00]'
    """
    logs = [math.log(a / b) for a, b in zip(numerators, denominators, strict=False)]
    if not logs:
        raise ValueError("There is no pair to compare.")
    median = math.exp(statistics.median(logs))
    if len(logs) < 2:
        return Interval(median, math.nan, math.nan, len(logs))
    mean, half = mean_interval(logs)
    return Interval(median, math.exp(mean - half), math.exp(mean + half), len(logs))


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of some runs and the half width of its 95 % interval (Student's t; 0 with one run).

    >>> mean_interval([2.0, 2.0])
    (2.0, 0.0)
    """
    count = len(values)
    if count < 2:
        return statistics.fmean(values), 0.0
    quantile = _T95[count - 2] if count - 1 <= len(_T95) else 1.96
    return statistics.fmean(values), quantile * statistics.stdev(values) / math.sqrt(count)


def percentile(values: Sequence[float], quantile: float) -> float:
    """Return the nearest-rank percentile: the smallest value with `quantile` of all at or below it.

    Raises:
        ValueError: There is no value.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.0
    """
    if not values:
        raise ValueError("There is no value.")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(quantile * len(ordered)) - 1)]


def growth(values: Sequence[float], warm_up: float = 0.25, floor: float = 0.0) -> float:
    """Return mean of the last third / mean of the first third - 1, without the part for warming up.

    Args:
        values: Samples in order of time.
        warm_up: Share of the samples to leave out at the start.
        floor: The first third counts as at least this much; few bytes after none are not endless growth.

    Raises:
        ValueError: Fewer than three values are left.

    >>> growth([9.0, 1.0, 1.0, 2.0], warm_up=0.25)
    1.0
    """
    kept = list(values[math.ceil(len(values) * warm_up) :])
    third = len(kept) // 3
    if third == 0:
        raise ValueError(f"{len(values)} samples are too few for a growth.")
    first, last = statistics.fmean(kept[:third]), statistics.fmean(kept[-third:])
    if first == last:
        return 0.0
    base = max(first, floor)
    return math.inf if base == 0 else (last - first) / base


@dataclass
class Run:
    """One run of a benchmark: its options, figures and what was found unequal."""

    benchmark: str
    quick: bool
    data: Path
    work: Path
    started: float = field(default_factory=time.monotonic)
    figures: dict[str, float] = field(default_factory=dict)
    verdicts: dict[str, dict[str, object]] = field(default_factory=dict)
    """What the run says of claims, by their text."""
    wrong: list[str] = field(default_factory=list)
    compared: int = 0
    plots: Path | None = None
    """Directory for figures; None when none are wanted."""
    parts: tuple[str, ...] = ()
    """What of the benchmark to run; all of it unless `--only` chooses."""
    jobs: tuple[int, int] | None = None
    """The first and the last of the random jobs, where `--jobs` chooses."""
    seconds: float = math.inf
    """Of a run in full."""
    console: Console = field(default_factory=lambda: Console(width=110, highlight=False))

    def say(self, text: str) -> None:
        """Print a line with the time since the start."""
        self.console.print(f"[{time.monotonic() - self.started:6.1f} s] {text}", markup=False)

    def left(self) -> float:
        """Return the seconds that may still be spent; in full without end, unless it has one."""
        return (QUICK_SECONDS if self.quick else self.seconds) - (time.monotonic() - self.started)

    def repeats(self, most: int, reserve: float) -> Iterator[int]:
        """Yield 0, 1, ... while one more like the longest so far leaves `reserve` seconds."""
        longest = 0.0
        for number in range(most):
            if number and self.left() - longest < reserve:
                self.say(f"time is short: {number} of {most} repeats")
                return
            before = time.monotonic()
            yield number
            longest = max(longest, time.monotonic() - before)

    def check(self, wrong: list[str]) -> None:
        """Note one comparison of results."""
        self.compared += 1
        self.wrong += wrong
        for text in wrong:
            self.say(f"NOT EQUAL: {text}")

    def figure(self, name: str, value: float) -> None:
        """Keep a figure for the last line, to four significant digits or more."""
        if value == 0 or not math.isfinite(value):
            self.figures[name] = value
        else:
            self.figures[name] = round(value, max(0, 4 - math.ceil(math.log10(abs(value)))))

    def verdict(self, claim: str, interval: tuple[float, float], bar: float) -> None:
        """Say whether a claim holds, or that this run cannot tell: its own interval is on both sides of the bar.

        Args:
            claim: A text that says what is below the bar.
            interval: Of what was measured, 95 %; NaN if the run made too few measurements for one.
            bar: The claim holds if all of the interval is below it.
        """
        low, high = interval
        found = "holds" if high < bar else "does not hold" if low > bar else "cannot be decided by this run"
        self.verdicts[claim] = {"verdict": found, "low": low, "high": high, "bar": bar}
        self.say(f"{claim}: {found}; [{low:.4g}, {high:.4g}] against {bar:.4g}")

    def fresh(self, name: str) -> Path:
        """Return an empty directory for one engine's run."""
        path = self.work / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table; numbers are to the right."""
        table = Table(title=title, title_justify="left")
        for number, name in enumerate(columns):
            table.add_column(name, justify="right" if number else "left")
        for row in rows:
            table.add_row(*[f"{cell:,.4g}" if isinstance(cell, float) else str(cell) for cell in row])
        self.console.print(table)

    def draw(self, figure: plots.Figure) -> None:
        """Write a figure, if figures are wanted."""
        if self.plots is not None:
            self.say(f"figure: {plots.draw(figure, self.plots)}")

    def last_line(self) -> str:
        """Return the JSON object for the last line; what is not finite becomes null."""
        figures = finite(self.figures)
        verdicts = {claim: finite(found) for claim, found in self.verdicts.items()}
        return json.dumps(
            {
                "benchmark": self.benchmark,
                "quick": self.quick,
                "equal": self.compared > 0 and not self.wrong,
                "figures": figures,
                **({"verdicts": verdicts} if verdicts else {}),
                "versions": versions(),
            }
        )


def finite(values: Mapping[str, object]) -> dict[str, object]:
    """Return the values with None in the place of numbers that JSON does not have."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def versions() -> dict[str, str]:
    """Return the versions that matter for the figures."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    try:
        text = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
        found["java"] = text.split('"')[1]
    except (OSError, IndexError, subprocess.CalledProcessError):
        found["java"] = "unknown"
    return found


def circumstances(name: str, arguments: Sequence[str]) -> dict[str, object]:
    """Return how and where a run was made: the command, the time, and what else the machine did when it began."""
    return {
        "command": shlex.join(["python", "-m", f"benchmarks.{name}", *arguments]),
        "began": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "processors": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 1),
    }


@contextmanager
def benchmark(
    name: str,
    reduced: str,
    arguments: Sequence[str] | None = None,
    figures: bool = False,
    parts: Sequence[str] = (),
    seconds: float = math.inf,
    jobs: bool = False,
) -> Iterator[Run]:
    """Parse the options, give the body a `Run`, and print the last line.

    Exits with status 1 when results differ, so that a failing comparison is not overlooked.

    Args:
        name: The benchmark's name.
        reduced: What `--quick` reduces; printed when it is given.
        arguments: Instead of the command line's.
        figures: Whether it draws any with `--plot`.
        parts: What `--only` can choose from.
        seconds: Of a run in full.
        jobs: Whether there are random jobs, of which `--jobs` can choose some.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--quick", action="store_true", help=f"end within 5 minutes: {reduced}")
    parser.add_argument("--data", type=Path, default=ysb.default_cache(), help="directory for generated events")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the last line, and how it came about, here too")
    parser.add_argument("--plot", type=Path, metavar="DIR", help="write the figures as SVG into this directory")
    if parts:
        parser.add_argument("--only", nargs="+", choices=parts, metavar="PART", help=f"run these: {', '.join(parts)}")
    if jobs:
        parser.add_argument("--jobs", nargs=2, type=int, metavar=("FIRST", "LAST"), help="of the random jobs, these")
    options = parser.parse_args(arguments)
    chosen = tuple(getattr(options, "only", None) or parts)
    if options.plot is not None and not figures:
        parser.error(f"--plot: {name} has no figures; its tables say it all.")
    if options.plot is not None and not plots.available():
        parser.error('--plot needs matplotlib: pip install -e ".[bench]".')
    found_by = circumstances(name, sys.argv[1:] if arguments is None else arguments)
    with tempfile.TemporaryDirectory(prefix=f"transom-{name}-") as work:
        run = Run(name, options.quick, options.data, Path(work), plots=options.plot, parts=chosen, seconds=seconds)
        run.jobs = tuple(options.jobs) if jobs and options.jobs else None
        if run.quick:
            run.say(f"quick: {reduced}")
        yield run
        run.say(f"{run.compared} comparisons of results, {len(run.wrong)} differences")
    print(run.last_line(), flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps({**found_by, **json.loads(run.last_line())}, indent=2) + "\n")
    if run.wrong:
        sys.exit(1)
