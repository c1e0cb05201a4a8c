"""Bytes that checkpoints write to keep a bound for recovery (Stark, Figures 16 to 18), and recoveries that prove it.

All four policies see the same datasets with the same measured sizes and delays; each is told of what it wrote itself.
The first decides for the application, whose executors are killed. Unlike in the paper, whose shuffle files end a path
at no cost, the new lines of a step are lost with an executor: to read and to exchange them again is part of the bound
and of what is measured.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

from pyspark.sql import SparkSession

import transom as tm
from benchmarks.cluster import kill_executor, local_cluster, wait_for
from benchmarks.colocality import LOG
from benchmarks.harness import Run, benchmark
from benchmarks.plots import Figure, Form, Panel, Series
from benchmarks.results import differences
from benchmarks.trends import KEPT, KINDS, SORTED, PlainTrends, Trends, parsed, raw
from transom.collections.checkpointing import Checkpointer
from transom.placement.lineage import LineageNode
from transom.placement.lookahead import HISTORY
from transom.placement.recovery import due

EXECUTORS = 3
MEGABYTES = 1_024
STEPS, SHORT = 50, 10
COPIES, QUICK_COPIES = 4, 2
REPEATS, QUICK_REPEATS = 3, 1
KILLS, QUICK_KILLS = 6, 3
WITHIN, LOSSES = 3, 2
"""The bound is the time to make so many whole steps again after an executor was lost: the longest of some losses."""
RESERVE = 80
"""Seconds: with less, a quick run makes no more steps."""
REDUCED = (
    f"{QUICK_COPIES} instead of {COPIES} times 10,000 lines a step, {QUICK_REPEATS} instead of {REPEATS} repeats, "
    f"{QUICK_KILLS} instead of {KILLS} kills, results compared until step {SHORT}; when time is short, checkpoints of "
    "the steps that are left are decided on, not written"
)
POLICIES: dict[str, dict[str, Any]] = {
    "lookahead": {"policy": "lookahead"},
    "f1": {"policy": "cut", "relax": 1.0},
    "f3": {"policy": "cut", "relax": 3.0},
    "edge": {"policy": "edge"},
}
"""The first is Transom's default: recoveries read its checkpoints."""


@dataclass
class Outcome:
    """What one run of the application gave."""

    bound: float
    written: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in POLICIES})
    """Bytes so far after each step, by policy."""
    recoveries: list[tuple[int, float]] = field(default_factory=list)
    """Step and seconds."""
    sizes: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    """Bytes of each dataset that was made, and of its checkpoint; 0 if no policy beside the first wrote one."""
    delays: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    """Seconds of each dataset that was made."""
    made: int = 0
    """Steps; the others were only decided on."""
    checkpoints: dict[str, int] = field(default_factory=dict)
    """Datasets written, by policy."""


def lose(spark: SparkSession, trends: Trends, victim: str) -> int:
    """Kill an executor, and delete its files, as when its host is gone, too; return how many."""
    files = [
        Path(file.path)
        for collection in trends.collections.values()
        for dataset in collection._datasets.values()
        for file in dataset.files
        if file.executor == victim
    ]
    kill_executor(spark, victim)
    for file in files:
        file.unlink(missing_ok=True)
    return len(files)


def state_again(trends: Trends, step: int) -> tuple[dict[str, Any], float]:
    """Return what the step after this one takes, and in how many seconds it was there."""
    begun = time.perf_counter()
    trends.namespace.look(now=True)
    found = trends.state(step)
    return found, time.perf_counter() - begun


def chosen_bound(run: Run, spark: SparkSession, base: Path, copies: int) -> float:
    """Return the bound in seconds: what some steps take to be made again, measured on steps like those to come."""
    with Trends(spark, "warm") as trends:
        for step in range(WITHIN):
            rows = raw(spark, base, step, copies)
            for kind in KINDS:
                trends.make(kind, step, rows)
        made = {kind: trends.dataset(kind, WITHIN - 1) for kind in KINDS}
        run.table(
            "a step: seconds of the longest task (kv: of the exchange), and megabytes",
            ["", *KINDS],
            [["seconds", *(d.delay for d in made.values())], ["megabytes", *(d.bytes / 1e6 for d in made.values())]],
        )
        took = []
        for _ in range(LOSSES):
            lose(spark, trends, min(set(trends.namespace.homes)))
            took.append(state_again(trends, WITHIN - 1)[1])
            wait_for(spark, EXECUTORS)
    run.say(f"{WITHIN} steps are made again after a loss in " + ", ".join(f"{one:.2f} s" for one in took))
    return max(took)


