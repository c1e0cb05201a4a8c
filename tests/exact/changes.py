"""Applications whose queries change while they run, for tests, and what plain Spark gives for the windows of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from exact_helpers import SECOND, Bench, PiecewiseSource
from oracle import BatchQuery, differences, expected, logged_rows
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import transom as tm
from transom.api.app import App
from transom.engine.changes.records import SetChange
from transom.model.window import WindowSpec
from transom.sinks.inmemory import MemorySink
from transom.windows.aggregates.base import Aggregate

SCHEMA = "a string, b int, n int, x double, at timestamp"
WINDOWS = [
    WindowSpec(5 * SECOND, 5 * SECOND),
    WindowSpec(10 * SECOND, 10 * SECOND),
    WindowSpec(10 * SECOND, 10 * SECOND, 3 * SECOND),
    WindowSpec(30 * SECOND, 10 * SECOND),
    WindowSpec(25 * SECOND, 20 * SECOND),
]
AGGREGATES: dict[str, tuple[Callable[[], Aggregate], str]] = {
    "rows": (lambda: tm.count(), "count(*)"),
    "total": (lambda: tm.sum("n"), "sum(n)"),
    "mean": (lambda: tm.avg("x"), "avg(x)"),
    "low": (lambda: tm.min("x"), "min(x)"),
    "list": (lambda: tm.collect_list("n", 5), "slice(sort_array(collect_list(n)), 1, 5)"),
}


def positive(df: DataFrame) -> DataFrame:
    return df.where("n > 0")


@dataclass(frozen=True)
class Drawn:
    """A query."""

    keys: tuple[str, ...]
    windows: tuple[WindowSpec, ...]
    aggregates: tuple[str, ...]
    positive: bool

    def add(self, stream: Any, sink: MemorySink, name: str) -> Any:
        rows = stream.map(positive) if self.positive else stream
        windows = rows.group_by(*self.keys).window(*self.windows)
        return windows.agg(**{a: AGGREGATES[a][0]() for a in self.aggregates}).to(sink, name)

    def batch(self) -> BatchQuery:
        return BatchQuery(
            self.windows,
            {key: F.col(key) for key in self.keys},
            {a: F.expr(AGGREGATES[a][1]) for a in self.aggregates},
            positive if self.positive else (lambda df: df),
        )


class Changing:
    """A bench whose application changes at commits, as a test says; the first query of an example starts it."""

    def __init__(
        self, spark: SparkSession, directory: Path, source: PiecewiseSource, queries: Sequence[Drawn], delay=0
    ):
        self.queries = {f"q{i}": query for i, query in enumerate(queries)}
        self.source = source
        self.delay = delay
        self.job = {"q0"}
        self.bench = Bench(spark, directory, self._define)
        self.asked: list[Any] = []

    def _define(self, app: App, sink: MemorySink) -> None:
        self.stream = app.stream(self.source, event_time="at", watermark=tm.watermark(self.delay, max_ahead=None))
        for name in sorted(self.job):
            self.queries[name].add(self.stream, sink, name)

    def act(self, app: App, what: str, name: str) -> None:
        if what == "add":
            if name not in app.names:
                self.asked.append(self.queries[name].add(self.stream, self.bench.sink, name))
                self.job.add(name)
        else:
            self.asked.append(getattr(app, what)(name))

    def run(self, acts=(), crash_at=None, keeps_removed=False, close_all=True) -> Any:
        app, commits = self.bench.app(), 0

        def on_step(step: str) -> None:
            nonlocal commits
            if step == "committed":
                commits += 1
                for at, what, number in acts:
                    if at == commits:
                        self.act(app, what, f"q{number}")

        progress = self.bench.run(close_all, crash_at, on_step, app)
        assert all(change.done for change in self.asked)
        if not keeps_removed:
            self.job -= {change.query for change in self.asked if change.operation == "remove" and not change.refused}
        self.job |= set(app.names) or {"q0"}
        return progress

    def running(self) -> dict[str, dict[int, int]]:
        """Return from when on windows were complete, by query and cut, for the cuts at whose logging it ran."""
        now: dict[str, int] = {}
        found: dict[str, dict[int, int]] = {}
        for record in self.bench.history:
            if record["type"] == "queries":
                change = SetChange.from_json(record)
                now = {name: at for name, at in now.items() if name not in change.ended} | change.begun
            elif record["type"] == "cut":
                for name, at in now.items():
                    found.setdefault(name, {})[record["cut"]["number"]] = at
        return found

    def check(self, spark: SparkSession, rows: Sequence[tuple[Any, ...]]) -> int:
        """Compare with plain Spark batch over the windows that closed while each query ran; return their number."""
        cuts = self.bench.cuts_of()
        running = self.running()
        read = rows[: cuts[-1].end] if cuts else []  # nothing more, when no query was left
        table = logged_rows(self.source._from_python(read), cuts)
        batches = {name: query.batch() for name, query in self.queries.items()}
        wanted = expected(spark, self.source.schema, table, "at", batches)
        total = 0
        for name, query in self.queries.items():
            kept = []
            for start, end in zip(*(wanted[name].column(i).to_pylist() for i in (0, 1)), strict=True):
                closing = next((cut.number for cut in cuts if cut.closed >= end), None)
                kept.append(start >= running.get(name, {}).get(closing, 2**62))
            table_of = wanted[name].filter(pa.array(kept, pa.bool_()))
            total += table_of.num_rows
            actual = self.bench.sink.to_table(name)
            assert differences(actual, table_of, len(query.keys), ("mean",)) == [], (name, query, running.get(name))
        return total
