"""The joint integer program over all columns: the best plan with a proven gap, where they are few enough."""

from __future__ import annotations

import numpy as np

from transom.widearea.decomposition import Answer
from transom.widearea.flows import Floats
from transom.widearea.moves import Placement
from transom.widearea.objectives import Worth
from transom.widearea.problem import Column
from transom.widearea.programs import Columns, whole
from transom.widearea.topology import INTERVALS
from transom.widearea.trees import count_trees, trees

MANY = 30_000
"""Columns above which the decomposition is the better solver."""
GAP = 0.01
"""The plan may be worse than the best by this share of what plans differ in."""


def columns_in_all(worth: Worth) -> int:
    """Return how many columns there are, at most, without making them."""
    sites = worth.problem.sites
    return sum(min(count_trees(len(shape.sources), sites), MANY) * len(shape.allowed) for shape in worth.problem.shapes)


def joint(worth: Worth, penalties: Floats, seconds: float, gap: float = GAP) -> Answer | None:
    """Solve the problem over all columns, to a gap or for some seconds; None if nothing was found in the time."""
    problem, columns = worth.problem, Columns(worth)
    for number, (flow, shape) in enumerate(zip(problem.flows, problem.shapes, strict=True)):
        allowed = [at for at in shape.allowed if INTERVALS[at] <= worth.longest]
        for tree in trees(flow.sources, flow.destination, problem.topology.sites):
            first = problem.column(number, tree, INTERVALS[0])
            for at in allowed:
                columns.add(Column(number, first.parents, at))
    room = problem.capacity.ravel()
    gap *= worth.differs
    found = whole(columns, range(len(columns.all)), range(len(problem.flows)), penalties, room, seconds, gap)
    if found is None:
        return None
    placed, free, every = Placement(worth, found.columns), np.zeros_like(room), range(len(problem.flows))
    missing = [flow for flow in every if flow not in placed.columns]
    placed.settle([*missing, *every], free, (0.0,))  # left out by the time limit, or beyond a link by HiGHS's tolerance
    return Answer(sorted(placed.columns.values()), found.bound, free)
