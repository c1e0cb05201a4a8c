"""Random jobs fused: traffic between components and their number, as in figures 14 and 15 of the Enorm paper."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from statistics import fmean

from benchmarks.fusing.fusion import Score, fuse, fuse_from_operators, fuse_greedily, traffic
from benchmarks.fusing.labels import labels_of
from benchmarks.fusing.optimum import optimum
from benchmarks.harness import Run, benchmark
from benchmarks.random_jobs import random_job
from transom.windows.operators import Fused, Graph

SIZES = (50, 100, 150)
JOBS, QUICK_JOBS = 500, 100
SMALL = (8, 12, 16, 20)
"""Operators of the jobs that are compared with the optimum."""
SMALL_JOBS, QUICK_SMALL_JOBS = 100, 30
REDUCED = (
    f"{QUICK_JOBS} jobs per size instead of {JOBS}, {QUICK_SMALL_JOBS} small jobs per size instead of {SMALL_JOBS}"
)
METHODS: dict[str, Callable[[Graph], tuple[Fused, ...]]] = {
    "baseline": fuse_from_operators,
    "pa": lambda graph: fuse_greedily(graph, Score.PA),
    "comm": lambda graph: fuse_greedily(graph, Score.COMM),
    "search": fuse,
}
"""The paper's three, and what Transom does."""


def broken(graph: Graph, components: Sequence[Fused], name: str) -> list[str]:
    """Return what makes a fusion invalid: an operator lost, or fused without a common attribute."""
    labels_of(graph, components)
    return [f"{name}: {one} has no attribute in common" for one in components if len(one) > 1 and not one.partition]


def percent(graph: Graph, components: Sequence[Fused]) -> float:
    """Return traffic between components in percent of all traffic."""
    return 100 * traffic(graph, components) / sum(graph.weights or ())


def large(run: Run, operators: int, jobs: int) -> None:
    """Fuse random jobs of one size by every method, and check the order of the methods that the paper found."""
    chooser = random.Random(operators)
    shares: dict[str, list[float]] = {name: [] for name in METHODS}
    counts: dict[str, list[float]] = {name: [] for name in METHODS}
    for _ in range(jobs):
        graph = random_job(operators, chooser)
        for name, method in METHODS.items():
            components = method(graph)
            run.check(broken(graph, components, name))
            shares[name].append(percent(graph, components))
            counts[name].append(len(components))
    mean_shares = {name: fmean(values) for name, values in shares.items()}
    mean_counts = {name: fmean(values) for name, values in counts.items()}
    for name in METHODS:
        run.figure(f"n{operators}.{name}.traffic", mean_shares[name])
        run.figure(f"n{operators}.{name}.components", mean_counts[name])
    three = ("baseline", "pa", "comm")
    if min(three, key=mean_shares.__getitem__) != "comm":
        run.check([f"n{operators}: COMM has not the least traffic"])
    if min(three, key=mean_counts.__getitem__) != "pa":
        run.check([f"n{operators}: PA has not the fewest components"])
    run.table(
        f"{operators} operators, means of {jobs} jobs",
        ["", "traffic %", "components"],
        [[name, mean_shares[name], mean_counts[name]] for name in METHODS],
    )


def small(run: Run, jobs: int) -> None:
    """Compare the methods with the optimum: what they leave above it, in percent of the optimum."""
    chooser = random.Random(1)
    rows, totals = [], dict.fromkeys(("optimum", *METHODS), 0.0)
    for operators in SMALL:
        found = dict.fromkeys(totals, 0.0)
        solved = 0
        for _ in range(jobs):
            graph = random_job(operators, chooser)
            best = optimum(graph)
            if best is None:
                continue
            solved += 1
            run.check(broken(graph, best, "optimum"))
            found["optimum"] += (least := percent(graph, best))
            for name, method in METHODS.items():
                share = percent(graph, method(graph))
                found[name] += share
                if share < least - 1e-9:
                    run.check([f"{name} has less traffic than the optimum"])
        rows.append([operators, solved, found["optimum"] / solved, *(gap(found, name) for name in METHODS)])
        for name, value in found.items():
            totals[name] += value
    run.table("Above the optimum, percent", ["operators", "jobs", "optimum %", *METHODS], rows)
    run.figure("greedy_gap", gap(totals, "search"))
    for name in ("baseline", "pa", "comm"):
        run.figure(f"{name}_gap", gap(totals, name))


def gap(totals: dict[str, float], name: str) -> float:
    """Return by how many percent a method's traffic is above the optimum.

    >>> gap({"optimum": 10.0, "comm": 10.5}, "comm")
    5.0
    """
    return 100 * (totals[name] / totals["optimum"] - 1)


def main() -> None:
    """Run the benchmark."""
    with benchmark("fusion", REDUCED) as run:
        for operators in SIZES:
            large(run, operators, QUICK_JOBS if run.quick else JOBS)
            run.say(f"{operators} operators done")
        small(run, QUICK_SMALL_JOBS if run.quick else SMALL_JOBS)


if __name__ == "__main__":
    main()
