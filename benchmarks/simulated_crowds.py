"""Jobs over datasets with a crowd on a simulated cluster of the paper's machines, in virtual time (Stark, Figure 14).

Which groups there are and where they live is decided by Transom's own `Layout`; a group is a task on a core of its
home. Stock Spark with a range partitioner for each dataset has tasks of equal size, and exchanges all rows for every
job; what it samples for its ranges, and what it takes to write and read them, is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Run
from benchmarks.plots import Form, Panel, Series
from benchmarks.simulated_cluster import Cluster, Machines
from benchmarks.workloads import hotspots
from transom.placement.layout import Layout

Bytes = npt.NDArray[np.float64]

LAST, LATER = 3, 7
"""Datasets of a phase, and jobs after the first."""
SERVERS = 8
"""Simulated: as many as the paper reads the same logs with; eight cores each, which it does not state."""
PARTITIONS, GROUPS = 640, 64
VOLUMES, QUICK_VOLUMES = (200e6, 800e6, 3_200e6), (800e6,)
"""Of a dataset; the figures are of the one in the middle, which is the paper's."""
ROWS, SEEDS = 200_000, 5


@dataclass(frozen=True)
class Costs:
    """Seconds, as measured."""

    job: float
    """Of a job beside its longest task; one that moves partitions takes as long beside the transfers."""
    task: float
    """Of a task without bytes."""
    byte: float
    """Of a task for each byte, the same for all."""


@dataclass(frozen=True)
class Job:
    """What came of a job."""

    seconds: float
    skew: float
    """Largest over mean task input."""
    moved: float = 0.0
    """Bytes that moved before it."""


class Placed:
    """Datasets whose partitions lie where the layout wanted them when they came.

    Args:
        cluster: The machines.
        partitions: Of a dataset.
        groups: Of partitions, at first.
        last: So many datasets are kept, and count for the groups.
        elastic: Bytes of the smallest and the largest group; None: groups stay.
    """

    def __init__(
        self, cluster: Cluster, partitions: int, groups: int, last: int, elastic: tuple[float, float] | None
    ) -> None:
        self._cluster, self._last, self._elastic = cluster, last, elastic
        self.layout = Layout.beginning(partitions, groups, [f"{number:03d}" for number in range(cluster.executors)])
        self._held: list[tuple[Bytes, tuple[int, ...]]] = []

    def add(self, sizes: Bytes) -> None:
        """Add a dataset, given the bytes of its partitions; the oldest goes."""
        self._held = [*self._held, (sizes, self._homes())][-self._last :]
        self.layout = self.layout.with_dataset(sizes.tolist(), self._last, self._elastic)

    def _homes(self) -> tuple[int, ...]:
        return tuple(int(str(home)) for home in self.layout.homes)

    def job(self, costs: Costs, seed: int) -> Job:
        """Ask about all datasets; first what does not lie at home moves there."""
        machines, homes = Machines(self._cluster, seed), self._homes()
        moved: dict[tuple[int, int], float] = {}
        for sizes, places in self._held:
            for size, source, target in zip(sizes, places, homes, strict=True):
                if source != target:
                    moved[source, target] = moved.get((source, target), 0.0) + float(size)
        start = machines.exchange(costs.job, moved) if moved else 0.0
        self._held = [(sizes, homes) for sizes, _ in self._held]
        inputs = self.layout.grouping.sizes(sum((sizes for sizes, _ in self._held), np.zeros(len(homes))))
        ends = [homes[group.start] for group in self.layout.grouping.ranges]
        seconds = _computed(machines, costs, start, ends, inputs)
        return Job(seconds, float(inputs.max() / inputs.mean()), sum(moved.values()))


def ranged(cluster: Cluster, costs: Costs, held: Sequence[Bytes], groups: int, seed: int) -> Job:
    """Ask stock Spark about datasets, given the bytes of their partitions: all rows are exchanged into equal tasks.

    Args:
        cluster: The machines.
        costs: What things take.
        held: The datasets, spread evenly over the executors.
        groups: Tasks after the exchange.
        seed: Of all that is random.
    """
    machines, total = Machines(cluster, seed), float(sum(sizes.sum() for sizes in held))
    count = cluster.executors
    pairs = {(source, target): total / count**2 for source in range(count) for target in range(count)}
    there = machines.exchange(0.0, pairs)
    seconds = _computed(machines, costs, there, [n % count for n in range(groups)], np.full(groups, total / groups))
    return Job(seconds, 1.0, total * (count - 1) / count)


