"""Sessions in the engine: equal to Spark's session_window, exact about late rows, and mixed with other windows."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource, plain_rows
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

import transom as tm
from transom.api.app import App
from transom.engine.spark import jobs
from transom.engine.streams.cuts import LoggedCut
from transom.errors import DefinitionError
from transom.sinks.inmemory import MemorySink

pytestmark = pytest.mark.usefixtures("compiled_once")

SCHEMA = "k string, j int, x int, at timestamp"
Row = tuple[Any, ...]
"""k, j, x and time."""


def by_spark(
    spark: SparkSession, source: PiecewiseSource, rows: Sequence[Row], gap: int, keys: Sequence[str], **values: Column
) -> list[Row]:
    """What Spark's batch says."""
    frame = spark.createDataFrame(source._from_python(rows), source.schema).coalesce(1)
    window = F.session_window("at", f"{gap} microseconds")
    result = frame.groupBy(window.alias("w"), *keys).agg(*(value.alias(name) for name, value in values.items()))
    return list(plain_rows(result.select("w.start", "w.end", *keys, *values).toArrow()))


def cut_by_spark(
    spark: SparkSession, source: PiecewiseSource, rows: Sequence[Row], gap: int, most: int, keys: Sequence[str]
) -> list[Row]:
    """What Spark's batch says of sessions that are cut by whole seconds: a fold over the sorted times of each key."""
    frame = spark.createDataFrame(source._from_python(rows), source.schema).coalesce(1)
    one = "named_struct('first', {first}, 'last', t, 'n', {n})"
    found = frame.groupBy(*keys).agg(
        F.expr(
            f"""aggregate(sort_array(collect_list(unix_micros(at))), array(struct(0L as first, 0L as last, 0L as n)),
            (done, t) -> CASE WHEN done[0].n > 0 AND t <= done[0].last + {gap}
                AND t < floor(done[0].first / {SECOND}) * {SECOND} + {most}
            THEN concat(array({one.format(first="done[0].first", n="done[0].n + 1")}), slice(done, 2, size(done)))
            ELSE concat(array({one.format(first="t", n="1L")}), done) END)"""
        ).alias("found")
    )
    found = found.select(*keys, F.explode("found").alias("s")).where("s.n > 0")
    end = F.expr(f"least(s.last + {gap}, floor(s.first / {SECOND}) * {SECOND} + {most})")
    result = found.select(
        F.timestamp_micros("s.first").alias("start"), F.timestamp_micros(end).alias("end"), *keys, "s.n"
    )
    return list(plain_rows(result.toArrow()))


def random_rows(draw: random.Random, count: int, spread: int) -> list[Row]:
    """Rows whose times go forward by up to 4 s at a step and lie up to `spread` off; many fall on whole seconds."""
    rows, now = [], 0
    for _ in range(count):
        now += draw.choice([0, 1, 1, 2, 4]) * SECOND
        moment = now + draw.randrange(-spread, spread + 1) // SECOND * SECOND + draw.choice([0, 0, 0, 1, -1, 333_333])
        rows.append((draw.choice(["a", "b", "c", None]), draw.randrange(2), draw.randrange(100), moment))
    return rows


