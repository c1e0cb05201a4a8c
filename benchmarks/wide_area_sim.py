"""Parcels on links in virtual time: direct paths, Algorithm 1, a plan, and a plan that is kept up to date.

    python -m benchmarks.wide_area_sim [--quick]

100 sites, 1,000 flows of keys that repeat, limits of 3 to 20 s. Parcels vary in size, jobs in time; each link serves
what is ready first. In the rough world bandwidths wander by 10 %, one link in 100 drops to 0.3 for a minute every
minute, and one site is away for a minute; in the steady one links stay. A latency is that of an interval's oldest row
until all of the interval is merged at the destination. Algorithm 1 never leaves direct paths where those fit, so that
`printed` is direct paths with the intervals of the largest goodput.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from benchmarks.alternating import direct
from benchmarks.harness import benchmark, mean_interval
from benchmarks.wide_problems import keyed, large
from transom.widearea.flows import Floats
from transom.widearea.objectives import Objective, Worth
from transom.widearea.planning import plan
from transom.widearea.plans import Plan
from transom.widearea.problem import Column, Problem
from transom.widearea.timing import phases
from transom.widearea.topology import INTERVALS

FORMS = ("direct", "printed", "plan", "adapted")
SITES, SECONDS, SEEDS = 100, 600, 10
QUICK_SITES, QUICK_SECONDS, QUICK_SEEDS = 30, 180, 2
REDUCED = f"{QUICK_SITES} sites instead of {SITES}, {QUICK_SECONDS} s instead of {SECONDS}, {QUICK_SEEDS} seeds"
SPARE = 3.0
"""Links are so many times what direct needs at the longest interval."""
PLANNING = 60.0
"""Seconds of solvers, for the plan and for the intervals of direct paths alike."""
LIMITS = (3.0, 5.0, 10.0, 20.0)
EVERY = 60
"""Seconds between two looks at the plan that is kept up to date, and how long what fails stays away."""
NOISE = 0.05
"""Standard deviation of the logarithms of sizes and times of jobs."""


class Phase(NamedTuple):
    """Columns and phases that hold from a second on."""

    since: int
    columns: list[Column]
    phase: dict[int, int]


class Outcome(NamedTuple):
    """Latencies of intervals by flow, seconds; what never arrived counts as endless.

    Each flow counts alike, however often it leaves: else flows that leave at every tick would count sixty times.
    """

    latency: list[list[float]]
    sent: float

    def within(self, problem: Problem) -> float:
        """Return the share of time whose rows are within the limits: of each flow's intervals, the mean over flows."""
        pairs = zip(problem.flows, self.latency, strict=True)
        return float(np.mean([np.mean(np.array(took) <= flow.limit) for flow, took in pairs]))

    def p95(self) -> float:
        """Return the 95th percentile over the intervals of all flows."""
        took = np.concatenate(self.latency)
        weights = np.concatenate([np.full(len(each), 1.0 / len(each)) for each in self.latency])
        order = np.argsort(took)
        share = np.cumsum(weights[order]) / weights.sum()
        return float(took[order][np.searchsorted(share, 0.95)])


def bandwidths(problem: Problem, seconds: int, seed: int, rough: bool) -> Floats:
    """Return bytes per second of each link in each second; shape (seconds, links)."""
    rng = np.random.default_rng(seed)
    base = np.broadcast_to(problem.speed.ravel(), (seconds, problem.sites**2)).copy()
    if not rough:
        return base
    wander = np.zeros(base.shape[1])
    for second in range(seconds):
        wander = 0.98 * wander + 0.1 * np.sqrt(1 - 0.98**2) * rng.standard_normal(len(wander))
        base[second] *= np.exp(wander)
    for start in range(0, seconds, EVERY):
        base[start : start + EVERY, rng.random(base.shape[1]) < 0.01] *= 0.3
    away, start = int(rng.integers(problem.sites)), seconds // 2
    by_site = base.reshape(seconds, problem.sites, problem.sites)
    by_site[start : start + EVERY, away] = by_site[start : start + EVERY, :, away] = 0.0
    return base


