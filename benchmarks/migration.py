"""Cost of moving a key group while windows are open: the three strategies of Enorm (Fig. 10 to 13).

Three executors with one core each hold seven key groups of one sliding window (five panes); one executor has three of
them. The load moves: each period the keys of that executor have half as many rows again, and one of its groups goes to
another executor, which then has three. So every placement is as even as any other, and what differs is the migration.

Four applications, one that moves nothing and one for each strategy, take every cut in turn, in an order that changes,
so that each result of a strategy has its pair without migration. The partials of a cut are the same for all four; the
engine's job makes them once, with files by key group, and its time is part of all four latencies. Windows are merged
by the engine's key groups.

Latency of a result: from the moment that the cut which closes its window is there to the moment that the driver has its
rows. Each migration begins when a cut is there already, the worst moment for it. Disruptive: the cut waits until the
panes that the old home holds in memory are at the new one, over Spark's exchange (links of 1 Gbit/s where the machine
allows them). Instant: the new home reads the panes from the files of the checkpoint in the background, once the results
are out; that time counts as work, but not as latency.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.cluster import networked_cluster
from benchmarks.harness import Run, benchmark, mean_interval
from benchmarks.plots import Figure, Form, Panel, Series
from transom.engine.cluster.files import PartialFiles
from transom.engine.cluster.groups import KeyGroups
from transom.engine.cluster.merging import SparkGroupExecutors
from transom.engine.placed import placed
from transom.engine.spark import jobs
from transom.engine.spark.compile import Compiled, compile_queries
from transom.engine.spark.packing import Packing, files_written
from transom.engine.spark.plan import Rows
from transom.engine.spark.session import private_session
from transom.engine.state.state import StreamState
from transom.engine.state.watermarks import WatermarkState
from transom.model.expression import Expression
from transom.model.time import SystemClock
from transom.model.tuning import StreamTuning
from transom.model.window import sliding
from transom.placement.balance import Move
from transom.placement.migration import Strategy
from transom.windows.aggregates import functions
from transom.windows.query import Key, WindowedQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GROUPS = 7
SIZE = 50_000
"""Keys of a group for the figures of the last line."""
FULL = {SIZE: (24, 12), 10_000: (8, 6), 20_000: (8, 6), 100_000: (8, 6), 200_000: (4, 6)}
"""Keys of a group: how many migrations, and cuts from one to the next (12 cuts are two minutes of event time)."""
QUICK = {SIZE: (24, 6)}
LEAST = 4
"""Migrations of a size, however short time is."""
CUT = 10_000_000
"""Event time of a cut, in microseconds; one pane."""
PANES = 5
TOUCHED = 2
"""Results in which a migration can be felt: the one that is due when it begins, and the next, with the new home."""
RESERVE = 15
"""Seconds for the end of the cluster and the report."""
WORKER_BYTES = 1 << 30
"""The workers hold the groups of four applications."""
NONE = "none"
FORMS = (NONE, *(strategy.value for strategy in Strategy))
SHARE = 4
"""No result waits for an instant migration: it adds less than one in so many parts of what a disruptive one adds."""
REDUCED = "the load moves every 6 cuts, one minute of event time instead of two; one size, 24 migrations or fewer"
QUERY = WindowedQuery(
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


class Cuts:
    """Makes the partials of cuts, once for all applications.

    Args:
        session: Transom's session.
        directory: For files.
    """

    def __init__(self, session: SparkSession, directory: Path) -> None:
        self.directory = directory
        schema = session.createDataFrame([], SCHEMA).schema
        self.compiled: Compiled = compile_queries(session, schema, Rows(Expression("at"), ((),)), (QUERY,))

    def make(self, rows: DataFrame, cut: int, count: int) -> tuple[PartialFiles, float]:
        """Return the files of a cut, and how many seconds it took."""
        begin = time.monotonic()
        plan, packing = self.compiled.plan, Packing(self.directory, cut, GROUPS)
        tasks = StreamTuning().tasks(count)
        divided = rows if tasks is None else rows.coalesce(tasks)
        partials = jobs.run_cut(divided, plan, partitions=1, ahead=None, packings=[packing])
        written = partials.slices[0]
        assert written
        files = files_written(written, partials.tables[0], plan.notes[0], cut)
        return files, time.monotonic() - begin


@dataclass(frozen=True)
class Taken:
    """What a cut cost an application, in seconds."""

    latency: float
    paused: float = 0.0
    """Of it, until the cut could go on."""
    background: float = 0.0
    """After the results were out."""


class Application:
    """The engine's path of a cut from its partials in files to the results of the windows that it closes.

    Args:
        session: Transom's session.
        cuts: Where the files come from.
        form: Name of the strategy by which key groups move, or `NONE`.
    """

    def __init__(self, session: SparkSession, cuts: Cuts, form: str) -> None:
        self.executors = SparkGroupExecutors(session, cuts.directory, SystemClock(), GROUPS, WORKER_BYTES)
        watermark = WatermarkState.start(1)
        scope = f"{cuts.directory}-{form}"
        self.state = StreamState(cuts.compiled.queries, watermark, 0, True, self.executors, scope)
        self.state.arrange(cuts.compiled.stores)
        self.strategy = None if form == NONE else Strategy(form)
        self.results: pa.Table | None = None
        """Of the last cut."""

    @property
    def key_groups(self) -> KeyGroups:
        """Where the key groups are."""
        return self.executors.key_groups

    def take(self, files: PartialFiles, made: float, cut: int, moves: Sequence[Move]) -> Taken:
        """Take a cut whose partials took so many seconds."""
        begin = time.monotonic()
        if moves and self.strategy is not None:
            store = self.state.stores[0].store
            self.executors.migrate(moves, self.strategy, cut, cut * CUT, [store.in_files()])
        paused = time.monotonic() - begin
        self.state.commit([files], cut, self.state.watermark)
        closings = self.state.close((cut + 1) * CUT, cut, 0, (cut + 1) * CUT)
        out = time.monotonic()
        self.executors.arrive()
        results = closings[0].results
        assert results is not None
        self.results = results.table
        return Taken(made + out - begin, paused, time.monotonic() - out)

    def needs(self) -> set[str]:
        """Return the names of the files that are still needed."""
        return {name for part in self.state.stores[0].store.parts for name in part.files.names}


def expected(cuts: Sequence[DataFrame]) -> pa.Table:
    """Return the window over some cuts as plain Spark gives it."""
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


def next_move(groups: KeyGroups) -> tuple[list[int], list[Move]]:
    """Return the groups whose load grows, those of the executor with most, and the move that takes one of them away."""
    homes = groups.assignment
    source = max(sorted(groups.alive), key=lambda executor: len(homes.of(executor)))
    target = next(one for one in sorted(groups.alive, key=lambda one: (one <= source, one)) if one != source)
    hot = homes.of(source)
    return hot, [Move(hot[0], source, target, 1.0)]


@dataclass
class Measured:
    """Seconds of one form, by migration."""

    added: list[float] = field(default_factory=list)
    """To the results in which a migration can be felt, against the same ones without; see `in_turn`."""
    paused: list[float] = field(default_factory=list)
    background: list[float] = field(default_factory=list)
    extra: list[float] = field(default_factory=list)
    """Work from one migration to the next, over the same without, minus 1."""
    noise: list[float] = field(default_factory=list)
    """What the last results before a migration take more than their pairs: nothing, but for chance."""


def measure(run: Run, session: SparkSession, size: int, migrations: int, period: int) -> dict[str, Measured]:
    """Return what migrations cost each form."""
    keys = size * GROUPS
    cuts = Cuts(session, run.fresh(str(size)))
    forms = {form: Application(session, cuts, form) for form in FORMS}
    found = {form: Measured() for form in FORMS}
    frames: list[DataFrame] = []
    order = random.Random(size)
    cut, hot = 0, []
    longest = 0.0
    for phase in range(migrations + 1):
        if phase > LEAST and run.left() < longest + RESERVE:
            run.say(f"time is short: {phase - 1} of {migrations} migrations")
            break
        begin = time.monotonic()
        took: dict[str, list[Taken]] = {form: [] for form in FORMS}
        moves: list[Move] = []
        if phase:
            hot, moves = next_move(forms[Strategy.INSTANT.value].key_groups)
        for step in range(period if phase else PANES + 1):
            cut += 1
            rows = rows_of(session, keys, cut, hot)
            frames = [*frames, rows][-PANES:]
            files, made = cuts.make(rows, cut, keys)
            # Each form is first in its turn where it matters; elsewhere the order is by chance.
            turn = (phase % len(FORMS)) if step < TOUCHED else order.randrange(len(FORMS))
            for form in FORMS[turn:] + FORMS[:turn]:
                took[form].append(forms[form].take(files, made, cut, moves if step == 0 else ()))
            needed = set().union(*(forms[form].needs() for form in FORMS))
            for path in cuts.directory.iterdir():
                if path.name not in needed:
                    path.unlink()
            if phase and step in (0, 1):
                compare(run, forms, frames if step == 0 and phase == 1 else [], f"{size} keys, cut {cut}")
        if phase:
            note(found, took)
            text = ", ".join(f"{form} {1000 * found[form].added[-1]:+.0f}" for form in FORMS if form != NONE)
            base = took[NONE][0].latency
            longest = max(longest, time.monotonic() - begin)
            run.say(f"{size:,} keys a group, migration {phase}: added to two results of {base:.2f} s, ms: {text}")
    return found


def compare(run: Run, forms: dict[str, Application], frames: Sequence[DataFrame], what: str) -> None:
    """Compare the last results of all forms with each other, and with those of plain Spark if its cuts are given."""
    base = plain(forms[NONE].results)
    if frames:
        run.check([] if base.equals(plain(expected(frames)).cast(base.schema)) else [f"{what}: Spark"])
    for strategy in Strategy:
        run.check([] if plain(forms[strategy.value].results).equals(base) else [f"{what}: {strategy.value}"])


def note(found: dict[str, Measured], took: dict[str, list[Taken]]) -> None:
    """Keep what one migration cost."""
    whole = {form: sum(one.latency + one.background for one in took[form]) for form in FORMS}
    for form in FORMS:
        pairs = [a.latency - b.latency for a, b in zip(took[form], took[NONE], strict=True)]
        mine = found[form]
        mine.added.append(sum(pairs[:TOUCHED]))
        mine.noise.append(pairs[-1])
        mine.paused.append(took[form][0].paused)
        mine.background.append(took[form][0].background)
        mine.extra.append(whole[form] / whole[NONE] - 1)


def in_turn(added: Sequence[float]) -> list[float]:
    """Return means of as many migrations as there are forms: each form was first in one of them, which costs it some.

    What is left over at the end is left out, unless there is nothing else.
    """
    size = len(FORMS)
    whole = [added[at : at + size] for at in range(0, len(added) - size + 1, size)] or [added]
    return [fmean(some) for some in whole]


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of some values with a 95 % interval by bootstrap (the same for the same values)."""
    draws = np.random.default_rng(1).choice(np.asarray(values), (2000, len(values)))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    return median(values), float(low), float(high)


