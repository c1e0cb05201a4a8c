"""Estimates of one stream for the decision what runs next: arrivals, costs, deadlines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from transom.engine.control.backlog import BacklogEstimate
from transom.engine.control.runs import RunEstimate
from transom.engine.control.watermarks import WatermarkEstimate
from transom.engine.streams.cuts import CutOutcome, LoggedCut
from transom.engine.streams.stream import RunningStream
from transom.model.time import MICROS_PER_SECOND, MIN_TIME, Micros
from transom.scheduling.policies import StreamView, eliminated, rank_of, windows_due

UNSTATED: Micros = 10 * MICROS_PER_SECOND
"""Latency limit of a query that states none."""


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

    Changed only by `wall_is`, `looked`, `started`, `finished` and `closed`, on the loop's thread.

    Args:
        stream: The stream.
        now: Monotonic time, as in all methods. What happens in rows and sources has a wall time.
    """

    def __init__(self, stream: RunningStream, now: Micros) -> None:
        self.stream = stream
        self.watermarks = WatermarkEstimate(stream, now)
        self.backlog = BacklogEstimate(stream, now)
        self.runs = RunEstimate(now)
        self.holds = False
        """Whether it has read rows of windows that are not closed."""
        self.changes = 0
        """Number of times that something happened to it, other than that more rows came."""
        self._rank = rank_of(stream.name)
        self._deadlines: tuple[object, list[Deadline]] | None = None
        """Of its own queries, with what they follow from."""

    # ---- what happens

    def wall_is(self, ahead: Micros, now: Micros) -> None:
        """Take in by how much the wall clock is ahead; what was learned of arrivals ends where it was set."""
        self.changes += self.watermarks.wall_is(ahead, now, self.backlog.looked_at is not None)

    def is_news(self) -> bool:
        """Tell whether a look has found something; asked of all streams with every look; mostly it has not."""
        stream = self.stream
        return (
            self.backlog.looked_at != (stream.state.offset, stream.seen.latest) or stream.definition.policy.from_source
        )

    def looked(self, now: Micros) -> None:
        """Take in what the source has, after the stream looked for its next cut."""
        if self.stream.definition.policy.from_source:
            self.changes += self.watermarks.injected(now)
        self.changes += self.watermarks.promised()
        self.changes += self.backlog.looked(self.watermarks.ahead, now)

    def started(self, cut: LoggedCut, now: Micros) -> None:
        """Note that the job of a cut was submitted."""
        self.changes += 1
        self.runs.started(not cut.empty, now)
        measures = self.watermarks.lags.needs_delays or cut.shed is not None
        self.stream.options = replace(self.stream.options, measures_delays=measures)
        self.holds |= not cut.empty

    def finished(self, outcome: CutOutcome, now: Micros) -> None:
        """Note that a job is done and its rows are in the state."""
        if outcome.cut.empty:
            return
        self.changes += 1
        self.runs.finished(outcome, not self.stream.seen.more, now)
        self.backlog.read(outcome.stats.rows + (0 if outcome.cut.shed is None else outcome.cut.shed.rows))
        self._deadlines = None
        self.watermarks.read(outcome, now)

    def closed(self, results: int, took: Micros) -> None:
        """Note that windows were consolidated.

        Args:
            results: Rows of their results.
            took: Time of the driver.
        """
        self.changes += 1
        if results:
            self.runs.merged(results, took)
            self.holds = False

    # ---- what is known

    def deadlines(self) -> Sequence[Deadline]:
        """Return the next windows that a watermark of this stream completes, of its own queries."""
        state = self.stream.state
        cause = state.closed, self.stream.compiled
        if self._deadlines is None or self._deadlines[0] != cause:
            found: dict[Micros, Deadline] = {}
            asked = {}  # one query for all that are alike here
            for query in state.running():
                limit = UNSTATED if query.target is None else query.target.limit
                asked[id(state.by_query[query.name]), query.windows, limit] = query, limit
            for query, limit in asked.values():
                end = state.first_end(query)
                if end is not None:
                    period = min((window.first_end(end) - end for window in query.pane_windows), default=0)
                    one = Deadline(end, limit, period=period)
                    found[end] = min(one, found.get(end, one), key=lambda each: each.limit)
            self._deadlines = cause, [found[end] for end in sorted(found)]
        return self._deadlines[1]

    def expected(self, end: Micros, now: Micros) -> float:
        """Return the wall time at which the watermark that reaches `end` is expected or known to have arrived."""
        return self.watermarks.expected(end, self.backlog.oldest(now), now)

    def next_run(self) -> Micros:
        """Return the expected time of a run of what waits now, microseconds."""
        return self.runs.cost(self.backlog.rows)

    def pace(self) -> tuple[float, float, float, float, float]:
        """Return seconds of a job, of a row, of a row of results, rows per second, seconds between two windows."""
        runs, period = self.runs, min((each.period for each in self.deadlines() if each.period), default=math.inf)
        seconds = [cost / MICROS_PER_SECOND for cost in (runs.fixed, runs.row, runs.partial, period)]
        return seconds[0], seconds[1], seconds[2], self.backlog.rate * MICROS_PER_SECOND, seconds[3]

    def view(
        self, deadlines: Sequence[Deadline], cycle: float, load: float, now: Micros, trigger: Micros | None
    ) -> StreamView:
        """Return the stream as a policy sees it.

        Args:
            deadlines: Those of its own queries and of the queries further down.
            cycle: Length of a cycle, seconds.
            load: Offered work over capacity.
            now: Monotonic time.
            trigger: Least time between the starts of two runs; None if all that will ever come is there.
        """
        cost, ahead = float(self.next_run()), self.watermarks.ahead
        known = [(self.expected(each.end, now) - ahead, each) for each in deadlines]
        early = self.stream.state.next_early()
        if early is not None:
            known.append((float(early - ahead), Deadline(early, UNSTATED)))
        if not known or trigger is None or self.stream.seen.more:  # the watermark may well be in what waits
            oldest = self.backlog.oldest(now)
            known = [(min(now, moment), each) for moment, each in known] or [
                (float(oldest), Deadline(oldest, UNSTATED))
            ]
        expected = min(moment for moment, _ in known)
        if self.stream.leaves:  # at ticks, whenever windows close
            expected = min(expected, float(now))
        moment, tightest = min(known, key=lambda one: one[0] + one[1].limit - one[1].below)
        limit = moment + tightest.limit - expected
        period = min((each.period for each in deadlines if each.period), default=0)
        total = cost + self.runs.row * self.backlog.rate * max(0.0, expected - now) + tightest.below
        return StreamView(
            name=self.stream.name,
            waiting_since=self.backlog.oldest(now),
            ran_at=self.runs.started_at,
            trigger=float(trigger or 0),
            cost=cost,
            run=min(cost, max(self.runs.fixed, MICROS_PER_SECOND * cycle)),
            fixed=self.runs.fixed,
            total=total,
            slack=expected + limit - now - total,
            expected=expected,
            limit=limit,
            deadline=min((each.end for each in deadlines), default=MIN_TIME),
            rate=self.runs.output_rate,
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
        runs, costs, waiting = self.runs, self.runs.costs.costs, self.backlog.rows
        row = self.stream.feed.held_bytes / max(1, waiting)
        added, partial = runs.kept * runs.partial_bytes, runs.partial_bytes
        emitted = 1.0 if self.stream.readers else 0.0
        shrinks, operators = added < row, slice(2 if closes else 1)
        freed = eliminated(
            np.array([waiting * row if shrinks else 0.0, runs.partials * partial])[operators],
            np.array([added / row if shrinks else 1.0, emitted])[operators],
            np.array([float(costs.row) / row if shrinks else 0.0, float(costs.partial) / partial])[operators],
            cycle,
        )
        return freed if shrinks else freed - (added - row) * min(float(waiting), float(costs.fitting(cycle)))