class Links:
    """When parcels are through: each link serves one after the other, at the bandwidth of each second."""

    def __init__(self, rates: Floats) -> None:
        self.done = np.ascontiguousarray(np.vstack([np.zeros(rates.shape[1]), np.cumsum(rates, axis=0)]).T)
        self.rates, self.free = rates, np.zeros(rates.shape[1])

    def send(self, link: int, ready: float, size: float) -> float:
        """Return when a parcel is through; infinite if that is after the end."""
        begin, done = max(ready, self.free[link]), self.done[link]
        if begin >= len(self.rates):
            return np.inf
        second = int(begin)
        target = done[second] + (begin - second) * self.rates[second, link] + size
        end = int(np.searchsorted(done, target))
        self.free[link] = np.inf if end == len(done) else end - 1 + (target - done[end - 1]) / self.rates[end - 1, link]
        return float(self.free[link])


def simulate(problem: Problem, timeline: Sequence[Phase], rates: Floats, seed: int) -> Outcome:
    """Return what the flows experience."""
    rng, links, seconds = np.random.default_rng(seed + 1), Links(rates), len(rates)
    parcels: list[tuple[float, int, int, int, int, int]] = []
    trees: list[dict[int, Column]] = []
    waiting: dict[tuple[int, int, int], list[float]] = {}
    begun: dict[tuple[int, int], float] = {}
    left = [0.0] * len(problem.flows)
    for number, phase in enumerate(timeline):
        until = timeline[number + 1].since if number + 1 < len(timeline) else seconds - EVERY // 2
        trees.append({column.flow: column for column in phase.columns})
        for column in phase.columns:
            shape, ticks = problem.shapes[column.flow], INTERVALS[column.at]
            groups, first = shape.groups(column.parents), phase.since + (phase.phase[column.flow] - phase.since) % ticks
            for at in range(first, until, ticks):
                begun[column.flow, at], left[column.flow] = left[column.flow], float(at)
                for head, mask in groups.items():
                    parts = [bit for bit, site in enumerate(shape.sources) if mask >> bit & 1 and site != head]
                    waiting[column.flow, at, head] = [float(len(parts)), 0.0]
                    for bit in parts:
                        ready = at + shape.flow.job * float(np.exp(rng.normal(0, NOISE)))
                        parcels.append((ready, column.flow, at, shape.sources[bit], head, number))
                    if not parts:
                        ready = at + shape.flow.job * float(np.exp(rng.normal(0, NOISE)))
                        parcels.append((ready, column.flow, at, head, shape.destination, number))
    heapify(parcels)
    ends: list[dict[int, float]] = [{} for _ in problem.flows]
    sent, noise, count = 0.0, np.exp(rng.normal(0, NOISE, 1 << 16)), 0
    while parcels:
        ready, flow, at, source, target, number = heappop(parcels)
        shape, column = problem.shapes[flow], trees[number][flow]
        last = target == shape.destination
        mask = shape.groups(column.parents)[source] if last else 1 << shape.sources.index(source)
        span = min(max((at - begun[flow, at]) / INTERVALS[column.at], 0.5), 1.0)  # the first ones gather less
        size, count = float(shape.size(mask)[column.at]) * span * noise[count & 0xFFFF], count + 1
        sent += size
        merged = links.send(source * problem.sites + target, ready, size) + shape.flow.merging
        if last:
            ends[flow][at] = max(ends[flow].get(at, 0.0), merged - begun[flow, at])
            continue
        state = waiting[flow, at, target]
        state[0], state[1] = state[0] - 1, max(state[1], merged)
        if not state[0]:
            if np.isfinite(state[1]):
                heappush(parcels, (state[1], flow, at, target, shape.destination, number))
            else:
                ends[flow][at] = np.inf
    steady = [[took for at, took in sorted(each.items()) if at >= EVERY] for each in ends]
    return Outcome([each or [np.inf] for each in steady], sent)


