"""A neighbour of a site: both directions of the link, and what is known of the other end."""

from __future__ import annotations

from transom.model.time import Micros
from transom.widearea.incoming import LinkIn
from transom.widearea.links import LinkOut
from transom.widearea.packing import Packing
from transom.widearea.parcels import FlowName, Parcel, Reason


class Neighbour:
    """Both directions between this site and another one."""

    def __init__(self, rate: float, packing: Packing) -> None:
        self.out, self.into, self.packing = LinkOut(rate), LinkIn(), packing
        self.up = False
        """Whether parcels can be sent."""
        self.missed: Micros | None = None
        """Since when something would go there and cannot."""
        self.boot = ""
        """Of its process, as the receiving end."""
        self.sender_boot = ""
        """Of its process, as the sending end."""
        self.refused: dict[FlowName, tuple[Reason, str]] = {}
        """Flows that are not taken from it."""
        self.parcels: dict[int, Parcel] = {}
        """What is queued, by number."""
        self.due: dict[FlowName, Micros] = {}
        """Of the last parcel of each flow: none of them overtakes another one."""
