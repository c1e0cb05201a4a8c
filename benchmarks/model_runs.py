"""Runs of the jobs of `model_jobs` on Spark: files appear every tenth of a second, and results are waited for."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from benchmarks import feed
from benchmarks.harness import Run, percentile
from benchmarks.model_jobs import JOBS, PIECE, Job, completing_file, oracle, write
from benchmarks.worker import Worker
from transom.model.phases import OF_A_JOB, WAITS, CutPhases, Phase
from transom.model.tuning import Tuning
from transom.planning.profile import Profile

REAL_DATA = Path(__file__).parent.parent.parent / "shared" / "data"
"""Where the texts are, if `--data` has none."""
WARM = 8.0
"""Seconds of each run that do not count."""
TAIL = 4.0
"""Windows that are completed by files of so many seconds before the end do not count."""
EVENTS_PER_SECOND = 40_000
"""Rows for each second of event time in the backlog that is profiled: about as many as come later, so that panes have
as many rows for their keys."""
Lines = dict[str, tuple[float, float]]
"""Of each stream fixed seconds of a cut and seconds of a row, as the scheduler has them."""
Counts = Mapping[str, Mapping[int, int]]
"""Of each query what its windows count, by their end in milliseconds."""


class StockTuning(NamedTuple):
    """Settings of stock Spark."""

    trigger: float
    """Seconds; 0 for micro-batches as fast as they can."""
    partitions: int
    """Behind the exchange."""

    @property
    def label(self) -> str:
        """The settings in a line."""
        return f"stock, {self.trigger:g} s, {self.partitions} partitions"


def texts(run: Run) -> Path:
    """Return where real texts are."""
    return run.data if any(run.data.glob("wikipedia_*")) else REAL_DATA


def profiled(run: Run, worker: Worker, job: str, seconds: float) -> tuple[Profile, Lines]:
    """Profile a job over a backlog."""
    source = run.work / f"backlog-{job}"
    if not source.exists():
        write(JOBS[job], source, EVENTS_PER_SECOND, 20 if run.quick else 90, texts(run))
    made = worker.call("profile", job=job, source=source, seconds=seconds)
    found = Profile.from_json(made["profile"], job)
    run.say(f"profile of {job}: {sum(stream.cuts for stream in found.streams.values())} cuts")
    return found, {name: (fixed, row) for name, (fixed, row) in made["lines"].items()}


class Seen:
    """What was seen of a run.

    A result that is missing counts as long as it was waited for, unless the file that completes its window came shortly
    before the end: so which results count does not depend on how long they take.

    Args:
        job: The job.
        rate: Rows in a second.
        report: What the runner returned.
        arrived: When its files appeared.
        expected: What windows count, by query and end; see `oracle`.
    """

    def __init__(
        self, job: Job, rate: float, report: Mapping[str, Any], arrived: Sequence[feed.Arrival], expected: Counts
    ) -> None:
        until: int = report["stopped"]
        counted = {each.number: each.visible for each in arrived if each.visible <= until - round(1e9 * TAIL)}
        moments: dict[tuple[str, int], int] = {}
        for query, end, moment, _ in report["seen"]:
            moments[query, end] = max(moment, moments.get((query, end), 0))
        latest: dict[tuple[str, int], float] = {}
        self.missing = 0
        """Windows without a result at the end."""
        for query, end in ((query, end) for query, ends in expected.items() for end in ends):
            number = completing_file(job, end, rate)
            if number >= round(WARM / PIECE) and number in counted:
                self.missing += (query, end) not in moments
                latency = (moments.get((query, end), until) - counted[number]) / 1e9
                latest[query, number] = max(latency, latest.get((query, number), 0.0))
        self.latencies = list(latest.values())
        cuts = [CutPhases.from_json(cut) for cut in report["cuts"]]
        self.phases = phases_of(cuts[len(cuts) // 5 :])
        self.tasks = [cut.tasks for cut in cuts if cut.tasks is not None]
        self.backlog_seconds = report["backlog"] / rate / len(job.streams)
        """For how long the rows that were left at the end have come."""

    @property
    def mean(self) -> float:
        """Mean latency, seconds."""
        return fmean(self.latencies)

    @property
    def quantile(self) -> float:
        """The 0.99 quantile of the latencies, seconds."""
        return percentile(self.latencies, 0.99)


def phases_of(cuts: Sequence[CutPhases]) -> dict[str, float]:
    """Return the mean of each phase: of waits over the rows, of the others over the cuts of which it is known."""
    found = {}
    for phase in Phase:
        if phase in WAITS:
            parts = [(cut.rows, cut.seconds.get(phase, 0.0)) for cut in cuts if cut.rows]
        elif phase in OF_A_JOB:
            parts = [(1, cut.seconds.get(phase, 0.0)) for cut in cuts if cut.stages]
        else:
            parts = [(1, cut.seconds[phase]) for cut in cuts if phase in cut.seconds]
        if parts:
            found[str(phase)] = sum(weight * each for weight, each in parts) / sum(weight for weight, _ in parts)
    return found


def differences(job: Job, seen: Sequence[tuple[str, int, int, int]], expected: Counts) -> list[str]:
    """Return what windows count that should count something else, in words; up to the last that each query gave."""
    found: dict[str, Counter[int]] = defaultdict(Counter)
    for query, end, _, number in seen:
        found[query][end] += number
    wrong = []
    for query, counts in expected.items():
        last = max(found[query], default=0)
        due = {end: number for end, number in counts.items() if end <= last}
        ends = [end for end in sorted({*due, *found[query]}) if due.get(end) != found[query].get(end)]
        if ends:
            end = ends[0]
            wrong.append(f"{job.name}, {query}, window to {end}: {found[query].get(end)} instead of {due.get(end)}")
    return wrong


def measure(run: Run, worker: Worker, job: Job, rate: float, tuning: Tuning | StockTuning, seconds: float) -> Seen:
    """Run a job once at a rate, on Transom or on stock Spark; the first seconds do not count.

    Raises:
        RuntimeError: The run was too short for a window.
    """
    place = run.fresh("setting")
    source, incoming, notes = place / "source", place / "in", place / "arrivals.jsonl"
    incoming.mkdir()
    write(job, source, rate, seconds + WARM, texts(run))
    if isinstance(tuning, StockTuning):
        worker.call("start_stock", job=job.name, incoming=incoming, output=place / "stock", **tuning._asdict())
    else:
        worker.call("start", job=job.name, incoming=incoming, output=place / "app", tuning=tuning.to_json())
    code = feed.start(source, incoming, notes, PIECE).wait()
    if code != 0:
        raise RuntimeError(f"The feeding process ended with {code}.")
    time.sleep(1.0)
    report, expected = worker.call("stop"), oracle(job, source)
    run.check(differences(job, report["seen"], expected))
    seen = Seen(job, rate, report, feed.arrivals(notes), expected)
    if not seen.latencies:
        raise RuntimeError(f"{job.name}, {rate:,.0f} rows/s: no window is completed in so short a time.")
    return seen
