"""Who plans: from what sites report to a plan that all follow, made again when something that matters has changed.

A plan is about speed only, so nothing here has to be exact or agreed upon. A site that was not heard of for a while
relays for nobody and is asked for nothing; what it owes and what it is owed goes straight, when it is there again.
Versions never fall: a plan is durable before any site hears of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from transom.errors import SiteError
from transom.model.time import Micros
from transom.widearea.checked import WRONG, real, whole
from transom.widearea.flows import Flow
from transom.widearea.objectives import Objective
from transom.widearea.parcels import FlowName
from transom.widearea.plans import Plan
from transom.widearea.sizes import MeasuredSizes, Observed
from transom.widearea.topology import INTERVALS, Link, Site, Topology

SILENT: Micros = 8_000_000
"""A site that was not heard of for so long is taken to be away."""
PAUSE: Micros = 5_000_000
"""Between two plans, at least."""
UNCHANGED: Micros = 1_000_000
"""After a question whose answer was the plan that is followed already: what comes next may matter more."""
DRIFT = 0.2
"""A link's rate, the bytes of a flow at a site, or a tick and a job, that differ by more than this share from what was
planned for."""
FORGOTTEN: Micros = 120_000_000
"""A site that reports, and has not told of a flow for so long, runs a job that has no such flow any more."""
NOTICE = 5
"""Ticks between a plan and the first one on which it holds, so that all hear of it before."""

MOST_FLOWS = 2_000
"""Of one site."""
MOST_SKETCHES, MOST_SKETCH = 8, 16 << 10
"""Of one flow at a site, and bytes of one; those that sites make are of 4 kB (`sizes.NOMINAL`)."""

LEAST, MOST = 1e-6, 2.0**63
"""Numbers that sites report are between these, so that sums, products and quotients of some are numbers, too."""
_REMEDY = "Run the same version of Transom at all sites and at the coordinator."


@dataclass(frozen=True)
class Wanted:
    """What the job and the topology say of a flow; the coordinator hears it from the sites."""

    sources: tuple[Site, ...]
    destination: Site
    limit: float
    """Seconds within which results are due."""
    weight: float = 1.0
    least: int = 1
    most: int = INTERVALS[-1]
    """Bounds of its interval, ticks."""


@dataclass(frozen=True)
class FlowReport:
    """What a site knows of a flow that it sends."""

    wanted: Wanted
    sent: Mapping[int, float] = field(default_factory=dict)
    """Bytes of parcels by the ticks that they gathered, as sent."""
    sketches: Mapping[int, bytes] = field(default_factory=dict)
    """Theta sketches of (pane, key), by ticks."""
    job: float = 0.0
    """Seconds from the tick until a parcel may leave."""

    def __post_init__(self) -> None:
        known = all(LEAST <= size < MOST for size in self.sent.values()) and 0 <= self.job < MOST
        if not known or not all(1 <= ticks <= INTERVALS[-1] for ticks in (*self.sent, *self.sketches)):
            shown = str(dict(self.sent))[:200]
            raise SiteError(f"A site reports parcels of {shown} bytes by ticks.", "Run one version of Transom.")
        if len(self.sketches) > MOST_SKETCHES or any(len(each) > MOST_SKETCH for each in self.sketches.values()):
            raise SiteError("A site reports more or larger sketches than there are.", "Run one version of Transom.")


@dataclass(frozen=True)
class Report:
    """What a site tells from time to time."""

    site: Site
    tick: int
    """Where its clock is."""
    version: int = 0
    """Of the plan that it follows."""
    rates: Mapping[Site, float] = field(default_factory=dict)
    """What links to neighbours carry when they are busy, as measured; bytes per second."""
    open: tuple[Site, ...] = ()
    """The neighbours that it is connected to."""
    flows: Mapping[FlowName, FlowReport] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        flows = {
            name: {
                "wanted": {**each.wanted.__dict__, "sources": list(each.wanted.sources)},
                "sent": list(map(list, each.sent.items())),
                "sketches": [[ticks, sketch.hex()] for ticks, sketch in each.sketches.items()],
                "job": each.job,
            }
            for name, each in self.flows.items()
        }
        return {**self.__dict__, "rates": dict(self.rates), "open": list(self.open), "flows": flows}

    @classmethod
    def from_json(cls, value: Any) -> Report:
        """Return what `to_json` wrote.

        Raises:
            SiteError: It is something else.
        """
        try:
            flows = {
                str(name): FlowReport(
                    _wanted(each["wanted"]),
                    {whole(ticks): float(size) for ticks, size in each["sent"]},
                    {whole(ticks): bytes.fromhex(sketch) for ticks, sketch in each["sketches"]},
                    float(each["job"]),
                )
                for name, each in value["flows"].items()
            }
            rates = {str(site): real(rate) for site, rate in value["rates"].items()}
            if wrong := [rate for rate in rates.values() if rate and not LEAST <= rate < MOST]:
                raise ValueError(f"no link carries {wrong[0]} bytes a second")
            neighbours = tuple(map(str, value["open"]))
            return cls(str(value["site"]), whole(value["tick"]), whole(value["version"]), rates, neighbours, flows)
        except WRONG as error:
            raise SiteError(f"This is no report of a site: {error!r}.", _REMEDY) from error


@dataclass(frozen=True)
class Question:
    """What is to be planned; `widearea.planning.plan` answers it."""

    topology: Topology
    flows: tuple[Flow, ...]
    last: Plan | None
    why: str
    """What has changed, for people."""


class Coordinator:
    """Decides when a plan is made, of what, and from which tick on it holds.

    Args:
        topology: Sites, and links as they were stated.
        objective: What plans make good.
        last: The last plan that was made durable.
    """

    def __init__(self, topology: Topology, objective: Objective = "latency", last: Plan | None = None) -> None:
        self.topology, self.objective, self.plan = topology, objective, last
        self.flows: dict[FlowName, Wanted] = {}
        self._reports: dict[Site, tuple[Report, Micros]] = {}
        self._told: dict[tuple[Site, FlowName], Micros] = {}
        """When a site told of a flow last."""
        self._basis: dict[Any, float] = {}
        """What the last question was about: rates and sizes."""
        self._began: Micros | None = None
        """When the first report came."""
        self._asked: Micros | None = None
        self._pause = PAUSE
        self._failed = False
        """Whether the last question has no answer."""

    def check(self, report: Report) -> None:
        """Refuse what a site cannot know; depends on the topology alone, so that any thread may ask.

        Raises:
            SiteError: There is no such site, or it tells of flows that are not its own.
        """
        if report.site not in self.topology.sites:
            raise SiteError(f"There is no site {report.site!r}.", "Name it in the topology.")
        others = [name for name, each in report.flows.items() if report.site not in each.wanted.sources]
        if others:
            raise SiteError(
                f"{report.site!r} reports the flow {others[0]!r}, and says that it has no rows of it.", _REMEDY
            )
        if len(report.flows) > MOST_FLOWS:
            raise SiteError(f"{report.site!r} reports {len(report.flows)} flows, more than {MOST_FLOWS}.", _REMEDY)

    def reported(self, report: Report, now: Micros) -> None:
        """Take a site's report. Of links to sites that are not in the topology nothing is kept.

        Raises:
            SiteError: There is no such site, or it tells of flows that are not its own.
        """
        self.check(report)
        rates = {site: rate for site, rate in report.rates.items() if site in self.topology.sites}
        report = replace(report, rates=rates)
        self._began = now if self._began is None else self._began
        self.flows.update({name: each.wanted for name, each in report.flows.items()})
        self._told.update(((report.site, name), now) for name in report.flows)
        before = self._reports.get(report.site)
        if before is not None:  # what a site does not tell again is as it was
            flows = {name: _newer(before[0].flows.get(name), each) for name, each in report.flows.items()}
            kept = {
                name: each
                for name, each in before[0].flows.items()
                if now - self._told.get((report.site, name), now) < FORGOTTEN
            }
            flows = dict(list({**kept, **flows}.items())[-MOST_FLOWS:])  # the newest
            report = replace(report, rates={**before[0].rates, **report.rates}, flows=flows)
        self._reports[report.site] = (report, now)
        told = {name for each, _ in self._reports.values() for name in each.flows}
        self.flows = {name: wanted for name, wanted in self.flows.items() if name in told}
        self._told = {(site, name): at for (site, name), at in self._told.items() if name in told}

    def present(self, now: Micros) -> frozenset[Site]:
        """Return the sites that were heard of lately."""
        return frozenset(site for site, (_, at) in self._reports.items() if now - at < SILENT)

    def question(self, now: Micros) -> Question | None:
        """Return what is to be planned now; None while nothing that matters has changed, or a plan was made just now.

        Who has begun waits until all sites have reported, or those that have not are taken to be away: a plan without
        them would take the place of a good one.

        Args:
            now: Monotonic time.
        """
        if self._asked is not None and now - self._asked < self._pause:
            return None
        begins = self._asked is None and self._began is not None and now - self._began < SILENT
        if begins and self.present(now) != frozenset(self.topology.sites):
            return None
        links, flows = self._links(now), self._flows(now)
        basis = self._known(links, flows)
        why = _difference(self._basis, basis) if self._asked is not None else "the coordinator has begun"
        if self._failed:
            why = why or "there was no answer before"
        if not flows or not why:
            return None
        self._asked, self._basis, self._pause, self._failed = now, basis, PAUSE, False
        return Question(replace(self.topology, links=links), flows, self.plan, why)

    def planned(self, plan: Plan) -> Plan | None:
        """Return the plan that is to be made durable and then followed; None if it is the last one.

        Args:
            plan: The answer to the last question.
        """
        if self.plan is not None and plan.version <= self.plan.version:
            self._pause = UNCHANGED
            return None
        tick = max((report.tick for report, _ in self._reports.values()), default=0)
        first = max(tick + NOTICE, self.plan.first_tick if self.plan is not None else 0)
        self.plan = replace(plan, first_tick=first)
        return self.plan

    def failed(self) -> None:
        """Take note that the last question could not be answered: it is asked again, though nothing has changed."""
        self._failed = True

    def _links(self, now: Micros) -> dict[Link, float]:
        """Return what links carry: as measured, else as stated; none from or to sites that are away."""
        there = self.present(now)
        found = {}
        for link, stated in self.topology.links.items():
            source, target = link
            if source in there and target in there:
                found[link] = self._reports[source][0].rates.get(target) or stated
        return found

    def _flows(self, now: Micros) -> tuple[Flow, ...]:
        """Return the flows that can be planned: those of which sizes are known at all sources that are there."""
        there = self.present(now)
        found = []
        for name, wanted in sorted(self.flows.items()):
            sources = tuple(site for site in wanted.sources if site in there and site != wanted.destination)
            reports = {site: self._reports[site][0].flows.get(name) for site in sources}
            if wanted.destination not in there or not sources:
                continue
            if not all(each is not None and each.sent for each in reports.values()):
                continue
            seen = {site: Observed(each.sent, each.sketches) for site, each in reports.items() if each is not None}
            try:
                sizes = MeasuredSizes(seen)
            except ValueError:  # a sketch that is none
                continue
            job = max(each.job for each in reports.values() if each is not None)
            found.append(
                Flow(
                    name,
                    sources,
                    wanted.destination,
                    sizes,
                    wanted.limit,
                    weight=wanted.weight,
                    least=wanted.least,
                    most=wanted.most,
                    job=max(0.0, job),
                )
            )
        return tuple(found)

    def _known(self, links: Mapping[Link, float], flows: tuple[Flow, ...]) -> dict[Any, float]:
        """Return the numbers that a plan rests on."""
        found: dict[Any, float] = dict(links)
        for flow in flows:
            found[flow.name, "its departure"] = 1_000 * (self.topology.tick + flow.job)  # ms
            for site in flow.sources:
                found[flow.name, site] = float(flow.sizes.of(frozenset([site]))[0])
        return found


def _wanted(value: Mapping[str, Any]) -> Wanted:
    """Return what a report says of a flow."""
    found = Wanted(
        tuple(map(str, value["sources"])),
        str(value["destination"]),
        float(value["limit"]),
        float(value["weight"]),
        whole(value["least"]),
        whole(value["most"]),
    )
    bounded = LEAST <= found.limit < MOST and LEAST <= found.weight < MOST
    leaves = found.least >= 1 and any(found.least <= ticks <= found.most for ticks in INTERVALS)
    if not bounded or not leaves or len(set(found.sources)) < len(found.sources):
        raise ValueError(f"{value} is no flow")
    return found


def _newer(before: FlowReport | None, now: FlowReport) -> FlowReport:
    """Return a report with what an older one says of intervals that the newer one does not know."""
    if before is None:
        return now
    return replace(now, sent={**before.sent, **now.sent}, sketches=now.sketches or before.sketches)


def _difference(before: Mapping[Any, float], now: Mapping[Any, float]) -> str:
    """Return what has changed so much that a plan may be wrong, in words; empty if nothing has."""
    for key in sorted(before.keys() ^ now.keys(), key=str):
        return f"{key[0]} to {key[1]}: {'gone' if key in before else 'new'}"
    for key, value in now.items():
        if abs(value - before[key]) > DRIFT * max(before[key], 1e-9):
            return f"{key[0]} to {key[1]}: {before[key]:.0f} has become {value:.0f}"
    return ""
