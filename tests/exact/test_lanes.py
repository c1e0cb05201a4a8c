"""Partials of files without Spark SQL: results, dead letters and counts are those of Spark SQL, whatever is in them."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exact_helpers import SECOND, Bench

import transom as tm
from transom.engine.execution import lane, splits

SCHEMA = "k string, x int, y double, ok boolean, t bigint, at timestamp"
LINE = b'{"k":"a","x":1,"y":0.5,"ok":true,"t":1000}\n'
ODD = [
    '{"k":"a","x":1,"y":1.5,"ok":true,"t":1000,"at":"2026-03-01"}',
    '{"k":"a","x":1.5,"y":1,"ok":true,"t":1000}',
    '{"k":"a","x":null,"y":null,"ok":null,"t":null}',
    '{"k":"a","x":1,"y":"1","ok":true,"t":1000}',
    '{"k":"a","x":7,"y":0.5,"ok":true,"t":9007199254740993}',
    '{"k":"\\u00e9","x":7,"y":0.5,"ok":true,"t":5000}',
    "{broken",
    "",
]


def write_files(directory: Path, rng: random.Random, files: int) -> None:
    """Write files of JSON lines in two directories: plain ones, packed ones, and ones with odd lines."""
    for number in range(files):
        lines = [
            json.dumps(
                {
                    "k": rng.choice(["a", "b", "é, c", ""]),
                    "x": rng.randrange(-9, 99),
                    "y": rng.randrange(400) / 4,
                    "ok": rng.random() < 0.5,
                    "t": 1_000 * number + rng.randrange(4_000),
                    "at": f"2026-03-0{rng.randrange(1, 9)}T12:00:00.{rng.randrange(10)}{rng.choice(['Z', '+05:30'])}",
                },
                ensure_ascii=False,
            )
            for _ in range(rng.randrange(1, 60))
        ]
        if number % 3 == 1:
            lines.insert(rng.randrange(len(lines)), rng.choice(ODD))
        text = "\n".join(lines).encode() + b"\n" * rng.randrange(2)
        place = directory / "ab"[number % 2]
        place.mkdir(exist_ok=True)
        if number % 3 == 2:
            (place / f"{number:02}.json.gz").write_bytes(gzip.compress(text))
        else:
            (place / f"{number:02}.json").write_bytes(text)


def define_on(directory: Path) -> Callable[[tm.App, Any], None]:
    """Return what defines a stream over these files, with keys, conditions, filtered aggregates and a map."""

    def define(app: tm.App, sink: Any) -> None:
        files = tm.sources.files(f"{directory}/*/*", schema=SCHEMA, format="json", partition_by="directory")
        rows = app.stream(files, event_time="timestamp_millis(t)", watermark="1 second")
        made = {
            "n": tm.count(),
            "x": tm.sum("x"),
            "y": tm.max("y"),
            "mean": tm.avg("x"),
            "least": tm.min("k"),
            "last": tm.max("at"),
            "first": tm.first("k"),
            "known": tm.last("x", ignore_nulls=True),
            "best": tm.max_by("k", "x"),
            "worst": tm.min_by("ok", "y").where("x > 9"),
            "different": tm.count_distinct("x", at_most=99),
            "lowest": tm.collect_list("y", 3),
            "newest": tm.collect_list("k", 2, order_by="x desc"),
            "bits": tm.bit_xor("x"),
            "spread": tm.stddev("y"),
            "shape": tm.skewness("x"),
            "together": tm.covar_pop("x", "y"),
        }
        rows.group_by("k").window("2 seconds").agg(**made).to(sink, "all")
        rows.where("x > 20 AND ok").window("3 seconds").agg(n=tm.count(), some=tm.sum("x").where("y < 50")).to(
            sink, "some"
        )
        halves = rows.map(lambda df: df.where("y >= 1").withColumn("half", (df.x + 1).cast("decimal(12,2)")))
        by_half = halves.group_by("half", "ok").window(tm.session_window("1 second"))
        by_half.agg(n=tm.count("y"), total=tm.sum("half"), mean=tm.avg("half"), most=tm.max("half")).to(sink, "halves")
        ended = tm.session_window("1 second", ends_when="y < 40 OR x = 9")
        rows.group_by("ok").window(ended).agg(n=tm.count()).to(sink, "ended")

    return define


def rounded(value: Any) -> Any:
    """Return a number without its last bits, which depend on the order of rows, as moments are sums of rounded ones."""
    return round(value, 9) + 0.0 if isinstance(value, float) else value


def outcome(spark: Any, directory: Path, files: Path, **settings: Any) -> tuple[Any, ...]:
    """Return the results, the dead letters and the counts of a run over files, and the run."""
    # Tasks that write their partials into files need Spark.
    bench = Bench(spark, directory, define_on(files), now=3_600 * SECOND, tier="driver", **settings)
    progress = bench.run()
    assert progress is not None
    stream = progress.streams[0]
    letters = sorted(map(repr, bench.letters()))
    late = {query.name: query.late_rows for query in progress.queries}
    found = {
        name: [tuple(map(rounded, row)) for row in bench.rows(name)] for name in ("all", "some", "halves", "ended")
    }
    return (found, letters, late, stream.rows, stream.dead_letters, stream.max_event_time), stream


@pytest.mark.parametrize(
    ("name", "content"),
    [("x.json.zst", LINE), ("x.GZ", LINE), ("x.json.gz", gzip.compress(LINE) + bytes(9))],
    ids=["not packed", "not packed either", "zeros at the end"],
)
@pytest.mark.slow
def test_files_that_spark_cannot_unpack_are_none_of_the_lane(
    interpreted: Any, tmp_path: Path, name: str, content: bytes
) -> None:
    """They are dead letters, though Python could read them."""
    (data := tmp_path / "data" / "a").mkdir(parents=True)
    (data / "good.json").write_bytes(LINE)
    (data / name).write_bytes(content)
    wanted, _ = outcome(interpreted, tmp_path / "spark", tmp_path / "data", lane="spark")
    found, stream = outcome(interpreted, tmp_path / "auto", tmp_path / "data", lane="auto")
    assert found == wanted
    assert stream.native_cuts == 1


@pytest.mark.parametrize("files", [7, pytest.param(60, marks=pytest.mark.slow)])
def test_files_with_odd_lines_are_judged_by_spark(
    interpreted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    """File by file, in the same cut; large files are read in parts, and parts of odd ones count for nothing."""
    data = tmp_path / "data"
    data.mkdir()
    write_files(data, random.Random(files), files)
    monkeypatch.setattr(lane, "PART_BYTES", 700)
    monkeypatch.setattr(lane, "TASK_BYTES", 2_000)
    monkeypatch.setattr(splits, "BLOCK", 500)
    wanted, by_spark = outcome(interpreted, tmp_path / "spark", data, lane="spark", max_rows_per_cut=90)
    found, stream = outcome(interpreted, tmp_path / "auto", data, lane="auto", max_rows_per_cut=90)
    assert found == wanted
    assert (by_spark.native_cuts, by_spark.judged_files) == (0, 0)
    assert stream.native_cuts > 0
    assert stream.judged_files > 0


def test_why_partials_are_made_by_spark_sql_is_explained(interpreted: Any, tmp_path: Path) -> None:
    """By stream, in plain words; with the setting `lane` as it is by default nothing is said."""
    app = tm.App(interpreted, tmp_path / "checkpoint", lane="auto")
    for name, aggregate in (("plain", tm.sum("x")), ("sketch", tm.quantile("x", 0.5))):
        files = tm.sources.files(f"{tmp_path}/*.json", schema=SCHEMA)
        rows = app.stream(files, event_time="timestamp_millis(t)", name=name)
        rows.group_by("k").window("2 seconds").agg(a=aggregate).to(tm.sinks.memory(), f"q {name}")
    plain, sketch = app.explain().streams
    assert (plain["lane"], plain["lane_why"], sketch["lane"]) == ("native", None, "spark")
    assert "only Spark computes" in sketch["lane_why"]
    shown = str(app.explain())
    assert "without Spark SQL" in shown
    assert f"by Spark SQL: {sketch['lane_why']}" in shown
    with pytest.raises(tm.TransomError, match="lane is 'fast'"):
        tm.App(interpreted, tmp_path / "other", lane="fast")
