"""Small problems for the tests of planning over a wide area."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import strategies as st

from transom.widearea.flows import Flow
from transom.widearea.objectives import Worth
from transom.widearea.problem import Column, Problem
from transom.widearea.topology import INTERVALS, Topology
from transom.widearea.trees import trees

MEGABIT = 125_000.0
SITES = tuple("ABCDEFG")


class Pooled:
    """Sizes that follow the rows of all sources together: concave where the power is below 1."""

    def __init__(self, rates, power=1.0, scale=0.4, fixed=0.43e6, tick=0.2):
        self.rates, self.power, self.scale, self.fixed, self.tick = rates, power, scale, fixed, tick

    def of(self, sources):
        rows = sum(self.rates[site] for site in sources) * np.array(INTERVALS) * self.tick
        return self.scale * rows**self.power + self.fixed


def flow(name, rates, destination, **more):
    given = {"limit": 5.0, **{k: v for k, v in more.items() if k not in ("power", "scale", "fixed", "tick")}}
    sizes = Pooled(rates, **{k: v for k, v in more.items() if k in ("power", "scale", "fixed", "tick")})
    return Flow(name, tuple(rates), destination, sizes, **given)


def world(seed, sites=4, flows=3, least=1.0, most=9.0, several=2, **more):
    """Draw a full mesh, Mbit/s, and flows of one to several sources."""
    rng = np.random.default_rng(seed)
    names = SITES[:sites]
    links = {(a, b): float(rng.uniform(least, most)) * MEGABIT for a, b in product(names, names) if a != b}
    drawn = []
    for number in range(flows):
        places = rng.permutation(sites)[: int(rng.integers(1, several + 1)) + 1]
        rates = {names[place]: float(rng.integers(1, 6)) * MEGABIT for place in places[1:]}
        drawn.append(flow(f"f{number}", rates, names[places[0]], **more))
    return Topology(names, links, tick=0.2), tuple(drawn)


def columns_of(worth):
    """Return all columns of each flow that fit by themselves."""
    problem = worth.problem
    found = []
    for number, shape in enumerate(problem.shapes):
        of_flow = problem.flows[number]
        ways = [
            problem.column(number, tree, 1).parents
            for tree in trees(of_flow.sources, of_flow.destination, SITES[: problem.sites])
        ]
        every = [Column(number, way, at) for way in ways for at in shape.allowed if INTERVALS[at] <= worth.longest]
        found.append([each for each in every if problem.fits(problem.load(each), problem.capacity.ravel())])
    return found


def best_of_all(worth: Worth) -> tuple[int, float]:
    """Return how many flows can be placed at most, and the best value of so many; by trying everything."""
    problem, options = worth.problem, columns_of(worth)
    best = (0, 0.0)

    def go(number, room, placed, value):
        nonlocal best
        if number == len(options):
            best = max(best, (placed, value))
            return
        for column in options[number]:
            links, rates = problem.load(column)
            if problem.fits(problem.load(column), room):
                left = room.copy()
                left[list(links)] -= rates
                go(number + 1, left, placed + 1, value + worth.value(column))
        go(number + 1, room, placed, value)

    go(0, problem.capacity.ravel(), 0, 0.0)
    return best


seeds = st.integers(0, 10_000)


def problem_of(topology, flows):
    return Problem(topology, flows)
