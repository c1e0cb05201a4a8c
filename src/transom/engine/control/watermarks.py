"""The watermarks of one stream: when they came, and when the next ones are expected."""

from __future__ import annotations

from collections import deque

from transom.engine.state.absence import partitions_out
from transom.engine.streams.arriving import came_at, oldest_at
from transom.engine.streams.cuts import CutOutcome, LoggedCut
from transom.engine.streams.partialsource import brings_partials
from transom.engine.streams.stream import RunningStream
from transom.model.time import MICROS_PER_SECOND, MIN_TIME, Micros
from transom.scheduling.arrivals import Arrival, DelayMoments, LagHistory

EPOCHS_AT_ONCE = 8
"""Of more windows that one watermark completes only the last are learned from."""
SET: Micros = MICROS_PER_SECOND
"""A wall clock that differs by more than this from what it was, measured by the monotonic one, was set."""
PACED = 8
"""Epochs whose pace tells whether a stream is live."""


class WatermarkEstimate:
    """Learns when the watermarks arrive that complete windows; `now` is monotonic time, all other times are wall time.

    Args:
        stream: The stream.
        now: Monotonic time.
    """

    def __init__(self, stream: RunningStream, now: Micros) -> None:
        self._stream = stream
        self.ahead: Micros = 0
        """By how much the wall clock was ahead of the monotonic one at the last look."""
        self.lags = self._no_lags()
        self._dated_from: Micros | None = None
        """The time to which the clock was set, until a cut was read that arrived later."""
        self._newest_read: Micros | None = None
        """Arrival of the newest row that was read."""
        self._known: Micros = MIN_TIME
        """The newest watermark whose arrival is known."""
        self._known_at: Micros = now
        self._there: Micros = MIN_TIME
        """The watermark that what waits brings, where the source knows it."""
        self._epoch = DelayMoments()
        self._paces: deque[tuple[Micros, Micros]] = deque(maxlen=PACED)
        self._arrivals: dict[Micros, Arrival | None] = {}

    def wall_is(self, ahead: Micros, now: Micros, begun: bool) -> bool:
        """Take in by how much the wall clock is ahead; what was learned of arrivals ends where it was set.

        Args:
            ahead: By how much.
            now: Monotonic time.
            begun: Whether the source was looked at before.

        Returns:
            Whether it was set.
        """
        by, self.ahead = ahead - self.ahead, ahead
        if not begun or abs(by) <= SET:
            return False
        self.lags, self._epoch, self._newest_read, self._dated_from = self._no_lags(), DelayMoments(), None, now + ahead
        self._known_at += by
        self._paces.clear()
        self._arrivals.clear()
        return True

    def injected(self, now: Micros) -> bool:
        """Note a watermark of the source that came without rows; return whether it is new."""
        value, at = self._stream.source.watermark(self._stream.seen.latest), now + self.ahead
        return value is not None and self._swept(value - self._stream.definition.policy.delay, at, at, None)

    def promised(self) -> bool:
        """Note the watermark that partials bring which wait; return whether it is new."""
        stream, source, before = self._stream, self._stream.source, self._there
        if brings_partials(source):
            latest, out = stream.seen.latest, stream.state.missing
            without = partitions_out(source.heard(latest).owners, out) if out else ()
            read = stream.state.watermark.committed(source.newest(), source.watermark(latest))
            self._there = read.advanced(stream.definition.policy, source.idle(latest), without).value
        return self._there != before

    def read(self, outcome: CutOutcome, now: Micros) -> None:
        """Note the rows of a cut, and the watermark that they brought."""
        stream, cut, before = self._stream, outcome.cut, self._newest_read
        if self._dates(cut, now):
            self._epoch += outcome.stats.delays
            self._newest_read = max(before or 0, stream.source.ingested_at(cut.start, cut.end))
        if not stream.definition.policy.from_source:
            self._swept(stream.foreseen().value, before, self._newest_read or now + self.ahead, cut)

    def _dates(self, cut: LoggedCut, now: Micros) -> bool:
        """Tell whether the arrivals of a cut are dated by the wall clock as it is now."""
        if self._dated_from is not None:
            source = self._stream.source
            newest = source.ingested_at(cut.start, cut.end)
            if not self._dated_from <= oldest_at(source, cut) <= newest <= now + self.ahead:
                return False
            self._dated_from = None
        return True

    def _swept(self, watermark: Micros, since: Micros | None, until: Micros, cut: LoggedCut | None) -> bool:
        """Learn when the watermarks came that complete windows: at an even pace, but each with its piece of input.

        Args:
            watermark: The newest one.
            since: When the one before had arrived, wall time; None for the first.
            until: When it had arrived, wall time.
            cut: What brought it; None where it came by itself.

        Returns:
            Whether it is new.
        """
        before, self._known = self._known, max(self._known, watermark)
        if self._known == before:
            return False
        self._known_at = until
        ends = [] if before <= MIN_TIME or since is None else self._ends_between(before, self._known)
        if since is None or not ends:
            return True
        for end in ends:
            even = since + (until - since) * (end - before) / (self._known - before)
            self._learn(end, until if cut is None else came_at(self._stream.source, cut, even, until))
        self._arrivals.clear()
        return True

    def _ends_between(self, after: Micros, until: Micros) -> list[Micros]:
        """Return ends of windows in (after, until], ascending; of many the first ones."""
        windows = {window for query in self._stream.state.running() for window in query.pane_windows}
        ends: list[Micros] = []
        end = after
        while windows and len(ends) < EPOCHS_AT_ONCE:
            end = min(window.first_end(end) for window in windows)
            if end > until:
                break
            ends.append(end)
        return ends

    def _no_lags(self) -> LagHistory:
        policy = self._stream.definition.policy
        return LagHistory(injected=policy.from_source, behind=policy.delay)

    def _learn(self, end: Micros, arrival: Micros) -> None:
        """Remember a lag, unless the stream catches up with data that arrived at another pace than it happened."""
        self._paces.append((end, arrival))
        (first, came), delays, self._epoch = self._paces[0], self._epoch, DelayMoments()
        if len(self._paces) == PACED and 2 * (arrival - came) < end - first:
            self.lags = self._no_lags()
        else:
            self.lags.seen(arrival - end, delays)

    def expected(self, end: Micros, oldest: Micros, now: Micros) -> float:
        """Return the time at which the watermark that reaches `end` is expected or known to have arrived.

        Without a past it may be there with the oldest row that waits: a stream must not seem at ease for being new.

        Args:
            end: A watermark.
            oldest: Arrival of the oldest row that waits, monotonic time.
            now: Monotonic time.
        """
        if end <= self._known:
            return float(self._known_at)
        if end not in self._arrivals:
            self._arrivals[end] = self.lags.arrival(end, self._epoch)
        arrival = self._arrivals[end]
        after = now + self.ahead if self._stream.definition.policy.from_source else self._newest_read
        found = float(oldest + self.ahead) if arrival is None else arrival.expected(after)
        return min(found, float(now + self.ahead)) if end <= self._there else found