def columns_of(problem: Problem, found: Plan) -> Phase:
    """Return a plan's columns and phases."""
    numbers = {flow.name: number for number, flow in enumerate(problem.flows)}
    columns = [problem.column(numbers[route.flow], route.tree, route.interval) for route in found.routes]
    return Phase(0, columns, {numbers[route.flow]: route.phase for route in found.routes})


def on_direct(problem: Problem, objective: Objective) -> Phase:
    """Return the best intervals of direct paths."""
    columns = direct(Worth(problem, objective), PLANNING)
    assert columns is not None, "links have room for direct"
    return Phase(0, columns, phases(problem, columns, {}))


def adapted(problem: Problem, first: Plan, rates: Floats) -> list[Phase]:
    """Return the plan and those that follow it, from the bandwidths of the last 10 s."""
    found, timeline = first, [columns_of(problem, first)]
    names = problem.topology.sites
    for second in range(EVERY // 6, len(rates) - EVERY, EVERY // 2):
        seen = rates[second - EVERY // 6 : second].mean(axis=0).reshape(problem.sites, -1)
        links = {(names[a], names[b]): float(seen[a, b]) for a, b in np.argwhere(problem.capacity > 0)}
        new = plan(replace(problem.topology, links=links), problem.flows, "latency", 10.0, found)
        if new.version != found.version:
            found = new
            timeline.append(columns_of(problem, new)._replace(since=second))
    return timeline


def problem_of(seed: int, sites: int) -> Problem:
    """Draw a problem with limits."""
    drawn = large(seed, keyed, 1.0, SPARE, sites)
    limits = np.random.default_rng(seed).choice(LIMITS, len(drawn.flows))
    flows = tuple(replace(f, limit=float(limit)) for f, limit in zip(drawn.flows, limits, strict=True))
    return Problem(drawn.topology, flows)


def main() -> None:
    """Run the benchmark."""
    with benchmark("wide_area_sim", REDUCED) as run:
        sites, seconds, seeds = (QUICK_SITES, QUICK_SECONDS, QUICK_SEEDS) if run.quick else (SITES, SECONDS, SEEDS)
        found: dict[str, dict[str, list[float]]] = {form: {"within": [], "p95_s": [], "bytes": []} for form in FORMS}
        close: list[float] = []
        for seed in range(seeds):
            problem = problem_of(seed, sites)
            made = plan(problem.topology, problem.flows, "latency", PLANNING)
            rough = bandwidths(problem, seconds, seed, rough=True)
            timelines = {
                "direct": [on_direct(problem, "latency")],
                "printed": [on_direct(problem, "goodput")],
                "plan": [columns_of(problem, made)],
                "adapted": adapted(problem, made, rough),
            }
            for form, timeline in timelines.items():
                outcome = simulate(problem, timeline, rough, seed)
                measured = (outcome.within(problem), outcome.p95(), outcome.sent)
                for name, value in zip(("within", "p95_s", "bytes"), measured, strict=True):
                    found[form][name].append(value)
            steady = simulate(problem, timelines["plan"], bandwidths(problem, seconds, seed, rough=False), seed)
            for route in made.routes:
                number = next(n for n, flow in enumerate(problem.flows) if flow.name == route.flow)
                close.append(abs(route.latency / float(np.percentile(steady.latency[number], 95)) - 1))
            shares = ", ".join(f"{form} {found[form]['within'][-1]:.4f}" for form in FORMS)
            run.say(f"seed {seed}: within {shares}; {len(timelines['adapted'])} plans")
        for form in FORMS:
            for name, values in found[form].items():
                run.figure(f"{form}.{name}", float(np.mean(values)))
        run.figure("predicted.within20", float(np.mean(np.array(close) <= 0.2)))
        worse = 0
        for name, sign in (("within", -1.0), ("p95_s", 1.0)):
            pairs = np.minimum([found["plan"][name], found["direct"][name]], seconds)  # endless: at least the whole run
            differences = (sign * (pairs[0] - pairs[1])).tolist()
            mean, half = mean_interval(differences) if len(differences) > 1 else (0.0, 0.0)
            worse += mean - half > 1e-9
        run.figure("plan_worse", float(worse))
        run.check([])


if __name__ == "__main__":
    main()
