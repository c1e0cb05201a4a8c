"""Counts and latencies of a run, from which progress is made."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from transom.engine.loop.catchup import CatchUp
from transom.engine.loop.delivery import Delivered, Delivery
from transom.engine.loop.progress import Progress, QueryProgress, StreamProgress
from transom.engine.streams.cuts import CutOutcome
from transom.engine.streams.stream import RunningStream
from transom.model.time import MICROS_PER_SECOND, Micros

LATENCIES = 2_000
"""Results whose latency is remembered per query."""
RATE_OVER: Micros = 10 * MICROS_PER_SECOND


@dataclass
class _StreamCounts:
    cuts: int = 0
    rows: int = 0
    dead: Counter[str] = field(default_factory=Counter)
    recent: deque[tuple[Micros, int, int, int]] = field(default_factory=deque)
    """Commits of the last seconds: when, rows that were read, that were left out, and that there were in all."""
    batch: Micros = 0
    native: int = 0
    judged: int = 0
    catch_up: CatchUp = field(default_factory=CatchUp)

    def forget(self, now: Micros) -> None:
        """Forget the micro-batches that do not count for the present rate any more."""
        while self.recent and self.recent[0][0] < now - RATE_OVER:
            self.recent.popleft()


@dataclass
class _QueryCounts:
    windows: int = 0
    rows: int = 0
    late: int = 0
    late_at: Counter[str] = field(default_factory=Counter)
    """Those of other sites, by site; those that a relay merged, by all whose they can be."""
    latencies: deque[Micros] = field(default_factory=lambda: deque(maxlen=LATENCIES))
    _quantiles: dict[str, Micros] | None = None

    def waited(self, latency: Micros) -> None:
        """Take the latency of a result."""
        self.latencies.append(latency)
        self._quantiles = None

    def quantiles(self) -> dict[str, Micros]:
        """Return p50, p95 and p99 of the latencies; nothing before the first."""
        if self._quantiles is None:
            values = np.quantile(np.array(self.latencies), [0.5, 0.95, 0.99]).tolist() if self.latencies else []
            self._quantiles = {name: int(value) for name, value in zip(("p50", "p95", "p99"), values, strict=False)}
        return self._quantiles


class Metrics:
    """Counts of one run.

    Args:
        started: Monotonic time at its start.
        running: The streams.
    """

    def __init__(self, started: Micros, running: Mapping[str, RunningStream]) -> None:
        self._started = started
        self._running = running
        self._streams: dict[str, _StreamCounts] = {}
        self._queries: dict[str, _QueryCounts] = {}

    def _stream(self, name: str) -> _StreamCounts:
        return self._streams.setdefault(name, _StreamCounts())

    def _query(self, name: str) -> _QueryCounts:
        return self._queries.setdefault(name, _QueryCounts())

    def keep(self, queries: Container[str]) -> None:
        """Forget all queries but some: the others were removed."""
        self._queries = {name: counts for name, counts in self._queries.items() if name in queries}

    @cached_property
    def _feeding(self) -> dict[str, list[str]]:
        """The streams that feed each stream; none is added during a run."""
        feeding: dict[str, list[str]] = {name: [] for name in self._running}
        for name, stream in self._running.items():
            for reader in stream.readers:
                feeding[reader.child.name].append(name)
        return feeding

    def _since(self, stream: str) -> Micros | None:
        """Return since when a stream, and those that feed it, have caught up; None while one has not."""
        times = [self._stream(stream).catch_up.since, *map(self._since, self._feeding.get(stream, ()))]
        known = [time for time in times if time is not None]
        return max(known) if len(known) == len(times) else None

    def looked(self, stream: RunningStream, wall: Micros) -> None:
        """Take the look for a stream's next cut at a wall time."""
        self._stream(stream.name).catch_up.looked(wall, stream.seen.more)

    def committed(self, stream: str, outcome: CutOutcome, now: Micros, took: Micros) -> None:
        """Count a commit.

        Args:
            stream: Name of the stream.
            outcome: What the cut gave.
            now: Monotonic time.
            took: From the start of its job to the commit.
        """
        if outcome.cut.empty:
            return
        counts = self._stream(stream)
        stats = outcome.stats
        counts.cuts += 1
        counts.rows += stats.rows
        counts.batch = took
        shed = outcome.cut.shed
        unread, thinned = (0, 0) if shed is None else (shed.rows, shed.thinned(stats.rows))
        counts.recent.append((now, stats.rows, unread + thinned, stats.rows + unread))
        counts.native += outcome.judged is not None
        counts.judged += outcome.judged or 0
        counts.forget(now)
        for reason, number in (
            ("null event time", stats.null_time),
            ("too far ahead", stats.ahead),
            ("event time out of range", stats.out_of_range),
            ("corrupt", stats.corrupt),
            ("unreadable", len(outcome.skipped)),
            ("overload", unread + thinned),
        ):
            if number:
                counts.dead[reason] += number
        for query, number in outcome.late.items():
            self._query(query).late += number
        for taken in outcome.taken:
            for query, number in taken.late.items():
                self._query(query).late_at["+".join(site for site, *_ in taken.cuts)] += number

    def late_at(self, query: str) -> Mapping[str, int]:
        """Return how many rows of each other site were late for a query."""
        return self._query(query).late_at

    def delivered(self, delivered: Delivered) -> None:
        """Count results that are visible."""
        counts = self._query(delivered.batch.query)
        counts.windows += delivered.batch.windows
        counts.rows += delivered.batch.results.table.num_rows
        query = delivered.batch.query
        streams = (name for name, stream in self._running.items() if query in stream.state.queries)
        since = next((self._since(name) for name in streams), None)
        if since is not None and delivered.batch.ingested_at >= since:
            counts.waited(max(0, delivered.at - delivered.batch.ingested_at))

    def latencies(self, queries: Iterable[str]) -> list[Micros]:
        """Return the latencies of the last results of some queries, the shortest first."""
        return sorted(each for name in queries for each in self._query(name).latencies)

    def progress(
        self,
        streams: Mapping[str, RunningStream],
        delivery: Delivery,
        sinks: Mapping[str, str],
        now: Micros,
        wall: Micros,
        stopping: bool,
        notes: tuple[str, ...],
    ) -> Progress:
        """Return where the application is at a monotonic and a wall time."""
        return Progress(
            wall,
            wall - (now - self._started),
            tuple(self._stream_progress(stream, now) for stream in streams.values()),
            tuple(query for stream in streams.values() for query in self._queries_progress(stream, delivery, sinks)),
            stopping,
            notes=notes,
        )

    def _stream_progress(self, stream: RunningStream, now: Micros) -> StreamProgress:
        counts = self._stream(stream.name)
        counts.forget(now)
        span = min(RATE_OVER, max(now - self._started, 1))
        _, read, left_out, came = map(sum, zip(*counts.recent, strict=True)) if counts.recent else (0, 0, 0, 0)
        late = sum(self._query(name).late for name in stream.state.queries)
        dead = dict(counts.dead)
        backlog = stream.backlog()
        catching_up = bool(backlog) and self._since(stream.name) is None
        if catching_up:
            counts.catch_up.left(now, backlog)
        standing = stream.state.executors.standing
        recovered = standing.recovered
        if late:
            dead["late"] = late
        return StreamProgress(
            name=stream.name,
            source=stream.source.describe(),
            cuts=counts.cuts,
            rows=counts.rows,
            rows_per_second=read * MICROS_PER_SECOND / span,
            backlog=backlog,
            watermark=stream.state.watermark.value,
            max_event_time=stream.max_event_time() or stream.state.watermark.value,
            dead_letters=dead,
            batch_micros=counts.batch,
            key_groups=dict(standing.groups),
            moved_groups=standing.moved,
            lost_executors=recovered.lost if recovered else (),
            recovery_micros=recovered.took if recovered else None,
            recovery_estimate_micros=standing.recovery,
            native_cuts=counts.native,
            judged_files=counts.judged,
            catching_up=catching_up,
            time_left=counts.catch_up.time_left if catching_up else None,
            shed_share=left_out / came if came else 0.0,
        )

    def _queries_progress(
        self, stream: RunningStream, delivery: Delivery, sinks: Mapping[str, str]
    ) -> Iterator[QueryProgress]:
        targets, stuck = {query.name: query.target for query in stream.definition.queries}, stream.stuck
        for name, state in stream.state.queries.items():
            counts = self._query(name)
            yield QueryProgress(
                name=name,
                stream=stream.name,
                sink=sinks[name],
                windows=counts.windows,
                result_rows=counts.rows,
                latency=dict(counts.quantiles()),
                target=targets[name],
                late_rows=counts.late,
                waiting=len(delivery.waiting(name)),
                failure=state.failure or stuck,
                paused=state.paused,
                complete_from=state.complete_from,
                behind=delivery.behind(name),
            )
