"""The way to other sites: what moves bytes between a site's carrier and those of its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from transom.model.time import Micros
from transom.widearea.carriers import Carrier
from transom.widearea.parcels import Standing


class Mail(Protocol):
    """Moves what a carrier has to say, and brings it what others say. Its methods are called on the loop's thread."""

    def begin(self, carrier: Carrier, standings: Callable[[], Iterable[Standing]], wake: Callable[[], None]) -> None:
        """Begin to connect with the neighbours.

        Args:
            carrier: Of this site; nobody else calls what is about connections.
            standings: Returns where this site stands with the flows that end here, for those who connect.
            wake: Called from any thread when there is something for `look`.

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
