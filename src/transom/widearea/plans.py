"""What was decided: the way of each flow, how often it leaves, and what that makes of the links. JSON both ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transom.errors import DefinitionError
from transom.widearea.checked import WRONG, count, real, text
from transom.widearea.topology import INTERVALS, Link
from transom.widearea.trees import Tree


@dataclass(frozen=True)
class Route:
    """The way of one flow; it leaves at ticks whose number modulo the interval is the phase, at all its sites."""

    flow: str
    tree: Tree
    interval: int
    """Ticks between two departures."""
    phase: int
    latency: float
    """Seconds, predicted at the flow's quantile: from the oldest row of an interval until it is merged."""
    gather: float = 0.0
    """Seconds from a departure until all that a relay merges has come there, predicted, at most."""


@dataclass(frozen=True)
class LinkUse:
    """What a plan makes of a link."""

    link: Link
    used: float
    """Bytes per second."""
    capacity: float
    """Bytes per second that partials may take."""
    price: float
    """What a byte per second more would be worth, in the objective; where the next plan begins."""


@dataclass(frozen=True)
class LeftOut:
    """A flow that fits nowhere at its longest interval."""

    flow: str
    link: Link
    """The link that is missing or too thin on the way that comes closest."""
    shortfall: float
    """Bytes per second that it lacks."""


@dataclass(frozen=True)
class Plan:
    """Ways and intervals of all flows. Results do not depend on it."""

    version: int
    """Each plan that differs from the one before has the next number."""
    first_tick: int
    """The tick from which on it holds."""
    objective: str
    value: float
    """Of the objective."""
    bound: float
    """No plan is better than that, as far as is proven."""
    routes: tuple[Route, ...]
    links: tuple[LinkUse, ...]
    """Those that are used, or have a price."""
    left_out: tuple[LeftOut, ...] = ()

    @property
    def gap(self) -> float:
        """The share by which a better plan could be better, at most."""
        return max(0.0, self.bound / self.value - 1.0) if self.value > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "version": self.version,
            "first_tick": self.first_tick,
            "objective": self.objective,
            "value": self.value,
            "bound": self.bound,
            "routes": [
                {
                    "flow": route.flow,
                    "destination": route.tree.destination,
                    "parents": [list(pair) for pair in route.tree.parents],
                    "interval": route.interval,
                    "phase": route.phase,
                    "latency": route.latency,
                    "gather": route.gather,
                }
                for route in self.routes
            ],
            "links": [[*use.link, use.used, use.capacity, use.price] for use in self.links],
            "left_out": [[left.flow, *left.link, left.shortfall] for left in self.left_out],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Plan:
        """Return what `to_json` wrote.

        Raises:
            DefinitionError: It is not a plan.
        """
        try:
            routes = [
                _checked(
                    Route(
                        text(each["flow"]),
                        Tree(
                            text(each["destination"]),
                            tuple((text(source), text(parent)) for source, parent in each["parents"]),
                        ),
                        count(each["interval"]),
                        count(each["phase"]),
                        real(each["latency"]),
                        real(each.get("gather", 0.0)),  # which plans of before do not tell
                    )
                )
                for each in value["routes"]
            ]
            uses = [LinkUse((source, target), *map(float, rest)) for source, target, *rest in value["links"]]
            left = [LeftOut(flow, (source, target), lacks) for flow, source, target, lacks in value["left_out"]]
            return cls(
                count(value["version"]),
                count(value["first_tick"]),
                str(value["objective"]),
                float(value["value"]),
                float(value["bound"]),
                tuple(routes),
                tuple(uses),
                tuple(left),
            )
        except WRONG as error:
            raise DefinitionError(f"This is not a plan: {error!r}.", "Give what `Plan.to_json` returned.") from error


def _checked(route: Route) -> Route:
    """Return a route that can be followed: a flow that never left would hold back its windows for ever."""
    takes = all(0 <= seconds < 1e9 for seconds in (route.latency, route.gather))
    if route.interval not in INTERVALS or route.phase >= route.interval or not takes:
        raise ValueError(f"{route.flow} leaves every {route.interval} ticks at {route.phase}, for {route.latency} s")
    return route
