"""Machines in virtual time: cores, links and a driver, each used by one thing after the other."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

NOISE = 0.3
"""Standard deviation of the logarithm of what a task takes over what was expected."""


@dataclass(frozen=True)
class Cluster:
    """Machines of one executor each. The paper has 40 Dell R620 and does not say how many cores Spark was given."""

    executors: int = 40
    cores: int = 8
    link: float = 125e6
    """Bytes per second into each executor, and out of it."""
    driver_cores: int = 8
    """For plans; they are made at the same time."""


class Machines:
    """Cores and links, by when each is free; virtual seconds."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster, self._rng = cluster, np.random.default_rng(seed)
        self.cores = [[0.0] * cluster.cores for _ in range(cluster.executors)]
        self.links = np.zeros(cluster.executors)
        self.driver = [0.0] * cluster.driver_cores
        self.scheduler = 0.0

    def compute(self, executor: int, now: float, seconds: float) -> float:
        """Run a task; return when it ends."""
        ends = self.cores[executor]
        end = max(now, ends[0]) + seconds * float(np.exp(self._rng.normal(0, NOISE)))
        heapq.heapreplace(ends, end)
        return end

    def transfer(self, executor: int, now: float, size: float) -> float:
        """Bring bytes to an executor; return when they are there."""
        self.links[executor] = max(now, self.links[executor]) + size / self.cluster.link
        return float(self.links[executor])

    def plan(self, now: float, seconds: float) -> float:
        """Plan a question on a core of the driver; return when that is done."""
        end = max(now, self.driver[0]) + seconds
        heapq.heapreplace(self.driver, end)
        return end

    def launch(self, now: float, seconds: float) -> float:
        """Let the driver's one thread launch tasks; return when they are."""
        self.scheduler = max(now, self.scheduler) + seconds
        return self.scheduler

    def exchange(self, now: float, moved: Mapping[tuple[int, int], float]) -> float:
        """Move bytes between executors at the same time, as evenly as can be; return when all are there.

        The busiest link is never idle, which no network does better (König's theorem on edge colourings).

        Args:
            now: When it begins; the links are free.
            moved: Bytes by source and target.
        """
        out, into = np.zeros(self.cluster.executors), np.zeros(self.cluster.executors)
        for (source, target), size in moved.items():
            if source != target:
                out[source] += size
                into[target] += size
        return now + float(max(out.max(), into.max())) / self.cluster.link
