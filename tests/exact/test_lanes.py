"""Partials of files without Spark SQL: results, dead letters and counts are those of Spark SQL, whatever is in them."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exact_helpers import SECOND, Bench
from pyspark import cloudpickle
from tests.interpreting import interpreting

import transom as tm
from transom.engine.execution import lane, splits

SCHEMA = "k string, x int, y double, ok boolean, t bigint, at timestamp, day date, cost decimal(5,2)"
LINE = b'{"k":"a","x":1,"y":0.5,"ok":true,"t":1000}\n'
ODD = [
    '{"k":"a","x":1,"y":1.5,"ok":true,"t":1000,"at":"2026-03-01"}',
    '{"k":"a","x":1.5,"y":1,"ok":true,"t":1000}',
    '{"k":"a","x":null,"y":null,"ok":null,"t":null}',
    '{"k":"a","x":1,"y":"1","ok":true,"t":1000}',
    '{"k":"a","x":7,"y":0.5,"ok":true,"t":9007199254740993}',
    '{"k":"\\u00e9","x":7,"y":0.5,"ok":true,"t":5000}',
    '{"k":"a","x":7,"y":0.5,"ok":true,"t":1000,"day":"2026-3-1","cost":1.255}',
    '{"k":"a","x":7,"y":0.5,"ok":true,"t":1000,"day":"2026-02-30","cost":1000}',
    "{broken",
    "",
]


def write_lines(directory: Path, rng: random.Random, files: int) -> None:
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
                    "day": f"20{rng.randrange(10, 30)}-02-{rng.randrange(10, 29)}",
                    "cost": rng.randrange(-99999, 99999) / 100,
                },
                ensure_ascii=False,
            )
            for _ in range(rng.randrange(1, 60))
        ]
        if number % 3 == 1:
            lines = [rng.choice(ODD), *lines, rng.choice(ODD)]  # in several parts of a large file
        text = "\n".join(lines).encode() + b"\n" * rng.randrange(2)
        write_file(directory, number, "json", text)


def write_file(directory: Path, number: int, kind: str, text: bytes) -> None:
    """Write a file into one of two directories, every third one packed."""
    place = directory / "ab"[number % 2]
    place.mkdir(exist_ok=True)
    end, packed = {2: (".gz", gzip.compress), 5: (".zst", zstd)}.get(number % 6, ("", bytes))
    (place / f"{number:02}.{kind}{end}").write_bytes(packed(text))


zstd = partial(pa.compress, codec="zstd", asbytes=True)


def write_csv(directory: Path, rng: random.Random, files: int) -> None:
    """Write CSV files in two directories: plain ones, packed ones, and ones with odd lines or another header."""
    for number in range(files):
        end = rng.choice(["\n", "\r\n"])
        lines = [
            ",".join(
                [
                    rng.choice(["a", "b", '"é, c"', '""', ""]),
                    rng.choice(["", str(rng.randrange(-9, 99))]),
                    str(rng.randrange(400) / 4),
                    rng.choice(["true", "False"]),
                    f'"{1_000 * number + rng.randrange(4_000)}"',
                    f"2026-03-0{rng.randrange(1, 9)}T12:00:00.{rng.randrange(10)}{rng.choice(['Z', '+05:30'])}",
                    f"20{rng.randrange(10, 30)}-02-{rng.randrange(10, 29)}",
                    str(rng.randrange(-99999, 99999) / 100),
                ]
            )
            for _ in range(rng.randrange(1, 60))
        ]
        if number % 3 == 1:
            lines.insert(rng.randrange(len(lines)), rng.choice(ODD_LINES))
        header = "k,x,y,ok,t,at,day,cost"
        lines.insert(0, {1: header.replace("x,y", "y,x"), 4: header.upper()}.get(number % 9, header))
        text = end.join(lines).encode() + end.encode() * rng.randrange(2)
        write_file(directory, number, "csv", text)


ODD_LINES = [
    *("a,1,1.5,true,1000,2026-03-01,,", "a,1.5,1,true,1000,,,", ",,,,,,,", "a,7,0.5,true,9007199254740993,,,"),
    *('"é ""x""",7,0.5,true,5000,,,', "a,7,.5,TRUE,1000,,2026-3-1,1.255", "a,7,0.5,true,1000,,2026-02-30,1000"),
    *("broken", "a,7,0.5,true,1000,,,,", "", " ", '"a,7,0.5,true,1000,,,'),
    *("a, 7,0.5,true,1000,,,", "a\\,+7,1e3,true,1,,,"),
]


