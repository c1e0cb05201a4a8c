"""What a site tells the coordinator, and the plans that it hears of: about speed only, so nothing waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from transom.model.time import MICROS_PER_SECOND, Micros
from transom.sites.measuring import SMOOTH, FlowSizes
from transom.widearea.carriers import Carrier
from transom.widearea.coordinator import FlowReport, Report, Wanted
from transom.widearea.parcels import FlowName
from transom.widearea.routes import UNSTATED, Routes
from transom.widearea.topology import INTERVALS

if TYPE_CHECKING:
    from transom.sites.coordinating import Asking

TELL: Micros = MICROS_PER_SECOND
"""Between two reports; the coordinator is asked every two seconds."""
SKETCHES: Micros = 60 * MICROS_PER_SECOND
"""Between two reports with sketches."""


@dataclass(frozen=True)
class Bounds:
    """Bounds of the intervals of flows, ticks."""

    least: int = 1
    most: int = INTERVALS[-1]


class Planning:
    """A site's part in planning; used on the loop's thread.

    Args:
        carrier: Of this site.
        asking: The way to the coordinator.
        bounds: Of intervals.
        wall: Returns the wall time.
    """

    def __init__(self, carrier: Carrier, asking: Asking, bounds: Bounds, wall: Callable[[], Micros]) -> None:
        self._carrier, self._asking, self._bounds, self._wall = carrier, asking, bounds, wall
        self._routes: Routes = carrier.routes
        self._sizes: dict[FlowName, FlowSizes] = {}
        self._jobs: dict[FlowName, float] = {}
        """Seconds from a tick, by the clock, until what was gathered in it can leave; smoothed."""
        self._told: Micros | None = None
        self._sketched: Micros | None = None

    def begin(self, wake: Callable[[], None]) -> None:
        """Begin to ask the coordinator for plans."""
        self._asking.begin(wake)

    def end(self) -> None:
        """Ask no more."""
        self._asking.end()

    @property
    def refused(self) -> str:
        """Why nothing was heard of the coordinator at the last try; empty if something was."""
        return self._asking.refused

    def fixed(self, flow: FlowName, tick: int, table: pa.Table) -> None:
        """Take note of the partials of a parcel."""
        self._sizes.setdefault(flow, FlowSizes()).fixed(tick, table)

    def departs(self, flow: FlowName, tick: int) -> None:
        """Take note that all of a tick is committed, so that it can leave now."""
        took = max(0.0, (self._wall() - tick * self._routes.tick) / MICROS_PER_SECOND)
        known = self._jobs.get(flow, took)
        self._jobs[flow] = known + SMOOTH * (took - known)

    def look(self, now: Micros, flows: Iterable[FlowName]) -> list[str]:
        """Follow the plans that came, and tell what is known when it is time.

        Args:
            now: Monotonic time.
            flows: Those that leave here.

        Returns:
            What people may want to know.
        """
        notes = []
        self._carrier.probe(now)
        for plan in self._asking.plans():
            if self._routes.adopt(plan):
                notes.append(f"plan {plan.version} holds from tick {plan.first_tick} on")
        while self._carrier.sizes:
            flow, tick, size = self._carrier.sizes.popleft()
            if flow in self._sizes:
                self._sizes[flow].sent_as(tick, size)
        if self._told is None or now - self._told >= TELL:
            self._told = now
            self._asking.tell(self._report(now, flows))
        return notes

    def _report(self, now: Micros, flows: Iterable[FlowName]) -> Report:
        with_sketches = self._sketched is None or now - self._sketched >= SKETCHES
        found = {}
        for name in flows:
            sizes, ends = self._sizes.get(name), self._routes.flows[name]
            if sizes is None or not sizes.sent or ends.destination == self._carrier.site:
                continue
            limit = (ends.limit or UNSTATED) / MICROS_PER_SECOND
            wanted = Wanted(ends.sources, ends.destination, limit, 1.0, self._bounds.least, self._bounds.most)
            sketches = sizes.sketches() if with_sketches else {}
            found[name] = FlowReport(wanted, dict(sizes.sent), sketches, self._jobs.get(name, 0.0))
        if found and with_sketches:
            self._sketched = now
        neighbours = self._carrier.open
        rates = {site: rate for site in neighbours if (rate := self._carrier.link(site).sure) > 0}
        tick = self._wall() // self._routes.tick
        return Report(self._carrier.site, tick, self._routes.version, rates, neighbours, found)
