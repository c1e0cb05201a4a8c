"""Real load shapes at 60 % of capacity on average: the share of results within the limit, as it is, shed, and stock."""

from __future__ import annotations

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
ENGINES = {"stock": "stock", "stock_own": "stock", "plain": "none", "shed": "even"}
"""What is run, and under which policy."""
REDUCED = "the trace twitter, squeezed to 40 s instead of 120, one repeat instead of 2"


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


def one_trace(run: Run, worker: Worker, name: str, seconds: int, repeats: int, able: dict[str, float]) -> None:
    """Measure all engines under a trace, in turn; keep the figures."""
    trace = TRACES[name]
    shape = stretch(trace.read(run.data), trace.per_point * 120 // seconds, seconds)
    run.say(f"{name}: peak {shape.max():.2f} of the mean, {MEAN * shape.max():.2f} of the capacity")
    found: dict[str, list[Measured]] = {engine: [] for engine in ENGINES}
    order = list(ENGINES)
    for repeat in range(repeats):
        for engine in order[repeat:] + order[:repeat]:
            mean = MEAN * able[engine]
            rates = [round(mean)] * QUIET + [round(mean * each) for each in shape] + [round(mean)] * (LIMIT + 1)
            one = measure(
                run, worker, f"{name}, {engine}", ENGINES[engine], rates, QUIET + 1, QUIET + seconds, rounds=ROUNDS
            )
            found[engine].append(one)
            run.say(f"{name}, {engine}: {one.results():.1%} in time, {one.kept():.1%} of the rows")
            for note in one.notes:
                run.say(f"  {note}")
    rows: list[list[object]] = []
    for engine, some in found.items():
        run.figure(f"{name}.{engine}", fmean(each.results() for each in some))
        kept, slip = fmean(each.kept() for each in some), max(each.slip for each in some)
        rows.append([engine, run.figures[f"{name}.{engine}"], min(each.results() for each in some), kept, slip])
    run.table(f"{name}: limit {LIMIT} s", ["engine", "in time", "of the worst repeat", "rows", "feeder slip s"], rows)
    figures = {engine: run.figures[f"{name}.{engine}"] for engine in ENGINES}
    bars = {
        "shed at least 0.95": figures["shed"] >= 0.95,
        "plain 20 points above stock": figures["plain"] >= figures["stock"] + 0.2,
        "shed 20 points above stock": figures["shed"] >= figures["stock"] + 0.2,
    }
    for text, holds in bars.items():
        if not holds:
            run.say(f"{name}: MISSED: {text}")


def figure(run: Run, traces: list[str]) -> Figure:
    """Return the figure: the share in time by trace."""
    series = tuple(Series(engine, (), [100 * run.figures[f"{name}.{engine}"] for name in traces]) for engine in ENGINES)
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
        able["stock_own"] = stock_ability(run, worker, able["stock"])
        for name in names:
            one_trace(run, worker, name, *((40, 1) if run.quick else (120, 2)), able)
        run.draw(figure(run, names))


if __name__ == "__main__":
    main()
