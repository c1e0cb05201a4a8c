"""Overload: results within the limit, and rows in them, when nothing is left out, by earliest deadline, and evenly."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pyarrow.parquet as pq

from benchmarks import pacing
from benchmarks.harness import Run, benchmark, mean_interval
from benchmarks.overloads import EVERY, QUERY
from benchmarks.pacing import SECOND
from benchmarks.plots import Figure, Form, Panel, Series
from benchmarks.worker import Worker

LIMIT = 3
"""Seconds."""
POLICIES = ("none", "edf", "even")
LOADS = {"load110": 1.1, "load150": 1.5, "load200": 2.0}
COSTLY = "costly"
ROUNDS = 200
"""Work of a row: so that some ten thousand a second are all that can be done."""
COSTS = 20
"""A costly map takes so many times what parsing takes."""
FORMS: dict[str, dict[str, Any]] = {
    "whole pieces": {},
    "thinned": {"whole": True},
    "two queries, whole pieces": {"beside": "shed"},
    "two queries, thinned": {"beside": "delay"},
}
"""What is compared there."""
BEFORE = 0.5
"""Load until overload begins."""
START = 2
"""Seconds from the start of an engine to the first row."""
PER_FILE = 1_000
CUTS = 5
"""Of each size, with the first one, which does not count."""
ATTEMPTS = 6
"""To find the size of a cut."""
SLACK = 10.0
"""Seconds that a run takes at least beside those in which rows come."""
REDUCED = (
    "load 1.5 and the costly map, as far as there is time, one repeat, 12 s counted after 8 s of overload instead of "
    "60 after 60, 3 repeats; capacities by two or three steps"
)


@dataclass(frozen=True)
class Plan:
    """How long things take, seconds."""

    quiet: int
    """Before overload."""
    settles: int
    """Of overload, not counted."""
    counted: int
    repeats: int

    @property
    def seconds(self) -> int:
        """In which rows come."""
        return self.quiet + self.settles + self.counted + LIMIT + 1

    def rates(self, able: float, load: float) -> list[int]:
        """Return the rows of each second; those after what is counted close its windows, or show that they are late."""
        over = self.settles + self.counted + LIMIT + 1
        return [round(able * BEFORE)] * self.quiet + [round(able * load)] * over


@dataclass(frozen=True)
class Able:
    """What an engine can do with a feeder beside it."""

    per_second: float
    """Rows, in cuts of half the limit."""
    row: float
    """Seconds of a row."""
    fixed: float
    """Seconds of a cut without rows."""


@dataclass
class Measured:
    """One run: windows that end within what is counted."""

    latency: dict[int, float] = field(default_factory=dict)
    """Seconds by end of the window; infinite for those that are missing."""
    rows: dict[int, int] = field(default_factory=dict)
    """Rows in their results."""
    offered: dict[int, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    slip: float = 0.0

    def results(self) -> float:
        """Return the share of the windows whose results were within the limit."""
        return sum(each <= LIMIT for each in self.latency.values()) / len(self.latency)

    def kept(self) -> float:
        """Return the share of all rows that are in such results."""
        inside = sum(self.rows.get(end, 0) for end, each in self.latency.items() if each <= LIMIT)
        return inside / sum(self.offered.values())

    def least(self) -> float:
        """Return the least share of a window's rows that is in its result, in time or not."""
        return min(self.rows.get(end, 0) / rows for end, rows in self.offered.items())