class Application:
    """The application with Transom's default policy, and the other policies on the same measurements beside it."""

    def __init__(self, run: Run, spark: SparkSession, base: Path, copies: int, bound: float, repeat: int) -> None:
        self.run, self.spark, self.base, self.copies = run, spark, base, copies
        self.outcome = Outcome(bound)
        within = int(bound * 1e6)
        recoveries = {
            name: tm.Recovery(within, str(run.work / f"{name}{repeat}"), **options)
            for name, options in POLICIES.items()
        }
        first, *others = POLICIES
        self.trends = Trends(spark, f"trends{repeat}", recovery=recoveries[first])
        self.first = first
        self.others = {name: Checkpointer(recoveries[name], name) for name in others}
        for other in self.others.values():  # all know the same
            other._beyond = self.trends.namespace.checkpointer._beyond

    def step(self, step: int) -> None:
        """Make the datasets of a step; every policy writes its own checkpoints of them."""
        rows = raw(self.spark, self.base, step, self.copies)
        for kind in KINDS:
            self.trends.make(kind, step, rows)
            dataset = self.trends.dataset(kind, step)
            self.outcome.sizes[kind].append((dataset.bytes, 0))
            self.outcome.delays[kind].append(dataset.delay)
            for other in self.others.values():
                other.take_in(dataset)
                if chosen := other.due(dataset):
                    self.trends.namespace.bring_home(chosen)
                    for each, paths in zip(chosen, other.write(chosen, self.trends.namespace.tasks), strict=True):
                        written = sum(Path(path).stat().st_size for path in paths)
                        self.outcome.sizes[each.kind].append((each.bytes, written))
        if step >= KEPT:
            for kind in KINDS:
                for other in self.others.values():
                    other.forget(self.trends.dataset(kind, step - KEPT))
            self.trends.drop(step - KEPT)
        for name, checkpointer in self.checkpointers.items():
            self.outcome.written[name].append(checkpointer.bytes)
            self.outcome.checkpoints[name] = checkpointer.checkpoints

    @property
    def checkpointers(self) -> dict[str, Checkpointer]:
        """That of the application, and the others."""
        return {self.first: self.trends.namespace.checkpointer, **self.others}

    def decide_on(self, first: int) -> None:
        """Let all policies decide on the steps from this one to the last, which are not made.

        They are as large as the last ones and take the median of all: executors that have just begun are slow for some
        steps. Nothing is written; what would be is counted.
        """
        usual = {kind: median(delays) for kind, delays in self.outcome.delays.items()}
        last = range(first - KEPT + 1, first)
        measured = {(step, kind): self.trends.dataset(kind, step) for step in last for kind in KINDS}
        for name, checkpointer in self.checkpointers.items():
            recovery, lineage, made = checkpointer.recovery, checkpointer.lineage, list(checkpointer._made)
            pace, total, names = checkpointer._pace, checkpointer.bytes, {}
            for step in range(first, STEPS):
                for kind in KINDS:
                    like = measured[last[step % len(last)], kind]
                    parents = tuple(
                        names.get((one, parent)) or self.trends.dataset(parent, one).name
                        for parent, one in self.trends.origins(kind, step)
                    )
                    added = kind == "kv"
                    reading = usual[kind] if added else like.bytes / EXECUTORS * pace
                    node = LineageNode(f"{kind}+{step}", parents, like.bytes, usual[kind], added, reading, kind)
                    names[step, kind] = node.name
                    lineage = lineage.added(node)
                    made.append(node)
                    if not added:
                        policy, relax = recovery.policy, recovery.relax
                        chosen = due(lineage, node.name, checkpointer.bound, made[-HISTORY:], policy, relax)
                        total += sum(lineage.datasets[each].size for each in chosen)
                        lineage = lineage.checkpointed(chosen)
                kept = [each.name for each in made[-KEPT * len(KINDS) :]]
                lineage = lineage.needed([each for each in kept if each in lineage.datasets])
                self.outcome.written[name].append(total)

    def recover(self, step: int, chance: random.Random, plain: PlainTrends) -> None:
        """Kill an executor, with all of its files, and ask for what the next step takes."""
        namespace = self.trends.namespace
        name, checkpointer = self.trends.dataset("res", step).name, self.checkpointers[self.first]
        expected = checkpointer.starting + checkpointer.lineage.work(name)
        victim = chance.choice(sorted(set(namespace.homes)))
        files = lose(self.spark, self.trends, victim)
        found, seconds = state_again(self.trends, step)
        self.outcome.recoveries.append((step, seconds))
        self.run.say(
            f"step {step + 1}: executor {victim} killed with {files} partitions, "
            f"there again after {seconds:.2f} s (expected at most {expected:.2f}, bound {self.outcome.bound:.2f} s)"
        )
        self.compare(step, plain, found)
        wait_for(self.spark, EXECUTORS)

    def compare(self, step: int, plain: PlainTrends, found: dict[str, Any] | None = None) -> None:
        """Compare what the next step takes with plain Spark's."""
        wanted = plain.state(step)
        for kind, table in (found or self.trends.state(step)).items():
            order = [(name, "ascending") for name in SORTED[kind]]
            wrong = differences(table.sort_by(order), wanted[kind].select(table.column_names).sort_by(order))
            self.run.check([f"step {step + 1}, {kind}: {wrong}"] if wrong else [])

    def close(self) -> None:
        """Drop everything."""
        self.trends.__exit__()
        for other in self.others.values():
            other.close()


