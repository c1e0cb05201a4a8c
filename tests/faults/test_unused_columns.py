"""Columns that a query does not use come, go and move between two runs; what it uses must stay what it is."""

from __future__ import annotations

import pytest
from faults_app import Killed, at_step
from pyspark.sql import functions as F
from test_retyped import write

import transom as tm
from transom.errors import JobChangedError
from transom.model.time import ManualClock

NOON = 1_700_000_000_000_000
FORMER = "zone string, at long, v long, w long"


def build(spark, root, schema, sinks, chain="plain", extra=(), **settings):
    made = tm.App(spark, root / "checkpoint", clock=ManualClock(NOON), max_rows_per_cut=1, **settings)
    source = tm.sources.files(str(root / "in" / "*.json"), schema=schema)
    stream = made.stream(source, event_time="timestamp_seconds(at)", watermark=tm.watermark(0, max_ahead=None))
    rows = {
        "plain": stream,
        "mapped": stream.map(lambda df: df.withColumn("v", F.col("v") + 1).where("v > 0")),
        "all": stream.map(lambda df: df.withColumn("v", F.size(F.array(*[F.lit(name) for name in df.columns])))),
    }[chain]
    rows.group_by("zone").window("10 seconds").agg(n=tm.count(), v=tm.sum("v")).to(sinks["v"], "v")
    rows.where("v >= 0").window(tm.session_window("5 seconds")).agg(v=tm.max("v")).to(sinks["s"], "s")
    for name in extra:
        rows.group_by("zone").window("10 seconds").agg(most=tm.max(name)).to(sinks[name], name)
    return made


def killed(app, step="committed", number=2):
    def kill():
        raise Killed

    app._on_step = at_step(step, number, kill)
    with pytest.raises(Killed):
        app.run(once=True)


def line(at, **more):
    return {"zone": "ab"[at % 2], "at": at, "v": at, "w": 1, "x": 7, **more}


@pytest.mark.parametrize("snapshot_bytes", [pytest.param(1, marks=pytest.mark.slow), 1 << 20], ids=["snapshots", "log"])
@pytest.mark.parametrize("chain", [pytest.param("plain", marks=pytest.mark.slow), "mapped"])
def test_unused_columns_come_go_and_move(spark, tmp_path, chain, snapshot_bytes):
    options = {"snapshot_bytes": snapshot_bytes, "chain": chain}
    sinks = {name: tm.sinks.memory() for name in ("v", "s", "x")}
    write(tmp_path / "in", 1, line(1), line(2))
    write(tmp_path / "in", 2, line(3))
    killed(build(spark, tmp_path, FORMER, sinks, **options))
    write(tmp_path / "in", 3, line(4))
    killed(build(spark, tmp_path, "x long, zone string, w long, at long, v long", sinks, **options), number=1)
    write(tmp_path / "in", 4, line(5))
    with_new = "v long, x long, y int, zone string, at long"
    killed(build(spark, tmp_path, with_new, sinks, extra=["x"], **options), number=1)
    write(tmp_path / "in", 5, line(6))
    app = build(spark, tmp_path, "at long, v long, x long, zone string", sinks, extra=["x"], **options)
    app.run(once=True, close_all=True)
    plus = 0 if chain == "plain" else 1
    assert [(row["zone"], row["n"], row["v"]) for row in sinks["v"].rows("v")] == [
        ("b", 3, 1 + 3 + 5 + 3 * plus),
        ("a", 3, 2 + 4 + 6 + 3 * plus),
    ]
    assert [(row["window_start"].second, row["window_end"].second, row["v"]) for row in sinks["s"].rows("s")] == [
        (1, 11, 6 + plus)
    ]


@pytest.mark.parametrize(
    ("chain", "schema"),
    [
        ("all", FORMER + ", x long"),  # code that looks at the columns
        ("plain", "zone string, at long, v long"),
    ],
    ids=["all columns", "gone"],
)
def test_what_is_used_must_stay(spark, tmp_path, chain, schema):
    sinks = {name: tm.sinks.memory() for name in ("v", "s", "w")}
    extra = ["w"] if chain == "plain" else []
    write(tmp_path / "in", 1, line(1))
    build(spark, tmp_path, FORMER, sinks, chain, extra).run(once=True)
    if chain == "all":
        with pytest.raises(JobChangedError, match="rows"):
            build(spark, tmp_path, schema, sinks, chain, extra).run(once=True)
    else:
        build(spark, tmp_path, schema, sinks, chain).run(once=True)  # without the query of the column that went
