"""Which way partials travel, and how often: the planner against direct paths, Algorithm 1 of the paper, and bounds.

    python -m benchmarks.routing [--quick]

Processor seconds are those of this process. `paper`: seven sites, Table I, the printed U, bandwidths of 5 to 35 Mbit/s,
ticks of 0.2 s; sums of departures per second, each interval at most what direct paths have. `words` and `keyed`: the
same with sizes as measured (at links where direct just fits with the longest intervals). `large`: 100 sites, 1,000
flows. With the sample of Wikipedia in `--data`, word counts are measured there; else their sizes are those that were
measured once, and `fit` takes words by Zipf's law.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from datasketches import update_theta_sketch

from benchmarks.alternating import RULES, alternate, direct
from benchmarks.harness import Run, benchmark
from benchmarks.wide_problems import keyed, large, measured_words, paper, partials, printed, scaled, text_of, with_links
from transom.widearea.flows import Floats
from transom.widearea.joint import joint
from transom.widearea.objectives import Worth
from transom.widearea.planning import plan
from transom.widearea.plans import Plan
from transom.widearea.problem import Column, Problem
from transom.widearea.sizes import NOMINAL, MeasuredSizes, Observed
from transom.widearea.topology import INTERVALS

TICK = 0.2
INSTANCES, QUICK_INSTANCES = 100, 6
LARGE, QUICK_LARGE = 5, 1
SECONDS, LARGE_SECONDS, BOUND_SECONDS = 10.0, 60.0, 60.0
REDUCED = f"{QUICK_INSTANCES} instances instead of {INSTANCES}, {QUICK_LARGE} large ones instead of {LARGE}"
ENOUGH = 0.01
"""A gap above which a better bound is looked for."""
CHANGED, THINNER = 10, 1 / 3
"""Links that change before a plan is made again, and what is left of them."""


def value_of(worth: Worth, columns: Sequence[Column] | None) -> float:
    """Return the sum of departures per second; 0 where no plan was found."""
    return sum(map(worth.value, columns)) if columns is not None else 0.0


def bounded(problem: Problem) -> tuple[Problem, list[Column]] | None:
    """Return the problem with direct's intervals as the longest, and direct; None if direct does not fit."""
    columns = direct(Worth(problem, "frequencies"))
    if columns is None:
        return None
    flows = [replace(f, most=INTERVALS[c.at]) for f, c in zip(problem.flows, columns, strict=True)]
    return Problem(problem.topology, tuple(flows)), columns


def exceeded(problem: Problem, found: Plan) -> int:
    """Return how many links a plan exceeds, its loads computed again."""
    numbers = {flow.name: number for number, flow in enumerate(problem.flows)}
    columns = [problem.column(numbers[route.flow], route.tree, route.interval) for route in found.routes]
    return int((problem.use(columns) > problem.capacity * (1 + 1e-6)).sum())


def planned(problem: Problem, seconds: float, last: Plan | None = None) -> tuple[Plan, float]:
    """Return a plan and the processor seconds that it took."""
    before = time.process_time()
    found = plan(problem.topology, problem.flows, "frequencies", seconds, last)
    return found, time.process_time() - before


def papers(run: Run, count: int) -> int:
    """Measure the paper's instances; return how many links were exceeded."""
    rows: dict[str, list[float]] = {name: [] for name in ("direct", *RULES, "plan", "optimum", "gap", "s")}
    detours = over = 0
    for seed in range(count):
        free = paper(seed, printed, TICK)
        drawn = bounded(free)
        if drawn is None:
            continue
        problem, columns = drawn
        worth = Worth(problem, "frequencies")
        found, seconds = planned(problem, SECONDS)
        assert not found.left_out, "direct fits, so all flows do; else the bound would be of other flows"
        over += exceeded(problem, found)
        bound = found.bound
        if found.gap > ENOUGH:
            proof = joint(worth, np.full(len(problem.flows), worth.spread()), BOUND_SECONDS, ENOUGH / 2)
            bound = min(bound, proof.bound) if proof is not None else bound
        for rule in RULES:
            baseline = alternate(Worth(free, "frequencies"), rule)
            rows[rule].append(value_of(worth, baseline))
            if rule == "printed":
                detours += sum(a.parents != b.parents for a, b in zip(baseline or (), columns, strict=True))
        measured = (value_of(worth, columns), found.value, bound, bound / found.value - 1, seconds)
        for name, value in zip(("direct", "plan", "optimum", "gap", "s"), measured, strict=True):
            rows[name].append(value)
    run.table(
        f"paper: {len(rows['s'])} of {count} instances (in the others direct does not fit)",
        ["", "median", "5 %", "95 %"],
        [[name, *map(float, np.percentile(values, (50, 5, 95)))] for name, values in rows.items()],
    )
    for name, values in rows.items():
        run.figure(f"paper.{name}", float(np.percentile(values, 95 if name in ("gap", "s") else 50)))
    run.figure("printed.detours", float(detours))
    return over


