"""Ways that are better once flows wait for one another."""

from __future__ import annotations

import pytest
from tests.widearea.worlds import flow, problem_of, world

from transom.widearea import refining
from transom.widearea.objectives import Worth
from transom.widearea.planning import _columns, plan
from transom.widearea.problem import Column, Problem
from transom.widearea.refining import refined
from transom.widearea.timing import phases, timings
from transom.widearea.topology import Topology


def test_what_waits_behind_others_goes_another_way() -> None:
    """By B it would take 0.1 s if nothing else were there; what B sends itself takes 0.7 s at each tick."""
    links = {("A", "B"): 1_000.0, ("B", "C"): 1_000.0, ("A", "C"): 100.0}
    once = {"tick": 1.0, "least": 1, "most": 1}
    flows = (flow("x", {"A": 0.0}, "C", fixed=50.0, **once), flow("y", {"B": 0.0}, "C", fixed=700.0, **once))
    topology = Topology(("A", "B", "C"), links)
    problem = problem_of(topology, flows)
    worth = Worth(problem, "latency")
    by_b, straight = Column(0, (1,), 0), Column(0, (2,), 0)
    assert worth.value(by_b) > worth.value(straight)
    assert refined(worth, [by_b, Column(1, (2,), 0)], (), {}) == [straight, Column(1, (2,), 0)]
    made = plan(topology, flows)
    assert {route.flow: route.tree.parents for route in made.routes} == {"x": (("A", "C"),), "y": (("B", "C"),)}


@pytest.mark.parametrize("seed", range(6))
def test_refined_ways_are_worth_as_much_as_others_and_fit(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    topology, flows = world(seed, flows=4, limit=0.8)
    worth = Worth(Problem(topology, flows), "latency")
    monkeypatch.setattr(refining, "WORK", 0)
    first = _columns(worth.problem, plan(topology, flows))
    monkeypatch.undo()

    def value(columns: list[Column]) -> float:
        took = timings(worth.problem, columns, phases(worth.problem, columns, {}))
        return sum(worth.value_of(number, each.latency) for number, each in took.items())

    straight = [Column(c.flow, (worth.problem.shapes[c.flow].destination,) * len(c.parents), c.at) for c in first]
    for old in ((), straight):
        found = refined(worth, first, old, {})
        assert worth.problem.fits_all(found)
        assert [(c.flow, c.at) for c in found] == [(c.flow, c.at) for c in sorted(first)]
        assert value(found) >= value(first)
        if old and worth.problem.fits_all(straight):
            assert value(found) >= value(straight)
