"""The latency that the model foretells, phase by phase, against runs on Spark with settings that were never profiled.

After Figure 6a to e of Li, Diao and Shenoy (2015). Each job is profiled once over a backlog; then predictions for all
settings are written, and then the settings run in turn, each with files that appear every tenth of a second. A result's
latency is from the appearance of the file that completes its window until the sink has it. Nothing is fitted again.
Each job is a part of its own, as all together take more than three hours: `--only words`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from statistics import fmean

from benchmarks.harness import Run, benchmark
from benchmarks.latency_scores import Compared, Outcome, figures, share
from benchmarks.latency_settings import QUICK, Predicted, Setting, foretell, settings
from benchmarks.model_jobs import JOBS
from benchmarks.model_runs import Seen, measure, profiled
from benchmarks.plots import Figure, Form, Panel, Series
from benchmarks.worker import Worker
from benchmarks.ysb import default_cache
from transom.model.phases import Phase

REPEATS = 3
ENOUGH = 300
"""Results from which on there is a 0.99 quantile."""
SLACK = 20.0
"""Seconds that a run takes at least beside those that count."""
PHASE = 0.005
"""Seconds from which on a phase counts."""
REDUCED = "3 settings of two jobs, one run of 20 s each instead of three of 90, profiles of 20 s instead of 120"


def predictions(run: Run, chosen: Sequence[Setting], workers: Mapping[int, Worker]) -> list[Predicted]:
    """Profile the jobs, and return what is expected of the settings; it is on disk then."""
    worker, seconds = workers[max(workers)], 20.0 if run.quick else 120.0
    known = {job: profiled(run, worker, job, seconds) for job in dict.fromkeys(setting.job for setting in chosen)}
    found = [foretell(setting, *known[setting.job]) for setting in chosen]
    where = (run.plots or default_cache()) / "latency_model-predictions.json"
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(json.dumps([one.to_json() for one in found], indent=1))
    run.say(f"predictions, before any run: {where}")
    rows = [
        [one.setting.label, one.rate, 1e3 * one.mean, 1e3 * one.quantile, 1e3 * one.bound, 1e3 * one.naive]
        for one in found
    ]
    run.table("predictions", ["setting", "rows/s", "mean ms", "0.99 ms", "Cantelli ms", "line ms"], rows)
    return found


def compare(found: Sequence[Predicted], seen: Mapping[Setting, Sequence[Seen]], enough: int) -> list[Outcome]:
    """Return predictions beside measurements, of the settings that ran."""
    outcomes = []
    for one in found:
        runs = seen.get(one.setting, ())
        if not runs:
            continue
        quantiles = [each.quantile for each in runs if len(each.latencies) >= enough]
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
    with benchmark("latency_model", REDUCED, figures=True, parts=tuple(JOBS)) as run:
        chosen = [setting for setting in (QUICK if run.quick else settings()) if setting.job in run.parts]
        if not chosen:
            raise SystemExit(f"--quick has no settings of {', '.join(run.parts)}.")
        seconds = 20.0 if run.quick else 90.0
        seen: dict[Setting, list[Seen]] = defaultdict(list)
        with ExitStack() as open_workers:
            cores = sorted({setting.cores for setting in chosen})
            workers = {n: open_workers.enter_context(Worker("model_runner", run.work, n)) for n in cores}
            found = predictions(run, chosen, workers)
            for number in range(1 if run.quick else REPEATS):
                for one in found:
                    setting = one.setting
                    if run.left() < seconds + SLACK:
                        run.say(f"time is short: {setting.label} is left out")
                        continue
                    once = measure(run, workers[setting.cores], JOBS[setting.job], one.rate, one.tuning, seconds)
                    seen[setting].append(once)
                    run.say(
                        f"repeat {number + 1}, {setting.label}: {1e3 * once.mean:,.0f} ms, {1e3 * one.mean:,.0f} "
                        f"expected; {len(once.latencies)} results, {once.backlog_seconds:.1f} s left"
                    )
        if not any(seen.values()):
            raise RuntimeError("There was no time for a run: the machine is too busy, or --quick too short for it.")
        outcomes = compare(found, seen, 50 if run.quick else ENOUGH)
        show(run, outcomes)
        for name, value in figures(outcomes, PHASE).items():
            run.figure(name, value)
        draw(run, outcomes)


if __name__ == "__main__":
    main()
