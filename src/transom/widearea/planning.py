"""Which way partials travel, and how often: from what is known of flows and links to a plan.

The problem is (1) to (5) of Li et al., "Wide-Area Spark Streaming: Automated Routing and Batch Sizing". What is
different, and why, is in the decision record 0041. A plan is about speed only: whichever one is followed, results are
the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from transom.errors import DefinitionError, require_extra
from transom.widearea.decomposition import Answer, Decomposition
from transom.widearea.flows import Floats, Flow
from transom.widearea.joint import MANY, columns_in_all, joint
from transom.widearea.moves import Placement
from transom.widearea.objectives import Objective, Worth
from transom.widearea.plans import LeftOut, LinkUse, Plan, Route
from transom.widearea.problem import Column, Problem
from transom.widearea.refining import refined
from transom.widearea.staying import GAIN, carried, is_as_told, is_better
from transom.widearea.timing import phases, timings
from transom.widearea.topology import INTERVALS, Topology

LOST = 0.05
"""A search that begins with the last plan ends there, if the gap is not larger than that plan's by more than this."""


class _Before(NamedTuple):
    """What a search begins with: the columns of the last plan, its prices if it has any, and its gap."""

    columns: list[Column]
    price: Floats | None
    gap: float


def plan(
    topology: Topology,
    flows: Sequence[Flow],
    objective: Objective = "latency",
    seconds: float = 10.0,
    last: Plan | None = None,
) -> Plan:
    """Return the plan for flows over links; the last one, if nothing that matters has changed.

    Args:
        topology: Sites and links.
        flows: What sites owe each other.
        objective: What is good.
        seconds: What solvers may take, about; a plan is there in any case.
        last: The plan that is followed now.

    Raises:
        DefinitionError: A flow names a site that is not there, two flows have one name, or SciPy is not installed.
    """
    require_extra("widearea", ("scipy",), "Planning over a wide area")
    _check(topology, flows)
    worth = Worth(Problem(topology, tuple(flows)), objective)
    old = _columns(worth.problem, last)
    answer = _solved(worth, seconds, _Before(old, _price(worth.problem, last), last.gap if last is not None else 0.0))
    if objective == "latency":
        kept = _kept(worth.problem, answer.columns, last)
        answer = answer._replace(columns=refined(worth, answer.columns, old, kept))
    if last is None or last.objective != objective or not carried(worth.problem, answer.columns, old):
        return _described(worth, answer, last)
    return _better(worth, answer, answer._replace(columns=old), last)


def _better(worth: Worth, new: Answer, old: Answer, last: Plan) -> Plan:
    """Return the plan of new columns, or the last one if it is as good, perhaps with other times."""
    fewer, by_flow = len(new.columns) < len(old.columns), worth.objective == "latency"
    if not fewer and not by_flow and worth.gains(new.columns, old.columns) >= GAIN:
        return _described(worth, new, last)
    same = _described(worth, old, last)
    if not fewer and by_flow and is_better(worth, found := _described(worth, new, last), same):
        return found
    return replace(same, version=last.version) if is_as_told(same, last, worth.problem.topology.tick) else same


def _check(topology: Topology, flows: Sequence[Flow]) -> None:
    names = [flow.name for flow in flows]
    name, times = Counter(names).most_common(1)[0] if names else ("", 0)
    if times > 1:
        raise DefinitionError(f"Two flows are called {name!r}.", "Give each flow a name of its own.")
    known = set(topology.sites)
    for flow in flows:
        for site in (*flow.sources, flow.destination):
            if site not in known:
                raise DefinitionError(
                    f"Flow {flow.name!r} names the site {site!r}, which is not there.",
                    f"Sites are {', '.join(map(repr, topology.sites))}.",
                )


def _columns(problem: Problem, last: Plan | None) -> list[Column]:
    """Return what a plan says of the flows that are still the same."""
    routes = {route.flow: route for route in last.routes} if last is not None else {}
    found = []
    for number, flow in enumerate(problem.flows):
        route = routes.get(flow.name)
        if route is None or not flow.least <= route.interval <= flow.most:
            continue
        same = {source for source, _ in route.tree.parents} == set(flow.sources)
        sites = {parent for _, parent in route.tree.parents} | {route.tree.destination}
        if same and route.tree.destination == flow.destination and sites <= set(problem.topology.sites):
            found.append(problem.column(number, route.tree, route.interval))
    return found


def _price(problem: Problem, last: Plan | None) -> Floats | None:
    """Return the prices of the last plan, if it has any."""
    priced = [use for use in last.links if use.price > 0] if last is not None else []
    if not priced:
        return None
    found = np.zeros(problem.sites**2)
    for use in priced:
        if use.link in problem.topology.links:
            source, target = use.link
            found[problem.place[source] * problem.sites + problem.place[target]] = use.price
    return found


def _solved(worth: Worth, seconds: float, before: _Before) -> Answer:
    """Return the answer of the solver that fits the problem; of `max_min`, with the shortest longest interval."""
    if worth.objective != "max_min":
        return _answer(worth, seconds, before)
    best = _answer(worth, seconds / 5, before)
    placed = len(best.columns)
    low, high = 0, max((column.at for column in best.columns), default=0)
    while low < high:
        middle = (low + high) // 2
        tried = _answer(replace(worth, longest=INTERVALS[middle]), seconds / 5, before)
        if len(tried.columns) == placed:
            best, high = tried, max((column.at for column in tried.columns), default=0)
        else:
            low = middle + 1
    return best


