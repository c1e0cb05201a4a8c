"""Figures of the policies in simulation, in the form of figures 6 to 9 of the Klink paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.harness import mean_interval
from benchmarks.plots import Figure, Form, Panel, Series

Floats = npt.NDArray[np.float64]

GIGABYTE = 1e9
POINTS = 300
"""Of a line over time: more cannot be told apart."""
TWO = ("klink", "fair")
"""Of whom the paper shows memory and processor: itself, and the engine's own fair sharing."""


@dataclass(frozen=True)
class Sampled:
    """What the runs of one policy gave; one entry per run unless said otherwise."""

    latencies: Floats
    """Of all results of all runs, seconds."""
    mean: Floats
    """Mean latency, seconds."""
    throughput: Floats
    """Rows per second."""
    memory: Floats
    """Bytes from time to time, (runs, samples)."""
    cores: Floats
    """Share of the cores in use from time to time, (runs, samples)."""


Sweep = Mapping[int, Mapping[str, Sampled]]
"""What came out, by number of queries and policy."""


def figures(found: Mapping[str, Sweep], seconds: float, memory: float, shown: int = 60) -> list[Figure]:
    """Return the figures 6 to 9b.

    Args:
        found: Sweeps of the workloads ysb, lrb and nyt, each from one query on.
        seconds: Length of the runs, from which samples are evenly spread.
        memory: Bytes that the engine has.
        shown: Number of queries for distributions and series over time.
    """
    ysb = found["ysb"]
    return [
        Figure(
            "klink_ysb",
            "Yahoo streaming benchmark",
            f"Mean latency, latencies of {shown} queries, slowdown and throughput by number of queries, for each "
            "policy; means over the runs with 95 % intervals.",
            (_latency(ysb, "Mean latency"), _cdf(ysb, shown), _slowdown(ysb), _throughput(ysb)),
        ),
        Figure(
            "klink_lrb_nyt",
            "Linear Road and New York taxis",
            f"Mean latency by number of queries, and latencies of {shown} queries, for each policy.",
            tuple(
                panel
                for name, title in (("lrb", "Linear Road"), ("nyt", "Taxis"))
                for panel in (_latency(found[name], f"{title}: mean latency"), _cdf(found[name], shown, f"{title}: "))
            ),
        ),
        Figure(
            "klink_over_time",
            f"Memory and processor over time, {shown} queries",
            f"Bytes of rows and partials, and share of the cores in use, in one run of {shown} YSB queries.",
            (
                _over_time(ysb[shown], "Memory", "memory (GB)", lambda each: each.memory / GIGABYTE, seconds),
                _over_time(ysb[shown], "Processor", "cores in use (%)", lambda each: 100 * each.cores, seconds),
            ),
            columns=1,
        ),
        _by_throughput(ysb, memory),
    ]


def _policies(sweep: Sweep) -> list[str]:
    return list(next(iter(sweep.values())))


def _by_queries(
    sweep: Sweep, title: str, y_label: str, value: Callable[[Sampled], Sequence[float]], y_log: bool = False
) -> Panel:
    series = []
    for policy in _policies(sweep):
        middle, half = zip(*(mean_interval(value(runs[policy])) for runs in sweep.values()), strict=True)
        # On a logarithmic axis an interval that reaches 0 would leave the picture.
        half = tuple(min(each, 0.9 * mean) if y_log else each for mean, each in zip(middle, half, strict=True))
        series.append(Series(policy, tuple(sweep), middle, half))
    return Panel(Form.LINES, title, "queries", y_label, tuple(series), y_log=y_log)


def _latency(sweep: Sweep, title: str) -> Panel:
    return _by_queries(sweep, title, "latency (s)", lambda each: each.mean.tolist(), y_log=True)


def _slowdown(sweep: Sweep) -> Panel:
    """Latency over that of a query which has the machine to itself (section 6.1.2)."""
    ideal = min(float(each.mean.mean()) for each in sweep[min(sweep)].values())
    return _by_queries(sweep, "Slowdown", "latency over ideal", lambda each: (each.mean / ideal).tolist(), y_log=True)


def _throughput(sweep: Sweep) -> Panel:
    return _by_queries(sweep, "Throughput", "events (1000/s)", lambda each: (each.throughput / 1e3).tolist())


def _cdf(sweep: Sweep, shown: int, title: str = "") -> Panel:
    series = tuple(Series(policy, (), each.latencies) for policy, each in sweep[shown].items())
    return Panel(Form.CDF, f"{title}{shown} queries", "latency (s)", "results (%)", series, x_log=True)


def _over_time(
    runs: Mapping[str, Sampled], title: str, y_label: str, value: Callable[[Sampled], Floats], seconds: float
) -> Panel:
    series = []
    for policy in TWO:
        first = value(runs[policy])[0]
        first = np.array([part.mean() for part in np.array_split(first, min(len(first), POINTS))])
        series.append(Series(policy, np.linspace(0, seconds, len(first), endpoint=False), first))
    top = 101.0 if "(%)" in y_label else None
    return Panel(Form.TIMES, title, "time (s)", y_label, tuple(series), y_top=top)


def _by_throughput(sweep: Sweep, memory: float) -> Figure:
    """Return figures 9a and 9b: means, and 90th percentiles over time, against throughput."""
    most = max(float(runs[policy].memory.max()) for runs in sweep.values() for policy in TWO)
    limit = {"limit": memory / GIGABYTE} if most > memory / 2 else {}
    panels = (
        _against(sweep, "Memory, mean", "memory (GB)", lambda each: each.memory.mean(axis=1) / GIGABYTE, limit),
        _against(sweep, "Memory, 90th percentile", "memory (GB)", lambda each: _p90(each.memory) / GIGABYTE, limit),
        _against(sweep, "Processor, mean", "cores in use (%)", lambda each: 100 * each.cores.mean(axis=1)),
        _against(sweep, "Processor, 90th percentile", "cores in use (%)", lambda each: 100 * _p90(each.cores)),
    )
    text = "Memory and processor, means and 90th percentiles over time, by throughput, of Klink and of fair sharing."
    return Figure("klink_by_throughput", "Memory and processor by throughput", text, panels)


def _against(
    sweep: Sweep,
    title: str,
    y_label: str,
    value: Callable[[Sampled], Floats],
    levels: Mapping[str, float] | None = None,
) -> Panel:
    series = []
    for policy in TWO:
        points = [
            (float(runs[policy].throughput.mean()) / 1e3, *mean_interval(value(runs[policy]).tolist()))
            for runs in sweep.values()
        ]
        series.append(Series(policy, *zip(*sorted(points), strict=True)))
    top = 103.0 if "(%)" in y_label else None
    return Panel(Form.LINES, title, "events (1000/s)", y_label, tuple(series), levels=levels, y_top=top)


def _p90(values: Floats) -> Floats:
    return np.asarray(np.quantile(values, 0.9, axis=1))
