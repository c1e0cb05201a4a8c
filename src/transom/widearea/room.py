"""What a destination takes while its memory is full: what windows wait for that have to close before there is room.

Windows close by what comes, so that to take nothing would be to wait for ever. A parcel is needed if one of its sites
holds the watermark before the end of the next window. All others wait at their sources: they would only add to what is
there. So there is never more than the bound, what the next window needs, and a little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from transom.model.time import Micros
from transom.widearea.parcels import Parcel, Part
from transom.widearea.topology import Site

PATIENCE: Micros = 10_000_000
"""After so long in which nothing was needed that came, and no window closed, one parcel is taken whatever it brings:
for whom windows wait may be told behind it."""


@dataclass(frozen=True)
class Awaited:
    """What the next window of a flow waits for."""

    newest: Micros
    """A partition with newer rows does not hold it back, event time; nor a site that has injected such a watermark."""
    injected: bool = False
    """Whether the watermark is that which sources inject."""
    idle_after: Micros | None = None
    """A partition that has been empty for so long is not waited for."""

    def needs(self, part: Part, last: Part | None) -> bool:
        """Tell whether the window may wait for a part.

        Args:
            part: What came.
            last: The newest part of its site that was taken; None for none.
        """
        if part.empty or last is None:
            return True
        if self.injected:
            return last.injected is None or last.injected < self.newest
        if len(part.partitions) > len(last.partitions):
            return True
        for before, now in zip(last.partitions, part.partitions, strict=False):
            behind = before.newest is None or before.newest < self.newest
            idle = self.idle_after is not None and before.idle is not None and before.idle >= self.idle_after
            if behind and (not idle or now.newest != before.newest):  # it would be late if it came after the window
                return True
        return False


class Room:
    """The room for one flow.

    Args:
        patience: See `PATIENCE`.
    """

    def __init__(self, patience: Micros = PATIENCE) -> None:
        self._patience = patience
        self._awaited: Awaited | None = None
        self._since: Micros | None = None
        """When parcels were refused first, of those since there was progress."""

    def takes(self, parcel: Parcel, last: Mapping[Site, Part], awaited: Awaited | None, now: Micros) -> bool:
        """Tell whether a parcel is taken.

        Args:
            parcel: One that fits: what is before it has come.
            last: The newest part of each site that was taken.
            awaited: What the next window waits for; None if there is room, or no window.
            now: Monotonic time.
        """
        needed = awaited is None or any(awaited.needs(part, last.get(part.site)) for part in parcel.parts)
        if needed or awaited != self._awaited:
            self._awaited, self._since = awaited, None
        if needed:
            return True
        self._since = now if self._since is None else self._since
        if now - self._since < self._patience:
            return False
        self._since = None
        return True