def test_sessions_equal_those_of_spark_whatever_the_cuts_restarts_and_other_queries(interpreted, tmp_path):
    """Queries share one scan: three gaps, sessions and fixed windows in one query, keys that others refine, cuts."""
    draw = random.Random(7)
    source = PiecewiseSource(SCHEMA, (40, 25, 60, 35))
    rows = random_rows(draw, 220, 6 * SECOND)

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark("14 seconds", max_ahead=None))
        keyed = stream.group_by("k", "j")
        many = {"n": tm.count(), "total": tm.sum("x"), "xs": tm.collect_list("x"), "top": tm.max("at")}
        keyed.window(tm.session_window("5 seconds")).agg(**many).to(sink, "short")
        keyed.window(tm.session_window("9 seconds"), tm.session_window("5 seconds"), "5 seconds").agg(n=tm.count()).to(
            sink, "mixed"
        )
        stream.group_by("k").window(tm.session_window("5 seconds")).agg(n=tm.count(), mean=tm.avg("x")).to(
            sink, "coarse"
        )
        stream.window(tm.session_window("2 seconds")).agg(n=tm.count()).to(sink, "global")
        cut = keyed.window(tm.session_window("5 seconds", at_most="8 seconds")).agg(n=tm.count())
        cut.to(sink, "cut")
        cut.results().group_by("k").window("1 minute").agg(n=tm.sum("n"), many=tm.count()).to(sink, "of the cut")
        keyed.window(tm.sliding("6 seconds", every="4 seconds")).agg(n=tm.count()).to(sink, "sliding")

    bench = Bench(interpreted, tmp_path, define)
    source.add(rows[:80])
    bench.run(close_all=False)
    source.add(rows[80:150])
    bench.run(close_all=False, crash_at=("committed", 1))
    bench.run(close_all=False)
    source.add(rows[150:])
    bench.run(crash_at=("windows closed", 2))
    bench.run()
    assert bench.letters() == []

    def spark_says(gap: int, keys: Sequence[str], **values: Column) -> list[Row]:
        return by_spark(interpreted, source, rows, gap, keys, **values)

    n = F.count("*")
    values = {"n": n, "total": F.sum("x"), "xs": F.sort_array(F.collect_list("x")), "top": F.max("at")}
    assert bench.rows("short") == sorted(spark_says(5 * SECOND, ["k", "j"], **values), key=repr)
    assert len(bench.rows("short")) > 50
    coarse = spark_says(5 * SECOND, ["k"], n=n, mean=F.avg("x"))
    assert bench.rows("coarse") == sorted(coarse, key=repr)
    assert bench.rows("global") == sorted(spark_says(2 * SECOND, [], n=n), key=repr)
    cut = cut_by_spark(interpreted, source, rows, 5 * SECOND, 8 * SECOND, ["k", "j"])
    assert bench.rows("cut") == sorted(cut, key=repr)
    assert len(cut) > len(bench.rows("short")), "some are cut"
    minutes: dict[Row, list[int]] = {}
    for _, end, k, _, rows_of in cut:
        start = (end - 1) // (60 * SECOND) * 60 * SECOND
        minutes.setdefault((start, start + 60 * SECOND, k), []).append(rows_of)
    chained = [(*window, sum(counts), len(counts)) for window, counts in minutes.items()]
    assert bench.rows("of the cut") == sorted(chained, key=repr), "none is late for those who read them"
    fixed: dict[Row, int] = {}
    for k, j, _, moment in rows:
        start = moment // (5 * SECOND) * 5 * SECOND
        fixed[start, start + 5 * SECOND, k, j] = fixed.get((start, start + 5 * SECOND, k, j), 0) + 1
    both = [row for gap in (5, 9) for row in spark_says(gap * SECOND, ["k", "j"], n=n)]
    mixed = {*both, *((*key, count) for key, count in fixed.items())}
    assert len(mixed) < len(both) + len(fixed), "no session is the span of a fixed window"
    assert bench.rows("mixed") == sorted(mixed, key=repr)
    assert sum(row[-1] for row in bench.rows("sliding")) in range(220, 441)


