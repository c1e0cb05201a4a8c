"""Running applications for the exactness tests: chosen cuts, chosen crashes, and what the log says was decided."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, Phase, settings
from pyspark.sql import SparkSession

from transom.api.app import App
from transom.checkpoint.inspect import describe
from transom.engine.loop.progress import Progress
from transom.engine.streams.cuts import LoggedCut
from transom.model.time import ManualClock
from transom.sinks.inmemory import MemorySink
from transom.sources.base import Cut, Offset
from transom.sources.inmemory import MemorySource
from transom.sources.schemas import as_struct

SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND
ALL = 1_000_000
STEPS = ["cut logged", "windows closed", "job done", "partials written", "committed", "delivered", "delivery logged"]
SNAPSHOTS = ["before snapshot", "after snapshot"]


def examples(count: int) -> settings:
    """Draw so many examples of whole applications."""
    return settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))


def few_examples(count: int) -> settings:
    """Draw so few that it would take longer to make one that fails smaller."""
    return settings(examples(count), phases=(Phase.explicit, Phase.reuse, Phase.generate))


class Crash(BaseException):
    """Stands for the end of the process: nothing in the engine may catch it."""


class PiecewiseSource(MemorySource):
    """A memory source whose cuts end where the test says.

    Args:
        schema: The columns, as text.
        pieces: Rows of each cut; the last one repeats.
        partitions: Number of source partitions.
    """

    def __init__(self, schema: str, pieces: Sequence[int] = (ALL,), partitions: int = 1) -> None:
        super().__init__(as_struct(schema), partitions)
        self._pieces = list(pieces)

    def cut(self, start: Offset, max_rows: int) -> Cut:
        end = 0
        for piece in self._pieces:
            end += piece
            if end > start:
                return super().cut(start, end - start)
        last = self._pieces[-1]
        return super().cut(start, last - (start - end) % last)


class Bench:
    """An application that is started again and again on one checkpoint and one memory sink.

    Args:
        spark: The user's session.
        directory: Where the checkpoint is made.
        define: Adds streams and queries to an application; called at every start.
        now: Where the manual clock stands at first.
        settings: Settings of the application.
    """

    defaults: dict[str, Any] = {}
    """Settings of all applications that have none of their own."""

    def __init__(
        self,
        spark: SparkSession,
        directory: Path,
        define: Callable[[App, MemorySink], None],
        now: int = NOON,
        **settings: Any,
    ) -> None:
        self.spark = spark
        self.checkpoint = directory / "checkpoint"
        self.define = define
        self.settings = {**self.defaults, **settings}
        self.clock = ManualClock(now)
        self.sink = MemorySink()
        self.cuts: dict[str, dict[int, LoggedCut]] = {}
        """Every cut that the log has held, by stream and number."""
        self.history: list[dict[str, Any]] = []
        """Every record that the log has held, in order."""
        self._last_read: list[dict[str, Any]] = []

    def app(self) -> App:
        """Return a new application, with its queries."""
        app = App(self.spark, self.checkpoint, clock=self.clock, **self.settings)
        self.define(app, self.sink)
        return app

    def run(
        self,
        close_all: bool = True,
        crash_at: tuple[str, int] | None = None,
        on_step: Callable[[str], None] = lambda step: None,
        app: App | None = None,
        once: bool = True,
    ) -> Progress | None:
        """Run an application until its input is exhausted, or it is stopped.

        Args:
            close_all: Whether the windows that the watermark has not reached are closed too.
            crash_at: A step of the loop, and at which of its occurrences to crash; a run that ends before does not.
            on_step: Called at each step of the loop.
            app: The application, if it is made already.
            once: Whether it ends with its input.

        Returns:
            What was done; None after a crash.
        """
        app = app or self.app()
        seen = 0

        def watch(step: str) -> None:
            nonlocal seen
            on_step(step)
            if step == "before snapshot":
                self._read_log()
            if crash_at is not None and step == crash_at[0]:
                seen += 1
                if seen > crash_at[1]:
                    raise Crash

        app._on_step = watch
        progress = None
        with contextlib.suppress(Crash):
            progress = app.run(once=once, close_all=close_all)
        self._read_log()
        return progress

    def _read_log(self) -> None:
        records = describe(self.checkpoint, last=ALL)["last_records"]
        known = len(self._last_read) if records[: len(self._last_read)] == self._last_read else 0
        self.history += records[known:]
        self._last_read = records
        for record in records:
            if record["type"] == "cut":
                cut = LoggedCut.from_json(record["cut"])
                known = self.cuts.setdefault(record["stream"], {}).setdefault(cut.number, cut)
                assert known == cut, "a logged cut was decided again"

    def cuts_of(self, stream: str = "stream1") -> list[LoggedCut]:
        """Return the cuts of a stream in order."""
        return [cut for _, cut in sorted(self.cuts.get(stream, {}).items())]

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the results of a query as tuples with window_start and window_end in microseconds, sorted by text."""
        table = self.sink.to_table(query)
        return [] if table is None else sorted(plain_rows(table), key=repr)

    def letters(self, stream: str = "stream1") -> list[dict[str, Any]]:
        """Return the dead letters of a stream, cut by cut."""
        found: list[dict[str, Any]] = []
        for file in sorted((self.checkpoint / "dead-letters" / stream).glob("cut=*/*.parquet")):
            table = pq.read_table(file, partitioning=None, coerce_int96_timestamp_unit="us")
            found += without_dates(table).to_pylist()
        return found


def without_dates(table: pa.Table) -> pa.Table:
    """Return the table with timestamps as microseconds, which have no last year."""
    for i, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            column = table.column(i).cast(pa.timestamp("us", field.type.tz)).cast(pa.int64())
            table = table.set_column(i, field.name, column)
    return table


def plain_rows(table: pa.Table) -> Iterable[tuple[Any, ...]]:
    """Return the rows of a table as tuples; timestamps are microseconds."""
    columns = [column.to_pylist() for column in without_dates(table).columns]
    return zip(*columns, strict=True) if columns else ()
