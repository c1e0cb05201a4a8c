"""A coordinator that takes reports over loopback, and keeps its plan."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow.flight as fl
import pytest
from benchmarks.certificates import identity

from transom.errors import DefinitionError, SiteError
from transom.model.time import ManualClock
from transom.sites import coordinating
from transom.sites.coordinating import MOST_REPORT, MOST_WAITING, Asking, Coordinating, read_plan
from transom.sites.secured import client_options
from transom.widearea.belief import APART
from transom.widearea.coordinator import PAUSE, SILENT, FlowReport, Report, Wanted
from transom.widearea.topology import Topology

SITES = ("a", "b", "home")
TOPOLOGY = Topology(SITES, {(one, two): 1e5 for one in SITES for two in SITES if one != two})
FLOW = Wanted(("a", "b"), "home", 5.0)


@pytest.fixture
def begin(tmp_path):
    made: list[Coordinating] = []

    def start(secured: bool = True) -> Coordinating:
        mine = identity("coordinator") if secured else None
        file = tmp_path / "plan.json"
        made.append(Coordinating(TOPOLOGY, "latency", file, "127.0.0.1:0", mine, ManualClock(100_000_000), said.append))
        made[-1].begin()
        return made[-1]

    said: list[str] = []
    start.said, start.file = said, tmp_path / "plan.json"
    yield start
    for each in made:
        each.end()


def asking(site: str, there: Coordinating, secured: bool = True) -> Asking:
    mine = identity(site) if secured else None
    return Asking(site, f"127.0.0.1:{there.port}", "coordinator", mine)


def report(site: str, version: int = 0) -> Report:
    flows = {} if site == "home" else {"f": FlowReport(FLOW, {1: 4_000.0})}
    return Report(site, 100, version, flows=flows)


@pytest.mark.parametrize("secured", [True, False])
def test_sites_report_and_hear_of_the_plan(begin, secured) -> None:
    there = begin(secured)
    sites = {site: asking(site, there, secured) for site in SITES}
    for site, each in sites.items():
        each.ask(report(site))
        assert each.plans() == []
    there.look()
    for site, each in sites.items():
        each.ask(report(site))
        (plan,) = each.plans()
        assert plan == read_plan(begin.file)
        each.ask(report(site, plan.version))
        assert each.plans() == []
    assert begin.said[-1].startswith("Plan 1 from tick 105 on")
    assert "f every" in begin.said[-1]


def test_a_coordinator_that_comes_back_goes_on_with_its_plan(begin) -> None:
    there = begin()
    for site in SITES:
        asking(site, there).ask(report(site))
    there.look()
    there.end()
    again = begin()
    each = asking("a", again)
    each.ask(report("a"))
    (plan,) = each.plans()
    assert plan.version == 1
    again._clock.advance(SILENT)
    for site in SITES:
        sent = report(site)
        flows = {name: replace(flow, sent={1: 80_000.0}) for name, flow in sent.flows.items()}
        asking(site, again).ask(replace(sent, flows=flows))
    again.look()
    found = read_plan(begin.file)
    assert found.version >= 1


def test_who_is_not_who_it_says_is_refused(begin) -> None:
    there = begin()
    with pytest.raises(SiteError, match="certificate is that of 'a'"):
        asking("a", there).ask(report("b"))
    with pytest.raises(SiteError, match="no site 'x'"):
        asking("x", there).ask(report("x"))
    foreign = Asking("a", f"127.0.0.1:{there.port}", "coordinator", identity("a", by="somebody else"))
    with pytest.raises(SiteError, match="cannot be reached"):
        foreign.ask(report("a"))
    for kind, body in (("report", b"garbage"), ("report", b"[" * 100_000), ("report", b"{}"), ("other", b"")):
        with fl.FlightClient(
            f"grpc+tls://127.0.0.1:{there.port}", **client_options(identity("a"), "coordinator", MOST_REPORT)
        ) as c:
            (result,) = c.do_action(fl.Action(kind, body))
        assert "refused" in json.loads(result.body.to_pybytes())
    there.look()
    assert not begin.file.exists()


def test_a_plan_that_cannot_be_made_is_tried_again_and_said_once(begin, monkeypatch) -> None:
    there = begin(False)

    def broken(*_):
        raise ValueError("the solver has failed")

    monkeypatch.setattr(coordinating, "plan", broken)
    for site in SITES:
        asking(site, there, False).ask(report(site))
    for _ in range(3):
        there.look()
        there._clock.advance(PAUSE)
    assert [each for each in begin.said if "plan" in each.lower()] == ["No plan: the solver has failed"]
    monkeypatch.undo()
    for site in SITES:
        asking(site, there, False).ask(report(site))
    there.look()
    assert begin.said[-1].startswith("Plan 1 from tick 105 on (there was no answer before)")


def test_a_coordinator_that_is_not_there_is_said(begin) -> None:
    there = begin()
    each = asking("a", there)
    there.end()
    with pytest.raises(SiteError, match="cannot be reached"):
        each.ask(report("a"))


def test_a_damaged_plan_is_not_taken_for_none(begin) -> None:
    begin.file.write_text("{}")
    with pytest.raises(DefinitionError, match="holds no plan"):
        begin()


def test_reports_that_come_faster_than_they_are_taken_are_refused(begin) -> None:
    there = begin()
    a, b = asking("a", there), asking("b", there)
    for _ in range(MOST_WAITING):
        a.ask(report("a"))
    for _ in range(3):
        with pytest.raises(SiteError, match=f"{MOST_WAITING} reports of 'a' wait"):
            a.ask(report("a"))
    b.ask(report("b"))
    assert there._reports.qsize() == MOST_WAITING + 1
    assert [text for text in begin.said if "is refused" in text] == begin.said  # once while it stays the same
    assert len(begin.said) == 1
    there.look()
    a.ask(report("a"))


def test_a_clock_that_is_far_ahead_is_not_believed(begin) -> None:
    """The plan would hold from its tick on, and no later one before it."""
    there = begin()
    now = 100
    with pytest.raises(SiteError, match="ahead of the coordinator's"):
        asking("a", there).ask(replace(report("a"), tick=1 << 60))
    for site in SITES:
        asking(site, there).ask(replace(report(site), tick=now + APART // 1_000_000))
    there.look()
    assert read_plan(begin.file).first_tick == now + APART // 1_000_000 + 5


def test_plans_that_a_site_does_not_look_at_do_not_pile_up(begin) -> None:
    there = begin()
    for site in SITES:
        asking(site, there).ask(report(site))
    there.look()
    each = asking("a", there)
    for _ in range(10):
        each.ask(report("a"))
    assert len(each.plans()) == 4


def test_reports_go_over_one_connection_which_is_made_anew_when_it_breaks(begin, monkeypatch) -> None:
    made, real = [], fl.FlightClient
    monkeypatch.setattr(fl, "FlightClient", lambda *given, **options: made.append(1) or real(*given, **options))
    there = begin(False)
    site = asking("a", there, False)
    for _ in range(3):
        site.ask(report("a"))
        there.look()
    assert len(made) == 1
    there.end()
    with pytest.raises(SiteError, match="cannot be reached"):
        site.ask(report("a"))
    site.address = f"127.0.0.1:{begin(False).port}"
    site.ask(report("a"))
    assert len(made) == 2
    site.end()