def simulated(
    rows: Sequence[Row],
    cuts: Sequence[LoggedCut],
    gap: int,
    key: Callable[[Row], Any],
    most: float = float("inf"),
    ends: Callable[[Row], bool] | None = None,
) -> tuple[list[Row], list[Row]]:
    """Return sessions (start, end, key, rows) and late rows, cut by cut and row by row as DESIGN states the rules.

    A cut first emits the sessions that end before its watermark; of its rows, those are late whose time plus the gap is
    before the watermark; where sessions last at most so many whole seconds, or rows end them, those that are before it
    themselves.
    """
    grace = gap if most == float("inf") and ends is None else 0
    emitted: list[Row] = []
    late: list[Row] = []
    held: list[Row] = []

    def close(watermark: float) -> None:
        nonlocal held
        kept: list[Row] = []
        for name in {key(row) for row in held}:
            run: list[Row] = []
            mine = sorted((row for row in held if key(row) == name), key=lambda row: row[-1])
            for row, following in zip(mine, [*mine[1:], None], strict=True):
                run.append(row)
                limit = run[0][-1] // SECOND * SECOND + most
                last = ends is not None and any(ends(other) for other in run if other[-1] == row[-1])
                pause = following is None or following[-1] - row[-1] > gap
                if pause or following[-1] >= limit or (last and following[-1] > row[-1]):
                    end = row[-1] + 1 if last else min(row[-1] + gap, limit)
                    if end < watermark:
                        emitted.append((run[0][-1], end, name, len(run)))
                    else:
                        kept += run
                    run = []
        held = kept

    for cut in cuts:
        close(cut.watermark)
        for row in rows[cut.start : cut.end]:
            (held if row[-1] + grace >= cut.watermark else late).append(row)
    close(float("inf"))
    return sorted(emitted, key=repr), late


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_late_rows_are_exactly_those_whose_own_session_would_be_closed(interpreted, tmp_path, seed):
    """Rows of one cut, key and pane are late or in time one by one; a session that was emitted is never joined."""
    draw = random.Random(seed)
    gap, other = (5, 8) if seed == 0 else draw.sample(range(1, 20), 2)
    source = PiecewiseSource(SCHEMA, (17, 30, 9))
    rows = random_rows(draw, 150, 14 * SECOND)

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark("2 seconds", max_ahead=None))
        stream.group_by("k").window(tm.session_window(gap * SECOND)).agg(n=tm.count()).to(sink, "alone")
        stream.group_by("k", "j").window(tm.session_window(other * SECOND), "1 minute").agg(n=tm.count()).to(
            sink, "mixed"
        )
        stream.where("x < 50").group_by("k").window("3 seconds").agg(n=tm.count()).to(sink, "fixed")

    bench = Bench(interpreted, tmp_path, define, share=seed % 2 == 0)
    source.add(rows[:70])
    bench.run(close_all=False, crash_at=("partials written", draw.randrange(3)))
    source.add(rows[70:])
    bench.run(close_all=False)
    bench.run()
    cuts = bench.cuts_of()
    wanted, late = simulated(rows, cuts, gap * SECOND, lambda row: row[0])
    assert bench.rows("alone") == wanted
    assert late or gap > 14
    letters = [letter["event_time"] for letter in bench.letters() if "alone" in letter["queries"]]
    assert sorted(letters) == sorted(row[-1] for row in late)
    sessions, out = simulated(rows, cuts, other * SECOND, lambda row: row[:2])
    minute = 60 * SECOND
    mine = [row for row in bench.rows("mixed") if row[1] - row[0] != minute or row[0] % minute]
    assert mine == sorted(((start, end, *key, n) for start, end, key, n in sessions), key=repr)
    lost = [
        row
        for cut in cuts
        for row in rows[cut.start : cut.end]
        if max(row[-1] + other * SECOND, row[-1] // minute * minute + minute) < cut.watermark
    ]
    assert len(lost) <= len(out)
    letters = [letter["event_time"] for letter in bench.letters() if "mixed" in letter["queries"]]
    assert sorted(letters) == sorted(row[-1] for row in lost)


def session_bench(
    spark: SparkSession, directory: Any, source: PiecewiseSource, delay: str = "0 s", **more: Any
) -> Bench:
    """Sessions of 10 seconds by k; `more` is further windows by name of the query."""

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark(delay, max_ahead=None))
        stream.group_by("k").window(tm.session_window("10 seconds")).agg(n=tm.count(), total=tm.sum("x")).to(sink, "q")
        for name, window in more.items():
            stream.group_by("k").window(window).agg(n=tm.count()).to(sink, name)

    return Bench(spark, directory, define)


def seconds(*rows: tuple[str, float, int]) -> list[Row]:
    return [(k, 0, x, int(at * SECOND)) for k, at, x in rows]


