"""Several sites on Spark: every kind of partial travels, and a query that fails at a site fails at its destination."""

from __future__ import annotations

import random

import pytest
from several import SCHEMA, SECOND, Several, at_step, region

import transom as tm

pytestmark = pytest.mark.slow


def define(stream, sink):
    seen = stream.map(lambda df: df.withColumn("double", df["size"] * 2))
    many = {
        "n": tm.count(),
        "mean": tm.avg("double"),
        "spread": tm.stddev("size"),
        "middle": tm.quantile("size", 0.5),
        "kinds": tm.count_distinct("kind", at_most=1000),
        "first": tm.first("kind"),
        "sizes": tm.collect_list("size", limit=1000, order_by="size"),
    }
    windows = "5 seconds", tm.sliding("12 seconds", every="4 seconds"), tm.cumulate("20 seconds", every="5 seconds")
    seen.group_by("zone", "kind").window(*windows).agg(**many).to(sink("many"), "many")
    small = stream.where("size < 50").group_by("zone").window("10 seconds").agg(n=tm.count(), top=tm.max("size"))
    small.to(sink("small"), "small")
    stream.group_by("zone").window("5 seconds").agg(n=tm.count()).having("n > 1").to(sink("having"), "having")
    stream.group_by("kind").window("5 seconds", lateness="10 seconds").agg(n=tm.count()).to(sink("late"), "late")
    results = small.results("small")
    results.window("20 seconds").agg(n=tm.sum("n")).to(sink("chained"), "chained")


def rows_of(seed, number):
    numbers = random.Random(seed)
    return [
        (numbers.choice(["a", "b", None]), numbers.choice("xy"), numbers.randrange(60 * SECOND), numbers.randrange(100))
        for _ in range(number)
    ]


def sorted_rows(sink, query):
    """Return the results of a query; floats to nine digits, as their last ones depend on the order of merges."""
    table = sink.latest(query)
    rows = table.drop_columns([name for name in ("revision",) if name in table.column_names]).to_pylist()
    return sorted(str([round(v, 9) if isinstance(v, float) else v for v in row.values()]) for row in rows)


@pytest.mark.parametrize("seed", range(3))
def test_as_one_application_on_all_rows(spark, tmp_path, seed):
    numbers = random.Random(seed)
    destinations = {"many": numbers.choice(["north", "home"]), "having": "south"}
    where = region(["north", "south"], "home", destinations=destinations)
    several = Several(spark, tmp_path, where, define, settings={"max_rows_per_cut": 40, "snapshot_bytes": 20_000})
    whole = tm.sources.memory(SCHEMA)
    for place, name in enumerate(("north", "south")):
        mine = rows_of(10 * seed + place, 100)
        several.rows[name].add(mine[::2], partition=0)
        several.rows[name].add(mine[1::2], partition=1)
        whole.add(mine)
    victim = numbers.choice(["north", "home"])
    several.run(kill=lambda name, tries: at_step("any", 15) if name == victim and not tries else None)
    sinks: dict[str, tm.sinks.MemorySink] = {}
    app = tm.App(spark, tmp_path / "one")
    one = app.stream(whole, event_time="at", watermark=tm.watermark("1 hour", max_ahead=None), name="rows")
    define(one, lambda query: sinks.setdefault(query, tm.sinks.memory()))
    app.run(once=True, close_all=True)
    for query in sinks:
        assert sorted_rows(several.sinks[query], query) == sorted_rows(sinks[query], query), query


def test_a_query_that_fails_at_a_site(spark, tmp_path):
    def broken(stream, sink):
        stream.group_by("zone").window("5 seconds").agg(n=tm.sum("CAST(kind AS INT)")).to(sink("bad"), "bad")
        stream.where("size >= 0").window("5 seconds").agg(n=tm.count()).to(sink("good"), "good")

    several = Several(spark, tmp_path, region(["north", "south"], "home"), broken)
    for name in ("north", "south"):
        several.rows[name].add([("a", "7" if name == "south" else "seven", second * SECOND, 1) for second in range(4)])
    progress = several.run()
    failures = {query.name: query.failure for query in progress["home"].queries}
    assert failures["good"] is None
    assert "at north: " in failures["bad"]
    assert "seven" in failures["bad"]
    assert several.sinks["good"].to_table("good").column("n").to_pylist() == [8]
    assert several.sinks["bad"].to_table("bad") is None
    several.rows["south"].add([("a", "7", 30 * SECOND, 1)])  # the others go on, also after a restart
    progress = several.run()
    assert {query.name for query in progress["home"].queries if query.failure} == {"bad"}
    assert several.sinks["good"].to_table("good").column("n").to_pylist() == [8, 1]
