"""What it costs that a key group moves while windows are open: the three strategies of Enorm (Fig. 10 to 13).

Three executors with one core each hold the key groups of one sliding window (five panes). The load moves: each period
another executor's keys have half as many rows again, and one of its groups goes to the next executor. The job of each
cut is the engine's, with partials in files; windows are merged by the engine's key groups. Four applications,
one that moves nothing and one for each strategy, take every cut in turn, in an order that changes, so that each result
of a strategy has its pair without migration.

Latency of a result: from the moment that the cut which closes its window is there to the moment that the driver has its
rows. A migration that is due is made in that time, as the stream cannot go on meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.harness import Run, benchmark, mean_interval
from benchmarks.plots import Figure, Form, Panel, Series
from transom.engine.cluster.groups import KeyGroups
from transom.engine.spark import jobs, placed
from transom.engine.spark.compile import compile_queries
from transom.engine.spark.merging import SparkExecutors
from transom.engine.spark.packing import Packing, files_written
from transom.engine.spark.plan import Rows
from transom.engine.spark.session import private_session, session_builder
from transom.engine.state import StreamState
from transom.engine.watermarks import WatermarkState
from transom.model.expression import Expression
from transom.model.query import Key, Query
from transom.model.time import SystemClock
from transom.model.window import sliding
from transom.placement.balance import Move
from transom.placement.migration import Strategy
from transom.windows.aggregates import functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GROUPS = 6
SIZES = (10_000, 20_000, 50_000)
"""Keys of a group."""
CUT = 10_000_000
"""Event time of a cut, in microseconds; one pane."""
PANES = 5
PERIOD = 6
"""Cuts from one migration to the next: the windows that hold partials of both homes are closed by then."""
NONE = "none"
FORMS = (NONE, *(strategy.value for strategy in Strategy))
REDUCED = "the load moves every 6 cuts, one minute of event time instead of two, and 2 times a size instead of 6"
QUERY = Query(
    "q",
    0,
    (Key("user", Expression("user")),),
    (sliding(f"{PANES * 10} seconds", "10 seconds"),),
    (("n", functions.count()), ("total", functions.sum("value")), ("largest", functions.max("value"))),
)
SCHEMA = "user bigint, value bigint, at timestamp"


def rows_of(session: SparkSession, keys: int, cut: int, hot: Sequence[int]) -> DataFrame:
    """Return the rows of a cut: one of each key, and one more for half of the keys in the hot groups."""
    from pyspark.sql import functions as F

    ids = session.range(0, keys, numPartitions=3)
    at = F.timestamp_micros(F.lit(cut * CUT) + F.col("id") % CUT)
    rows = ids.select(
        F.col("id").alias("user"), F.expr(f"pmod(xxhash64(id, {cut}), 1000)").alias("value"), at.alias("at")
    )
    if not hot:
        return rows
    group = placed.partition_of(["user"], GROUPS)
    return rows.union(rows.where(group.isin(list(hot)) & (F.col("user") % 2 == 0)))


class Application:
    """The engine's path of a cut, from its rows to the results of the windows that it closes.

    Args:
        session: Transom's session.
        directory: For files.
        strategy: How key groups move; None for not at all.
    """

    def __init__(self, session: SparkSession, directory: Path, strategy: Strategy | None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        schema = session.createDataFrame([], SCHEMA).schema
        self.compiled = compile_queries(session, schema, Rows(Expression("at"), ((),)), (QUERY,))
        self.executors = SparkExecutors(session, directory, SystemClock(), GROUPS)
        watermark = WatermarkState.start(1, 0)
        self.state = StreamState(self.compiled.queries, watermark, 0, True, self.executors, str(directory))
        self.state.arrange(self.compiled.stores)
        self.strategy = strategy
        self.results: pa.Table | None = None
        """Of the last cut."""

    @property
    def key_groups(self) -> KeyGroups:
        """Where the key groups are."""
        return self.executors.key_groups

    def run(self, rows: DataFrame, cut: int, count: int, moves: Sequence[Move]) -> tuple[float, float]:
        """Take a cut; return how long until its windows' results were there, and how long a migration held it up."""
        begin = time.monotonic()
        store = self.state.stores[0].store
        if moves and self.strategy is not None:
            self.executors.migrate(moves, self.strategy, cut, cut * CUT)
            if self.strategy is Strategy.DISRUPTIVE:
                store.preload()
        paused = time.monotonic() - begin
        packing = Packing(self.executors.directory, cut, GROUPS)
        plan = self.compiled.plan
        partials = jobs.run_cut(rows, plan, partitions=1, ahead=None, estimated_rows=count, packings=[packing])
        written = partials.slices[0]
        assert written
        files = files_written(written, partials.tables[0], plan.notes[0], cut)
        self.state.commit([files], cut, self.state.watermark)
        closings = self.state.close((cut + 1) * CUT, cut, 0, (cut + 1) * CUT)
        took = time.monotonic() - begin
        results = closings[0].results
        assert results is not None
        self.results = results.table
        for path in self.executors.directory.iterdir():
            if path.name not in {name for part in store.parts for name in part.files.names}:
                path.unlink()
        return took, paused


def expected(session: SparkSession, cuts: Sequence[DataFrame], cut: int) -> pa.Table:
    """Return the window that ends with a cut as plain Spark gives it."""
    from pyspark.sql import functions as F

    rows = cuts[0]
    for more in cuts[1:]:
        rows = rows.union(more)
    totals = rows.groupBy("user").agg(
        F.count("*").alias("n"), F.sum("value").alias("total"), F.max("value").alias("largest")
    )
    return totals.toArrow()


