"""Real load shapes at 60 % of capacity on average: results within the limit, as it is, planned, shed, and stock."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean

from benchmarks import pacing
from benchmarks.harness import Run, benchmark
from benchmarks.plots import Figure, Form, Panel, Series
from benchmarks.shed import LIMIT, PER_FILE, ROUNDS, Measured, ability, measure
from benchmarks.traces import TRACES, stretch
from benchmarks.worker import Worker

MEAN = 0.6
"""Of the capacity."""
QUIET = 8
"""Seconds at that load before the trace begins."""
ENGINES = {"plain": "none", "planned": "none", "shed": "even", "stock": "stock", "stock_own": "stock"}
"""What is run, and under which policy; stock Spark at the mean rate of Transom's capacity, and of its own."""
PLANNED = "planned"
"""As `plain`, but it follows its own plans, which begin with a profile."""
SLACK = 8.0
"""Seconds that a run takes at least beside those in which rows come."""
REDUCED = (
    "the trace twitter, squeezed to 15 s instead of 120, one repeat instead of 2, a profile of 14 s instead of 60; "
    "engines for which there is no time are left out"
)


def stock_ability(run: Run, worker: Worker, guess: float) -> float:
    """Return rows per second of stock Spark over a backlog, in micro-batches of about half the limit; warm."""
    found = guess
    for seconds in (4, 8):
        place = run.fresh("stock")
        files = max(2, round(found * seconds / PER_FILE))
        pacing.backlog(place / "in", files * PER_FILE, PER_FILE)
        per_batch = max(1, round(found * LIMIT / 2 / PER_FILE))
        found = (
            files
            * PER_FILE
            / worker.call("stock_capacity", source=place / "in", place=place / "run", rounds=ROUNDS, files=per_batch)
        )
    run.say(f"stock: {found:,.0f} rows/s")
    return found


def profile(run: Run, worker: Worker, able: float) -> Path:
    """Profile the query over a backlog with the files that it will have on average, and return where the profile is."""
    place, seconds = run.fresh("profile"), 14.0 if run.quick else 60.0
    per_file = max(1, round(MEAN * able * pacing.EVERY / pacing.SECOND))
    pacing.backlog(place / "in", round(able * max(20.0, seconds / 2)), per_file)
    known = place / "profile.json"
    how = {"rounds": ROUNDS, "limit": f"{LIMIT} seconds", "seconds": seconds, "out": known}
    run.say(f"profile: {worker.call('profile', source=place / 'in', place=place / 'run', **how)} cuts")
    return known


def one_trace(
    run: Run, worker: Worker, name: str, seconds: int, repeats: int, able: dict[str, float], known: Path
) -> None:
    """Measure all engines under a trace, in turn; keep the figures.

    Args:
        run: The run.
        worker: The engines.
        name: Of the trace.
        seconds: To which it is squeezed.
        repeats: Of each engine.
        able: Rows per second that each can do.
        known: The profile of the query.
    """
    trace = TRACES[name]
    shape = stretch(trace.read(run.data), trace.per_point * 120 // seconds, seconds)
    run.say(f"{name}: peak {shape.max():.2f} of the mean, {MEAN * shape.max():.2f} of the capacity")
    found: dict[str, list[Measured]] = {engine: [] for engine in ENGINES}
    order = list(ENGINES)
    for repeat in range(repeats):
        for engine in order[repeat:] + order[:repeat]:
            if run.left() < QUIET + seconds + LIMIT + 1 + SLACK:
                run.say(f"time is short: {name}, {engine} is left out")
                continue
            mean = MEAN * able[engine]
            rates = [round(mean)] * QUIET + [round(mean * each) for each in shape] + [round(mean)] * (LIMIT + 1)
            how = {"settings": {"plan": str(known)}} if engine == PLANNED else {}
            policy, first, last = ENGINES[engine], QUIET + 1, QUIET + seconds
            one = measure(run, worker, f"{name}, {engine}", policy, rates, first, last, rounds=ROUNDS, **how)
            found[engine].append(one)
            run.say(f"{name}, {engine}: {one.results():.1%} in time, {one.kept():.1%} of the rows")
            for note in one.notes:
                run.say(f"  {note}")
    rows: list[list[object]] = []
    for engine, some in found.items():
        if not some:
            continue
        run.figure(f"{name}.{engine}", fmean(each.results() for each in some))
        kept, slip = fmean(each.kept() for each in some), max(each.slip for each in some)
        rows.append([engine, run.figures[f"{name}.{engine}"], min(each.results() for each in some), kept, slip])
    run.table(f"{name}: limit {LIMIT} s", ["engine", "in time", "of the worst repeat", "rows", "feeder slip s"], rows)
    shares = {engine: run.figures.get(f"{name}.{engine}", math.nan) for engine in ENGINES}
    misses = {
        "shed at least 0.95": 0.95 - shares["shed"],
        "planned at most 2 points below plain": shares["plain"] - shares[PLANNED] - 0.02,
        "planned 20 points above stock": shares["stock"] + 0.2 - shares[PLANNED],
        "shed 20 points above stock": shares["stock"] + 0.2 - shares["shed"],
    }
    for text, by in misses.items():
        if by > 1e-9:
            run.say(f"{name}: MISSED: {text}")


def figure(run: Run, traces: list[str]) -> Figure:
    """Return the figure: the share in time by trace."""
    known = [engine for engine in ENGINES if all(f"{name}.{engine}" in run.figures for name in traces)]
    series = tuple(Series(engine, (), [100 * run.figures[f"{name}.{engine}"] for name in traces]) for engine in known)
    panel = Panel(Form.BARS, f"Within {LIMIT} s", "", "results (%)", series, tuple(traces))
    text = "Share of the windows whose results were within the limit, by trace, for stock Spark and Transom."
    return Figure("burst", "Bursts", text, (panel,), columns=1)


def main() -> None:
    """Run the benchmark."""
    with (
        benchmark("burst", REDUCED, figures=True, parts=tuple(TRACES)) as run,
        Worker("overloads", run.work) as worker,
    ):
        missing = [name for name in run.parts if not Path(run.data / TRACES[name].file).exists()]
        if missing:
            raise SystemExit(f"--data {run.data} has no {', '.join(TRACES[name].file for name in missing)}.")
        names = ["twitter"] if run.quick and run.parts == tuple(TRACES) else list(run.parts)
        able = dict.fromkeys(ENGINES, ability(run, worker, ROUNDS).per_second)
        known = profile(run, worker, able[PLANNED])
        able["stock_own"] = stock_ability(run, worker, able["stock"])
        for name in names:
            one_trace(run, worker, name, *((15, 1) if run.quick else (120, 2)), able, known)
        if not run.figures:
            raise RuntimeError("There was no time for a run: the machine is too busy, or --quick too short for it.")
        run.draw(figure(run, names))


if __name__ == "__main__":
    main()