def main() -> None:
    """Run the benchmark."""
    with benchmark("migration", REDUCED, figures=True) as run:
        found: dict[int, dict[str, Measured]] = {}
        with networked_cluster(run, 3) as spark:
            session = private_session(spark)
            rate = 0.0
            for size, (migrations, period) in (QUICK if run.quick else FULL).items():
                cuts = PANES + 1 + migrations * period
                if run.left() < rate * cuts * size / SIZE:
                    run.say(f"time is short: {size:,} keys are left out")
                    continue
                before = time.monotonic()
                found[size] = measure(run, session, size, migrations, period)
                rate = (time.monotonic() - before) / cuts * SIZE / size
        report(run, found)


def report(run: Run, found: dict[int, dict[str, Measured]]) -> None:
    """Print tables, keep figures, draw."""
    strategies = [form for form in FORMS if form != NONE]
    for form in strategies:
        run.figure(f"{form}.added_ms", 1000 * median(in_turn(found[SIZE][form].added)))
    run.figure("instant.extra_work", median(found[SIZE]["instant"].extra))
    rows = []
    for size in sorted(found):
        for form in strategies:
            mine = found[size][form]
            middle, low, high = median_interval([1000 * one for one in in_turn(mine.added)])
            rows.append(
                [
                    f"{size:,}",
                    form,
                    f"{middle:.0f} [{low:.0f}, {high:.0f}]",
                    f"{1000 * median(mine.paused):.0f}",
                    f"{1000 * median(mine.background):.0f}",
                    f"{median(mine.extra):+.1%}",
                    f"{1000 * median(map(abs, mine.noise)):.0f}",
                ]
            )
    run.table(
        "What the migration of one key group adds to two results, by number of its keys",
        ["keys", "strategy", "added, ms [95 %]", "paused, ms", "later, ms", "extra work", "by chance, ms"],
        rows,
    )
    instant, disruptive = (found[SIZE][form] for form in ("instant", "disruptive"))
    low, high = median_interval(in_turn(instant.added))[1:]
    times = median(in_turn(disruptive.added)) / max(abs(median(in_turn(instant.added))), 1e-6)
    zero = "cannot be told from 0; " if low <= 0 <= high else ""
    run.say(f"instant: {zero}disruptive adds {times:,.0f} times as much; mean {1000 * fmean(disruptive.added):.0f} ms")
    whole = len(FORMS) * max(1, len(instant.added) // len(FORMS))  # turns of all forms, as in `in_turn`
    excess = [one - other / SHARE for one, other in zip(instant.added, disruptive.added, strict=True)][:whole]
    mean, half = mean_interval([1000 * one for one in excess])
    run.verdict(
        f"ms that instant migration adds beyond 1/{SHARE} of disruptive, {len(excess)} migrations",
        (mean - half, mean + half) if len(excess) > 1 else (math.nan, math.nan),
        0,
    )
    run.draw(figure(found))


def figure(found: dict[int, dict[str, Measured]]) -> Figure:
    """Return added latency by size of the state, as in Fig. 10."""
    series, sizes = [], sorted(found)
    for strategy in Strategy:
        intervals = [
            mean_interval([1000 * one for one in in_turn(found[size][strategy.value].added)]) for size in sizes
        ]
        means, halves = zip(*intervals, strict=True)
        series.append(Series(strategy.value, [size / 1000 for size in sizes], means, halves))
    panel = Panel(
        Form.LINES, "Migration of a key group", "thousand keys in the group", "added latency (ms)", tuple(series)
    )
    text = "Latency that the migration of one key group adds to two results, on three executors that share two cores."
    return Figure("migration", "What a migration adds to latency", text, (panel,))


if __name__ == "__main__":
    main()