def _penalties(worth: Worth) -> Floats:
    """Return what leaving out a flow costs: more than the others can gain by it, and more where it counts more."""
    weights = np.array([flow.weight for flow in worth.problem.flows])
    return worth.spread() * weights / weights.min(initial=np.inf) if len(weights) else weights


def _answer(worth: Worth, seconds: float, before: _Before) -> Answer:
    """Return the answer to one objective; from the last plan, if that is good enough."""
    penalties = _penalties(worth)
    if not worth.problem.flows:
        return Answer([], 0.0, np.zeros(worth.problem.sites**2))
    if columns_in_all(worth) <= MANY:
        found = joint(worth, penalties, seconds)
        if found is not None and len(found.columns) == len(worth.problem.flows):
            return found
        if found is not None:  # for want of room, or of time
            return _fuller(worth, penalties, found, seconds / 2, before)
    if before.price is not None:
        inside = [column for column in before.columns if INTERVALS[column.at] <= worth.longest]
        again = Decomposition(worth, penalties, seconds).again(inside, before.price)
        value = sum(worth.value(column) for column in again.columns)
        if len(again.columns) == len(worth.problem.flows) and again.bound <= value * (1 + before.gap + LOST):
            return again
    return Decomposition(worth, penalties, seconds).solve()


def _fuller(worth: Worth, penalties: Floats, found: Answer, seconds: float, before: _Before) -> Answer:
    """Return the best of an answer that leaves flows out, that of the other solver, and the last plan completed."""
    kept = Placement(worth, [column for column in before.columns if INTERVALS[column.at] <= worth.longest])
    kept.settle(range(len(worth.problem.flows)), found.price, (0.0,))
    other = Decomposition(worth, penalties, seconds).solve()
    offers = [found.columns, other.columns, sorted(kept.columns.values())]

    def total(columns: list[Column]) -> float:
        placed = {column.flow for column in columns}
        left = sum(float(cost) for flow, cost in enumerate(penalties) if flow not in placed)
        return sum(map(worth.value, columns)) - left

    return found._replace(columns=max(offers, key=total), bound=min(found.bound, other.bound))


def _described(worth: Worth, answer: Answer, last: Plan | None) -> Plan:
    """Return columns as a plan, with phases and predictions; all loads computed again from the columns."""
    problem, names = worth.problem, worth.problem.topology.sites
    routes = []
    phase = phases(problem, answer.columns, _kept(problem, answer.columns, last))
    timing = timings(problem, answer.columns, phase)
    for column in answer.columns:
        name, number = problem.flows[column.flow].name, column.flow
        routes.append(Route(name, problem.tree(column), INTERVALS[column.at], phase[number], *timing[number]))
    use, price = problem.use(answer.columns), answer.price.reshape(problem.sites, -1)
    links = [
        LinkUse((names[a], names[b]), float(use[a, b]), float(problem.capacity[a, b]), float(price[a, b]))
        for a, b in zip(*np.nonzero((use > 0) | (price > 0)), strict=True)
    ]
    chosen = {column.flow for column in answer.columns}
    missing = [flow for flow in range(len(problem.flows)) if flow not in chosen]
    left = tuple(_shortfall(worth, answer.columns, flow) for flow in missing)
    value = sum(worth.value(column) for column in answer.columns)
    bound = answer.bound + float(_penalties(worth)[missing].sum())  # of plans that leave out the same flows
    version = last.version + 1 if last is not None else 1
    first = last.first_tick if last is not None else 0
    return Plan(version, first, worth.objective, value, max(bound, value), tuple(routes), tuple(links), left)


def _kept(problem: Problem, columns: Sequence[Column], last: Plan | None) -> dict[int, int]:
    """Return the phases that stay, by flow: those of flows that leave as often as before."""
    before = {route.flow: route for route in last.routes} if last is not None else {}
    found = {}
    for column in columns:
        route = before.get(problem.flows[column.flow].name)
        if route is not None and route.interval == INTERVALS[column.at]:
            found[column.flow] = route.phase
    return found


def _shortfall(worth: Worth, columns: list[Column], flow: int) -> LeftOut:
    """Return the link that is missing or too thin on the way of a flow that comes closest to fitting."""
    problem, room = worth.problem, Placement(worth, columns).room
    shape, names = problem.shapes[flow], problem.topology.sites
    ways = [
        tuple(shape.destination if source == relay else relay for source in shape.sources)
        for relay in range(problem.sites)
    ]
    worst: tuple[float, int] | None = None
    for way in ways:
        links, rates = problem.load(Column(flow, way, shape.allowed[-1]))
        lacks = max((rate - float(room[link]), link) for link, rate in zip(links, rates, strict=True))
        worst = lacks if worst is None or lacks < worst else worst
    assert worst is not None
    source, target = divmod(worst[1], problem.sites)
    return LeftOut(problem.flows[flow].name, (names[source], names[target]), max(worst[0], 0.0))
