"""The plans as one site follows them: by tick, where a flow goes from here, when it leaves, and whom it waits for.

Nothing depends on the sites' agreeing: who hears of a plan late follows it late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from transom.model.time import MICROS_PER_SECOND, Micros
from transom.widearea.parcels import FlowName
from transom.widearea.plans import Plan, Route
from transom.widearea.relays import Expected
from transom.widearea.topology import INTERVALS, Site
from transom.widearea.trees import Tree

UNSTATED: Micros = 10 * MICROS_PER_SECOND
"""Latency limit of a flow of whose queries none states one."""
KEPT = 4
"""Plans that are remembered: parcels of older ticks are still under way."""


@dataclass(frozen=True)
class Ends:
    """Where a flow comes from and goes to."""

    sources: tuple[Site, ...]
    destination: Site
    limit: Micros = 0
    """Within which its results are due; 0 where nobody said."""


class Routes:
    """What the plans say at one site.

    Args:
        site: This site.
        tick: Length of a tick, microseconds.
        flows: Ends of the flows, by name.
        most: Ticks between two departures of a flow, at most.
    """

    def __init__(self, site: Site, tick: Micros, flows: Mapping[FlowName, Ends], most: int = INTERVALS[-1]) -> None:
        self.site, self.tick, self.flows, self.most = site, tick, dict(flows), most
        self._plans: list[tuple[Plan, dict[FlowName, Route]]] = []

    @property
    def version(self) -> int:
        """The version of the newest plan; 0 before the first."""
        return self._plans[-1][0].version if self._plans else 0

    def adopt(self, plan: Plan) -> bool:
        """Follow a plan from its first tick on; false if it is not newer than the last one, which is kept then."""
        if plan.version <= self.version:
            return False
        self._plans = [*self._plans[-KEPT + 1 :], (plan, {route.flow: self._bounded(route) for route in plan.routes})]
        return True

    def _bounded(self, route: Route) -> Route:
        """Return a route that leaves as often as the topology here says: who waits for this site counts with that."""
        interval = min(route.interval, self.most)
        return replace(route, interval=interval, phase=route.phase % interval)

    def route(self, flow: FlowName, tick: int) -> Route:
        """Return the way of a flow for what leaves on a tick.

        Straight to the destination before the first plan, and while no plan knows it; as seldom as may be where a plan
        leaves it out.
        """
        interval = 1
        for plan, routes in reversed(self._plans):
            if plan.first_tick <= tick and flow in routes:
                return routes[flow]
            if plan.first_tick <= tick:
                interval = self.most if any(left.flow == flow for left in plan.left_out) else 1
                break
        return _straight(flow, self.flows[flow], interval)

    def every(self, flow: FlowName) -> Micros:
        """Return how often a flow leaves, by the newest plan."""
        return self.route(flow, self._plans[-1][0].first_tick if self._plans else 0).interval * self.tick

    def parent(self, flow: FlowName, tick: int) -> Site:
        """Return where this site sends what leaves on a tick: itself, where the flow ends here."""
        route = self.route(flow, tick)
        if route.tree.destination == self.site:
            return self.site
        return dict(route.tree.parents).get(self.site, route.tree.destination)

    def departs(self, flow: FlowName, tick: int) -> bool:
        """Tell whether an interval ends on a tick."""
        route = self.route(flow, tick)
        return tick % route.interval == route.phase

    def expected(self, flow: FlowName, tick: int) -> Expected | None:
        """Return what this site merges of a flow and tick; None where it only passes it on."""
        if flow not in self.flows:
            return None
        route = self.route(flow, tick)
        children = {site for site, parent in route.tree.parents if parent == self.site}
        if not children or route.tree.destination == self.site:
            return None
        mine = {self.site} & set(dict(route.tree.parents))
        interval = route.interval * self.tick
        limit = self.flows[flow].limit
        slack = limit - round(route.latency * 1e6) if limit else interval
        gather = round(route.gather * 1e6)
        return Expected(frozenset(children | mine), interval, max(self.tick // 2, slack), gather)

    def prediction(self, flow: FlowName, tick: int) -> Micros:
        """Return how long it takes from a departure to the ack, by the plan; at least half a tick."""
        route = self.route(flow, tick)
        waited = route.interval * self.tick
        return max(self.tick // 2, round(route.latency * 1e6) - waited)


@lru_cache(maxsize=1_000)
def _straight(flow: FlowName, ends: Ends, interval: int) -> Route:
    """Return the way of a flow straight to its destination."""
    parents = tuple((source, ends.destination) for source in ends.sources if source != ends.destination)
    return Route(flow, Tree(ends.destination, parents), interval, 0, 0.0)
