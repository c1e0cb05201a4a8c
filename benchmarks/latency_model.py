"""The latency that the model foretells, phase by phase, against runs on Spark with settings that were never profiled.

After Figure 6a to e of Li, Diao and Shenoy (2015). Each job is profiled once over a backlog; then predictions for all
settings are written, and then the settings run in turn, each with files that appear every tenth of a second. A result's
latency is from the appearance of the file that completes its window until the sink has it. Nothing is fitted again.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean

from benchmarks import feed
from benchmarks.harness import Run, benchmark, percentile
from benchmarks.latency_scores import Compared, Outcome, figures, share
from benchmarks.latency_settings import QUICK, Predicted, Setting, foretell, settings
from benchmarks.model_jobs import JOBS, PIECE, completing_file, write
from benchmarks.plots import Figure, Form, Panel, Series
from benchmarks.worker import Worker
from transom.model.phases import OF_A_JOB, WAITS, CutPhases, Phase
from transom.planning.profile import Profile

REAL_DATA = Path(__file__).parent.parent.parent / "shared" / "data"
"""Where the texts are, if `--data` has none."""
REPEATS = 3
WARM = 8.0
"""Seconds of each run that do not count."""
ENOUGH = 300
"""Results from which on there is a 0.99 quantile."""
EVENTS_PER_SECOND = 2_000
"""Rows for each second of event time in the backlog that is profiled."""
PHASE = 0.005
"""Seconds from which on a phase counts."""
REDUCED = "3 settings of two jobs, one run of 20 s each instead of three of 90, profiles of 20 s instead of 120"


def backlog(run: Run, job: str, data: Path, seconds: float) -> Path:
    """Return a directory with the files that are profiled."""
    where = run.work / f"backlog-{job}"
    if not where.exists():
        write(JOBS[job], where, EVENTS_PER_SECOND, seconds, data)
    return where


def predictions(run: Run, chosen: Sequence[Setting], workers: Mapping[int, Worker], data: Path) -> list[Predicted]:
    """Profile the jobs, and return what is expected of the settings; it is on disk then."""
    known, lines = dict[str, Profile](), dict[str, dict[str, tuple[float, float]]]()
    seconds = 20 if run.quick else 120
    for job in dict.fromkeys(setting.job for setting in chosen):
        source = backlog(run, job, data, 120 if run.quick else 900)
        made = workers[max(workers)].call("profile", job=job, source=source, seconds=seconds)
        known[job] = Profile.from_json(made["profile"], job)
        lines[job] = {name: (fixed, row) for name, (fixed, row) in made["lines"].items()}
        run.say(f"profile of {job}: {sum(stream.cuts for stream in known[job].streams.values())} cuts")
    found = [foretell(setting, known[setting.job], lines[setting.job]) for setting in chosen]
    where = (run.plots or run.data) / "latency_model-predictions.json"
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(json.dumps([one.to_json() for one in found], indent=1))
    run.say(f"predictions, before any run: {where}")
    rows = [
        [one.setting.label, one.rate, 1e3 * one.mean, 1e3 * one.quantile, 1e3 * one.bound, 1e3 * one.naive]
        for one in found
    ]
    run.table("predictions", ["setting", "rows/s", "mean ms", "0.99 ms", "Cantelli ms", "line ms"], rows)
    return found


class Seen:
    """What was seen of a setting in one repeat.

    Args:
        one: What was expected.
        report: What the runner returned.
        arrived: When its files appeared.
    """

    def __init__(self, one: Predicted, report: Mapping[str, object], arrived: Sequence[feed.Arrival]) -> None:
        job = JOBS[one.setting.job]
        first, visible = round(WARM / PIECE), {each.number: each.visible for each in arrived}
        latest: dict[tuple[str, int], float] = {}
        for query, end, moment in report["seen"]:  # type: ignore[attr-defined]
            number = completing_file(job, end, one.rate)
            if number >= first and number in visible:
                latency = (moment - visible[number]) / 1e9
                latest[query, number] = max(latency, latest.get((query, number), 0.0))
        self.latencies = list(latest.values())
        cuts = [CutPhases.from_json(cut) for cut in report["cuts"]]  # type: ignore[attr-defined]
        self.phases = phases_of(cuts[len(cuts) // 5 :])
        self.tasks = [cut.tasks for cut in cuts if cut.tasks is not None]
        self.backlog = report["backlog"]

    @property
    def mean(self) -> float:
        """Mean latency, seconds."""
        return fmean(self.latencies)


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


def measure(run: Run, worker: Worker, one: Predicted, data: Path, number: int) -> Seen:
    """Run a setting once."""
    seconds = 20.0 if run.quick else 90.0
    place = run.fresh("setting")
    source, incoming, notes = place / "source", place / "in", place / "arrivals.jsonl"
    incoming.mkdir()
    write(JOBS[one.setting.job], source, one.rate, seconds + WARM, data)
    worker.call("start", job=one.setting.job, incoming=incoming, output=place, tuning=one.tuning.to_json())
    code = feed.start(source, incoming, notes, PIECE).wait()
    if code != 0:
        raise RuntimeError(f"The feeding process ended with {code}.")
    time.sleep(1.0)
    seen = Seen(one, worker.call("stop"), feed.arrivals(notes))
    counted = len(seen.latencies)
    if not counted:
        raise RuntimeError(f"{one.setting.label}: no window was completed.")
    run.say(
        f"repeat {number + 1}, {one.setting.label}: {1e3 * seen.mean:,.0f} ms ({1e3 * one.mean:,.0f} expected), "
        f"{counted} results, {seen.backlog} rows left"
    )
    return seen


def compare(found: Sequence[Predicted], seen: Mapping[Setting, Sequence[Seen]], enough: int) -> list[Outcome]:
    """Return predictions beside measurements, of the settings that ran."""
    outcomes = []
    for one in found:
        runs = seen.get(one.setting, ())
        if not runs:
            continue
        quantiles = [percentile(each.latencies, 0.99) for each in runs if len(each.latencies) >= enough]
        phases = {
            name: Compared(one.phases[name], [each.phases[name] for each in runs if name in each.phases])
            for name in one.phases
            if any(name in each.phases for each in runs)
        }
        outcomes.append(
            Outcome(
                one.setting.job,
                one.setting.label,
                Compared(one.mean, [each.mean for each in runs]),
                one.naive,
                Compared(one.quantile, quantiles) if quantiles else None,
                one.bound,
                phases,
            )
        )
    return outcomes


def show(run: Run, outcomes: Sequence[Outcome]) -> None:
    """Print all errors, and of each phase how often it was right and what it was off on average."""
    rows = []
    for one in outcomes:
        low, high = min(one.mean.measured), max(one.mean.measured)
        quantile = ["", ""] if one.quantile is None else [1e3 * one.quantile.predicted, 1e3 * one.quantile.mean]
        rows.append(
            [
                one.label,
                1e3 * one.mean.predicted,
                1e3 * one.mean.mean,
                f"{1e3 * low:,.0f} to {1e3 * high:,.0f}",
                100 * one.mean.raw,
                100 * one.mean.error,
                *quantile,
            ]
        )
    columns = ["setting", "mean: expected", "seen, ms", "range", "off %", "beyond range %", "0.99: expected", "seen"]
    run.table("results", columns, rows)
    table = []
    for phase in Phase:
        counted = [one.phases[str(phase)] for one in outcomes if str(phase) in one.phases]
        large = [each for each in counted if each.mean > PHASE]
        if counted:
            seen, expected = (
                1e3 * fmean(values) for values in zip(*[(e.mean, e.predicted) for e in counted], strict=True)
            )
            table.append([str(phase), expected, seen, len(large), 100 * share(each.error <= 0.1 for each in large)])
    run.table("phases", ["", "expected, ms", "seen, ms", "above 5 ms", "within 10 % of these"], table)


def draw(run: Run, outcomes: Sequence[Outcome]) -> None:
    """Draw what was expected over what was seen, one panel for means and one for phases."""
    jobs = list(dict.fromkeys(one.job for one in outcomes))
    points = {job: sorted((o.mean.mean, o.mean.predicted) for o in outcomes if o.job == job) for job in jobs}
    means = tuple(Series(job, [x for x, _ in some], [y for _, y in some]) for job, some in points.items())
    errors = tuple(Series(job, (), [100 * o.mean.raw for o in outcomes if o.job == job]) for job in jobs)
    run.draw(
        Figure(
            "latency_model",
            "Latency that the model foretells, and that is measured",
            f"Means over {len(outcomes)} settings, {'one run' if run.quick else f'{REPEATS} runs'} of each, by job.",
            (
                Panel(Form.LINES, "mean latency", "measured, s", "predicted, s", means),
                Panel(Form.CDF, "errors of the means", "off by, %", "settings, %", errors),
            ),
        )
    )


def main() -> None:
    """Run the benchmark."""
    with benchmark("latency_model", REDUCED, figures=True) as run:
        chosen = list(QUICK) if run.quick else settings()
        data = run.data if any(run.data.glob("wikipedia_*")) else REAL_DATA
        seen: dict[Setting, list[Seen]] = defaultdict(list)
        with ExitStack() as open_workers:
            cores = sorted({setting.cores for setting in chosen})
            workers = {n: open_workers.enter_context(Worker("model_runner", run.work, n)) for n in cores}
            found = predictions(run, chosen, workers, data)
            for number in range(1 if run.quick else REPEATS):
                for one in found:
                    seen[one.setting].append(measure(run, workers[one.setting.cores], one, data, number))
        outcomes = compare(found, seen, 50 if run.quick else ENOUGH)
        show(run, outcomes)
        for name, value in figures(outcomes, PHASE).items():
            run.figure(name, value)
        run.check([])
        draw(run, outcomes)


if __name__ == "__main__":
    main()
