"""Scheduling policies in simulation: latency, share within the limit, throughput and memory, by workload and load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from benchmarks import klink_figures
from benchmarks.harness import Run, benchmark
from benchmarks.klink_figures import Sampled
from transom.model.time import MICROS_PER_SECOND as SECOND
from transom.scheduling.policies import policy_named
from transom.simulation.outcome import Outcome
from transom.simulation.sim import Machine, Simulation
from transom.simulation.world import StreamTruth, World, load, make_world, together

CORES = 24
"""Of the machine in the Klink paper."""
MEMORY = 17.5e9
"""Bytes that its engine had."""
FULL_AT = 78
"""Queries of the paper's rates that fill the cores: its latencies at 80 queries, 15 s in the mean of 20 minutes, are
those of a load just above 1."""
QUERIES = 80
"""Queries where the load is given."""
SEEDS, SECONDS, WARM_UP = 10, 1_200, 60
QUICK_SEEDS, QUICK_SECONDS, QUICK_WARM_UP = 3, 100, 40
REDUCED = f"{QUICK_SEEDS} seeds instead of {SEEDS}, {QUICK_SECONDS} s of virtual time instead of {SECONDS}"
POLICIES = ("klink", "fcfs", "round_robin", "highest_rate", "streambox", "fair")
METRICS = ("mean_s", "p99_s", "within_share", "throughput", "memory")
_T95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}

YSB = StreamTruth(
    rate=10_000,
    slide=3 * SECOND,
    length=3 * SECOND,
    limit=3 * SECOND // 2,
    job=0.1,
    row=28e-6,
    partials=100,
    watermark_every=3 * SECOND,
)
"""10,000 events per second, windows of 3 s by 100 campaigns."""
LRB = replace(YSB, rate=3_250, length=5 * SECOND, partials=300, watermark_every=SECOND, inputs=3)
"""One of three joined sub-streams of 6,500 events in 2 s; windows of 5 s by 3 s."""
NYT = replace(
    YSB,
    rate=7_000,
    slide=SECOND,
    length=2 * SECOND,
    limit=SECOND,
    partials=1_000,
    burst=0.3,
    delay="zipf",
    watermark_every=None,
)
"""7,000 events per second in bursts, windows of 2 s by 1 s, the watermark derived from the events."""
MIX = (
    replace(YSB, rate=4_000, slide=SECOND, length=SECOND, limit=SECOND // 2, row=15e-6, watermark_every=None),
    YSB,
    replace(NYT, slide=2 * SECOND, length=10 * SECOND),
    replace(
        YSB,
        rate=5_000,
        slide=10 * SECOND,
        length=10 * SECOND,
        limit=5 * SECOND,
        row=60e-6,
        delay="zipf",
        watermark_every=SECOND,
    ),
)
"""A quarter of the queries each: short windows, cheap and urgent, to long ones, costly and patient."""

WORKLOADS: dict[str, Callable[[int], list[StreamTruth]]] = {
    "ysb": lambda queries: [YSB] * queries,
    "lrb": lambda queries: [LRB] * (LRB.inputs * queries),
    "nyt": lambda queries: [NYT] * queries,
    "mix": lambda queries: [MIX[place % len(MIX)] for place in range(queries)],
}
LOADS = {
    "load70": (QUERIES, 0.7),
    "load85": (QUERIES, 0.85),
    "load95": (QUERIES, 0.95),
    "load110": (QUERIES, 1.1),
    "n60": (60, 60 / FULL_AT),
    "n80": (80, 80 / FULL_AT),
}
"""Queries, and offered work over capacity."""


DRAWN = (1, 10, 20, 40, 60, 80)
"""Numbers of queries in the figures, with the paper's rates."""


def at_load(streams: Sequence[StreamTruth], share: float) -> list[StreamTruth]:
    """Return the streams with the cost of their rows changed so that their load is `share`; jobs cost what they do."""
    fixed = load([replace(stream, row=0) for stream in streams], CORES)
    factor = (share - fixed) / (load(streams, CORES) - fixed)
    return [replace(stream, row=stream.row * factor) for stream in streams]


def streams_of(workload: str, level: str) -> list[StreamTruth]:
    """Return the streams of a workload at a load; of Linear Road, three streams a query, half the queries at a load."""
    queries, share = LOADS[level]
    if workload == "lrb" and level.startswith("load"):
        queries //= 2
    return at_load(WORKLOADS[workload](queries), share)


def figures_of(outcome: Outcome) -> dict[str, np.ndarray]:
    """Return the figures of each run."""
    values = (outcome.mean(), outcome.quantile(0.99), outcome.within(), outcome.throughput, outcome.memory)
    return dict(zip(METRICS, values, strict=True))


