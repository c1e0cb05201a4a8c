"""What a run that is to end waits for beside its streams, and for how long where nobody may answer any more.

Whatever it waits for is made to go away by somebody. Rows and what is told besides are sent again until their
destination acks them; a refusal that does not pass ends the run; a destination that is not heard ends it after a while.
What passes here is waited for as a courtesy: those who sent it keep it, and send it another way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from transom.model.time import MICROS_PER_SECOND, Micros, format_duration
from transom.widearea.carriers import Carrier
from transom.widearea.parcels import FlowName
from transom.widearea.senders import LONGEST

STEP: Micros = MICROS_PER_SECOND
"""More than this between two looks is no silence of others: nobody listened."""
ALONE: Micros = 2 * LONGEST
"""It waits for at least so long: acks may take detours. For what passes here it waits for no longer."""
LONG: Micros = 30 * MICROS_PER_SECOND
"""After so long people are told what it waits for."""


def patience(absent_after: Micros | None, lacks_rows: bool, was_heard: bool) -> Micros | None:
    """Return how long a destination may be away before a run ends without its word; None for as long as it takes.

    One that waits for all sites cannot have ended without rows of this one. If it has them, and was here in this run,
    the last ack may be lost with its end; if it was not, it is still to come.

    Args:
        absent_after: How long a site may be silent before windows go on without it; None where they do not.
        lacks_rows: Whether rows are not known to have arrived.
        was_heard: Whether it was connected in this run.
    """
    if absent_after is None:
        return None if lacks_rows or not was_heard else 0
    return absent_after


class Passing:
    """What passes here while a run is to end: it is waited for, but not for longer than `ALONE`."""

    def __init__(self) -> None:
        self._since: Micros | None = None
        """Since when it is all that is waited for."""

    def look(self, carrier: Carrier, alone: bool, now: Micros) -> list[str]:
        """Return what of others is waited for, for people.

        Args:
            carrier: Of this site.
            alone: Whether nothing else is waited for.
            now: Monotonic time.
        """
        if not alone:
            self._since = None
            return []
        self._since = now if self._since is None else self._since
        if now - self._since > ALONE:
            return []
        ends = {flow: carrier.routes.flows[flow].destination for flow in sorted(carrier.relay.flows)}
        return [
            f"{there} has not said what became of parcels of {flow!r} that pass here"
            for flow, there in ends.items()
            if there in carrier.open
        ]


class Telling:
    """Tells people what a run that is to end has waited for for long, once while it stays the same."""

    def __init__(self) -> None:
        self.waits: Sequence[str] = ()
        """What it waited for at the last look; for people."""
        self._found: Sequence[str] = ()
        self._since: dict[str, Micros] = {}
        self._told: set[str] = set()

    def found(self, waits: Sequence[str]) -> None:
        """Take note of what it waits for, as it could end else; it is asked again at each turn until then."""
        self._found = waits
        if not waits:
            self.waits = ()

    def look(self, now: Micros) -> list[str]:
        """Return what is to be told.

        Args:
            now: Monotonic time.
        """
        self.waits, self._found = self._found, ()
        self._since = {each: self._since.get(each, now) for each in self.waits}
        self._told &= self._since.keys()
        news = [each for each in self.waits if each not in self._told and now - self._since[each] >= LONG]
        self._told.update(news)
        return [f"the end of the run has waited for {format_duration(LONG)}: {each}" for each in news]


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
