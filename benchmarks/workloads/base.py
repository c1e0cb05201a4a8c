"""A workload: events in the order in which they arrive, a query, and the same query in plain Spark.

Events happen evenly or in bursts, and arrive one network delay later. Time runs from 0 in microseconds; the event time
of a row is `BASE_MICROS` + `at`, whenever it is replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from transom.api.app import App
    from transom.api.streams import Stream
    from transom.sinks.base import Sink
    from transom.sources.base import Source

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

BASE_MICROS = 1_700_000_100_000_000
"""Event time of `at` = 0; a multiple of five minutes."""
SECOND = 1_000_000
LONGEST_DELAY = SECOND
"""Microseconds; the watermark's delay, so that no row is ever late and all engines give the same."""
BURSTS = 5 * SECOND
"""Microseconds for which a rate stays what it is."""


def uniform(random: np.random.Generator, count: int) -> Floats:
    """Return delays between 0 and 1 s, all as likely; microseconds."""
    return random.uniform(0, LONGEST_DELAY, count)


def zipf(random: np.random.Generator, count: int) -> Floats:
    """Return delays of 1 to 1000 ms by Zipf's law with exponent 0.99; microseconds."""
    weights = np.arange(1, 1_001) ** -0.99
    return 1_000.0 * (1 + np.searchsorted(np.cumsum(weights / weights.sum()), random.uniform(0, 1, count)))


DELAYS: dict[str, Callable[[np.random.Generator, int], Floats]] = {"uniform": uniform, "zipf": zipf}


@dataclass(frozen=True)
class Feed:
    """The events of one input, in the order of their arrival."""

    rows: pa.Table
    """The columns of the workload; `at` (int64) is event time."""
    arrival: Ints
    """When each arrives, microseconds, ascending."""

    def sweeping(self, end: int) -> int | None:
        """Return when the watermark that completes a window ending at `end` arrives; None if it does not.

        It comes with the first row at or behind end + `LONGEST_DELAY`. Both in microseconds from 0.
        """
        newest = np.maximum.accumulate(self.rows.column("at").to_numpy())
        first = int(np.searchsorted(newest, end + LONGEST_DELAY))
        return int(self.arrival[first]) if first < len(newest) else None


@dataclass(frozen=True)
class Workload:
    """Events and a windowed query over them."""

    name: str
    schema: str
    """Columns of every input, in Spark's notation, without `at`."""
    inputs: int
    rate: int
    """Events per second of each input at scale 1."""
    length: int
    """Length of the last windows, microseconds."""
    slide: int
    limit: int
    """Latency limit of the results, microseconds."""
    columns: Callable[[np.random.Generator, Ints], dict[str, Any]]
    """Makes the columns of the events that happen at these moments."""
    query: Callable[[App, Sequence[Stream]], Any]
    """Ends in a query builder with the aggregates, over one stream for each input."""
    frame: Callable[[Sequence[DataFrame]], DataFrame]
    """The same in plain Spark over DataFrames with the column `ts`, batch or streaming."""

    def events(
        self, seed: int, seconds: float, scale: float = 1.0, delay: str = "uniform", burst: float = 0.0
    ) -> list[Feed]:
        """Return the events of one query, one feed for each input.

        Args:
            seed: Decides everything.
            seconds: For how long events happen.
            scale: Of the rate.
            delay: "uniform" or "zipf".
            burst: Standard deviation over mean of the rates, gamma distributed and new every 5 s; 0 for an even rate.
        """
        return [self._feed(np.random.default_rng([seed, i]), seconds, scale, delay, burst) for i in range(self.inputs)]

    def _feed(self, random: np.random.Generator, seconds: float, scale: float, delay: str, burst: float) -> Feed:
        at = moments(random, seconds, self.rate * scale, burst)
        arrival = at + DELAYS[delay](random, len(at)).astype(np.int64)
        order = np.argsort(arrival, kind="stable")
        table = pa.table({**self.columns(random, at), "at": pa.array(at)})
        return Feed(table.take(pa.array(order)), arrival[order])

    def define(self, app: App, sources: Sequence[Source], name: str, sink: Sink, shift: int = 0) -> None:
        """Add the query to an application.

        Args:
            app: The application.
            sources: One for each input.
            name: Name of the query.
            sink: Where results go.
            shift: Added to event time, microseconds, so that windows of equal queries end at different moments.
        """
        streams = [
            app.stream(source, event_time=event_time(shift), watermark="1 second", name=f"{name}-{i}")
            for i, source in enumerate(sources)
        ]
        self.query(app, streams).within(f"{self.limit} us").to(sink, name=name)

    def plain(self, inputs: Sequence[DataFrame], shift: int = 0) -> DataFrame:
        """Return the query in plain Spark, over batch or streaming DataFrames with the schema and `at`."""
        from pyspark.sql import functions as F

        return self.frame(
            [one.withColumn("ts", F.expr(event_time(shift))).withWatermark("ts", "1 second") for one in inputs]
        )


def event_time(shift: int) -> str:
    """Return the event time in SQL."""
    return f"timestamp_micros(at + {BASE_MICROS + shift}L)"


def moments(random: np.random.Generator, seconds: float, rate: float, burst: float) -> Ints:
    """Return when events happen, microseconds, ascending: evenly within bursts of 5 s."""
    if not burst:
        return (np.arange(int(rate * seconds)) * (SECOND / rate)).astype(np.int64)
    shape = burst**-2
    parts = []
    for start in np.arange(0, seconds * SECOND, BURSTS):
        span = min(BURSTS, seconds * SECOND - start)
        count = int(rate * span / SECOND * random.gamma(shape, 1 / shape))
        parts.append((start + np.arange(count) * (span / max(count, 1))).astype(np.int64))
    return np.concatenate(parts)


def window_columns(window: Column) -> tuple[Column, Column]:
    """Return start and end of a Spark window under the names that Transom gives them."""
    return window.getField("start").alias("window_start"), window.getField("end").alias("window_end")
