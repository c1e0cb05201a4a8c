"""Measures the running job, and proposes another way to compute it where that would be cheaper."""

from __future__ import annotations

from transom.engine.streams.stream import RunningStream
from transom.model.time import MICROS_PER_SECOND, Micros
from transom.windows.arranging import Flow, Review
from transom.windows.components import Arrangement
from transom.windows.splitting import UnitCosts

FEWEST_CUTS = 8
FEWEST_ROWS = 200_000
"""Less than this says too little of the cost of a row: the fixed cost of a job hides it."""
JOB: Micros = 100_000
"""Fixed cost of a job (docs/performance.md); at most four fifths of what a job takes are taken for it."""


class Adapter:
    """Decides for one stream; what it decides stays for a longest window at least.

    Args:
        stream: The stream.
        costs: Costs to go by instead of measured ones.
    """

    def __init__(self, stream: RunningStream, costs: UnitCosts | None = None) -> None:
        self.stream = stream
        self._given = costs
        self._review = Review.start(stream.compiler.arrangement)
        self._submitted = self._took = 0
        self._restart(None)

    def _restart(self, now: Micros | None) -> None:
        self._since = now
        self._cuts = self._rows = 0
        self._aggregated = 0.0
        self._job: Micros = 0
        self._merge: Micros = 0
        self.stream.state.take_flows()

    def started(self, now: Micros) -> None:
        """Note that the job of a cut was submitted."""
        self._submitted = now

    def finished(self, now: Micros) -> None:
        """Note that the job is done."""
        self._took = now - self._submitted

    def merged(self, took: Micros) -> None:
        """Note how long partials were merged on the driver."""
        self._merge += took

    def committed(self, rows: int) -> Arrangement | None:
        """Note the commit of a cut; return another arrangement if it is time to change.

        Args:
            rows: Rows of the cut.
        """
        stream, now = self.stream, self.stream.max_event_time()
        if not rows or now is None or not stream.adapts:
            return None
        if self._since is None:
            self._restart(now)
            return None
        self._cuts += 1
        self._rows += rows
        self._job += max(self._took - JOB, self._took // 5)
        self._aggregated += rows * sum(component.copies for component in stream.compiled.components)
        if self._cuts < FEWEST_CUTS or self._rows < FEWEST_ROWS or now <= self._since:
            return None
        flows = {name: flow + Flow(self._rows, self._cuts) for name, flow in stream.state.take_flows().items()}
        merged = sum(flow.fed for flow in flows.values())
        costs = self._given or UnitCosts(
            self._job / MICROS_PER_SECOND / self._aggregated, self._merge / MICROS_PER_SECOND / max(merged, 1)
        )
        self._review = self._review.again(stream.compiled.components, flows, now - self._since, now, costs)
        self._restart(now)
        return None if self._review.arrangement == stream.compiler.arrangement else self._review.arrangement


class Adapters:
    """One for each stream that runs."""

    def __init__(self) -> None:
        self.costs: UnitCosts | None = None
        """Costs to go by instead of measured ones; for tests and experiments, before the first cut."""
        self._known: dict[str, Adapter] = {}

    def of(self, stream: RunningStream) -> Adapter:
        """Return that of a stream."""
        if stream.name not in self._known:
            self._known[stream.name] = Adapter(stream, self.costs)
        return self._known[stream.name]
