"""Sessions that a row ends: equal to a fold over the sorted rows of plain Spark, whatever the cuts, tiers, restarts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource, plain_rows
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from test_session_windows import SCHEMA, Row, random_rows, seconds, simulated

import transom as tm
from transom.api.app import App
from transom.errors import DefinitionError, JobChangedError
from transom.sinks.inmemory import MemorySink

pytestmark = pytest.mark.usefixtures("compiled_once")
CLUSTER = {"tier": "cluster", "key_groups": 3}


def ended_by_spark(
    spark: SparkSession,
    source: PiecewiseSource,
    rows: Sequence[Row],
    ends: str,
    gap: int,
    most: int | None,
    keys: Sequence[str],
) -> list[Row]:
    """Return what Spark's batch says (start, end, keys, rows, sum of x): a fold over the sorted moments of each key."""
    frame = spark.createDataFrame(source._from_python(rows), source.schema).coalesce(1)
    frame = frame.groupBy(F.expr("unix_micros(at) AS t"), *keys).agg(
        F.expr("count(*) AS n"), F.expr("sum(coalesce(x, 0)) AS x"), F.expr(f"coalesce(bool_or({ends}), false) AS over")
    )
    limit = "true" if most is None else f"m.t < floor(done[0].first / {SECOND}) * {SECOND} + {most}"
    fields = "named_struct('first', {}, 'last', m.t, 'n', {}, 'x', {}, 'over', m.over)"
    found = frame.groupBy(*keys).agg(
        F.expr(
            f"""aggregate(sort_array(collect_list(struct(t, n, x, over))),
            array(struct(0L AS first, 0L AS last, 0L AS n, 0L AS x, false AS over)),
            (done, m) -> CASE WHEN done[0].n > 0 AND NOT done[0].over AND m.t <= done[0].last + {gap} AND {limit}
            THEN concat(array({fields.format("done[0].first", "done[0].n + m.n", "done[0].x + m.x")}),
                slice(done, 2, size(done)))
            ELSE concat(array({fields.format("m.t", "m.n", "m.x")}), done) END)"""
        ).alias("found")
    )
    found = found.select(*keys, F.explode("found").alias("s")).where("s.n > 0")
    cut = "" if most is None else f", floor(s.first / {SECOND}) * {SECOND} + {most}"
    end = f"IF(s.over, s.last + 1, least(s.last + {gap}{cut}, {2**62}))"
    times = F.timestamp_micros("s.first").alias("start"), F.timestamp_micros(F.expr(end)).alias("end")
    return list(plain_rows(found.select(*times, *keys, "s.n", "s.x").toArrow()))


@pytest.mark.parametrize(
    ("seed", "settings"),
    [
        pytest.param(1, {}, marks=pytest.mark.slow),
        (2, CLUSTER),
        *(pytest.param(seed, {}, marks=pytest.mark.slow) for seed in range(3, 7)),
        *(pytest.param(seed, CLUSTER, marks=pytest.mark.slow) for seed in range(7, 11)),
    ],
)
def test_sessions_equal_those_of_spark_whatever_the_cuts_restarts_and_other_queries(
    interpreted: SparkSession, tmp_path: Any, seed: int, settings: dict[str, Any]
) -> None:
    draw = random.Random(seed)
    source = PiecewiseSource(SCHEMA, tuple(draw.randrange(1, 50) for _ in range(6)))
    rows = random_rows(draw, 160, 6 * SECOND)
    rows = [(k, j, x, at) if draw.random() < 0.9 else (k, j, None, at) for k, j, x, at in rows]
    ends, other = "x >= 80", F.col("x") % 7 == 0
    kinds = {
        "ended": (["k"], 5 * SECOND, None, ends),
        "cut, too": (["k"], 6 * SECOND, 9 * SECOND, ends),
        "finer": (["k", "j"], 9 * SECOND, None, other),
        "global": ([], 2 * SECOND, None, ends),
    }

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark("14 seconds", max_ahead=None))
        for name, (keys, gap, most, condition) in kinds.items():
            window = tm.session_window(gap, at_most=most, ends_when=condition)
            query = stream.group_by(*keys).window(window).agg(n=tm.count(), x=tm.sum("coalesce(x, 0)"))
            query.to(sink, name)
            if name == "ended":
                query.results().group_by("k").window("1 minute").agg(n=tm.sum("n"), many=tm.count()).to(sink, "minutes")
        both = tm.session_window(5 * SECOND, ends_when=ends), "5 seconds"
        stream.group_by("k").window(*both).agg(n=tm.count(), some=tm.bool_or(ends)).to(sink, "mixed")
        stream.group_by("k").window("5 seconds").agg(n=tm.count()).to(sink, "fixed")

    bench = Bench(interpreted, tmp_path, define, **settings)
    source.add(rows[:60])
    bench.run(close_all=False, crash_at=("committed", draw.randrange(1, 4)))
    source.add(rows[60:110])
    bench.run(close_all=False)
    source.add(rows[110:])
    bench.run(crash_at=("windows closed", 2))
    bench.run()
    assert bench.letters() == []
    for name, (keys, gap, most, condition) in kinds.items():
        text = condition if isinstance(condition, str) else "x % 7 = 0"
        wanted = ended_by_spark(interpreted, source, rows, text, gap, most, keys)
        assert bench.rows(name) == sorted(wanted, key=repr)
        assert sum(end - start == 1 or end % 1000 == 1 for start, end, *_ in wanted) > 5, "rows end sessions"
    sessions = bench.rows("ended")
    minutes: dict[Row, list[int]] = {}
    for _, end, k, n, _ in sessions:
        start = (end - 1) // (60 * SECOND) * 60 * SECOND
        minutes.setdefault((start, start + 60 * SECOND, k), []).append(n)
    wanted = [(*window, sum(counts), len(counts)) for window, counts in minutes.items()]
    assert bench.rows("minutes") == sorted(wanted, key=repr), "none is late for those who read them"
    fixed = {row[:4] for row in bench.rows("mixed")} - {row[:4] for row in sessions}
    assert fixed <= set(bench.rows("fixed"))
    assert {row[:4] for row in sessions} <= {row[:4] for row in bench.rows("mixed")}
    assert sum(row[-1] for row in bench.rows("fixed")) == len(rows)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