def write_parquet(directory: Path, rng: random.Random, files: int) -> None:
    """Write Parquet files in two directories: such as most are, of other types, without a column, and damaged ones."""
    for number in range(files):
        count = rng.randrange(1, 60)
        day = 1_772_323_200_000_000  # 2026-03-01
        columns = {
            "k": pa.array([rng.choice(["a", "b", "é, c", "", None]) for _ in range(count)]),
            "x": pa.array([rng.choice([None, rng.randrange(-9, 99)]) for _ in range(count)], pa.int32()),
            "y": pa.array([rng.randrange(400) / 4 for _ in range(count)]),
            "ok": pa.array([rng.random() < 0.5 for _ in range(count)]),
            "t": pa.array(
                [rng.choice([None, 1_000 * number + rng.randrange(4_000)]) for _ in range(count)], pa.int64()
            ),
            "at": pa.array([day + rng.randrange(10**9) for _ in range(count)], pa.timestamp("us", "UTC")),
            "day": pa.array([20_000 + rng.randrange(9) for _ in range(count)], pa.date32()),
            "cost": pa.array([Decimal(rng.randrange(-(10**5) + 1, 10**5)).scaleb(-2) for _ in range(count)], COST),
            "other": pa.array([[1]] * count),
        }
        how = ("plain", "odd", "v2")[number % 3]
        if how == "odd":
            odd = rng.choice(ODD_COLUMNS)
            columns |= odd(columns)
            if rng.random() < 0.2:
                del columns["x"]
        place = directory / "ab"[number % 2]
        place.mkdir(exist_ok=True)
        path = place / f"{number:02}.parquet"
        writing = {"data_page_version": "2.0", "compression": "zstd"} if how == "v2" else {}
        pq.write_table(pa.table(columns), path, row_group_size=rng.choice([7, 50]), **writing)
        if how == "odd" and rng.random() < 0.3:
            content = bytearray(path.read_bytes())
            content[rng.randrange(len(content))] ^= 4
            path.write_bytes(content)


COST = pa.decimal128(5, 2)
ODD_COLUMNS: list[Callable[[dict[str, pa.Array]], dict[str, pa.Array]]] = [
    lambda columns: {"at": columns["at"].cast(pa.timestamp("ns", "UTC"))},
    lambda columns: {"at": columns["at"].cast(pa.timestamp("us"))},
    lambda columns: {"x": columns["x"].cast(pa.int16())},
    lambda columns: {"x": columns["x"].cast(pa.int64())},
    lambda columns: {"y": columns["y"].cast(pa.float32())},
    lambda columns: {"k": pa.nulls(len(columns["k"]))},
    lambda columns: {"k": columns["k"].cast(pa.binary())},
    lambda columns: {"K": columns["k"]},
    lambda columns: {"at": pa.array([-(2**52)] * len(columns["at"]), pa.timestamp("us", "UTC"))},
]
"""What makes other columns."""
WRITE: dict[str, Callable[[Path, random.Random, int], None]] = {
    "json": write_lines,
    "csv": write_csv,
    "parquet": write_parquet,
}


