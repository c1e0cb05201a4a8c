"""Table I of the paper on sites that run: what is drawn, how large parcels are, and the plans that are compared.

Sizes are measured: partials like those of the job are packed as a link packs them, when it knows the keys. Links carry
so much that direct paths just fit with the longest interval (words: half of that), which is what sites would measure;
they are as much wider as what is around parcels needs (`wide_around`). The forms are plans, too:

- `direct`: direct paths with the intervals that make the sum of departures largest;
- `plan`: what the planner finds, with no interval longer than `direct` has;
- `equal`: the planner's ways with the intervals of `direct`, for limits of what each flow takes there, and the least
  latency beside that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.alternating import direct
from benchmarks.testbed import offset_of
from benchmarks.wide_feed import scattered
from benchmarks.wide_problems import KEYS, MEGABIT, ROWS, SITES, TABLE_1, paper, scaled, text_of
from benchmarks.wire import counted, ship
from transom.engine.partials.contents import Origin, TableNote
from transom.engine.partials.tables import PANE, describe_table, state_name
from transom.model.expression import Expression
from transom.widearea.flows import Floats
from transom.widearea.objectives import Worth
from transom.widearea.planning import plan
from transom.widearea.plans import Plan, Route
from transom.widearea.problem import Column, Problem
from transom.widearea.timing import phases, timings
from transom.widearea.topology import INTERVALS
from transom.windows.aggregates.base import Primitive
from transom.windows.aggregates.count import Count
from transom.windows.aggregates.extremes import Extreme
from transom.windows.aggregates.sums import Sum

TICK = 2.0
"""Seconds."""
MOST = 10
"""Ticks of the longest interval."""
DRAWINGS = 10
WORDS_RATE = 0.04
"""Of the rates of Table I. At 0.1 the seven sites need more of two cores than a run may take."""
HALF = 0.5
"""Of the bandwidth that direct paths need, for words."""
VALUES = tuple(f"v{number}" for number in range(6))
"""Columns of keyed rows, of which each query has sum, least and largest: so that a key takes up to 130 bytes, and 1,000
keys fill links of some 100 kbit/s."""
LARGEST = 1 << 54
"""What is drawn for them is below: no codec makes it smaller, and no sum overflows."""
MEASURED = (500, 1_000, 1_500, 2_000, 3_000, 4_000, 6_000, 10_000, 20_000)
"""Rows of the parcels whose sizes are measured: from those of a thin source in a tick to where all keys are there."""
JOB = 0.15 * TICK
"""Seconds of a job at a source, from when it begins."""
LATER = 1.02
"""Of the latency on direct paths, that a flow may have at equal intervals."""
SECONDS, JUST = 10.0, 1.0 + 1e-9
"""Of solvers, for a plan; and how often direct paths fit."""


@dataclass(frozen=True)
class Workload:
    """What the queries count."""

    name: str
    size: Callable[[Floats], Floats]
    """Bytes of a parcel by what its sources had: bytes of text, or what `wide_problems.keyed` takes for rows."""
    rate: float
    """Of the rates of Table I."""
    factor: float
    """How often direct paths fit on the links."""


@dataclass(frozen=True)
class Drawing:
    """A drawing of links, sources and destinations, with the forms."""

    problem: Problem
    direct: list[Column]
    """Those that fit, with the best intervals."""
    forms: dict[str, Plan]
    ratio: float
    """Departures of the plan for each of direct paths."""

    def interval(self, form: str, flow: str) -> int:
        """Return the ticks between two departures; the longest interval where the form has no room for the flow."""
        return next((route.interval for route in self.forms[form].routes if route.flow == flow), MOST)


def primitives() -> tuple[Primitive, ...]:
    """Return what a keyed query has of each key."""
    found: list[Primitive] = [Count()]
    for name in VALUES:
        column = Expression(name)
        found += [Sum(column), Extreme(column, "min"), Extreme(column, "max")]
    return tuple(found)


def keyed_partials(rng: np.random.Generator, rows: int) -> pa.Table:
    """Return partials of so many rows of a query, as its job makes them."""
    origin, parts = Origin("0123456789abcdef", ("key",)), primitives()
    drawn = {"key": scattered(rng.integers(0, KEYS, rows)), **{name: rng.integers(0, LARGEST, rows) for name in VALUES}}
    asked = [("v0", "count"), *((name, what) for name in VALUES for what in ("sum", "min", "max"))]
    found = pa.table(drawn).group_by("key").aggregate(asked).combine_chunks()
    zeros, counts = pa.array(np.zeros(len(found), np.int64)), found["v0_count"]
    columns = {PANE: zeros, "key": found["key"], state_name(0, "count"): counts}
    for number, name in enumerate(VALUES):
        at = 1 + 3 * number
        columns[state_name(at, "sum")] = found[f"{name}_sum"]
        columns |= {state_name(at, "count"): counts, state_name(at, "carry"): zeros}
        columns[state_name(at + 1, "value")] = found[f"{name}_min"]
        columns[state_name(at + 2, "value")] = found[f"{name}_max"]
    return describe_table(pa.table(columns), TableNote(origin, parts, ("",), (origin,)))


def keyed_workload() -> Workload:
    """Return sums, least and largest of keys that repeat; sizes as measured, by the rows that are in them."""
    rng = np.random.default_rng(3)
    known = []
    for rows in MEASURED:
        *_, last = ship([keyed_partials(rng, each) for each in (MEASURED[-1], MEASURED[-1], rows)])
        known.append((float(rows), float(last.wire)))
    counts, sizes = np.array(known).T

    def size(bytes_in: Floats) -> Floats:
        return np.asarray(np.interp(bytes_in / MEGABIT * ROWS, counts, sizes))

    return Workload("keyed", size, 1.0, JUST)


def words_workload(directory: Path) -> Workload:
    """Return counts of words; sizes as measured in the text, when a link knows the words of 3 MB."""
    text = text_of(directory)
    ends = np.cumsum([len(word.encode()) + 1 for word in text])
    known = []
    for size in (25_000, 100_000, 400_000, 1_200_000):
        marks = np.searchsorted(ends, [0, 1_500_000, 3_000_000, 3_000_000 + size])
        *_, last = ship([counted(text[a:b], number) for number, (a, b) in enumerate(pairwise(marks))])
        known.append((float(size), float(last.wire)))
    logs, sizes = np.log(known).T

    def measured(bytes_in: Floats) -> Floats:
        at = np.log(np.maximum(bytes_in, 1.0))
        beyond = np.maximum(at - logs[-1], 0.0) * (sizes[-1] - sizes[-2]) / (logs[-1] - logs[-2])
        return np.asarray(np.exp(np.interp(at, logs, sizes) + beyond))

    return Workload("words", measured, WORDS_RATE, HALF)


def draw(seed: int, workload: Workload, sites: Sequence[str] = SITES, queries: int = len(TABLE_1)) -> Drawing | None:
    """Return a drawing, with links so that direct paths fit as often as the workload says; None if it has no plan."""
    free = paper(seed, lambda given: workload.size(workload.rate * given), TICK, names=sites, queries=queries)
    last = {flow.name: max(map(sites.index, flow.sources)) for flow in free.flows}
    flows = tuple(replace(flow, most=MOST, job=offset_of(last[flow.name]) + JOB) for flow in free.flows)
    problem = scaled(Problem(free.topology, flows), workload.factor)
    fits = workload.factor >= 1.0
    straight = direct(Worth(problem, "frequencies")) if fits else _straight(problem)
    if straight is None:
        return None
    longest = {column.flow: INTERVALS[column.at] for column in straight} if fits else {}
    bounded = [replace(flow, most=longest.get(number, MOST)) for number, flow in enumerate(flows)]
    before = described(problem, straight)
    made = plan(problem.topology, bounded, "frequencies", SECONDS, before)
    forms = {"direct": before, "plan": made}
    if fits:
        took = {route.flow: LATER * route.latency for route in before.routes}
        same = [
            replace(flow, least=longest[number], most=longest[number], limit=took[flow.name])
            for number, flow in enumerate(flows)
        ]
        forms["equal"] = plan(problem.topology, same, "latency", SECONDS, before)
    worth = Worth(problem, "frequencies")
    value = sum(map(worth.value, straight))
    return Drawing(problem, straight, forms, sum(1.0 / r.interval / TICK for r in made.routes) / (value or np.inf))


def _straight(problem: Problem) -> list[Column]:
    """Return as many flows as have room on direct paths, those that take least of their fullest link first."""
    ways = [
        Column(number, (shape.destination,) * len(shape.sources), shape.allowed[-1])
        for number, shape in enumerate(problem.shapes)
    ]
    capacity = problem.capacity.ravel()
    room, placed = capacity * (1 + 1e-9), []
    loads = {way: problem.load(way) for way in ways}
    shares = {way: max(rate / capacity[link] for link, rate in zip(*load, strict=True)) for way, load in loads.items()}
    for way in sorted(ways, key=shares.__getitem__):
        links, rates = loads[way]
        if all(rate <= room[link] for link, rate in zip(links, rates, strict=True)):
            for link, rate in zip(links, rates, strict=True):
                room[link] -= rate
            placed.append(way)
    return sorted(placed)


def described(problem: Problem, columns: list[Column]) -> Plan:
    """Return columns as a plan, with the phases that keep bursts apart."""
    phase = phases(problem, columns, {})
    timing = timings(problem, columns, phase)
    routes = [
        Route(problem.flows[c.flow].name, problem.tree(c), INTERVALS[c.at], phase[c.flow], *timing[c.flow])
        for c in columns
    ]
    return Plan(1, 0, "frequencies", 0.0, 0.0, tuple(routes), ())


def median(drawings: Sequence[Drawing]) -> Drawing:
    """Return the drawing whose ratio is the median, of two in the middle the lower one."""
    return sorted(drawings, key=lambda each: each.ratio)[(len(drawings) - 1) // 2]