def test_a_row_out_of_order_joins_two_open_sessions_across_a_restart(interpreted, tmp_path):
    source = PiecewiseSource(SCHEMA)
    bench = session_bench(interpreted, tmp_path, source, "10 seconds")
    source.add(seconds(("a", 3, 1), ("a", 18, 2), ("b", 12, 3)))
    bench.run(close_all=False)
    assert bench.rows("q") == []
    source.add(seconds(("a", 9, 4)))
    bench.run(close_all=False)
    source.add(seconds(("b", 29, 5)))
    bench.run(close_all=False)
    assert bench.rows("q") == []
    source.add(seconds(("b", 38, 6)))
    bench.run(close_all=False)
    assert bench.rows("q") == [(12 * SECOND, 22 * SECOND, "b", 1, 3)], "a row at 28 s would be in time"
    source.add(seconds(("b", 39, 6)))
    bench.run(close_all=False)
    assert [row[2:] for row in bench.rows("q")] == [("b", 1, 3), ("a", 3, 7)]
    bench.run()
    in_micros = [(3, 28, "a", 3, 7), (12, 22, "b", 1, 3), (29, 49, "b", 3, 17)]
    assert bench.rows("q") == sorted(((s * SECOND, e * SECOND, *rest) for s, e, *rest in in_micros), key=repr)
    assert bench.letters() == []


def test_rows_on_both_sides_of_the_late_moment_in_one_pane_are_told_apart(interpreted, tmp_path, monkeypatch):
    """The job of such a cut runs a second time, with an edge there; other jobs run once."""
    source = PiecewiseSource(SCHEMA, (1, 3, 1))
    bench = session_bench(interpreted, tmp_path, source, minute="1 minute")
    bench.settings["lane"] = "spark"
    source.add(seconds(("a", 25, 1), ("a", 14, 2), ("a", 16, 3), ("a", 14.5, 5), ("b", 40, 7)))
    runs = []
    run_cut = jobs.run_cut
    monkeypatch.setattr(jobs, "run_cut", lambda *args, **rest: runs.append(1) or run_cut(*args, **rest))
    bench.run()
    assert len(runs) == 4
    wanted = [(16 * SECOND, 35 * SECOND, "a", 2, 4), (40 * SECOND, 50 * SECOND, "b", 1, 7)]
    assert bench.rows("q") == sorted(wanted, key=repr)
    assert bench.rows("minute") == sorted([(0, 60 * SECOND, "a", 4), (0, 60 * SECOND, "b", 1)], key=repr)
    assert sorted((letter["event_time"], letter["queries"]) for letter in bench.letters()) == [
        (14 * SECOND, ["q"]),
        (14_500_000, ["q"]),
    ]


def test_the_session_of_a_late_row_is_not_emitted_twice(interpreted, tmp_path):
    """a's session ended; a row inside it that is still in time opens a new one, whose end is another."""
    source = PiecewiseSource(SCHEMA, (2, 2))
    bench = session_bench(interpreted, tmp_path, source)
    source.add(seconds(("a", 0, 1), ("b", 12, 1), ("a", 3, 2), ("a", 1, 5)))
    bench.run()
    wanted = [(0, 10, "a", 1, 1), (3, 13, "a", 1, 2), (12, 22, "b", 1, 1)]
    assert bench.rows("q") == sorted(((s * SECOND, e * SECOND, *rest) for s, e, *rest in wanted), key=repr)
    assert [letter["event_time"] for letter in bench.letters()] == [SECOND]


def test_a_query_that_is_added_emits_sessions_that_miss_nothing(interpreted, tmp_path):
    """A row at 30 s was read before the query came: a session that it could have joined is not emitted."""
    source = PiecewiseSource(SCHEMA)
    bench = session_bench(interpreted, tmp_path, source)
    source.add(seconds(("a", 30, 1)))
    bench.run(close_all=False)
    bench = session_bench(interpreted, tmp_path, source, added=tm.session_window("5 seconds"))
    source.add(seconds(("a", 31, 1), ("b", 35, 1), ("c", 35.5, 1), ("a", 60, 1)))
    bench.run()
    assert bench.rows("added") == sorted(
        [(int(35.5 * SECOND), int(40.5 * SECOND), "c", 1), (60 * SECOND, 65 * SECOND, "a", 1)], key=repr
    )


