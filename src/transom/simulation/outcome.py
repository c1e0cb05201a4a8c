"""Outcomes of simulated runs: latencies, and the figures that are made of them."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """The outcome of runs; the first axis of every array is the run."""

    latency: Floats
    """Of each window's result after its sweeping watermark arrived, seconds, (runs, queries, windows); NaN where it did
    not arrive between warm-up and the last seconds. A result that is missing at the end counts with the time until
    then, which is less than it took."""
    limit: Floats
    """Latency limit of each query, seconds, (runs, queries)."""
    throughput: Floats
    """Rows per second that were processed."""
    held: Floats
    """Bytes of rows and partials from time to time, (runs, samples)."""
    used: Floats
    """Share of the cores in use, at the same times."""
    busy: Floats
    """Share of the cores that was in use."""
    jobs: Floats
    """Jobs per window that was due."""
    missing: Floats
    """Share of the windows without result at the end."""

    def part(self, start: int, stop: int) -> Outcome:
        """Return some of the runs."""
        return Outcome(*(getattr(self, one.name)[start:stop] for one in fields(self)))

    @property
    def memory(self) -> Floats:
        """Mean bytes of rows and partials of each run."""
        return np.asarray(self.held.mean(axis=1))

    @property
    def peak(self) -> Floats:
        """Most bytes of each run."""
        return np.asarray(self.held.max(axis=1))

    def mean(self) -> Floats:
        """Return the mean latency of each run, seconds."""
        return np.asarray(np.nanmean(self.latency, axis=(1, 2), dtype=np.float64))

    def quantile(self, share: float) -> Floats:
        """Return a quantile of the latencies of each run, seconds."""
        return np.array([np.quantile(run[~np.isnan(run)], share) for run in self.latency])

    def within(self) -> Floats:
        """Return the share of the windows of each run whose result came within its limit."""
        known = ~np.isnan(self.latency)
        return np.asarray((known & (self.latency <= self.limit[:, :, None])).sum((1, 2)) / known.sum((1, 2)))

    def by_query(self) -> Floats:
        """Return the mean latency of each query, seconds, (runs, queries); NaN where there is none."""
        known = ~np.isnan(self.latency)
        counts = known.sum(axis=2)
        total = np.where(known, self.latency, 0.0).sum(axis=2, dtype=np.float64)
        return np.where(counts > 0, total / np.maximum(counts, 1), np.nan)

    def slowdown(self, alone: Floats) -> Floats:
        """Return how many times longer results took than those of the same query on a machine of its own.

        Latency over ideal latency, as in the Klink paper, section 6.1.2; here of each query's mean, over the queries.

        Args:
            alone: Mean latency of each query by itself, seconds, (queries,) or (runs, queries).
        """
        return np.asarray(np.nanmean(self.by_query()[:, : alone.shape[-1]] / alone, axis=1))
