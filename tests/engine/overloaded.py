"""Overloaded streams in virtual time, without Spark and loop: what is decided for each cut, and what comes of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from transom.engine.control.estimates import StreamEstimate
from transom.engine.control.overload import Overload
from transom.engine.spark.cutstats import CutStats
from transom.engine.state.shares import Shares, cell_of
from transom.engine.state.watermarks import WatermarkState
from transom.engine.streams.cuts import CutOutcome, JobOptions, LoggedCut
from transom.engine.streams.feed import OUTSIDE
from transom.engine.streams.stream import RunningStream
from transom.model.time import MIN_TIME, Micros
from transom.model.watermark import watermark
from transom.model.window import WindowSpec, tumbling
from transom.scheduling.arrivals import DelayMoments
from transom.sources.base import Cut, Unit
from transom.windows.query import LatencyTarget, WindowedQuery

SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND
POLL = SECOND // 50
TRIGGER = SECOND // 10
FIXED = 100_000
ROW = 1_000
"""Microseconds of a row: 1,000 a second would fill the core."""


class PacedSource:
    """Rows that happen evenly and arrive every so often; offset n is reached by the n-th."""

    pieces = 64

    def __init__(self, rates: Mapping[int, int], seconds: int, every: Micros, delay: Micros) -> None:
        times = []
        for second in range(seconds):
            rate = rates[max(since for since in rates if since <= second)]
            times.append(NOON + second * SECOND + (np.arange(rate) * SECOND) // max(1, rate))
        self.happened = np.concatenate(times)
        self.arrived = NOON + ((self.happened - NOON) // every + 1) * every + delay

    def latest(self, now: Micros) -> int:
        return int(np.searchsorted(self.arrived, now, "right"))

    def cut(self, start: int, most: int) -> Cut:
        end = min(self.seen, start + most)
        return Cut(end, end - start)

    seen = 0
    """Up to where the last look saw it."""

    def ingested_at(self, start: int, end: int) -> Micros:
        return int(self.arrived[end - 1]) if end > start else 0

    def units(self, start: int, end: int) -> list[Unit]:
        return [Unit(f"{start} {end}")]


class PacedStream:
    """A stream over such a source with queries of one window each; what `Overload` asks of a stream."""

    name = "clicks"
    feed = OUTSIDE
    readers: tuple[Any, ...] = ()
    buffers: tuple[Any, ...] = ()

    def __init__(self, source: PacedSource, windows: list[WindowSpec], target: LatencyTarget, behind: Micros) -> None:
        self.source = source
        self.compiled = SimpleNamespace(plan=SimpleNamespace(thins=frozenset[int]()))
        self.definition = SimpleNamespace(policy=watermark(behind))
        self.queries = [
            WindowedQuery(str(number), 0, (), (window,), (), target) for number, window in enumerate(windows)
        ]
        self.state = SimpleNamespace(
            offset=0,
            closed=NOON,
            shares=Shares(),
            running=lambda: self.queries,
            by_query={query.name: self for query in self.queries},
            first_end=lambda query: query.pane_windows[0].first_end(self.state.closed),
            next_early=lambda: None,
            watermark=WatermarkState.start(1),
        )
        self.seen = SimpleNamespace(latest=0, more=False)
        self.options = JobOptions()

    def backlog(self) -> int:
        return self.seen.latest - self.state.offset

    def foreseen(self) -> WatermarkState:
        return self.state.watermark.advanced(self.definition.policy, (None,))

    def look(self, now: Micros) -> None:
        self.source.seen = self.seen.latest = self.source.latest(now)


@dataclass
class Overloaded:
    """One stream on one slot: rows per second by the second from which on they come."""

    rates: Mapping[int, int]
    seconds: int
    windows: list[WindowSpec] = field(default_factory=lambda: [tumbling("1 second")])
    limit: Micros = 3 * SECOND
    keep: float = 0.1
    noise: float = 0.0
    every: Micros = SECOND // 20
    """Rows arrive so often."""
    delay: Micros = 0
    """After so much more time."""
    behind: Micros = 0
    """Delay of the watermark."""
    most: int = 1 << 40
    notes: list[str] = field(default_factory=list)
    took: dict[tuple[str, int], float] = field(default_factory=dict)
    """Seconds of each result from the arrival of its watermark, by query and second of the window's end."""
    kept: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Rows that were read, by the second in which they happened."""
    told: dict[int, float] = field(default_factory=dict)
    """The share that was left out, as results would tell, by second of the window's end."""
    busy: Micros = 0

    def run(self) -> Overloaded:
        self.source = PacedSource(self.rates, self.seconds, self.every, self.delay)
        stream = PacedStream(self.source, self.windows, LatencyTarget(self.limit, 0.99, self.keep), self.behind)
        self.stream = running = cast(RunningStream, stream)
        estimate = StreamEstimate(running, NOON)
        overload = Overload({"clicks": estimate}, lambda: 1, self.notes.append)
        random, now, started = np.random.default_rng(7), NOON, NOON - SECOND
        while now < NOON + (self.seconds + 8) * SECOND:
            stream.look(now)
            piece = self.source.cut(stream.state.offset, self.most)
            stream.seen.more = piece.end != stream.seen.latest
            if not piece.rows or (now < started + TRIGGER and not stream.seen.more):
                now += POLL
                continue
            estimate.looked(now)
            piece, shed = overload.take(estimate, piece, self.most, now, now)
            stream.seen.more = piece.end != stream.seen.latest
            started, start = now, stream.state.offset
            cut = LoggedCut(1, start, piece.end, piece.rows, MIN_TIME, MIN_TIME, None, now, None, shed)
            estimate.started(cut, now)
            took = round((FIXED + ROW * piece.rows) * (1 + random.uniform(-self.noise, self.noise)))
            self.busy += took
            now += took
            self._committed(stream, estimate, overload, cut, now)
        return self

    def _committed(
        self, stream: PacedStream, estimate: StreamEstimate, overload: Overload, cut: LoggedCut, now: Micros
    ) -> None:
        read = np.ones(cut.end - cut.start, bool)
        for unit in cut.left_out:
            low, high = map(int, unit.split())
            read[low - cut.start : high - cut.start] = False
        times = self.source.happened[cut.start : cut.end]
        assert cut.shed is not None
        assert read.sum() == cut.rows
        assert len(read) - read.sum() == cut.shed.rows
        for second, rows in zip(*np.unique((times[read] - NOON) // SECOND, return_counts=True), strict=True):
            self.kept[int(second)] += int(rows)
        newest = int(times[read].max())
        delays = DelayMoments.of((self.source.arrived[cut.start : cut.end] - times)[read].astype(float))
        outcome = CutOutcome(cut, stats=CutStats(rows=cut.rows, newest=(newest,), delays=delays))
        stream.state.offset = cut.end
        stream.state.shares.add(cut.shed.stretches, cell_of(stream.queries))
        stream.state.watermark = stream.state.watermark.committed((newest,), None)
        estimate.finished(outcome, now)
        overload.read(cast(RunningStream, stream), outcome)
        value = stream.foreseen().value
        for query in stream.queries:
            end = query.pane_windows[0].first_end(stream.state.closed)
            while end <= value:
                first = int(np.searchsorted(self.source.happened, end + self.behind))
                came = int(self.source.arrived[first])
                window = query.pane_windows[0]
                assert isinstance(window, WindowSpec)
                self.told[(end - NOON) // SECOND] = stream.state.shares.share((end - window.length, end))
                self.took[query.name, (end - NOON) // SECOND] = (now - came) / SECOND
                estimate.closed(1, 1_000)
                end = query.pane_windows[0].first_end(end)
        stream.state.closed = max(stream.state.closed, value)
        stream.look(now)
        estimate.looked(now)

    def longest(self, after: int = 0) -> float:
        """Return the longest time of a result of a window that ends after a second."""
        return max(took for (_, end), took in self.took.items() if end > after)

    def least(self, first: int, last: int, length: int = 1) -> float:
        """Return the least share of a window that was read, of those in [first, last) seconds."""
        rate = lambda second: self.rates[max(since for since in self.rates if since <= second)]  # noqa: E731
        return min(
            sum(self.kept[second] for second in range(start, start + length))
            / max(1, sum(rate(second) for second in range(start, start + length)))
            for start in range(first, last, length)
        )