def test_sessions_are_chained_in_both_directions(interpreted, tmp_path):
    """Sessions are counted per minute of their end; and sessions are made of the results of fixed windows."""
    source = PiecewiseSource(SCHEMA, (3, 2, 40))
    rows = random_rows(random.Random(3), 60, 2 * SECOND)
    source.add(rows)

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark("10 seconds", max_ahead=None))
        sessions = stream.group_by("k").window(tm.session_window("3 seconds")).agg(n=tm.count())
        sessions.to(sink, "sessions")
        sessions.results().group_by("k").window("1 minute").agg(many=tm.count(), rows=tm.sum("n")).to(sink, "minutes")
        fixed = stream.group_by("k").window("2 seconds").agg(n=tm.count())
        fixed.results().group_by("k").window(tm.session_window("4 seconds")).agg(rows=tm.sum("n")).to(sink, "busy")

    bench = Bench(interpreted, tmp_path, define)
    bench.run(crash_at=("committed", 3))
    bench.run()
    sessions = by_spark(interpreted, source, rows, 3 * SECOND, ["k"], n=F.count("*"))
    assert bench.rows("sessions") == sorted(sessions, key=repr)
    minutes: dict[Row, list[int]] = {}
    for _, end, k, n in sessions:
        start = (end - 1) // (60 * SECOND) * 60 * SECOND
        minutes.setdefault((start, start + 60 * SECOND, k), []).append(n)
    wanted = [(*window, len(counts), sum(counts)) for window, counts in minutes.items()]
    assert bench.rows("minutes") == sorted(wanted, key=repr)
    ends: dict[Row, int] = {}
    for k, _, _, moment in rows:
        last = moment // (2 * SECOND) * 2 * SECOND + 2 * SECOND - 1
        ends[k, last] = ends.get((k, last), 0) + 1
    results = [(k, 0, n, last) for (k, last), n in ends.items()]
    busy = by_spark(interpreted, source, results, 4 * SECOND, ["k"], total=F.sum("x"))
    assert bench.rows("busy") == sorted(busy, key=repr)


def test_a_query_with_fixed_windows_that_is_added_finds_no_panes_as_narrow_as_those_of_sessions(interpreted, tmp_path):
    """The rows were aggregated in panes of 10 s, which would do for 20 s; those of a minute were kept."""
    source = PiecewiseSource(SCHEMA)
    source.add(seconds(("a", 30, 1)))

    def bench_of(**more: Any) -> Bench:
        def define(app: App, sink: MemorySink) -> None:
            stream = app.stream(source, event_time="at", watermark=tm.watermark(0, max_ahead=None))
            for name, windows in {"mixed": (tm.session_window("10 seconds"), "1 minute"), **more}.items():
                stream.group_by("k").window(*windows).agg(n=tm.count()).to(sink, name)

        return Bench(interpreted, tmp_path, define)

    bench_of().run(close_all=False)
    bench = bench_of(added=["20 seconds", "2 minutes"])
    source.add(seconds(("a", 31, 1), ("a", 45, 1), ("a", 46, 1)))
    bench.run()
    assert bench.rows("added") == [(40 * SECOND, 60 * SECOND, "a", 2)]


@pytest.mark.parametrize("extra", ["fill", "early", "lateness"])
def test_what_sessions_cannot_have_is_an_error(spark, tmp_path, extra):
    stream = tm.App(spark, tmp_path).stream(PiecewiseSource(SCHEMA), event_time="at")
    more = {} if extra == "fill" else {extra: "10 seconds"}
    builder = stream.window(tm.session_window("1 minute"), "1 minute", **more).agg(n=tm.count())
    if extra == "fill":
        builder = builder.fill("zero")
    with pytest.raises(DefinitionError, match=rf"'query1': {extra} does not go with sessions \(session 1 minute\)"):
        builder.to(tm.sinks.memory())


def test_sessions_share_panes_and_aggregation_with_fixed_windows(spark, tmp_path):
    app = tm.App(spark, tmp_path)
    grouped = app.stream(PiecewiseSource(SCHEMA), event_time="at").group_by("k")
    for name, window in {"s": tm.session_window("1 hour"), "t": tm.tumbling("20 minutes")}.items():
        grouped.window(window).agg(n=tm.count()).to(tm.sinks.memory(), name)
    (stream,) = app.explain().streams
    (component,) = stream["components"]
    assert component["panes"] == [{"every": "20 minutes", "offset": "0 seconds"}]
    assert [query["windows"] for query in stream["queries"]] == [["session 1 hour"], ["20 minutes"]]