def define_on(directory: Path, form: str) -> Callable[[tm.App, Any], None]:
    """Return what defines a stream over these files, with keys, conditions, filtered aggregates and a map."""

    def define(app: tm.App, sink: Any) -> None:
        files = tm.sources.files(
            f"{directory}/*/*",
            schema=SCHEMA,
            format=form,
            partition_by="directory",
            options={"header": "true"} if form == "csv" else None,
        )
        rows = app.stream(files, event_time="timestamp_millis(t)", watermark="1 second")
        made = {
            "n": tm.count(),
            "x": tm.sum("x"),
            "y": tm.max("y"),
            "mean": tm.avg("x"),
            "least": tm.min("k"),
            "last": tm.max("at"),
            "first": tm.first("k"),
            "day": tm.min("day"),
            "cost": tm.sum("cost"),
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
            "about": tm.approx_count_distinct("y"),
            "middle": tm.quantile("y", [0.1, 0.5], k=4_000),
            "often": tm.top_k("x", 3).where("ok"),
            "heavy": tm.top_k("k", 2, weight="if(x < 0, 0, x)"),
            "own": tm.udaf(
                {"x": "x", "k": "k"},
                lambda rows: {"n": sum((x or 0) * len(k) for x, k in zip(*rows.to_pydict().values(), strict=True))},
                lambda states: {"n": sum(states["n"].to_pylist())},
                lambda state: state["n"],
                "n bigint",
                "bigint",
                name="own",
            ),
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
    # Halves of the last digit, which sums of quarters often are, would be rounded to either side.
    return round(value + 2e-10, 9) + 0.0 if isinstance(value, float) else value


def outcome(spark: Any, directory: Path, files: Path, form: str = "json", **settings: Any) -> tuple[Any, ...]:
    """Return the results, the dead letters and the counts of a run over files, and the run."""
    # Tasks that write their partials into files need Spark.
    bench = Bench(spark, directory, define_on(files, form), now=3_600 * SECOND, tier="driver", **settings)
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
    [
        *(("x.json.zst", LINE), ("x.GZ", LINE), ("x.json.gz", gzip.compress(LINE) + bytes(9)), ("x:y.json", LINE)),
        *(("x.json.zst", zstd(LINE) + b"x"), ("x.json.zst", zstd(LINE) + zstd(LINE)[:-1])),
        (".also.json.crc", b"crc\0\0\0\2\0abcd"),
    ],
    ids=["not packed", "not packed either", "zeros at the end", "a colon", "a letter", "a later frame", "a sum"],
)
@pytest.mark.slow
def test_files_that_spark_cannot_unpack_are_none_of_the_lane(
    interpreted: Any, tmp_path: Path, name: str, content: bytes
) -> None:
    """They are dead letters though Python could read them, or are read up to a later frame that is cut off."""
    (data := tmp_path / "data" / "a").mkdir(parents=True)
    for good in ("good.json", "also.json"):
        (data / good).write_bytes(LINE)
    (data / name).write_bytes(content)
    wanted, _ = outcome(interpreted, tmp_path / "spark", tmp_path / "data", lane="spark")
    found, stream = outcome(interpreted, tmp_path / "auto", tmp_path / "data", lane="auto")
    assert found == wanted
    assert stream.native_cuts == 1


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
@pytest.mark.parametrize("files", [7, pytest.param(60, marks=pytest.mark.slow)])
def test_files_that_are_odd_are_judged_by_spark(
    interpreted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, form: str
) -> None:
    """File by file, in the same cut; large files are read in parts, and parts of odd ones count for nothing."""
    data = tmp_path / "data"
    data.mkdir()
    WRITE[form](data, random.Random(files), files)
    monkeypatch.setattr(lane, "PART_BYTES", 700)
    monkeypatch.setattr(lane, "TASK_BYTES", 2_000)
    monkeypatch.setattr(splits, "BLOCK", 500)
    wanted, by_spark = outcome(interpreted, tmp_path / "spark", data, form, lane="spark", max_rows_per_cut=200)
    found, stream = outcome(interpreted, tmp_path / "auto", data, form, lane="auto", max_rows_per_cut=200)
    assert found == wanted
    assert (by_spark.native_cuts, by_spark.judged_files) == (0, 0)
    assert stream.native_cuts > 0
    assert 0 < stream.judged_files <= (files if form == "parquet" else len(range(1, files, 3))), "each once"


