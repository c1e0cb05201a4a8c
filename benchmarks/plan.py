"""What `transom plan` allows, on Spark: limits that are kept, and rates beside those of rules of thumb.

After Table 4 and Figure 6f to i of Li, Diao and Shenoy (2015). For each job and limit the largest rate is planned that
two cores do. Part `planned` runs it, for the mean and for the 0.99 quantile, and beside it the word count on stock
Spark at the rate that is planned for the mean. Part `rules` looks for the largest rate that is really within the limit,
in steps of 4 %, for rules of thumb, for Transom's defaults, and for what was planned.
Part `machines` needs no quiet machine: in virtual time it looks for the smallest number of executors that really keeps
a limit if all costs are higher by the margin, for random jobs whose costs are known, and tells how often the planned
number is right to within one. Whether a number keeps it is seen in runs with other phases of arrivals and windows each,
until their mean latency is known well enough to tell. `--jobs FIRST LAST` takes other random jobs than those from 0 on.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING

from benchmarks.harness import CORES, Run, benchmark
from benchmarks.model_jobs import JOBS, PIECE
from benchmarks.model_runs import Seen, StockTuning, measure, profiled
from benchmarks.rates import Search as RateSearch
from benchmarks.rates import Trial
from benchmarks.simulated_plans import Truth, compiled_once, play, random_truth, virtual_session
from benchmarks.worker import Worker
from transom.model.tuning import StreamTuning, Tuning
from transom.planning.goals import Choice, Goal
from transom.planning.model import Machine
from transom.planning.profile import Profile
from transom.planning.search import Search
from transom.planning.solve import solve, suffices

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMITS = {"words": 1.0, "windowed": 3.0, "clicks": 1.0}
"""Seconds."""
QUANTILE = 0.99
REPEATS = 3
STEP = 1.04
"""Of one rate to the next that is looked at."""
STOCK = tuple(StockTuning(trigger, partitions) for trigger, partitions in product((0.0, 0.5), (1, CORES)))
"""Of these the best counts."""
SLACK = 20.0
"""Seconds that a run takes at least beside those that count."""
GROWING = 2.0
"""A backlog of so many limits at the end has grown."""
JOBS_IN_VIRTUAL_TIME = 100
SECONDS = 60.0
"""Virtual seconds of a run."""
RUNS = 2, 8
"""With so many settings of phases at least and at most, until it is known whether a limit is kept."""
SURE = 2.0
"""It is when the mean is so many standard errors away from it."""
EXECUTORS = 40
"""There are so many at most."""
FEW_JOBS = 10
"""Of them, with `--quick`, as far as there is time."""
ON_SPARK, ONE_JOB = 230.0, 60.0
"""Seconds that are left for what runs on Spark, or that a job may take."""
TIMED = 10
"""Of so many jobs plans are made in full, and timed."""
REDUCED = (
    "one job, one run of 20 s each instead of three of 90, no rules of thumb, stock Spark with as many settings as "
    "there is time for; up to 10 random jobs instead of 100"
)


@dataclass(frozen=True)
class Planned:
    """The largest rate within a limit, by the model."""

    job: str
    share: float | None
    """Of the results; None for the mean."""
    rate: float
    choice: Choice

    @property
    def label(self) -> str:
        """What is kept."""
        return f"{self.job}, {'mean' if self.share is None else self.share} within {LIMITS[self.job]:g} s"

    def latency(self, seen: Seen) -> float:
        """Return what has the limit, seconds."""
        return seen.mean if self.share is None else seen.quantile

    def met(self, seen: Seen) -> bool:
        """Tell whether it was kept without a growing backlog."""
        limit = LIMITS[self.job]
        return self.latency(seen) <= limit and seen.backlog_seconds <= GROWING * limit


def planned(job: str, known: Profile, share: float | None) -> Planned:
    """Return the largest rate that two cores do within the limit, with the usual margin.

    Raises:
        RuntimeError: There is none.
    """
    streams = {name: replace(each, piece=PIECE, regular=0.0) for name, each in known.streams.items()}
    known = replace(known, streams=streams)
    start = 1_000.0
    goal = Goal(dict.fromkeys(streams, start), dict.fromkeys(streams, LIMITS[job]), share)
    search = Search(known, Machine(CORES, True, known.equipment.driver))
    factor, choice = search.largest(goal, 0.0, 1.0)
    if choice is None:
        raise RuntimeError(f"{job}: no rate is within {LIMITS[job]:g} s by the model.")
    return Planned(job, share, factor * start, choice)


def rules(job: str) -> dict[str, Tuning]:
    """Return the rules of thumb: a trigger, and as many partitions as cores, or 200."""
    return {
        f"{trigger:g} s, {partitions} partitions": Tuning(
            2,
            dict.fromkeys(
                JOBS[job].streams, StreamTuning(round(1e6 * trigger), rows_per_task=1, partitions=partitions)
            ),
        )
        for trigger, partitions in product((0.1, 0.5, 1.0, 5.0), (CORES, 200))
    }


def best_rate(run: Run, worker: Worker, plan: Planned, tuning: Tuning, seconds: float) -> float:
    """Return the largest rate that is really within the limit; 0 if none is."""
    limit = LIMITS[plan.job]
    search = RateSearch(limit, plan.rate, STEP, plan.rate / 64, plan.rate * 8)
    trials: list[Trial] = []
    while (rate := search.next(trials)) is not None:
        try:
            seen = measure(run, worker, JOBS[plan.job], rate, tuning, seconds)
            kept = seen.backlog_seconds <= GROWING * limit
            trials.append(Trial(rate, plan.latency(seen) if kept else float("inf")))
        except RuntimeError as error:  # nothing came in time
            run.say(str(error))
            trials.append(Trial(rate, float("inf")))
        run.say(f"{plan.label}: {rate:,.0f} rows/s, {trials[-1].seconds:.2f} s")
    best = search.best(trials)
    return 0.0 if best is None else best.rate


@dataclass(frozen=True)
class Rates:
    """The largest rates that were really within a limit."""

    planned: float
    rules: dict[str, float]
    default: float

    @property
    def best(self) -> str:
        """The best rule."""
        return max(self.rules, key=lambda name: self.rules[name])


def compare_rules(run: Run, worker: Worker, plan: Planned, seconds: float) -> Rates:
    """Find the largest rates of the plan, the rules and the defaults."""
    found = {name: best_rate(run, worker, plan, tuning, seconds) for name, tuning in rules(plan.job).items()}
    defaults = Tuning(2, dict.fromkeys(JOBS[plan.job].streams, StreamTuning()))
    default = best_rate(run, worker, plan, defaults, seconds)
    own = best_rate(run, worker, plan, plan.choice.tuning, seconds)
    rates = Rates(own, found, default)
    run.figure(f"{plan.job}.planned.rate", own)
    run.figure(f"{plan.job}.rule_best.rate", found[rates.best])
    run.figure(f"{plan.job}.default.rate", default)
    return rates


def show_rates(run: Run, found: dict[str, Rates]) -> None:
    """Print the rates, and keep the gains: medians over the jobs."""
    rows = [
        [job, each.planned, each.rules[each.best], each.best, median(each.rules.values()), each.default]
        for job, each in found.items()
    ]
    columns = ["", "planned, rows/s", "best rule", "which", "median rule", "defaults"]
    run.table("largest rates within the limit", columns, rows)
    for name, others in (
        ("gain", [each.rules[each.best] for each in found.values()]),
        ("gain_median", [median(each.rules.values()) for each in found.values()]),
        ("gain_default", [each.default for each in found.values()]),
    ):
        gains = [each.planned / max(1.0, other) for each, other in zip(found.values(), others, strict=True)]
        run.figure(name, median(gains))


def keep(run: Run, worker: Worker, plans: list[Planned], seconds: float, repeats: int) -> None:
    """Run all plans at their rates, in turn, and stock Spark beside the first, which is that of the word count."""
    rows, met = [], {plan.label: 0 for plan in plans}
    count, words = plans[0], list[float]()
    stock: dict[StockTuning, list[Seen]] = {tuning: [] for tuning in STOCK}
    for number in range(repeats):
        for tuning in STOCK:
            if run.left() < seconds + SLACK * (1 + len(plans)) + seconds * len(plans):
                run.say(f"time is short: {tuning.label} is left out")
                continue
            stock[tuning].append(measure(run, worker, JOBS[count.job], count.rate, tuning, seconds))
            once = stock[tuning][-1]
            run.say(f"{tuning.label}: {count.rate:,.0f} rows/s, {once.mean:.2f} s, {once.missing} windows are missing")
        for plan in plans:
            seen = measure(run, worker, JOBS[plan.job], plan.rate, plan.choice.tuning, seconds)
            met[plan.label] += plan.met(seen)
            if plan is count:
                words.append(seen.mean)
            expected = max(plan.choice.latencies.values())
            rows.append([plan.label, number + 1, plan.rate, expected, plan.latency(seen), seen.backlog_seconds])
            run.say(f"{plan.label}: {plan.rate:,.0f} rows/s, {plan.latency(seen):.2f} s, {expected:.2f} s expected")
    means = {tuning.label: fmean(each.mean for each in some) for tuning, some in stock.items() if some}
    run.table(f"stock Spark at {count.rate:,.0f} rows/s", ["", "mean, s"], [list(each) for each in means.items()])
    run.figure("wordcount.mean_s", fmean(words))
    if means:
        run.figure("stock.mean_s", min(means.values()))
    run.table("plans", ["", "repeat", "rows/s", "expected, s", "seen, s", "left, s"], rows)
    run.figure("runs", float(repeats * len(plans)))
    run.figure("runs_met", float(sum(met.values())))
    for share, name in ((None, "mean"), (QUANTILE, "p99")):
        some = [plan.label for plan in plans if plan.share == share]
        run.figure(f"{name}.runs_met", float(sum(met[label] for label in some)))
        run.figure(f"{name}.runs", float(repeats * len(some)))


@dataclass(frozen=True)
class Numbers:
    """The smallest number of executors that keeps the limits of a job; None if there are not so many."""

    planned: int | None
    real: int | None
    """In virtual time, with the settings that are planned for each number."""

    @property
    def right(self) -> bool:
        """Whether they differ by one at most."""
        planned, real = (EXECUTORS + 1 if number is None else number for number in (self.planned, self.real))
        return abs(planned - real) <= 1


def of_executors(cores: int, executors: int) -> Machine:
    """Return the machine with so many executors."""
    return Machine(executors * cores, shared=False)


def numbers(run: Run, session: SparkSession, truth: Truth, cores: int) -> Numbers:
    """Return the numbers of a job."""
    goal = Goal(truth.rates, truth.limits, None)
    dearer = replace(truth, profile=truth.profile.dearer(1 + goal.margin))
    searches, kept = dict[int, Search](), dict[int, bool]()

    def on(executors: int) -> Search:
        if executors not in searches:
            searches[executors] = Search(truth.profile, of_executors(cores, executors))
        return searches[executors]

    def really(executors: int) -> bool:
        if executors not in kept:
            if executors not in choices:
                choices[executors] = on(executors).checked(goal)
            tuning = choices[executors].tuning
            ratios: list[float] = []
            while not decided(ratios):
                phases = random.Random(f"{executors} {len(ratios)}")
                seen = play(
                    session, run.fresh("virtual"), dearer, executors * cores, SECONDS, tuning, executors, phases=phases
                )
                ratios.append(max(seen.mean(name) / limit for name, limit in truth.limits.items()))
            kept[executors] = fmean(ratios) <= 1
        return kept[executors]

    planned, choices = suffices(goal, on, EXECUTORS)
    real = planned or EXECUTORS
    while real > 1 and really(real - 1):
        real -= 1
    while real <= EXECUTORS and not really(real):
        real += 1
    return Numbers(planned, real if real <= EXECUTORS else None)


def decided(ratios: Sequence[float]) -> bool:
    """Tell whether it is known if a limit is kept, from the ratios of latency to limit in several runs.

    >>> decided([0.7, 0.72]), decided([0.97, 1.01]), decided([math.inf, 0.9])
    (True, False, True)
    """
    least, most = RUNS
    if len(ratios) < least or len(ratios) >= most or math.inf in ratios:
        return len(ratios) >= least
    return abs(fmean(ratios) - 1) > SURE * stdev(ratios) / math.sqrt(len(ratios))


def machines(run: Run, session: SparkSession) -> None:
    """Plan random jobs, and look how many executors they really need."""
    found, took = [], []
    with compiled_once():
        first_job, last_job = run.jobs or (0, JOBS_IN_VIRTUAL_TIME - 1)
        for number in range(first_job, min(last_job + 1, first_job + FEW_JOBS) if run.quick else last_job + 1):
            if found and run.left() < (ON_SPARK if len(run.parts) > 1 else ONE_JOB):
                run.say(f"time is short: {len(found)} jobs")
                break
            chance = random.Random(number)
            cores = chance.choice((1, 2, 4))
            truth = random_truth(chance, cores, EXECUTORS)
            found.append(numbers(run, session, truth, cores))
            if number < first_job + TIMED:
                began = time.process_time()
                goal = Goal(truth.rates, truth.limits, None)
                solve(truth.profile, goal, partial(of_executors, cores), EXECUTORS)
                took.append(time.process_time() - began)
            run.say(f"job {number}, {len(truth.rates)} streams: {found[-1].planned} planned, {found[-1].real} needed")
    off = [abs(each.planned - each.real) for each in found if each.planned is not None and each.real is not None]
    run.table(
        "executors, planned and needed",
        ["", "jobs"],
        [[f"off by {by}", off.count(by)] for by in sorted(set(off))]
        + [["only one of both is there", sum((each.planned is None) is not (each.real is None) for each in found)]],
    )
    run.figure("sim.right", float(sum(each.right for each in found)))
    run.figure("sim.jobs", float(len(found)))
    run.figure("plan_s", max(took))


def main() -> None:
    """Run the benchmark."""
    with benchmark("plan", REDUCED, parts=("machines", "planned", "rules"), jobs=True) as run:
        if "machines" in run.parts:
            machines(run, virtual_session())
            run.compared += 1
        if not {"planned", "rules"} & set(run.parts):
            return
        jobs = ["words"] if run.quick else list(LIMITS)
        seconds = 20.0 if run.quick else 90.0
        with Worker("model_runner", run.work) as worker:
            known = {job: profiled(run, worker, job, 20.0 if run.quick else 120.0)[0] for job in jobs}
            plans = [planned(job, known[job], share) for job in jobs for share in (None, QUANTILE)]
            for plan in plans:
                run.say(f"{plan.label}: {plan.rate:,.0f} rows/s with {plan.choice.tuning.to_json()}")
            if "planned" in run.parts:
                keep(run, worker, plans, seconds, 1 if run.quick else REPEATS)
            if "rules" in run.parts and not run.quick:
                show_rates(run, {p.job: compare_rules(run, worker, p, 30.0) for p in plans if p.share is None})


if __name__ == "__main__":
    main()
