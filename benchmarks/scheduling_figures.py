"""Figures of what was measured on Spark, in the form of figures 6, 7 and 9 of the Klink paper."""

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


def figures(found: Found) -> list[Figure]:
    """Return the figures.

    Args:
        found: What was measured; every load has the same policies.
    """
    return [_by_load(found), _distributions(found)]


def gate_figure(found: Mapping[str, Sequence[Measured]]) -> Figure:
    """Return the figure of the gate.

    Args:
        found: Repeats with and without it.
    """
    series = tuple(Series(name, (), [s for one in repeats for s in one.all()]) for name, repeats in found.items())
    panels = (
        Panel(Form.CDF, "Latency of results", "latency (s)", "results (%)", series, x_log=True),
        _bars({"": found}, "Mean latency", "latency (s)", lambda each: fmean(each.all()), x_label=""),
        _bars({"": found}, "99th percentile", "latency (s)", lambda each: percentile(each.all(), 0.99), x_label=""),
        _bars({"": found}, "Within the limit", "results (%)", lambda each: 100 * each.share(), x_label=""),
        _bars({"": found}, "Processor", "cores in use", lambda each: each.cores, x_label=""),
    )
    text = (
        "Latency of the results of 16 stock Structured Streaming queries, share within their limit, and cores in use, "
        "with and without the gate; means over the repeats with 95 % intervals."
    )
    return Figure("gate", "The gate for stock queries", text, panels, columns=3)


def _by_load(found: Found) -> Figure:
    panels = (
        _bars(found, "Mean latency", "latency (s)", lambda each: fmean(each.all())),
        _bars(found, "99th percentile", "latency (s)", lambda each: percentile(each.all(), 0.99)),
        _bars(found, "Within the limit", "results (%)", lambda each: 100 * each.share()),
        _bars(found, "Throughput", "events (1000/s)", lambda each: each.throughput / 1e3),
        _bars(found, "Processor", "cores in use", lambda each: each.cores),
        _bars(found, "Scheduler", "time (% of the cores)", lambda each: 100 * each.overhead, {"0.5 %": 0.5}),
    )
    text = (
        "Mean and 99th percentile of result latency, share of results within their limit, throughput, cores in use and "
        "the scheduler's own time, by load, for each policy and for stock Structured Streaming; means over the "
        "repeats with 95 % intervals."
    )
    return Figure("scheduling", "Policies on Spark", text, panels, columns=3)


def _bars(
    found: Found,
    title: str,
    y_label: str,
    value: Callable[[Measured], float],
    levels: Mapping[str, float] | None = None,
    x_label: str = "load",
) -> Panel:
    policies = list(next(iter(found.values())))
    series = []
    for policy in policies:
        middle, half = zip(
            *(mean_interval([value(each) for each in repeats[policy]]) for repeats in found.values()), strict=True
        )
        series.append(Series(policy, (), middle, half))
    top = 100.0 if "(%)" in y_label else None
    return Panel(Form.BARS, title, x_label, y_label, tuple(series), tuple(found), levels, y_top=top)


def _distributions(found: Found) -> Figure:
    panels = []
    for load, repeats in found.items():
        series = tuple(
            Series(policy, (), [each for one in measured for each in one.all()]) for policy, measured in repeats.items()
        )
        panels.append(Panel(Form.CDF, load, "latency (s)", "results (%)", series, x_log=True))
    text = "Share of the results whose latency is at most that on the horizontal axis, by load, for each policy."
    return Figure("scheduling_cdf", "Latency of results on Spark", text, tuple(panels))
