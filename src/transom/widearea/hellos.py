"""What two sites tell each other of themselves before anything else, and what of it has to agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from transom.errors import SiteError
from transom.widearea.checked import WRONG
from transom.widearea.parcels import FlowName
from transom.widearea.topology import Site

PROTOCOL = 2
"""Version of what goes over links."""
_WHOLE = {
    "protocol": "Install versions of Transom that speak the same protocol at both sites.",
    "spark": "Run the same minor version of Spark at both sites: expressions may mean something else in another one.",
    "zone": "Set spark.sql.session.timeZone to the same at both sites.",
    "ansi": "Set spark.sql.ansi.enabled to the same at both sites.",
}
"""What has to agree before anything goes over a link, with what to do where it does not."""

FlowParts: TypeAlias = Mapping[str, str]
"""What the partials of a flow are, as texts by what they are about, such as keys and windows."""
STREAM, DESTINATION = "stream", "destination"
PLAN = "plan"
"""A part that is shown and not compared: the plan by which rows are made. Equal rows have one name."""
LIMIT = "limit"
"""A part that is not compared, as no result depends on it: results are due within so many microseconds; 0 for none."""
SHOWN = 120
"""So much is shown of a long text, from a little before where it differs."""


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
    flows: Mapping[FlowName, FlowParts] = field(default_factory=dict)
    """What the partials of each flow are."""
    relays: bool = False
    """Whether it only passes on what others send: it computes nothing, so that nothing but the protocol has to agree.
    """

    def check(self, other: Hello) -> None:
        """Refuse another site with which nothing can be exchanged.

        Raises:
            SiteError: The sites differ in what has to agree.
        """
        for name, remedy in _WHOLE.items():
            if name != "protocol" and (self.relays or other.relays):
                continue
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise SiteError(f"{self.site} has {name} {mine}, {other.site} has {theirs}.", remedy)

    def differs(self, other: Hello) -> dict[FlowName, str]:
        """Return the flows that cannot go between two sites, each with the difference; all others can.

        Who tells of no flow at all passes on those of others, and differs in none.
        """
        flows = {**self.flows, **other.flows} if self.flows and other.flows else ()
        return {flow: different for flow in flows if (different := self.difference(flow, other))}

    def difference(self, flow: FlowName, other: Hello) -> str:
        """Return why a flow cannot go between two sites; empty if it can."""
        mine, theirs = self.flows.get(flow), other.flows.get(flow)
        if mine is None or theirs is None:
            return f"{self.site if mine is None else other.site} does not know the flow {flow!r}."
        parts = [part for part in mine if part in theirs and part not in (PLAN, LIMIT) and mine[part] != theirs[part]]
        told = "; ".join(self._apart(other, part, mine, theirs) for part in parts)
        return f"The flow {flow!r} differs: {told}." if told else ""

    def _apart(self, other: Hello, part: str, mine: FlowParts, theirs: FlowParts) -> str:
        """Return in words how a part of a flow differs; of rows, how their plans do, which tell more than names."""
        shown = PLAN if part == "rows" and mine.get(PLAN) != theirs.get(PLAN) else part
        here, there = (each.get(shown, "") for each in (mine, theirs))
        if max(len(here), len(there)) > SHOWN:
            same = next((at for at, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), 0)
            here, there = (f"... {each[max(0, same - SHOWN // 4) :][:SHOWN]} ..." for each in (here, there))
        return f"{part} are {here or 'none'!s} at {self.site}, and {there or 'none'!s} at {other.site}"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**self.__dict__, "flows": {flow: dict(parts) for flow, parts in self.flows.items()}}

    @classmethod
    def from_json(cls, value: Any) -> Hello:
        """Return what `to_json` wrote; what later versions add is left out.

        Raises:
            SiteError: It is something else.
        """
        try:
            flows = {
                str(flow): {str(part): str(text) for part, text in parts.items()}
                for flow, parts in value["flows"].items()
            }
            return cls(
                str(value["site"]),
                int(value["protocol"]),
                str(value["transom"]),
                str(value["spark"]),
                str(value["zone"]),
                bool(value["ansi"]),
                flows,
                bool(value.get("relays", False)),
            )
        except WRONG as error:
            raise SiteError(f"This is no opening of a connection: {error!r}.", _WHOLE["protocol"]) from error
