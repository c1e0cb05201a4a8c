"""What two sites tell each other of themselves before anything else, and what of it has to agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transom.errors import SiteError
from transom.widearea.parcels import FlowName
from transom.widearea.topology import Site

PROTOCOL = 1
"""Version of what goes over links."""
_WHOLE = {
    "protocol": "Install versions of Transom that speak the same protocol at both sites.",
    "spark": "Run the same minor version of Spark at both sites: expressions may mean something else in another one.",
    "zone": "Set spark.sql.session.timeZone to the same at both sites.",
    "ansi": "Set spark.sql.ansi.enabled to the same at both sites.",
}
"""What has to agree before anything goes over a link, with what to do where it does not."""


@dataclass(frozen=True)
class Hello:
    """A site as another one has to know it."""

    site: Site
    protocol: int = PROTOCOL
    transom: str = ""
    """Minor version; told for people, as what it sends says by lasting names what it is."""
    spark: str = ""
    """Minor version."""
    zone: str = ""
    ansi: bool = True
    flows: Mapping[FlowName, str] = field(default_factory=dict)
    """What the partials of each flow are: origin, primitives and columns, as text."""

    def check(self, other: Hello) -> None:
        """Refuse another site with which nothing can be exchanged.

        Raises:
            SiteError: The sites differ in what has to agree.
        """
        for name, remedy in _WHOLE.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise SiteError(f"{self.site} has {name} {mine}, {other.site} has {theirs}.", remedy)

    def differs(self, other: Hello) -> dict[FlowName, str]:
        """Return the flows that cannot go between two sites, each with the difference; all others can."""
        found = {}
        for flow, mine in self.flows.items():
            theirs = other.flows.get(flow)
            if theirs is None:
                found[flow] = f"{other.site} does not know the flow {flow!r}."
            elif theirs != mine:
                found[flow] = f"the flow {flow!r} is {mine} at {self.site}, and {theirs} at {other.site}."
        for flow in other.flows:
            if flow not in self.flows:
                found[flow] = f"{self.site} does not know the flow {flow!r}."
        return found

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**self.__dict__, "flows": dict(self.flows)}

    @classmethod
    def from_json(cls, value: Any) -> Hello:
        """Return what `to_json` wrote; what later versions add is left out.

        Raises:
            SiteError: It is something else.
        """
        try:
            flows = {str(flow): str(text) for flow, text in value["flows"].items()}
            return cls(
                str(value["site"]),
                int(value["protocol"]),
                str(value["transom"]),
                str(value["spark"]),
                str(value["zone"]),
                bool(value["ansi"]),
                flows,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SiteError(f"This is no opening of a connection: {error!r}.", _WHOLE["protocol"]) from error