def ability(run: Run, worker: Worker, rounds: int, many: int = 4_000) -> Able:
    """Measure what can be done in cuts of half the limit, with as many rows as that fed beside.

    Such a cut is approached step by step, since what is new is compiled.

    Args:
        run: The run.
        worker: The engine.
        rounds: Work of a row.
        many: Rows of the first step.
    """
    found = None
    for attempt in range(3 if run.quick else ATTEMPTS):
        place, few = run.fresh("capacity"), max(200, many // 4)
        seconds = []
        for cut in (few, many):
            source = place / f"in{cut}"
            pacing.backlog(source, CUTS * cut, min(PER_FILE, cut))
            begin, beside = int(time.time() + 1) * SECOND, [round(many / (LIMIT / 2))] * 60
            feeder = pacing.start(place / f"beside{cut}", place / f"notes{cut}", begin, beside)
            took = worker.call("capacity", source=source, place=place / "run", rounds=rounds, cut=cut)["seconds"]
            feeder.terminate()
            feeder.communicate()
            seconds.append(median(took))
        short, long = seconds
        row = max(1e-7, (long - short) / (many - few))
        found = Able(many / long, row, max(0.0, long - row * many))
        run.say(
            f"capacity: {few:,} rows in {short:.2f} s, {many:,} in {long:.2f} s: {found.per_second:,.0f} rows/s, "
            f"{1e6 * row:.1f} us a row"
        )
        if attempt >= (1 if run.quick else 2) and 0.7 * LIMIT / 2 < long < 1.4 * LIMIT / 2:
            break
        many = round(min(4 * many, max(many / 2, (LIMIT / 2 - found.fixed) / row)))
    assert found is not None
    return found


def measure(
    run: Run, worker: Worker, label: str, policy: str, rates: Sequence[int], first: int, last: int, **how: Any
) -> Measured:
    """Run the query under a policy in real time; windows that end in [first, last) seconds are counted."""
    place = run.fresh("run")
    source, notes = place / "in", place / "notes"
    source.mkdir()
    worker.call("start", source=source, place=place, policy=policy, limit=f"{LIMIT} seconds", **how)
    begin = int(time.time() + START + 1) * SECOND
    feeder = pacing.start(source, notes, begin, rates)
    slip = float(feeder.communicate()[0])
    report = worker.call("stop")
    files = pacing.arrived(notes)
    found = Measured(notes=report["notes"], slip=slip)
    results = {
        name: read(place / "results" / f"{name}.parquet") for name in (QUERY, *([EVERY] if "beside" in how else []))
    }
    offered = offered_by(files)
    left_out = offered_by([each for each in files if each.name in set(report["left_out"])])
    for end in range(begin + first * SECOND, begin + last * SECOND, SECOND):
        closes = next(each.visible for each in files if each.first >= end)
        found.latency[end] = max(visible.get(end, math.inf) for visible, _ in results.values()) - closes
        found.offered[end] = len(results) * offered[end]
        found.rows[end] = sum(counted.get(end, 0) for _, counted in results.values())
    thinned = {QUERY} if how.get("whole") or how.get("beside") == "delay" else set()
    wrong = [
        f"{label}: window {(end - begin) / SECOND:g}: {rows} rows, {left_out.get(end, 0)} left out of {offered[end]}"
        for name in results.keys() - thinned
        for end, rows in results[name][1].items()
        if end in offered and rows + left_out.get(end, 0) != offered[end]
    ]
    run.check(wrong[:3])
    return found


def offered_by(files: Sequence[pacing.Arrived]) -> dict[int, int]:
    """Return the rows of each window, by its end."""
    found: dict[int, int] = defaultdict(int)
    for each in files:
        found[each.first // SECOND * SECOND + SECOND] += each.rows
    return found


def read(path: Path) -> tuple[dict[int, float], dict[int, int]]:
    """Return when the last result of each window was there, and the rows in them, by window end."""
    if not path.exists():
        return {}, {}
    table = pq.read_table(path).group_by("window_end").aggregate([("visible", "max"), ("n", "sum")])
    ends = table["window_end"].to_pylist()
    return dict(zip(ends, table["visible_max"].to_pylist(), strict=True)), dict(
        zip(ends, table["n_sum"].to_pylist(), strict=True)
    )


def in_turn(number: int) -> tuple[str, ...]:
    """Return the policies, each time beginning with another one."""
    first = number % len(POLICIES)
    return POLICIES[first:] + POLICIES[:first]


def loads(
    run: Run, worker: Worker, plan: Plan, names: Sequence[str], able: Able
) -> dict[str, dict[str, list[Measured]]]:
    """Measure all policies at some loads; keep the figures and print them."""
    found: dict[str, dict[str, list[Measured]]] = {name: {policy: [] for policy in POLICIES} for name in names}
    first = plan.quiet + plan.settles + 1
    for repeat in range(plan.repeats):
        for number, name in enumerate(names):
            rates = plan.rates(able.per_second, LOADS[name])
            for policy in in_turn(repeat + number):
                label = f"{name}, {policy}"
                one = measure(run, worker, label, policy, rates, first, first + plan.counted, rounds=ROUNDS)
                found[name][policy].append(one)
                run.say(f"{label}: {one.results():.1%} in time, {one.kept():.1%} of the rows, least {one.least():.1%}")
                for note in one.notes:
                    run.say(f"  {note}")
    for name in names:
        report(run, name, LOADS[name], found[name])
    return found


def report(run: Run, name: str, load: float, runs: Mapping[str, Sequence[Measured]]) -> None:
    """Keep the figures of a load, print them, and say which bars are missed."""
    rows: list[list[object]] = []
    for policy, some in runs.items():
        figures = {
            "results": fmean(each.results() for each in some),
            "rows": fmean(each.kept() for each in some),
            "least": min(each.least() for each in some),
        }
        for figure, value in figures.items():
            run.figure(f"{name}.{policy}.{figure}", value)
        latencies = sorted(each for one in some for each in one.latency.values())
        known = [each for each in latencies if each < math.inf]
        rows.append(
            [
                policy,
                *figures.values(),
                median(known) if known else math.nan,
                max(known, default=math.nan),
                len(latencies) - len(known),
                max(one.slip for one in some),
            ]
        )
    columns = ["policy", "results", "rows", "least", "median s", "longest s", "missing", "feeder slip s"]
    run.table(f"{name}: limit {LIMIT} s; at most {1 / load:.1%} of the rows can be read", columns, rows)
    even, floor = {figure: run.figures[f"{name}.even.{figure}"] for figure in ("results", "rows", "least")}, 0.8 / load
    bars = {
        f"even: results in time, {even['results']:.3f}, at least 0.95": even["results"] >= 0.95,
        f"even: rows in time, {even['rows']:.3f}, at least {floor:.3f}": even["rows"] >= floor,
        f"even: least share, {even['least']:.3f}, at least {floor / 2:.3f}": even["least"] >= floor / 2,
        "edf no worse than none": run.figures[f"{name}.edf.rows"] >= run.figures[f"{name}.none.rows"],
    }
    if load == 1.5:
        bars["none: below 0.1 in time"] = run.figures[f"{name}.none.results"] < 0.1
    for text, holds in bars.items():
        if not holds:
            run.say(f"{name}: MISSED: {text}")


def costly(run: Run, worker: Worker, plan: Plan, busy: Able, took: float) -> None:
    """Compare thinning before a map of 20 times the cost of parsing with whole pieces, at twice the capacity.

    Alone, with a source that has no pieces; and with a query over all rows beside, whose rows nobody leaves out.

    Args:
        run: The run.
        worker: The engine.
        plan: How long things take.
        busy: What can be done with the usual work of a row.
        took: Seconds in which that was found out, which is to be done twice more.
    """
    if run.left() < 2 * took + 4 * (plan.seconds + SLACK):
        run.say("time is short: the costly map is left out")
        return
    plain = ability(run, worker, 0, 64_000)
    rounds = max(1, round(ROUNDS * COSTS * plain.row / max(1e-9, busy.row - plain.row)))
    able = ability(run, worker, rounds, max(1_000, round(LIMIT / 2 / (1 + COSTS) / plain.row)))
    run.say(f"parsing takes {1e6 * plain.row:.1f} us, the map of {rounds} rounds {1e6 * (able.row - plain.row):.1f} us")
    rates, first = plan.rates(able.per_second, 2.0), plan.quiet + plan.settles + 1
    found: dict[str, list[Measured]] = {label: [] for label in FORMS}
    for repeat in range(plan.repeats):
        for label in FORMS if repeat % 2 == 0 else reversed(FORMS):
            how = {"rounds": rounds, "costly": True, **FORMS[label]}
            one = measure(run, worker, label, "even", rates, first, first + plan.counted, **how)
            found[label].append(one)
            run.say(f"{label}: {one.results():.1%} in time, {one.kept():.1%} of the rows, least {one.least():.1%}")
    pieces, thinned, both_pieces, both_thinned = (fmean(each.kept() for each in some) for some in found.values())
    budget = (1 + COSTS) / 2.0
    run.figure("costly.rows_ratio", thinned / pieces if pieces else math.nan)
    run.figure("costly.beside_ratio", both_thinned / both_pieces if both_pieces else math.nan)
    run.say(
        f"thinned / whole pieces: {thinned:.3f} / {pieces:.3f}; by the arithmetic of costs at most "
        f"{(budget - 1) / COSTS:.3f} / {budget / (1 + COSTS):.3f}; with a query of all rows beside "
        f"{both_thinned:.3f} / {both_pieces:.3f}"
    )


def figure(found: Mapping[str, Mapping[str, Sequence[Measured]]]) -> Figure:
    """Return the figure: as figure 7c of the paper, by load."""
    groups = tuple(f"{LOADS[name]:g}" for name in found)

    def panel(title: str, label: str, of: Any) -> Panel:
        series = []
        for policy in POLICIES:
            pairs = [mean_interval([100 * of(each) for each in runs[policy]]) for runs in found.values()]
            series.append(Series(policy, (), [mean for mean, _ in pairs], [half for _, half in pairs]))
        return Panel(Form.BARS, title, "load", label, tuple(series), groups)

    panels = (
        panel("Results in time", "results (%)", Measured.results),
        panel("Rows in them", "rows (%)", Measured.kept),
        panel("Least share of a window", "rows (%)", Measured.least),
    )
    text = (
        f"Share of the windows whose results were within {LIMIT} s, share of the rows in them, and the least share of "
        "a window's rows that was read, by load over capacity; means over the repeats with 95 % intervals."
    )
    return Figure("shed", "Overload", text, panels, columns=3)


def main() -> None:
    """Run the benchmark."""
    parts = (*LOADS, COSTLY)
    with benchmark("shed", REDUCED, figures=True, parts=parts) as run, Worker("overloads", run.work) as worker:
        plan = Plan(4, 8, 12, 1) if run.quick else Plan(20, 60, 60, 3)
        chosen = ("load150", COSTLY) if run.quick and run.parts == parts else run.parts
        names, before = [name for name in chosen if name in LOADS], time.monotonic()
        able = ability(run, worker, ROUNDS)
        took = time.monotonic() - before
        if names:
            run.draw(figure(loads(run, worker, plan, names, able)))
        if COSTLY in chosen:
            costly(run, worker, plan, able, took)


if __name__ == "__main__":
    main()
