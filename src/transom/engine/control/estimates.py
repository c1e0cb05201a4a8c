"""Estimates of one stream for the decision what runs next: arrivals, costs, deadlines."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from transom.engine.streams.arriving import ALL_ROWS, came_at, oldest_at
from transom.engine.streams.cuts import CutOutcome, LoggedCut
from transom.engine.streams.stream import RunningStream
from transom.model.time import MICROS_PER_SECOND, MIN_TIME, Micros
from transom.scheduling.arrivals import Arrival, DelayMoments, LagHistory
from transom.scheduling.costs import RUNS, CostHistory
from transom.scheduling.policies import StreamView, eliminated, rank_of, windows_due

UNSTATED: Micros = 10 * MICROS_PER_SECOND
"""Latency limit of a query that states none."""
RATE_OVER: Micros = 2 * MICROS_PER_SECOND
"""Time constant of the arrival rate."""
EPOCHS_AT_ONCE = 8
"""Of more windows that one watermark completes only the last are learned from."""
FITTED = 4
"""Costs are fitted after each of so many runs, then after every so many: one of 32 hardly moves a line."""
SET: Micros = MICROS_PER_SECOND
"""A wall clock that differs by more than this from what it was, measured by the monotonic one, was set."""
PACED = 8
"""Epochs whose pace tells whether a stream is live."""


@dataclass(frozen=True)
class Deadline:
    """The next window of a query, here or of one further down that waits for this stream."""

    end: Micros
    """The watermark that completes it, event time."""
    limit: Micros
    """Time from the arrival of that watermark until the result should be there."""
    below: Micros = 0
    """Expected time of the runs further down."""
    period: Micros = 0
    """From one of its windows to the next."""


class StreamEstimate:
    """Measurements and estimates of a stream.

    Changed only by `looked`, `started`, `finished` and `closed`, on the loop's thread.

    Args:
        stream: The stream.
        now: Monotonic time, as in all methods. What happens in rows and sources has a wall time.
    """

    def __init__(self, stream: RunningStream, now: Micros) -> None:
        self.stream = stream
        self.ahead: Micros = 0
        """By how much the wall clock was ahead of the monotonic one at the last look."""
        self._dated_from: Micros | None = None
        """The wall time to which the clock was set, until a cut was read that arrived later."""
        self.costs = CostHistory()
        self.changes = 0
        """Number of times that something happened to it, other than that more rows came."""
        self._rank = rank_of(stream.name)
        self.lags = self._no_lags()
        self.backlog = 0
        """Rows that wait in the source, as far as it knows."""
        self.waiting_since: Micros | None = None
        """Arrival of the oldest of them, as monotonic time."""
        self.started_at: Micros = 0
        self.holds = False
        self.rate = 0.0
        """Rows that arrive per microsecond."""
        self.runs: deque[Micros] = deque(maxlen=RUNS)
        """Durations of the last runs that took all there was."""
        self._looked: tuple[object, object] | None = None
        self._arrived, self._arrived_at = 0, now
        self._committed = self._ran = 0
        self._newest_read: Micros | None = None
        self._submitted: Micros = now
        self._known: Micros = MIN_TIME
        """The newest watermark whose arrival is known."""
        self._known_at: Micros = now
        self._epoch = DelayMoments()
        self._paces: deque[tuple[Micros, Micros]] = deque(maxlen=PACED)
        self._arrivals: dict[Micros, Arrival | None] = {}
        self._results = self._rows = 1.0
        self._partials = 0.0
        self._kept = 0.1
        """Rows of partials for each row read."""
        self._partial_bytes = 32.0
        """Size of a row of partials."""
        self._deadlines: tuple[object, list[Deadline]] | None = None
        """Of its own queries, with what they follow from."""
        self._costs()

    # ---- what happens

    def wall_is(self, ahead: Micros, now: Micros) -> None:
        """Take in by how much the wall clock is ahead; what was learned of arrivals ends where it was set."""
        by, self.ahead = ahead - self.ahead, ahead
        if self._looked is None or abs(by) <= SET:
            return
        self.changes += 1
        self.lags, self._epoch, self._newest_read, self._dated_from = self._no_lags(), DelayMoments(), None, now + ahead
        self._known_at += by
        self._paces.clear()
        self._arrivals.clear()

    def _dates(self, cut: LoggedCut, now: Micros) -> bool:
        """Tell whether the arrivals of a cut are dated by the wall clock as it is now."""
        if self._dated_from is not None:
            source = self.stream.source
            newest = source.ingested_at(cut.start, cut.end)
            if not self._dated_from <= oldest_at(source, cut) <= newest <= now + self.ahead:
                return False
            self._dated_from = None
        return True

    def is_news(self) -> bool:
        """Tell whether a look has found something; asked of all streams with every look; mostly it has not."""
        stream = self.stream
        return self._looked != (stream.state.offset, stream.latest) or stream.definition.policy.from_source

    def looked(self, now: Micros) -> None:
        """Take in what the source has, after the stream looked for its next cut."""
        stream, offset = self.stream, self.stream.state.offset
        if stream.definition.policy.from_source:
            self._inject(now)
        seen = offset, stream.latest
        if seen == self._looked:
            return
        before, self._looked = self._looked, seen
        first, waiting = before is None, self.waiting_since
        self.backlog = stream.backlog()
        arrived = self._committed + self.backlog
        passed = now - self._arrived_at
        if not first and passed > 0:
            share = 1 - math.exp(-passed / RATE_OVER)
            self.rate += share * (max(0, arrived - self._arrived) / passed - self.rate)
        if first or passed > 0:
            self._arrived, self._arrived_at = arrived, now
        if offset == stream.latest:
            self.waiting_since = None
        elif before is None or before[0] != offset or self.waiting_since is None:  # more rows make the oldest no other
            oldest = stream.source.ingested_at(offset, stream.source.cut(offset, 1).end)
            self.waiting_since = min(now, oldest - self.ahead) if oldest else now
        if self.waiting_since != waiting:
            self.changes += 1

    def _inject(self, now: Micros) -> None:
        """Note watermarks of the source that have arrived, though the rows before them were not read."""
        stream = self.stream
        value = stream.source.watermark(stream.latest)
        if value is not None:
            self._swept(value - stream.definition.policy.delay, now + self.ahead, now + self.ahead, None)

    def started(self, cut: LoggedCut, now: Micros) -> None:
        """Note that the job of a cut was submitted."""
        self.changes += 1
        self._submitted = now
        self.stream.options = replace(self.stream.options, measures_delays=self.lags.needs_delays)
        if not cut.empty:
            self.started_at = now
            self.holds = True

    def finished(self, outcome: CutOutcome, now: Micros) -> None:
        """Note that a job is done and its rows are in the state."""
        cut, stream = outcome.cut, self.stream
        if cut.empty:
            return
        self.changes += 1
        rows = outcome.stats.rows
        self._ran += 1
        seconds = max(1, now - self._submitted) / MICROS_PER_SECOND
        self.costs.ran(float(rows), seconds, fit=self._ran < FITTED or self._ran % FITTED == 0)
        if not stream.more:
            self.runs.append(now - self._submitted)
        self._costs()
        self._committed += rows
        self._rows = 0.9 * self._rows + rows
        if rows:
            kept = sum(table.num_rows for table in outcome.tables)
            self._kept += 0.3 * (kept / rows - self._kept)
            if kept:
                size = sum(table.nbytes for table in outcome.tables) / kept
                self._partial_bytes += 0.3 * (size - self._partial_bytes)
        self._deadlines = None
        before, arrived = self._newest_read, stream.source.ingested_at(cut.start, cut.end)
        if self._dates(cut, now):
            self._epoch += outcome.stats.delays
            self._newest_read = max(before or 0, arrived)
        if not stream.definition.policy.from_source:
            known = stream.foreseen().value
            self._swept(known, before, self._newest_read or now + self.ahead, cut)

    def closed(self, results: int, took: Micros) -> None:
        """Note that windows were consolidated.

        Args:
            results: Rows of their results.
            took: Time of the driver.
        """
        self.changes += 1
        if results:
            self.costs.merged(float(results), max(1, took) / MICROS_PER_SECOND)
            self._costs()
            self._results = 0.9 * self._results + results
            self._partials += 0.5 * (results - self._partials) if self._partials else results
            self.holds = False

    def _swept(self, watermark: Micros, since: Micros | None, until: Micros, cut: LoggedCut | None) -> None:
        """Learn when the watermarks came that complete windows: at an even pace, but each with its piece of input.

        Args:
            watermark: The newest one.
            since: When the one before had arrived, wall time; None for the first.
            until: When it had arrived, wall time.
            cut: What brought it; None where it came by itself.
        """
        before, self._known = self._known, max(self._known, watermark)
        if self._known == before:
            return
        self._known_at = until
        self.changes += 1
        ends = [] if before <= MIN_TIME or since is None else self._ends_between(before, self._known)
        if since is None or not ends:
            return
        for end in ends:
            even = since + (until - since) * (end - before) / (self._known - before)
            self._learn(end, until if cut is None else came_at(self.stream.source, cut, even, until))
        self._arrivals.clear()

    def _ends_between(self, after: Micros, until: Micros) -> list[Micros]:
        """Return ends of windows in (after, until], ascending; of many the first ones."""
        windows = {window for query in self.stream.state.running() for window in query.pane_windows}
        ends: list[Micros] = []
        end = after
        while windows and len(ends) < EPOCHS_AT_ONCE:
            end = min(window.first_end(end) for window in windows)
            if end > until:
                break
            ends.append(end)
        return ends

    def _no_lags(self) -> LagHistory:
        policy = self.stream.definition.policy
        return LagHistory(injected=policy.from_source, behind=policy.delay)

    def _learn(self, end: Micros, arrival: Micros) -> None:
        """Remember a lag, unless the stream catches up with data that arrived at another pace than it happened."""
        self._paces.append((end, arrival))
        (first, came), delays, self._epoch = self._paces[0], self._epoch, DelayMoments()
        if len(self._paces) == PACED and 2 * (arrival - came) < end - first:
            self.lags = self._no_lags()
        else:
            self.lags.seen(arrival - end, delays)

    # ---- what is known

    def deadlines(self) -> Sequence[Deadline]:
        """Return the next windows that a watermark of this stream completes, of its own queries."""
        state = self.stream.state
        cause = state.closed, self.stream.compiled
        if self._deadlines is None or self._deadlines[0] != cause:
            found: dict[Micros, Deadline] = {}
            for query in state.running():
                end, limit = state.first_end(query), UNSTATED if query.target is None else query.target.limit
                if end is not None:
                    period = min((window.first_end(end) - end for window in query.pane_windows), default=0)
                    one = Deadline(end, limit, period=period)
                    found[end] = min(one, found.get(end, one), key=lambda each: each.limit)
            self._deadlines = cause, [found[end] for end in sorted(found)]
        return self._deadlines[1]

    def expected(self, end: Micros, now: Micros) -> float:
        """Return the wall time at which the watermark that reaches `end` is expected or known to have arrived.

        Without a past it may be there with the oldest row that waits: a stream must not seem at ease for being new.
        """
        if end <= self._known:
            return float(self._known_at)
        if end not in self._arrivals:
            self._arrivals[end] = self.lags.arrival(end, self._epoch)
        arrival = self._arrivals[end]
        after = now + self.ahead if self.stream.definition.policy.from_source else self._newest_read
        return float(self._oldest(now) + self.ahead) if arrival is None else arrival.expected(after)

    def _oldest(self, now: Micros) -> Micros:
        return now if self.waiting_since is None else self.waiting_since

    def next_run(self) -> Micros:
        """Return the expected time of a run of what waits now, microseconds."""
        return round(self._fixed + self._row * self.backlog + self._partial * self._partials)

    def fitting(self, seconds: float) -> int:
        """Return the rows of the largest job that takes so long; at least one."""
        left = MICROS_PER_SECOND * seconds - self._fixed
        return max(1, int(left / self._row)) if self._row > 0 else ALL_ROWS

    def pace(self) -> tuple[float, float, float, float, float]:
        """Return seconds of a job, of a row, of a row of results, rows per second, seconds between two windows."""
        period = min((each.period for each in self.deadlines() if each.period), default=math.inf)
        seconds = [cost / MICROS_PER_SECOND for cost in (self._fixed, self._row, self._partial, period)]
        return seconds[0], seconds[1], seconds[2], self.rate * MICROS_PER_SECOND, seconds[3]

    def _costs(self) -> None:
        """Take over what the costs are now: microseconds of a job, of a row, of a row of results."""
        costs = self.costs.costs
        self._fixed, self._row, self._partial = (
            MICROS_PER_SECOND * float(each) for each in (costs.fixed, costs.row, costs.partial)
        )

    def view(self, deadlines: Sequence[Deadline], cycle: float, load: float, now: Micros, at_once: bool) -> StreamView:
        """Return the stream as a policy sees it.

        Args:
            deadlines: Those of its own queries and of the queries further down.
            cycle: Length of a cycle, seconds.
            load: Offered work over capacity.
            now: Monotonic time.
            at_once: Take it that all that will ever come is there.
        """
        cost = float(self.next_run())
        known = [(self.expected(each.end, now) - self.ahead, each) for each in deadlines]
        early = self.stream.state.next_early()
        if early is not None:
            known.append((float(early - self.ahead), Deadline(early, UNSTATED)))
        if not known or at_once or self.stream.more:  # the watermark may well be in what waits
            oldest = self._oldest(now)
            known = [(min(now, moment), each) for moment, each in known] or [
                (float(oldest), Deadline(oldest, UNSTATED))
            ]
        expected = min(moment for moment, _ in known)
        moment, tightest = min(known, key=lambda one: one[0] + one[1].limit - one[1].below)
        limit = moment + tightest.limit - expected
        period = min((each.period for each in deadlines if each.period), default=0)
        total = cost + self._row * self.rate * max(0.0, expected - now) + tightest.below
        return StreamView(
            name=self.stream.name,
            waiting_since=self._oldest(now),
            ran_at=self.started_at,
            cost=cost,
            run=min(cost, max(self._fixed, MICROS_PER_SECOND * cycle)),
            fixed=self._fixed,
            total=total,
            slack=expected + limit - now - total,
            expected=expected,
            limit=limit,
            deadline=min((each.end for each in deadlines), default=MIN_TIME),
            rate=min(1.0, self._results / self._rows) / max(self._row, 1e-6),
            held=self.holds,
            due=windows_due(expected, period, now),
            period=float(period),
            cycle=MICROS_PER_SECOND * cycle,
            load=load,
            rank=self._rank,
        )

    def freed(self, closes: bool, cycle: float) -> float:
        """Return the bytes that a run takes out of memory; below 0 if it adds some.

        Klink's p_k over two operators, the job (S_1) and the consolidation (S_2), in bytes instead of events:

            p_1 = held (1 - S_1)    p_2 = held (1 - S_1 S_2) + due (1 - S_2), if windows close

        `due` are the partials of the windows that close, `held` the rows that wait in this process, both as far as a
        cycle takes them; S_1 is bytes of partials per byte of a row, S_2 is 1 where results become the rows of another
        stream, else 0, as results leave through a sink. Rows that wait elsewhere, as in files, take no memory: what a
        run makes of them comes on top, and so it does where partials are larger than rows.

        Args:
            closes: Whether a window is likely to close after it.
            cycle: Length of a cycle, seconds.
        """
        costs = self.costs.costs
        row = self.stream.feed.held_bytes / max(1, self.backlog)
        added, partial = self._kept * self._partial_bytes, self._partial_bytes
        emitted = 1.0 if self.stream.readers else 0.0
        shrinks, operators = added < row, slice(2 if closes else 1)
        freed = eliminated(
            np.array([self.backlog * row if shrinks else 0.0, self._partials * partial])[operators],
            np.array([added / row if shrinks else 1.0, emitted])[operators],
            np.array([float(costs.row) / row if shrinks else 0.0, float(costs.partial) / partial])[operators],
            cycle,
        )
        return freed if shrinks else freed - (added - row) * min(float(self.backlog), float(costs.fitting(cycle)))