def _computed(machines: Machines, costs: Costs, start: float, ends: Sequence[int], inputs: Bytes) -> float:
    """Run tasks where they belong, largest first; return the seconds until the job has ended."""
    order = np.argsort(-inputs, kind="stable")
    done = [machines.compute(ends[n], start, costs.task + costs.byte * float(inputs[n])) for n in order]
    return max(done) + costs.job


def jobs(
    cluster: Cluster, costs: Costs, phases: Sequence[Sequence[Bytes]], groups: int, later: int, seed: int
) -> dict[str, list[list[Job]]]:
    """Return the jobs of each form, by phase: the first one after the datasets of the phase came, and later ones.

    Args:
        cluster: The machines.
        costs: What things take.
        phases: Bytes by partition of the datasets of each phase, as many in each.
        groups: Of partitions, at first; a group is to have between 0.9 (two together) and 1.4 times its share.
        later: Jobs after the first.
        seed: Of all that is random.
    """
    partitions, last = len(phases[0][0]), len(phases[0])
    share = float(sum(sizes.sum() for sizes in phases[0])) / groups
    static = Placed(cluster, partitions, groups, last, None)
    elastic = Placed(cluster, partitions, groups, last, (0.9 * share, 1.4 * share))
    found: dict[str, list[list[Job]]] = {"static": [], "range": [], "elastic": []}
    for phase, held in enumerate(phases):
        for sizes in held:
            static.add(sizes)
            elastic.add(sizes)
        seeds = [1_000 * seed + 100 * phase + number for number in range(1 + later)]
        found["static"].append([static.job(costs, each) for each in seeds])
        found["elastic"].append([elastic.job(costs, each) for each in seeds])
        found["range"].append([ranged(cluster, costs, held, groups, each) for each in seeds])
    return found


def simulated(run: Run, costs: Costs, names: Sequence[str]) -> Panel:
    """Show the jobs on machines of the paper, where executors do not share two cores.

    Args:
        run: Takes table and figures.
        costs: What things take.
        names: Of the phases.
    """
    run.say(
        f"measured: {costs.job * 1e3:.0f} ms a job, {costs.task * 1e3:.1f} a task, {costs.byte * 1e9:.2f} ns a byte"
    )
    cluster, rng = Cluster(SERVERS), np.random.default_rng(5)
    fine = hotspots.bounds(hotspots.taxi_cells(rng, ROWS, 0), PARTITIONS, hotspots.CITY.keys)
    shares = [
        [
            np.bincount(
                np.searchsorted(fine, hotspots.taxi_cells(rng, ROWS, phase), side="right"),
                minlength=PARTITIONS,
            )
            / ROWS
            for _ in range(LAST)
        ]
        for phase in range(len(names))
    ]
    volumes = QUICK_VOLUMES if run.quick else VOLUMES
    rows, bars = [], {}
    for size in volumes:
        sizes = [[size * share for share in phase] for phase in shares]
        seen = [jobs(cluster, costs, sizes, GROUPS, LATER, seed) for seed in range(SEEDS)]
        for form in seen[0]:
            first = [median(one[form][p][0].seconds for one in seen) for p in range(len(names))]
            later = [median(job.seconds for one in seen for job in one[form][p][1:]) for p in range(len(names))]
            for phase in range(len(names)):
                job = seen[0][form][phase][0]
                rows.append(
                    [form, f"{size / 1e6:.0f} MB", phase, job.skew, job.moved / 1e6, first[phase], later[phase]]
                )
            if size == volumes[len(volumes) // 2]:
                bars[form] = (first, later)
                run.figure(f"simulated.{form}.first_s", max(first[1:]))
                run.figure(f"simulated.{form}.later_s", max(later[1:]))
    run.table(
        f"SIMULATED: {cluster.executors} executors with {cluster.cores} cores, links of {cluster.link * 8 / 1e9:.0f} "
        f"Gbit/s, {LAST} datasets",
        ["form", "dataset", "phase", "max/mean input", "moved first, MB", "first job s", "later job s"],
        rows,
    )
    series = [Series(form, (), later) for form, (_, later) in bars.items()]
    series.append(Series("elastic, first job", (), bars["elastic"][0]))
    return Panel(Form.BARS, f"Simulated: {SERVERS} servers", "", "seconds", tuple(series), tuple(names))
