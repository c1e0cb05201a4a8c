"""The way to other sites: what moves bytes between a site's carrier and those of its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

from transom.model.time import Micros
from transom.widearea.carriers import Carrier
from transom.widearea.hellos import FlowParts, Hello
from transom.widearea.parcels import FlowName, Standing

Standings: TypeAlias = Callable[[], Iterable[Standing]]
Flows: TypeAlias = Mapping[FlowName, FlowParts]


class Listener(Protocol):
    """Hears who the neighbours are, on the loop's thread."""

    def called(self, theirs: Hello) -> Mapping[FlowName, str]:
        """Take what a site says that has opened a connection, before anything else comes on it.

        Returns the flows that are not taken from it, each with the reason.
        """

    def answered(self, theirs: Hello) -> None:
        """Take what a site says to which a connection was opened, before anything else goes on it."""


class Mail(Protocol):
    """Moves what a carrier has to say, and brings it what others say. Its methods are called on the loop's thread."""

    def begin(self, carrier: Carrier, standings: Standings, wake: Callable[[], None], flows: Flows) -> None:
        """Begin to connect with the neighbours.

        Args:
            carrier: Of this site; nobody else calls what is about connections.
            standings: Returns where this site stands with the flows that end here, for those who connect.
            wake: Called from any thread when there is something for `look`.
            flows: What partials of each flow are here; who has others is not understood.

        Raises:
            SiteError: The site cannot be reached under its address.
        """

    def look(self, now: Micros) -> None:
        """Give the carrier what came, and send what it has to send.

        Args:
            now: Monotonic time.
        """

    def end(self) -> None:
        """Close all connections."""
