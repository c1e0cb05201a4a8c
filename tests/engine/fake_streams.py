"""Streams that are told what to say, for the scheduler: no Spark, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from transom.engine.control.scheduler import Scheduler
from transom.engine.spark.cutstats import CutStats
from transom.engine.state.watermarks import WatermarkState
from transom.engine.streams.cuts import CutOutcome, JobOptions, LoggedCut
from transom.engine.streams.feed import OUTSIDE, Feed
from transom.engine.streams.results import ResultsSource
from transom.engine.streams.sending import Elsewhere
from transom.engine.streams.stream import RunningStream
from transom.model.time import MIN_TIME, Micros
from transom.model.watermark import watermark
from transom.model.window import WindowSpec
from transom.settings import Settings
from transom.windows.query import LatencyTarget

SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND


class FakeSource:
    """Rows arrive one by one; offset n is reached by the n-th."""

    def __init__(self) -> None:
        self.arrivals: list[Micros] = []
        self.injected: Micros | None = None

    def cut(self, start: int, max_rows: int) -> Any:
        end = min(len(self.arrivals), start + max_rows)
        return SimpleNamespace(end=end, rows=end - start)

    def ingested_at(self, start: int, end: int) -> Micros:
        return max(self.arrivals[start:end], default=0)

    def watermark(self, end: int) -> Micros | None:
        return self.injected


class FakeSeen:
    """The source as it is at this moment."""

    def __init__(self, source: FakeSource) -> None:
        self._source = source
        self.more = False

    @property
    def latest(self) -> int:
        return len(self._source.arrivals)


class FakeStream:
    """A stream with queries that each have one window and one limit."""

    def __init__(
        self,
        name: str,
        windows: Sequence[WindowSpec],
        limits: Sequence[Micros | None] = (None,),
        injected: bool = False,
    ) -> None:
        self.name = name
        self.source = FakeSource()
        self.feed: Feed = OUTSIDE
        self.definition = SimpleNamespace(policy=watermark(from_source=injected))
        self.queries = [
            SimpleNamespace(
                name=f"{name}{i}",
                windows=(window,),
                pane_windows=(window,),
                target=None if limit is None else LatencyTarget(limit, 0.99),
            )
            for i, (window, limit) in enumerate(zip(windows, limits, strict=True))
        ]
        self.state = SimpleNamespace(
            offset=0,
            closed=NOON,
            running=lambda: self.queries,
            by_query={query.name: self for query in self.queries},
            first_end=lambda query: query.pane_windows[0].first_end(self.state.closed),
            next_early=lambda: None,
            watermark=WatermarkState.start(1),
        )
        self.readers: list[Any] = []
        self.leaves = False
        self.elsewhere: dict[str, Elsewhere] = {}
        self.seen = FakeSeen(self.source)
        self.options = JobOptions()
        self.compiled = name

    def backlog(self) -> int:
        return self.seen.latest - cast(int, self.state.offset)

    def foreseen(self) -> WatermarkState:
        return self.state.watermark.advanced(self.definition.policy, (None,))

    def run(self, scheduler: Scheduler, newest: Micros, now: Micros, took: Micros = SECOND // 10) -> None:
        """Read all that waits; its newest event time is `newest`."""
        cut = LoggedCut(1, self.state.offset, self.seen.latest, self.backlog(), MIN_TIME, MIN_TIME, None, now)
        scheduler.looked([fake(self)], now)
        scheduler.started(fake(self), cut, now)
        self.state.offset = self.seen.latest
        self.state.watermark = self.state.watermark.committed((newest,), self.source.injected)
        scheduler.finished(fake(self), CutOutcome(cut, stats=CutStats(rows=cut.rows)), now + took)
        self.state.closed = self.foreseen().value
        scheduler.looked([fake(self)], now + took)


def fake(stream: FakeStream) -> RunningStream:
    return cast(RunningStream, stream)


def scheduler(*streams: FakeStream, **settings: Any) -> Scheduler:
    return Scheduler({each.name: fake(each) for each in streams}, Settings.of(settings))


def live(stream: FakeStream, decides: Scheduler, seconds: int, lag: Micros, every: Micros = SECOND // 10) -> Micros:
    """Let rows come `lag` after they happened and be read at once; return the time at the end."""
    now = NOON
    for now in range(NOON + every, NOON + seconds * SECOND + 1, every):
        stream.source.arrivals.append(now)
        stream.run(decides, now - lag, now)
    return now


def view(stream: FakeStream, decides: Scheduler, now: Micros) -> Any:
    estimate = decides.of(fake(stream), now)
    return estimate.view(decides._deadlines(estimate, now), 1.0, 0.5, now, False)


def held(stream: FakeStream, rows: int) -> None:
    """Let rows wait in memory."""
    source = ResultsSource("parent", "query")
    source._items = [SimpleNamespace(position=1, rows=rows, table=SimpleNamespace(nbytes=100 * rows))]  # type: ignore[list-item]
    stream.feed = source
