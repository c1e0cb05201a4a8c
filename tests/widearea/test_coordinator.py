"""When a plan is made again, of what, and from which tick on it holds."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from dataclasses import replace
from math import inf, nan

import pytest
from datasketches import update_theta_sketch

from transom.errors import SiteError
from transom.widearea import coordinator
from transom.widearea.coordinator import (
    FORGOTTEN,
    NOTICE,
    PAUSE,
    SILENT,
    UNCHANGED,
    Coordinator,
    FlowReport,
    Report,
    Wanted,
)
from transom.widearea.planning import plan
from transom.widearea.topology import Topology

S = 1_000_000
SITES = ("a", "b", "c", "d")
LINKS = {(one, two): 100_000.0 for one in SITES for two in SITES if one != two}
FLOWS = {"f": Wanted(("a", "b"), "d", limit=10.0), "g": Wanted(("b", "c", "d"), "d", limit=20.0)}
_made = update_theta_sketch(10)
for _entry in range(5_000):
    _made.update(_entry)
SKETCH = _made.compact().serialize()


def report(site: str, tick: int = 100, **changes) -> Report:
    flows = {name: FlowReport(wanted, {1: 5_000.0}) for name, wanted in FLOWS.items() if site in wanted.sources}
    return replace(Report(site, tick, flows=flows), **changes)


def begun(**options) -> tuple[Coordinator, object]:
    made = Coordinator(Topology(SITES, LINKS), **options)
    for site in SITES:
        made.reported(report(site), 0)
    question = made.question(0)
    assert question is not None
    return made, question


def test_a_first_plan_is_made_when_sites_have_told_sizes() -> None:
    made = Coordinator(Topology(SITES, LINKS))
    assert made.question(0) is None
    made.reported(Report("a", 100), 0)
    assert made.question(0) is None
    made, question = begun()
    assert [flow.name for flow in question.flows] == ["f", "g"]
    assert question.flows[1].sources == ("b", "c")  # what a site owes itself takes no link
    found = made.planned(plan(question.topology, question.flows))
    assert found is not None
    assert (found.version, found.first_tick) == (1, 100 + NOTICE)
    assert made.plan == found


def test_nothing_is_planned_while_nothing_changes_and_not_too_often() -> None:
    made, _ = begun()
    for now in range(0, 60 * S, S):
        for site in SITES:
            made.reported(
                report(site, rates={"d": 100_000.0 * (1.15 if now % 2 else 0.85)} if site != "d" else {}), now
            )
        assert made.question(now) is None
    made.reported(report("a", rates={"d": 30_000.0}), 60 * S)
    question = made.question(60 * S)
    assert question is not None
    assert question.topology.links["a", "d"] == 30_000.0
    assert question.why == "a to d: 100000 has become 30000"
    made.reported(report("a", rates={"d": 90_000.0}), 61 * S)
    assert made.question(61 * S) is None
    made.reported(report("a", rates={"d": 90_000.0}), 60 * S + PAUSE)
    assert made.question(60 * S + PAUSE) is not None


def test_a_coordinator_that_comes_back_hears_all_sites_before_it_plans() -> None:
    first, question = begun()
    last = first.planned(plan(question.topology, question.flows))
    made = Coordinator(Topology(SITES, LINKS), last=last)
    for late, site in enumerate(SITES):
        assert made.question(late * S) is None
        made.reported(report(site), late * S)
    assert [flow.sources for flow in made.question(3 * S).flows] == [("a", "b"), ("b", "c")]
    made = Coordinator(Topology(SITES, LINKS), last=last)
    for now in (0, SILENT):
        for site in ("a", "c", "d"):
            made.reported(report(site), now)
        assert (made.question(now) is None) == (now < SILENT)


def test_after_a_question_that_changes_nothing_the_next_one_is_asked_soon() -> None:
    made, question = begun()
    first = made.planned(plan(question.topology, question.flows))
    made.reported(report("a", rates={"d": 70_000.0}), PAUSE)
    question = made.question(PAUSE)
    assert made.planned(plan(question.topology, question.flows, last=first)) is None
    made.reported(report("a", rates={"d": 30_000.0}), PAUSE)
    assert made.question(PAUSE) is None
    assert made.question(PAUSE + UNCHANGED).why == "a to d: 70000 has become 30000"
    made.reported(report("a", rates={"d": 1_000.0}), PAUSE + 2 * UNCHANGED)
    assert made.question(PAUSE + 2 * UNCHANGED) is None  # of that one there is no answer yet


def test_a_question_without_an_answer_is_asked_again() -> None:
    made, question = begun()
    made.failed()
    assert made.question(PAUSE - 1) is None
    again = made.question(PAUSE)
    assert (again.topology, [flow.name for flow in again.flows]) == (question.topology, ["f", "g"])
    assert made.question(2 * PAUSE) is None


def test_jobs_that_take_longer_make_a_plan() -> None:
    made, _ = begun()
    for job, asked in ((0.15, False), (0.3, True)):
        made.reported(report("a", flows={"f": FlowReport(FLOWS["f"], {1: 5_000.0}, job=job)}), PAUSE)
        assert (made.question(PAUSE) is not None) == asked


def test_a_flow_that_a_changed_job_has_no_more_takes_no_link() -> None:
    made, _ = begun()
    for now in range(0, FORGOTTEN + 2 * S, 2 * S):
        for site in SITES:
            flows = {name: each for name, each in report(site).flows.items() if name == "f"}
            made.reported(report(site, flows=flows), now)
        question = made.question(now)
        assert set(made.flows) == {"f", "g"} if now < FORGOTTEN else {"f"}
    assert question is not None
    assert [flow.name for flow in question.flows] == ["f"]
    assert "g to" in question.why


def test_a_site_that_falls_silent_relays_for_nobody_and_comes_back() -> None:
    made, _ = begun()
    now = SILENT + S
    for site in ("a", "c", "d"):
        made.reported(report(site), now)
    question = made.question(now)
    assert question is not None
    assert all("b" not in link for link in question.topology.links)
    assert [flow.sources for flow in question.flows] == [("a",), ("c",)]
    assert plan(question.topology, question.flows).left_out == ()
    made.reported(report("b"), now + S)
    again = made.question(now + PAUSE)
    assert again is not None
    assert again.why.endswith("new")


def test_a_flow_whose_destination_is_away_is_not_planned() -> None:
    made, _ = begun()
    for site in ("a", "b", "c"):
        made.reported(report(site), SILENT + S)
    assert made.question(SILENT + S) is None


def test_sizes_that_drift_and_flows_that_come_make_a_plan() -> None:
    made, _ = begun()
    made.reported(report("a", flows={"f": FlowReport(FLOWS["f"], {1: 5_900.0})}), PAUSE)
    assert made.question(PAUSE) is None
    made.reported(report("a", flows={"f": FlowReport(FLOWS["f"], {1: 6_500.0})}), PAUSE)
    assert made.question(PAUSE) is not None


def test_versions_never_fall_and_a_plan_never_holds_before_the_last_one() -> None:
    first, question = begun()
    last = first.planned(plan(question.topology, question.flows))
    assert last is not None
    made, question = begun(last=replace(last, version=7, first_tick=500))
    assert question.last.version == 7
    answer = replace(plan(question.topology, question.flows), version=8)
    assert made.planned(replace(answer, version=7)) is None
    found = made.planned(answer)
    assert found is not None
    assert (found.version, found.first_tick) == (8, 500)


def wanting(sent: Report, name: str, value: object) -> dict:
    """Return a report of a flow of which something else is wanted."""
    told = sent.to_json()
    told["flows"]["f"]["wanted"] |= {name: value, **({"most": 61} if value == 61 else {})}
    return told


@pytest.mark.parametrize("seed", range(3))
def test_whatever_sites_report_a_plan_is_made_or_no_report_is_taken(seed: int) -> None:
    chance, planned = random.Random(seed), 0
    for _ in range(8):
        made = Coordinator(Topology(SITES, LINKS))
        for now in range(0, 3 * PAUSE, PAUSE):
            for site in SITES:
                with suppress(SiteError):
                    made.reported(Report.from_json(json.loads(json.dumps(anything(chance, site)))), now)
            if (question := made.question(now)) is not None:
                planned += made.planned(plan(question.topology, question.flows)) is not None
    assert planned


def anything(chance: random.Random, site: str) -> dict:
    """Return a report that a site with damaged memory could send."""

    def number() -> float:
        return chance.choice([1e-6, 0.01, 1.0, 2.0, 5e3, 1e6, 1e6, 1e12, 9e18])

    def ticks() -> int:
        return chance.choice([1, 2, 5, 60] * 8 + [61, 1 << 62])

    def sketch() -> str:
        at = chance.randrange(len(SKETCH))
        return chance.choice([SKETCH, SKETCH[:at], SKETCH[:at] + b"\xff" + SKETCH[at + 1 :]]).hex()

    flows = {}
    for name in chance.sample("fg", chance.choice([1, 2])):
        least = chance.choice([1, 1, 2, 60])
        wanted = {"destination": chance.choice(["d", "d", "a", "other"]), "least": least, "most": max(least, ticks())}
        wanted |= {"sources": chance.choice([["a", "b"], ["b", "c"], [site, "other"], [site], [site], [], ["other"]])}
        flows[name] = {
            "wanted": {**wanted, "limit": number(), "weight": number()},
            "sent": [[ticks(), number()] for _ in range(chance.randrange(4))],
            "sketches": [[ticks(), sketch()] for _ in range(chance.randrange(3))],
            "job": number(),
        }
    rates = {peer: number() for peer in SITES if chance.random() < 0.7}
    told = {"site": site, "tick": chance.choice([0, 5, 1 << 62]), "version": ticks(), "open": list(SITES)}
    return {**told, "rates": rates, "flows": flows}


def test_reports_are_read_as_they_were_written_and_garbage_is_refused() -> None:
    sent = Report("a", 5, 3, {"b": 1.5}, ("b",), {"f": FlowReport(FLOWS["f"], {1: 2.0}, {1: b"\x01\x02"}, 0.1)})
    assert Report.from_json(sent.to_json()) == sent
    wrong = {"f": {**sent.to_json()["flows"]["f"], "sent": [[0, 1.0]]}}
    for value in (
        None,
        {},
        [],
        *({**sent.to_json(), **each} for each in ({"flows": 1}, {"flows": wrong}, {"open": 1}, {"tick": inf})),
        *({**sent.to_json(), "rates": {"b": rate}} for rate in (-1.0, inf, nan, 10**400, 1e-300, 1e300)),
        *(wanting(sent, name, value) for name in ("limit", "weight") for value in (0, 1e-300, 1e300, nan)),
        *(wanting(sent, "least", least) for least in (0, 7.5, 61)),
        wanting(sent, "sources", ["a", "a"]),
    ):
        with pytest.raises(SiteError):
            Report.from_json(value)
    with pytest.raises(SiteError, match="no site"):
        Coordinator(Topology(SITES, LINKS)).reported(Report("x", 1), 0)


@pytest.mark.parametrize("sketch", [b"no sketch", b"", SKETCH[:12], SKETCH[:-3], SKETCH[:16] + bytes(8) + SKETCH[24:]])
def test_a_flow_of_which_a_sketch_is_none_is_not_planned(sketch) -> None:
    made, _ = begun()
    made.reported(report("a", flows={"f": FlowReport(FLOWS["f"], {1: 1.0}, {1: sketch})}), PAUSE)
    question = made.question(PAUSE)
    assert question is not None
    assert [flow.name for flow in question.flows] == ["g"]


def told(made: Coordinator) -> int:
    """Return about how much is remembered of what sites have told."""
    return sum(len(json.dumps(each.to_json())) for each, _ in made._reports.values()) + len(made._told)


def test_what_sites_tell_takes_no_more_and_more_memory(monkeypatch) -> None:
    monkeypatch.setattr(coordinator, "MOST_FLOWS", 20)
    made, sizes = Coordinator(Topology(SITES, LINKS)), []
    for turn in range(400):
        name = f"flow {turn:03}"
        ticks = turn % 60 + 1
        flow = FlowReport(FLOWS["f"], {ticks: 100.0}, {ticks: SKETCH})
        made.reported(Report("a", 1, rates={f"site {turn:03}": 1.0, "b": 1.0}, flows={"f": flow, name: flow}), turn)
        sizes.append(told(made))
    assert max(sizes[200:]) <= 1.1 * max(sizes[:100])
    assert len(made.flows) <= 20
    assert set(made._reports["a"][0].rates) == {"b"}


def test_what_a_site_cannot_know_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(coordinator, "MOST_FLOWS", 1)
    made = Coordinator(Topology(SITES, LINKS))
    with pytest.raises(SiteError, match="'c' reports the flow 'f', and says that it has no rows"):
        made.reported(report("c", flows={"f": FlowReport(FLOWS["f"], {1: 1.0})}), 0)
    with pytest.raises(SiteError, match="2 flows, more than 1"):
        made.reported(report("a", flows={name: FlowReport(FLOWS["f"], {1: 1.0}) for name in "fh"}), 0)
    for sent, sketches in (({61: 1.0}, {}), ({1: 1.0}, {61: b""}), ({1: 1.0}, {1: bytes(1 << 15)})):
        with pytest.raises(SiteError):
            FlowReport(FLOWS["f"], sent, sketches)
    with pytest.raises(SiteError, match="sketches"):
        FlowReport(FLOWS["f"], {1: 1.0}, dict.fromkeys(range(1, 10), SKETCH))