def ratios(run: Run, name: str, count: int, size: Callable[[Floats], Floats]) -> int:
    """Measure departures against direct's where direct just fits, and the bandwidth that direct needs."""
    found, thin, gaps, over = [], [], [], 0
    for seed in range(count):
        problem = scaled(paper(seed, size, TICK), 1.0 + 1e-9)
        drawn = bounded(problem)
        if drawn is None:
            continue
        made, _ = planned(drawn[0], SECONDS)
        assert not made.left_out, "direct fits"
        over += exceeded(drawn[0], made)
        found.append(made.value / value_of(Worth(drawn[0], "frequencies"), drawn[1]))
        gaps.append(made.gap)
        if name == "words" and len(thin) < 2:
            thin.append(thinnest(problem))
    low, middle, high = np.percentile(found, (5, 50, 95))
    run.say(
        f"{name}: {low:.3f}, {middle:.3f}, {high:.3f} times direct (5, 50, 95 % of {len(found)}); "
        f"gaps up to {max(gaps):.3f}; thin links {np.round(thin, 2)}"
    )
    run.figure(f"{name}.ratio", float(np.median(found)))
    if thin:
        run.figure(f"{name}.thin_ratio", float(np.median(thin)))
    return over


def thinnest(problem: Problem) -> float:
    """Return how many times the bandwidth direct needs, against the thinnest links over which a plan has all flows."""
    low, high = 0.1, 1.0
    flows = tuple(replace(flow, least=INTERVALS[-1]) for flow in problem.flows)
    while high / low > 1.05:
        middle = float(np.sqrt(low * high))
        found, _ = planned(Problem(with_links(problem, middle).topology, flows), SECONDS)
        low, high = (middle, high) if found.left_out else (low, middle)
    return 1 / high


def larges(run: Run, count: int) -> int:
    """Measure large instances, cold and again after links changed; return how many links were exceeded."""
    gaps, tight, hard, cold, again, over = [], [], [], [], [], 0
    for seed in range(count):
        problem = large(seed, printed, TICK, 2.0)
        first, seconds = planned(problem, LARGE_SECONDS)
        assert not first.left_out, "direct fits"
        busy = sorted(first.links, key=lambda use: -use.used / use.capacity)[:CHANGED]
        thinner = {use.link: problem.topology.links[use.link] * THINNER for use in busy}
        changed = Problem(replace(problem.topology, links={**problem.topology.links, **thinner}), problem.flows)
        second, soon = planned(changed, LARGE_SECONDS, first)
        over += exceeded(problem, first) + exceeded(changed, second)
        gaps += [first.gap, second.gap]
        cold.append(seconds)
        again.append(soon)
        for size, factor, kept in ((printed, 1.0, tight), (keyed, 2.0, hard)):
            other = large(seed, size, TICK if size is printed else 1.0, factor)
            found, _ = planned(other, LARGE_SECONDS)
            over += exceeded(other, found)
            kept.append(found.gap)
        often = sum(route.interval == 1 for route in first.routes) / len(problem.flows)
        run.say(f"large {seed}: {often:.3f} of the flows leave at every tick, which is the most that they can")
        run.say(f"large {seed}: gap {gaps[-2]:.4f}, {seconds:.1f} s; again {gaps[-1]:.4f}, {soon:.1f} s")
        run.say(f"large {seed}: at what direct needs {tight[-1]:.4f}, keyed {hard[-1]:.4f}")
    for name, values in (("gap", gaps), ("tight_gap", tight), ("keyed_gap", hard), ("s", cold), ("again_s", again)):
        run.figure(f"large.{name}", float(np.percentile(values, 95)))
    return over


def fit(run: Run) -> None:
    """Compare sizes that follow from six ticks and sketches with sizes as they are, up to 60 ticks and three sites."""
    words = text_of(run.data)
    each = len(words) // 3 // 60
    ticks = {site: words[place * 60 * each : (place + 1) * 60 * each] for place, site in enumerate("ABC")}
    observed = {}
    for site, text in ticks.items():
        sketches = {}
        for span in (1, 4, 12, 60):
            sketch = update_theta_sketch(NOMINAL)
            for word in text[: span * each]:
                sketch.update(word)
            sketches[span] = sketch.compact().serialize()
        observed[site] = Observed({n: float(len(partials(text[: n * each]))) for n in range(1, 7)}, sketches)
    sizes, ratio = MeasuredSizes(observed), []
    for sites in ("A", "B", "C", "AB", "AC", "BC", "ABC"):
        for at, n in enumerate(INTERVALS):
            truth = len(partials([word for site in sites for word in ticks[site][: n * each]]))
            ratio.append(float(sizes.of(frozenset(sites))[at]) / truth)
    run.say(f"fit: predicted over true sizes {np.round(np.percentile(ratio, (0, 5, 50, 95, 100)), 3)}")
    run.figure("fit.within10", float(np.mean(np.abs(np.array(ratio) - 1) <= 0.1)))
    bytes_in = np.geomspace(1e6, 6e6, 8)
    slope, base = np.polyfit(bytes_in, measured_words(run.data)(bytes_in), 1)
    run.say(
        f"a line over 1 to 6 MB of text: {slope:.3f} I + {base / 1e6:.3f} MB (the paper, 5 to 50 MB: 0.40 I + 0.43)"
    )


def main() -> None:
    """Run the benchmark."""
    with benchmark("routing", REDUCED) as run:
        instances, many = (QUICK_INSTANCES, QUICK_LARGE) if run.quick else (INSTANCES, LARGE)
        over = papers(run, instances)
        over += ratios(run, "words", instances, measured_words(run.data))
        over += ratios(run, "keyed", instances, keyed)
        over += larges(run, many)
        fit(run)
        run.figure("links_exceeded", float(over))
        run.check(["links are exceeded"] if over else [])


if __name__ == "__main__":
    main()