def simulate(
    levels: Mapping[str, Sequence[StreamTruth]],
    policies: Sequence[str],
    seeds: Sequence[int],
    seconds: int,
    warm_up: int,
) -> dict[str, dict[str, Outcome]]:
    """Return what each policy gives at each level, side by side and on the same arrivals; by level and policy."""
    arrivals: dict[int, World] = {}
    worlds = []
    for streams in levels.values():
        if len(streams) not in arrivals:  # levels with as many queries differ in the cost of rows alone
            arrivals[len(streams)] = make_world(streams, seeds, seconds)
        worlds.append(replace(arrivals[len(streams)], streams=(tuple(streams),) * len(seeds)))
    machine = Machine(cores=CORES, tick=SECOND // 50, memory=MEMORY)
    outcomes = Simulation(together(worlds), [policy_named(policy) for policy in policies], machine).run(
        warm_up * SECOND
    )
    count = len(seeds)
    return {
        name: {
            policy: outcome.part(place * count, (place + 1) * count)
            for policy, outcome in zip(policies, outcomes, strict=True)
        }
        for place, name in enumerate(levels)
    }


def alone(streams: Sequence[StreamTruth], seconds: int, warm_up: int) -> np.ndarray:
    """Return the mean latency of each query by itself, seconds: with as many cores as streams nobody waits for one."""
    world = make_world(streams, [0], seconds)
    machine = Machine(cores=len(streams), tick=SECOND // 50)
    return np.asarray(Simulation(world, [policy_named("klink")], machine).run(warm_up * SECOND)[0].by_query()[0])


def lost(klink: np.ndarray, other: np.ndarray, less_is_better: bool) -> bool:
    """Tell whether Klink is worse beyond the 95 % interval of the paired differences (Student's t)."""
    worse = (klink - other) * (1 if less_is_better else -1)
    half = _T95[len(worse)] * worse.std(ddof=1) / np.sqrt(len(worse))
    return bool(worse.mean() - half > 1e-9)


def report(run: Run, workload: str, name: str, found: Mapping[str, Outcome], ideal: np.ndarray) -> list[str]:
    """Report what all policies gave at one load; return the comparisons that Klink lost."""
    values = {policy: figures_of(outcome) for policy, outcome in found.items()}
    for policy, each in values.items():
        for metric in METRICS:
            run.figure(f"{workload}.{name}.{policy}.{metric}", float(each[metric].mean()))
    run.table(
        f"{workload} {name}: {len(streams_of(workload, name))} streams",
        ["policy", *METRICS, "slowdown"],
        [
            [
                policy,
                *(float(each[metric].mean()) for metric in METRICS),
                float(found[policy].slowdown(ideal).mean()),
            ]
            for policy, each in values.items()
        ],
    )
    return [
        f"{workload}.{name}.{policy}.{metric}"
        for policy in POLICIES[1:]
        for metric in METRICS[:3]
        if lost(values["klink"][metric], values[policy][metric], metric != "within_share")
    ]


def check(run: Run, workload: str, name: str) -> None:
    """Check what cannot be otherwise: shares are shares, and nobody processes more rows than come."""
    wrong = []
    offered = sum(stream.rate for stream in streams_of(workload, name))
    for policy in POLICIES:
        figures = {metric: run.figures[f"{workload}.{name}.{policy}.{metric}"] for metric in METRICS}
        if not 0 <= figures["within_share"] <= 1 or figures["mean_s"] > figures["p99_s"] + 1e-9:
            wrong.append(f"{workload}.{name}.{policy}: {figures} cannot be")
        if figures["throughput"] > offered * 1.1:
            wrong.append(f"{workload}.{name}.{policy}: more rows processed than came")
    run.check(wrong)


def sampled(outcome: Outcome) -> Sampled:
    """Return what the figures show of an outcome."""
    latencies = outcome.latency[~np.isnan(outcome.latency)]
    return Sampled(latencies, outcome.mean(), outcome.throughput, outcome.held, outcome.used)


def draw(run: Run, seeds: int, seconds: int, warm_up: int) -> None:
    """Run what the figures show, and write them."""
    found = {}
    for workload in ("ysb", "lrb", "nyt"):
        levels = {str(queries): at_load(WORKLOADS[workload](queries), queries / FULL_AT) for queries in DRAWN}
        outcomes = simulate(levels, POLICIES, range(seeds), seconds, warm_up)
        found[workload] = {
            int(queries): {policy: sampled(outcome) for policy, outcome in each.items()}
            for queries, each in outcomes.items()
        }
    for figure in klink_figures.figures(found, seconds, MEMORY):
        run.draw(figure)


def main() -> None:
    """Run the benchmark."""
    with benchmark("klink_sim", REDUCED, figures=True, parts=tuple(WORKLOADS)) as run:
        seeds, seconds, warm_up = (
            (QUICK_SEEDS, QUICK_SECONDS, QUICK_WARM_UP) if run.quick else (SEEDS, SECONDS, WARM_UP)
        )
        worse: list[str] = []
        for workload in run.parts:
            levels = {name: streams_of(workload, name) for name in LOADS}
            found = simulate(levels, POLICIES, range(seeds), seconds, warm_up)
            for name in LOADS:
                ideal = alone(levels[name], QUICK_SECONDS, QUICK_WARM_UP)
                worse += report(run, workload, name, found[name], ideal)
                check(run, workload, name)
        for name in worse:
            run.say(f"Klink is worse: {name}")
        run.figure("klink_worse", float(len(worse)))
        if run.plots is not None:
            draw(run, seeds, seconds, warm_up)


if __name__ == "__main__":
    main()
