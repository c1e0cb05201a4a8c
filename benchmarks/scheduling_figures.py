"""Figures of the policies on Spark, in the form of figures 6, 7 and 9 of the Klink paper, by load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks.harness import mean_interval, percentile
from benchmarks.plots import Figure, Form, Panel, Series

if TYPE_CHECKING:
    from benchmarks.scheduling import Measured

Found = Mapping[str, Mapping[str, Sequence["Measured"]]]
"""Repeats, by load and policy."""


def figures(found: Found, seconds: float) -> list[Figure]:
    """Return the figures.

    Args:
        found: What was measured; every load has the same policies.
        seconds: For how long events happen in a repeat.
    """
    return [_by_load(found, seconds), _distributions(found)]


def _by_load(found: Found, seconds: float) -> Figure:
    bars = [
        ("Mean latency", "latency (s)", lambda each: fmean(each.all()), {}),
        ("99th percentile", "latency (s)", lambda each: percentile(each.all(), 0.99), {}),
        ("Within the limit", "results (%)", lambda each: 100 * each.share(), {}),
        ("Throughput", "events (1000/s)", lambda each: each.rows / seconds / 1e3, {}),
        ("Processor", "cores in use", lambda each: each.cores, {}),
        ("Scheduler", "time (% of the cores)", lambda each: 100 * each.overhead, {"0.5 %": 0.5}),
    ]
    panels = tuple(_bars(found, *one) for one in bars)
    text = (
        "Mean and 99th percentile of result latency, share of results within their limit, throughput, cores in use and "
        "the scheduler's own time, by load, for each policy and for stock Structured Streaming; means over the "
        "repeats with 95 % intervals."
    )
    return Figure("scheduling", "Policies on Spark", text, panels, columns=3)


def _bars(
    found: Found, title: str, y_label: str, value: Callable[[Measured], float], levels: Mapping[str, float]
) -> Panel:
    policies = list(next(iter(found.values())))
    series = []
    for policy in policies:
        middle, half = zip(
            *(mean_interval([value(each) for each in repeats[policy]]) for repeats in found.values()), strict=True
        )
        series.append(Series(policy, (), middle, half))
    return Panel(Form.BARS, title, "load", y_label, tuple(series), tuple(found), levels)


def _distributions(found: Found) -> Figure:
    panels = []
    for load, repeats in found.items():
        series = tuple(
            Series(policy, (), [each for one in measured for each in one.all()]) for policy, measured in repeats.items()
        )
        panels.append(Panel(Form.CDF, load, "latency (s)", "results (%)", series, x_log=True))
    text = "Share of the results whose latency is at most that on the horizontal axis, by load, for each policy."
    return Figure("scheduling_cdf", "Latency of results on Spark", text, tuple(panels))
