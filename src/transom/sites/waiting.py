"""For how long a run that is to end waits for a destination which may have ended without it."""

from __future__ import annotations

from collections.abc import Mapping

from transom.model.time import MICROS_PER_SECOND, Micros
from transom.widearea.parcels import FlowName
from transom.widearea.senders import LONGEST

STEP: Micros = MICROS_PER_SECOND
"""More than this between two looks is no silence of others: nobody listened."""
ALONE: Micros = 2 * LONGEST
"""It waits for at least so long: acks may take detours."""


class Alone:
    """Flows that only wait for destinations of which nothing is heard."""

    def __init__(self) -> None:
        self._waited: dict[FlowName, Micros] = {}
        self._looked: Micros = 0

    def look(self, now: Micros, waiting: Mapping[FlowName, Micros]) -> dict[FlowName, Micros]:
        """Return the flows that have waited for too long, each with how long.

        Args:
            now: Monotonic time.
            waiting: Those that wait now, with how long a site may be silent before windows go on without it.
        """
        passed, self._looked = min(STEP, now - self._looked), now
        self._waited = {flow: self._waited.get(flow, 0) + passed for flow in waiting}
        return {flow: long for flow, long in self._waited.items() if long > max(2 * waiting[flow], ALONE)}

    def heard(self, flow: FlowName) -> None:
        """Take note that something was heard of the destination of a flow."""
        self._waited.pop(flow, None)