def test_late_rows_are_those_behind_the_watermark(interpreted: SparkSession, tmp_path: Any, seed: int) -> None:
    draw = random.Random(seed)
    source = PiecewiseSource(SCHEMA, (17, 30, 9))
    rows = random_rows(draw, 150, 14 * SECOND)

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark("2 seconds", max_ahead=None))
        window = tm.session_window("5 seconds", ends_when="x >= 80")
        stream.group_by("k").window(window).agg(n=tm.count()).to(sink, "ended")
        stream.group_by("k").window(tm.session_window("5 seconds")).agg(n=tm.count()).to(sink, "whole")

    bench = Bench(interpreted, tmp_path, define, share=seed % 2 == 0)
    source.add(rows[:70])
    bench.run(close_all=False, crash_at=("partials written", draw.randrange(3)))
    source.add(rows[70:])
    bench.run()
    for name, ends in (("ended", lambda row: row[2] >= 80), ("whole", None)):
        wanted, late = simulated(rows, bench.cuts_of(), 5 * SECOND, lambda row: row[0], ends=ends)
        assert bench.rows(name) == wanted
        assert late
        letters = [letter["event_time"] for letter in bench.letters() if name in letter["queries"]]
        assert sorted(letters) == sorted(row[-1] for row in late)


def ending_bench(spark: SparkSession, directory: Any, source: PiecewiseSource, ends: Any, **settings: Any) -> Bench:
    """Sessions of 10 seconds by k that rows end which satisfy a condition."""

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark("10 seconds", max_ahead=None))
        window = tm.session_window("10 seconds", ends_when=ends)
        stream.group_by("k").window(window).agg(n=tm.count(), total=tm.sum("x")).to(sink, "q")

    return Bench(spark, directory, define, **settings)


def test_rows_of_the_moment_that_ends_a_session_are_in_it_in_whichever_cut_they_come(interpreted, tmp_path):
    """One a microsecond later is in the next; a row that comes later and ends an earlier moment cuts what was one."""
    source = PiecewiseSource(SCHEMA, (1,))
    bench = ending_bench(interpreted, tmp_path, source, "x = 9")
    source.add(seconds(("a", 2, 1), ("a", 5, 9), ("a", 5.000001, 2), ("a", 5, 3)))
    bench.run(close_all=False)
    source.add(seconds(("a", 5, 4), ("a", 6, 5), ("a", 3, 9)))
    bench.run(close_all=False)
    assert bench.rows("q") == []
    bench.run()
    a, b, c = 2 * SECOND, 5 * SECOND, 5 * SECOND + 1
    assert bench.rows("q") == sorted(
        [(a, 3 * SECOND + 1, "a", 2, 10), (b, b + 1, "a", 3, 16), (c, 16 * SECOND, "a", 2, 7)], key=repr
    )


def test_a_session_that_a_row_ended_comes_before_the_gap_is_over(interpreted, tmp_path):
    source = PiecewiseSource(SCHEMA)
    bench = ending_bench(interpreted, tmp_path, source, "x = 9")
    source.add(seconds(("a", 2, 9), ("b", 2, 1), ("c", 12.000001, 1)))
    bench.run(close_all=False)
    assert bench.rows("q") == []
    source.add(seconds(("c", 12.000002, 1)))
    bench.run(close_all=False)
    assert bench.rows("q") == [(2 * SECOND, 2 * SECOND + 1, "a", 1, 9)]


def test_another_condition_is_a_changed_query(interpreted, tmp_path):
    source = PiecewiseSource(SCHEMA)
    source.add(seconds(("a", 2, 9)))
    ending_bench(interpreted, tmp_path, source, "x = 9").run(close_all=False)
    for other in ("x = 8", None):
        with pytest.raises(JobChangedError, match="session 10 seconds, ends when x = 9"):
            ending_bench(interpreted, tmp_path, source, other).run()


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ("x", "'q': ends_when = 'x' is no condition: its type is int.*event = 'logout'"),
        ("xx = 1", "'q': ends_when = 'xx = 1': .*xx.*Give a condition over the columns of a row: k, j, x, at"),
        ("x =", "'q': ends_when = 'x =': .*"),
        ("rand() < 0.5", "where, group_by, agg or ends_when: .*"),
        ("count(*) > 3", r"'q': ends_when = 'count\(\*\) > 3': .* for each row by itself"),
        ("lag(x) OVER (ORDER BY at) = 1", "'q': ends_when = 'lag.*for each row by itself"),
    ],
)
def test_what_is_no_condition_on_a_row_is_refused(interpreted, tmp_path, ends, said):
    bench = ending_bench(interpreted, tmp_path, PiecewiseSource(SCHEMA), ends)
    with pytest.raises(DefinitionError, match=f"(?s){said}"):
        bench.app().explain()
