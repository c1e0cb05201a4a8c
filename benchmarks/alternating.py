"""Algorithm 1 of the paper over a wide area, as a baseline: intervals and trees in turns.

Step 4 (problem (6), intervals for given trees) is solved over the same discrete intervals as everything else, exactly;
also after the trees were rounded, without which links could be over their capacity. Step 5 (problem (7), trees for
given intervals) goes by one of three rules. The printed one maximises what is left of all links, that is, it uses them
least: a detour uses a link more and saves none, so it never leaves the direct paths. Divided by capacities, or by the
fullest link, it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from transom.widearea.moves import Placement
from transom.widearea.objectives import Worth
from transom.widearea.problem import Column
from transom.widearea.programs import Columns, whole
from transom.widearea.topology import INTERVALS
from transom.widearea.trees import trees

Rule: TypeAlias = Literal["printed", "relative", "largest"]
RULES: tuple[Rule, ...] = ("printed", "relative", "largest")
ROUNDS = 8


def intervals(worth: Worth, ways: Sequence[tuple[int, ...]], seconds: float = 10.0) -> list[Column] | None:
    """Return the best intervals for given trees; None if some flow does not fit.

    Where HiGHS is not done in time, shortening intervals in turn may do better; it also finds whatever fits at all.
    """
    columns = Columns(worth)
    for flow, way in enumerate(ways):
        for at in worth.problem.shapes[flow].allowed:
            columns.add(Column(flow, way, at))
    flows, penalties = range(len(ways)), np.full(len(ways), worth.spread())
    room = worth.problem.capacity.ravel()
    found = whole(columns, range(len(columns.all)), flows, penalties, room, seconds, 1e-4)
    grown = shortened(worth, ways)
    if found is None or len(found.columns) < len(ways):
        return grown
    return sorted(found.columns) if grown is None else max(sorted(found.columns), grown, key=lambda c: _value(worth, c))


def shortened(worth: Worth, ways: Sequence[tuple[int, ...]]) -> list[Column] | None:
    """Return the longest intervals, made shorter flow by flow, a step at a time, while links have room and it pays."""
    problem, placed = worth.problem, Placement(worth)
    for flow, way in enumerate(ways):
        if not placed.put(Column(flow, way, problem.shapes[flow].allowed[-1])):
            return None
    for at in reversed(range(len(INTERVALS) - 1)):
        for flow, way in enumerate(ways):
            if at in problem.shapes[flow].allowed:
                old, new = placed.columns[flow], Column(flow, way, at)
                placed.take(flow)
                if worth.value(new) < worth.value(old) or not placed.put(new):
                    placed.put(old)
    return [placed.columns[flow] for flow in range(len(ways))]


def direct(worth: Worth, seconds: float = 10.0) -> list[Column] | None:
    """Return the best intervals for direct paths; None if they do not fit."""
    return intervals(worth, [(shape.destination,) * len(shape.sources) for shape in worth.problem.shapes], seconds)


def alternate(worth: Worth, rule: Rule) -> list[Column] | None:
    """Return what Algorithm 1 ends with: the best of its rounds; None if none fits."""
    problem, best = worth.problem, None
    found = direct(worth)
    if found is None:  # the least loaded trees first
        longest = [Column(f, (s.destination,) * len(s.sources), s.allowed[-1]) for f, s in enumerate(problem.shapes)]
        found = intervals(worth, [column.parents for column in _trees(worth, longest, "largest")])
    seen: set[tuple[tuple[int, ...], ...]] = set()
    for _ in range(ROUNDS):
        if found is None:
            break
        if best is None or _value(worth, found) > _value(worth, best):
            best = found
        ways = tuple(column.parents for column in _trees(worth, found, rule))
        if ways in seen:
            break
        seen.add(ways)
        found = intervals(worth, ways)
    return best


def _value(worth: Worth, columns: Sequence[Column]) -> float:
    return sum(map(worth.value, columns))


def _trees(worth: Worth, columns: Sequence[Column], rule: Rule) -> list[Column]:
    """Return the columns with the trees that the rule prefers at their intervals."""
    problem = worth.problem
    capacity, choices = problem.capacity.ravel(), []
    for column in columns:
        flow = problem.flows[column.flow]
        ways = trees(flow.sources, flow.destination, problem.topology.sites)
        every = [Column(column.flow, problem.column(column.flow, tree, 1).parents, column.at) for tree in ways]
        choices.append([each for each in every if all(capacity[link] > 0 for link in problem.load(each).links)])
    if rule != "largest":
        scale = np.ones_like(capacity) if rule == "printed" else np.where(capacity > 0, capacity, np.inf)
        return [
            min(each, key=lambda c: sum(r / scale[e] for e, r in zip(*problem.load(c), strict=True)))
            for each in choices
        ]
    return _least_full(worth, choices)


def _least_full(worth: Worth, choices: Sequence[Sequence[Column]]) -> list[Column]:
    """Return the trees of the linear program with the smallest largest utilisation, rounded."""
    from scipy.optimize import linprog
    from scipy.sparse import csc_array

    problem, every = worth.problem, [column for each in choices for column in each]
    capacity, sites = problem.capacity.ravel(), problem.sites
    entries = [
        (link, at, rate / capacity[link])
        for at, c in enumerate(every)
        for link, rate in zip(*problem.load(c), strict=True)
    ]
    entries += [(link, len(every), -1.0) for link in range(sites * sites)]
    rows, places, values = (np.array(each) for each in zip(*entries, strict=True))
    one = [(column.flow, at) for at, column in enumerate(every)]
    choice = csc_array((np.ones(len(one)), tuple(np.array(one).T)), shape=(len(choices), len(every) + 1))
    found = linprog(
        np.append(np.zeros(len(every)), 1.0),
        A_ub=csc_array((values, (rows, places)), shape=(sites * sites, len(every) + 1)),
        b_ub=np.zeros(sites * sites),
        A_eq=choice,
        b_eq=np.ones(len(choices)),
        method="highs",
    )
    share = dict(zip(every, found.x[:-1], strict=True))
    return [max(each, key=lambda column: share[column]) for each in choices]