def test_tasks_import_nothing_of_the_driver(interpreted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they are sent travels by its name: a worker imports the module that it is in."""
    sent, run = [], lane.run_in_workers

    def seen(session: Any, function: Any, tasks: int) -> list[bytes]:
        sent.append(cloudpickle.dumps(function))
        return run(session, function, tasks)

    monkeypatch.setattr(lane, "run_in_workers", seen)
    (data := tmp_path / "data" / "a").mkdir(parents=True)
    (data / "a.json").write_bytes(LINE)
    outcome(interpreted, tmp_path / "auto", tmp_path / "data", lane="auto")
    program = f"import pickle, sys; pickle.loads({sent[0]!r}); assert {lane.__name__!r} not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_why_partials_are_made_by_spark_sql_is_explained(interpreted: Any, tmp_path: Path) -> None:
    """By stream, in plain words; with the setting `lane` as it is by default nothing is said."""
    app = tm.App(interpreted, tmp_path / "checkpoint", lane="auto")
    for name, aggregate in (("plain", tm.sum("x")), ("other", tm.sum("levenshtein(k, 'b')"))):
        files = tm.sources.files(f"{tmp_path}/*.json", schema=SCHEMA)
        rows = app.stream(files, event_time="timestamp_millis(t)", name=name)
        rows.group_by("k").window("2 seconds").agg(a=aggregate).to(tm.sinks.memory(), f"q {name}")
    plain, other = app.explain().streams
    assert (plain["lane"], plain["lane_why"], other["lane"]) == ("native", None, "spark")
    assert "only Spark computes" in other["lane_why"]
    shown = str(app.explain())
    assert "without Spark SQL" in shown
    assert f"by Spark SQL: {other['lane_why']}" in shown
    app = tm.App(interpreted, tmp_path / "third", lane="auto")
    for name, options in (("known", {"sep": ";", "header": "true"}), ("unknown", {"header": "true", "comment": "#"})):
        files = tm.sources.files(f"{tmp_path}/*.csv", schema=SCHEMA, options=options)
        rows = app.stream(files, event_time="timestamp_millis(t)", name=name)
        rows.window("2 seconds").agg(n=tm.count()).to(tm.sinks.memory(), f"q {name}")
    known, unknown = app.explain().streams
    assert known["lane"] == "native"
    assert unknown["lane_why"] == f"it reads csv files {tmp_path}/*.csv with the option comment"
    with pytest.raises(tm.TransomError, match="lane is 'fast'"):
        tm.App(interpreted, tmp_path / "other", lane="fast")


ZONE = {"spark.sql.session.timeZone": "Asia/Kolkata", "spark.sql.timestampType": "TIMESTAMP_LTZ"}
WIDE = {"spark.sql.ansi.enabled": "false"}


@pytest.mark.parametrize(
    "conf",
    [pytest.param(ZONE, marks=pytest.mark.slow), WIDE, {"spark.sql.caseSensitive": "true"}],
    ids=lambda c: next(iter(c)),
)
def test_settings_of_the_session_are_followed(spark: Any, tmp_path: Path, conf: dict[str, str]) -> None:
    """Of overflow, of names and of texts that are times in its zone; with tables that are joined."""
    (data := tmp_path / "data").mkdir()
    draw, end = random.Random(3), "Z" if conf is ZONE else ""
    lines = [
        {"k": f"{n % 3}", "x": draw.randrange(-9, 9) << 30, "at": f"2026-03-0{1 + n % 7}T18:{n:02}:00{end}"}
        for n in range(60)
    ]
    (data / "a.json").write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    sensitive = "spark.sql.caseSensitive" in conf
    session = interpreting(spark, {"spark.sql.session.timeZone": "UTC", **conf})
    columns = "k string, name string" + ", NAME string" * sensitive
    names = session.createDataFrame([("0", "zero", "a")[: 2 + sensitive], ("1", "one", "b")[: 2 + sensitive]], columns)

    def define(app: tm.App, sink: Any) -> None:
        files = tm.sources.files(f"{data}/*.json", schema="k string, x bigint, at timestamp", format="json")
        rows = app.stream(files, event_time="at", watermark="1 second")
        more = rows.map(
            lambda df: df.join(names, "k").withColumn("small", df.x.cast("smallint") if conf == WIDE else df.x)
        )
        by = more.where("at >= '2026-03-03' AND at < TIMESTAMP'2026-03-05 23:59:59'").group_by(
            "name", *["NAME"] * sensitive
        )
        by.window("1 day").agg(n=tm.count(), all=tm.sum("small"), times=tm.max("at")).to(sink, "q")

    found = {}
    for way in ("spark", "auto"):
        bench = Bench(session, tmp_path / way, define, now=1_773_000_000 * SECOND, tier="driver", lane=way)
        progress = bench.run()
        assert progress is not None
        assert progress.streams[0].native_cuts == (way == "auto"), bench.app().explain().streams[0]["lane_why"]
        assert progress.streams[0].judged_files == 0
        found[way] = bench.rows("q")
    assert found["auto"] == found["spark"] != []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.legacy.timeParserPolicy", "LEGACY"),
        ("spark.sql.json.enablePartialResults", "false"),
        ("spark.sql.execution.arrow.useLargeVarTypes", "true"),
        ("spark.sql.legacy.json.allowEmptyString.enabled", "true"),
        ("spark.sql.optimizer.of.tomorrow", None),
        ("mapreduce.input.linerecordreader.line.maxlength", "9"),
    ],
)
def test_settings_that_only_spark_knows_keep_a_stream_with_it(
    interpreted: Any, tmp_path: Path, name: str, value: str | None
) -> None:
    """Also those that nobody knows; what says how jobs run matters to nobody."""
    conf = {"spark.sql.legacy.timeParserPolicy": "EXCEPTION", "spark.sql.codegen.wholeStage": "false"}
    app = tm.App(interpreting(interpreted, {**conf, name: value or "x"}), tmp_path / "checkpoint", lane="auto")
    files = tm.sources.files(f"{tmp_path}/*.json", schema=SCHEMA)
    app.stream(files, event_time="timestamp_millis(t)").window("2 seconds").agg(n=tm.count()).to(tm.sinks.memory(), "q")
    (stream,) = app.explain().streams
    assert stream["lane_why"] == (value and f"only Spark knows what {name}={value} changes")
