"""When ways change, and when what changed is noise, or nothing that a plan can change."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from datasketches import update_theta_sketch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.widearea.worlds import MEGABIT, columns_of, flow, problem_of, seeds, world

from transom.widearea import planning
from transom.widearea.coordinator import PAUSE, Coordinator, FlowReport, Report, Wanted
from transom.widearea.objectives import Offer, Worth
from transom.widearea.planning import plan
from transom.widearea.plans import Plan
from transom.widearea.problem import Column
from transom.widearea.topology import Topology

SITES, THIN, WIDE, TICK = tuple("ABCD"), 0.1 * MEGABIT, 2.0 * MEGABIT, 2.0
LINKS = {(a, b): THIN if (a, b) == ("A", "D") else WIDE for a, b in product(SITES, SITES) if a != b}
"""Of Fig. 1, as `benchmarks.wide_area` has them."""


def keys_of(site: str) -> bytes:
    """Return a sketch of the keys of a tick at a site: 7,500 of 10,000."""
    made = update_theta_sketch(9)
    for key in np.random.default_rng(SITES.index(site)).choice(10_000, 7_500, replace=False).tolist():
        made.update(key)
    return made.compact().serialize()


KEYS = {site: keys_of(site) for site in "ABC"}


def reports(job: float, limit: float, rates: dict[tuple[str, str], float] | None = None) -> list[Report]:
    """Return what the sites of Fig. 1 tell: partials of 60 kB in each tick, which leaves them when a job has run."""
    wanted = Wanted(("A", "B", "C"), "D", limit, least=1, most=1)
    found = []
    for site in SITES:
        measured = {target: rate for (source, target), rate in (rates or {}).items() if source == site}
        known = {} if site == "D" else {"keys": FlowReport(wanted, {1: 60_000.0}, {1: KEYS[site]}, job)}
        found.append(Report(site, 100, rates=measured, flows=known))
    return found


class Told:
    """A coordinator, and what it answers to what sites tell, one pause after the other."""

    def __init__(self, job: float, limit: float) -> None:
        self.machine, self.now, self.job, self.limit = Coordinator(Topology(SITES, LINKS, TICK)), 0, job, limit

    def hears(self, rates: dict[tuple[str, str], float] | None = None) -> Plan:
        """Return the plan that is followed after sites told what links carry."""
        self.now += PAUSE
        for report in reports(self.job, self.limit, rates):
            self.machine.reported(report, self.now)
        question = self.machine.question(self.now)
        if question is not None:
            self.machine.planned(plan(question.topology, question.flows, last=question.last))
        assert self.machine.plan is not None
        return self.machine.plan


def latency(found: Plan) -> float:
    return found.routes[0].latency


@pytest.mark.parametrize("solver", ["joint", "decomposition"])
@pytest.mark.parametrize("limit", [0.1, 2.0, 10.0])
@pytest.mark.parametrize("job", [0.0, 0.3, 0.9, 1.1, 1.5, 3.0])
def test_a_link_that_falls_to_a_third_makes_a_new_plan_however_long_jobs_take(
    job: float, limit: float, solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "MANY", planning.MANY if solver == "joint" else 0)
    told = Told(job, limit)
    first = told.hears()
    head = dict(first.routes[0].tree.parents)["A"]
    assert head in "BC"
    assert latency(first) < 2.6 + job
    second = told.hears({(head, "D"): WIDE / 3})
    assert second.version == 2
    assert latency(second) < latency(first) + 0.1
    assert told.hears({(head, "D"): WIDE}).version == 2  # the other way is as good


@pytest.mark.parametrize("job", [0.0, 1.1])
@pytest.mark.parametrize("seed", range(4))
def test_rates_that_wander_by_a_tenth_change_no_way(seed: int, job: float) -> None:
    told, rng = Told(job, 2.0), np.random.default_rng(seed)
    first = told.hears()
    for _ in range(20):
        told.machine._basis = {}  # whatever else makes it ask
        assert told.hears({link: rate * rng.uniform(0.9, 1.1) for link, rate in LINKS.items()}) == first


@pytest.mark.parametrize("limit", [0.5, 5.0])
@pytest.mark.parametrize("seed", range(4))
def test_rates_that_wander_by_a_tenth_change_no_way_of_many(seed: int, limit: float) -> None:
    topology, flows = world(seed, sites=5, flows=5, least=40, most=80, limit=limit, job=0.1)
    first, rng = plan(topology, flows), np.random.default_rng(seed)
    for _ in range(5):
        links = {link: rate * rng.uniform(0.9, 1.1) for link, rate in topology.links.items()}
        assert plan(replace(topology, links=links), flows, last=first).version == 1


def test_one_flow_of_many_gets_another_way() -> None:
    """Forty flows keep what they have; beside them one that takes three times as long is 4 % of all latencies."""
    pairs = [(f"s{n}", f"d{n}") for n in range(40)]
    links = dict.fromkeys(pairs, 1_000.0) | {("A", "C"): 1_000.0, ("A", "B"): 1_500.0, ("B", "C"): 1_500.0}
    topology = Topology((*"ABC", *(site for pair in pairs for site in pair)), links)
    once = {"fixed": 300.0, "least": 1, "most": 1, "limit": 10.0}
    flows = [flow("f", {"A": 0.0}, "C", **once), *(flow(s, {s: 0.0}, d, **once) for s, d in pairs)]
    first = plan(topology, flows)
    assert first.routes[0].tree.parents == (("A", "C"),)
    second = plan(replace(topology, links={**links, ("A", "C"): 350.0}), flows, last=first)
    assert (second.version, second.routes[0].tree.parents) == (2, (("A", "B"),))


def test_what_a_relay_waits_for_is_told_anew_where_there_is_no_better_way() -> None:
    links = {("A", "B"): 1_000.0, ("B", "C"): 1_000.0}
    flows = [flow("f", {"A": 0.0, "B": 0.0}, "C", fixed=200.0, tick=1.0, least=1, most=1, limit=3.0)]
    first = plan(Topology(("A", "B", "C"), links), flows)
    slower = Topology(("A", "B", "C"), {**links, ("A", "B"): 300.0})
    second = plan(slower, flows, last=first)
    assert (second.version, second.routes[0].tree) == (2, first.routes[0].tree)
    assert (first.routes[0].gather, second.routes[0].gather) == (pytest.approx(0.2), pytest.approx(0.2 / 0.3))
    assert plan(slower, flows, last=second).version == 2
    faster = plan(Topology(("A", "B", "C"), links), flows, last=second)
    assert faster.version == 2  # who waits longer than it takes waits for nothing


def test_a_plan_that_waiting_makes_the_best_stays() -> None:
    """By B, `x` would take less if nothing else were there: a solver finds that each time, and it is refined again."""
    links = {("A", "B"): 1_000.0, ("B", "C"): 1_000.0, ("A", "C"): 100.0}
    once = {"tick": 1.0, "least": 1, "most": 1}
    flows = (flow("x", {"A": 0.0}, "C", fixed=50.0, **once), flow("y", {"B": 0.0}, "C", fixed=700.0, **once))
    first = plan(Topology(("A", "B", "C"), links), flows)
    assert plan(Topology(("A", "B", "C"), links), flows, last=first) == first


def test_what_links_carry_is_not_left_out_for_noise() -> None:
    topology = Topology(("A", "B"), {("A", "B"): 1_000.0})
    flows = [flow(name, {"A": 0.0}, "B", fixed=395.0, least=1, most=1) for name in "fg"]
    first = plan(topology, flows, "frequencies")
    assert len(first.routes) == 2
    thinner = replace(topology, links={("A", "B"): 970.0})
    assert len(plan(thinner, flows, "frequencies").left_out) == 1
    for objective in ("frequencies", "latency"):
        before = plan(topology, flows, objective)
        second = plan(thinner, flows, objective, last=before)
        assert (second.version, len(second.routes), second.left_out) == (1, 2, ())


@pytest.mark.parametrize("many", [planning.MANY, 0])
@pytest.mark.parametrize("limit", [0.01, 0.5])
def test_where_no_limit_can_be_kept_the_shorter_way_is_taken(
    limit: float, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "MANY", many)
    links = {("A", "B"): 1_000.0, ("B", "C"): 1_000.0, ("A", "C"): 100.0}
    flows = [flow("f", {"A": 0.0}, "C", fixed=50.0, tick=1.0, limit=limit, job=2.0)]
    found = plan(Topology(("A", "B", "C"), links), flows)
    assert (found.routes[0].tree.parents, found.routes[0].interval) == ((("A", "B"),), 1)


@given(seeds, st.floats(0.01, 20.0), st.floats(0.0, 5.0))
@settings(max_examples=20, deadline=None)
def test_no_column_is_worth_more_than_is_offered_and_each_second_counts(seed: int, limit: float, job: float) -> None:
    topology, flows = world(seed, sites=3, flows=2, most=30, limit=limit, job=job)
    worth = Worth(problem_of(topology, flows), "latency")
    for number, columns in enumerate(columns_of(worth)):
        offers = worth.offers(number)
        values = [worth.value(column) for column in columns]
        assert all(
            value <= offered(offers, worth, column) + 1e-12 for value, column in zip(values, columns, strict=True)
        )
        seconds = [topology.tick * planning.INTERVALS[column.at] + worth.delay(column) for column in columns]
        ordered = sorted(zip(seconds, values, strict=True))
        assert all(one[1] > other[1] for one, other in pairwise(ordered) if other[0] > one[0] + 1e-6)


def offered(offers: list[Offer], worth: Worth, column: Column) -> float:
    """Return the most that offers promise of a column."""
    at, delay = column.at, worth.delay(column)
    return max(float(each.values[at] - each.slope * delay) for each in offers if delay <= each.delays[at])


def test_frequencies_that_are_better_by_a_fifth_are_it_whatever_they_are() -> None:
    """What logarithms add up to depends on what they are of: between 6 and 5 ticks 8 % of that was too little."""
    topology = Topology(("A", "B"), {("A", "B"): 1_000.0})
    worth = Worth(problem_of(topology, (flow("f", {"A": 0.0}, "B", weight=3.0),)), "proportional")
    for old, new in ((1, 0), (5, 4), (12, 11)):
        ticks = [planning.INTERVALS[at] for at in (old, new)]
        assert worth.gains([Column(0, (1,), new)], [Column(0, (1,), old)]) == pytest.approx(ticks[0] / ticks[1] - 1)