def measure(run: Run, spark: SparkSession, base: Path, copies: int, repeat: int, plain: PlainTrends) -> Outcome:
    """Run all steps once, with kills after some of them."""
    bound = chosen_bound(run, spark, base, copies)
    chance = random.Random(repeat)
    last = SHORT if run.quick else STEPS
    kills = set(chance.sample(range(2, last), QUICK_KILLS if run.quick else KILLS))
    application = Application(run, spark, base, copies, bound, repeat)
    try:
        for step in range(STEPS):
            if step > KEPT and run.left() < RESERVE:
                run.say(f"time is short: {step} steps were made; the others are decided on with what was measured")
                if not application.outcome.recoveries:
                    application.recover(step - 1, chance, plain)
                application.decide_on(step)
                break
            application.step(step)
            application.outcome.made += 1
            if step in kills:
                application.recover(step, chance, plain)
            if step + 1 in (SHORT, last):
                application.compare(step, plain)
            if step + 1 in (SHORT, STEPS):
                totals = {name: f"{each[-1] / 1e6:.1f}" for name, each in application.outcome.written.items()}
                run.say(f"after {step + 1} steps, megabytes written: {totals}")
    finally:
        application.close()
    return application.outcome


def main() -> None:
    """Run the benchmark."""
    with benchmark("checkpoint", REDUCED, figures=True) as run, local_cluster(EXECUTORS, MEGABYTES) as spark:
        spark.conf.set("spark.sql.shuffle.partitions", EXECUTORS)
        copies = QUICK_COPIES if run.quick else COPIES
        run.say(f"{copies} times 10,000 lines of a log that is {'real' if LOG.exists() else 'made up'} in a step")
        base = run.work / "parsed"
        parsed(spark, base)
        plain = PlainTrends(spark, base, copies, run.fresh("plain"))
        repeats = QUICK_REPEATS if run.quick else REPEATS
        report(run, [measure(run, spark, base, copies, n, plain) for n in run.repeats(repeats, reserve=15)])


def report(run: Run, outcomes: list[Outcome]) -> None:
    """Keep and print the figures."""
    curves = {
        name: [median(each.written[name][step] for each in outcomes) for step in range(STEPS)] for name in POLICIES
    }
    for steps in (SHORT, STEPS):
        for name, curve in curves.items():
            run.figure(f"steps{steps}.{name}_bytes", curve[steps - 1])
        run.figure(f"steps{steps}.edge_over_lookahead", curves["edge"][steps - 1] / curves["lookahead"][steps - 1])
    times = [(outcome.bound, seconds) for outcome in outcomes for _, seconds in outcome.recoveries]
    run.figure("steps_made", min(each.made for each in outcomes))
    run.figure("bound_broken", sum(seconds > bound for bound, seconds in times))
    run.figure("recoveries", len(times))
    run.figure("bound_s", median(bound for bound, _ in times))
    run.figure("recovery_s", median(seconds for _, seconds in times))
    run.figure("recovery_over_bound_worst", max(seconds / bound for bound, seconds in times))
    run.table(
        "megabytes written, median of the repeats",
        ["policy", *(f"{steps} steps" for steps in (SHORT, STEPS)), "datasets written in steps that were made"],
        [
            [
                name,
                *(curve[steps - 1] / 1e6 for steps in (SHORT, STEPS)),
                median(each.checkpoints[name] for each in outcomes),
            ]
            for name, curve in curves.items()
        ],
    )
    sizes = {kind: [pair for each in outcomes for pair in each.sizes[kind]] for kind in KINDS}
    cached = [fmean(held for held, _ in sizes[kind]) / 1e6 for kind in KINDS]
    copies = [[copy for _, copy in sizes[kind] if copy] for kind in KINDS]
    files = [fmean(each) / 1e6 if each else 0.0 for each in copies]
    steps = list(range(1, STEPS + 1))
    series = tuple(Series(name, steps, [each / 1e6 for each in curve]) for name, curve in curves.items())
    text = f"Bytes of checkpoints over the steps; recovery within {WITHIN:.0f} steps' work, {EXECUTORS} executors."
    panel = Panel(Form.TIMES, "Checkpointed (Figure 18)", "step", "megabytes", series)
    bars = (Series("cached", (), cached), Series("checkpoint", (), files))
    dataset = Panel(Form.BARS, "Size, where written (Figure 17)", "dataset", "megabytes", bars, tuple(KINDS))
    run.draw(Figure("checkpoint", "Checkpoints that keep a bound", text, (panel, dataset), columns=2))


if __name__ == "__main__":
    main()