def plain(table: pa.Table) -> pa.Table:
    """Return results by user, without the window."""
    return table.select(["user", "n", "total", "largest"]).sort_by("user").combine_chunks()


def hot_executor(groups: KeyGroups, phase: int) -> tuple[list[int], list[Move]]:
    """Return the groups whose load grows, and the move that takes one of them away."""
    alive = sorted(groups.alive)
    source, target = alive[phase % len(alive)], alive[(phase + 1) % len(alive)]
    hot = [group for group in range(GROUPS) if groups.home(group, 1 << 40) == source]
    return hot, [Move(hot[0], source, target, 1.0)] if hot else []


def measure(run: Run, session: SparkSession, size: int, migrations: int) -> dict[str, dict[str, list[float]]]:
    """Return seconds per migration, by form: added to the first result, held up, and all until the next migration."""
    keys = size * GROUPS
    forms = {form: Application(session, run.fresh(f"{size}-{form}"), None) for form in FORMS}
    for strategy in Strategy:
        forms[strategy.value].strategy = strategy
    found: dict[str, dict[str, list[float]]] = {f: {"added": [], "paused": [], "whole": []} for f in FORMS}
    frames: list[DataFrame] = []
    cut, hot = 0, []
    for phase in range(migrations + 1):
        took: dict[str, list[float]] = {form: [] for form in FORMS}
        moves: list[Move] = []
        if phase:
            hot, moves = hot_executor(forms[Strategy.INSTANT.value].key_groups, phase)
        for step in range(PERIOD):
            cut += 1
            rows = rows_of(session, keys, cut, hot)
            frames = [*frames, rows][-PANES:]
            order = FORMS[cut % len(FORMS) :] + FORMS[: cut % len(FORMS)]
            for form in order:
                seconds, paused = forms[form].run(rows, cut, keys, moves if step == 0 else ())
                took[form].append(seconds)
                if step == 0 and phase:
                    found[form]["paused"].append(paused)
            if phase and step in (0, PANES - 1):
                base = plain(forms[NONE].results)
                if step == 0:
                    run.check(
                        [] if base.equals(plain(expected(session, frames, cut)).cast(base.schema)) else [f"cut {cut}"]
                    )
                for strategy in Strategy:
                    same = plain(forms[strategy.value].results).equals(base)
                    run.check([] if same else [f"{size} keys, {strategy.value}, cut {cut}"])
        if phase:
            for form in FORMS:
                found[form]["added"].append(took[form][0] - took[NONE][0])
                found[form]["whole"].append(sum(took[form]))
            text = ", ".join(f"{f} {took[f][0]:.2f} s" for f in FORMS)
            run.say(f"{size:,} keys a group, migration {phase}: first result {text}")
    return found


def main() -> None:
    """Run the benchmark."""
    with benchmark("migration", REDUCED, figures=True) as run:
        spark = (
            session_builder()
            .master("local-cluster[3,1,1024]")
            .appName("migration")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "2g")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.executor.memory", "1g")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.local.dir", str(run.work / "spark"))
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        spark.sparkContext.parallelize(range(3), 3).count()
        while len(placed.executors(spark)) < 3:
            time.sleep(0.1)
        session = private_session(spark)
        found: dict[int, dict[str, dict[str, list[float]]]] = {}
        longest = 0.0
        for size in reversed(SIZES):
            if run.left() < longest:
                run.say(f"time is short: {size:,} keys are left out")
                continue
            before = time.monotonic()
            found[size] = measure(run, session, size, 2 if run.quick else 6)
            longest = max(longest, time.monotonic() - before)
        spark.stop()
        sizes = sorted(found)
        added = {form: [1000 * median(found[size][form]["added"]) for size in sizes] for form in FORMS if form != NONE}
        extra = {
            form: median(
                a / b - 1 for a, b in zip(found[SIZES[-1]][form]["whole"], found[SIZES[-1]][NONE]["whole"], strict=True)
            )
            for form in added
        }
        for form, each in added.items():
            run.figure(f"{form}.added_ms", each[-1])
        run.figure("instant.extra_work", extra["instant"])
        run.table(
            "What a migration adds to the next result (median), and to all results until the next migration",
            ["strategy", *(f"{size:,} keys: added ms" for size in sizes), "held up, ms", "extra time"],
            [
                [form, *each, 1000 * fmean(found[SIZES[-1]][form]["paused"]), f"{extra[form]:+.1%}"]
                for form, each in added.items()
            ],
        )
        run.draw(figure(found))


def figure(found: dict[int, dict[str, dict[str, list[float]]]]) -> Figure:
    """Return added latency by size of the state, as in Fig. 10."""
    series, sizes = [], sorted(found)
    for strategy in Strategy:
        intervals = [mean_interval([1000 * one for one in found[size][strategy.value]["added"]]) for size in sizes]
        means, halves = zip(*intervals, strict=True)
        series.append(Series(strategy.value, [size / 1000 for size in sizes], means, halves))
    panel = Panel(
        Form.LINES, "Migration of a key group", "thousand keys in the group", "added latency (ms)", tuple(series)
    )
    text = (
        "Latency that the migration of one key group adds to the next result, on three executors that share two cores."
    )
    return Figure("migration", "What a migration adds to latency", text, (panel,))


if __name__ == "__main__":
    main()
