"""What users give that cannot be: each argument of the public interface, with values of every other kind.

Nothing ends in an error of Python, and nothing is taken for something else: "no" for true, a text for its letters, True
for 1, a number that is none, half a character, names that no file could have.
"""

from __future__ import annotations

import importlib.util
import io
import itertools
import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

import transom as tm
from transom.errors import TransomError
from transom.model.signatures import LONGEST_NAME

COLUMNS = StructType(
    [StructField("at", TimestampType()), StructField("zone", StringType()), StructField("v", LongType())]
)
RECORD = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}'
numbers = itertools.count()


class Odd:
    """Nothing that anybody takes."""


WRONG: dict[str, Any] = {
    "none": None,
    "nan": math.nan,
    "infinite": math.inf,
    "zero": 0,
    "negative": -1,
    "true": True,
    "fraction": 1.5,
    "huge": 10**30,
    "more than any float": 10**400,
    "beyond 64 bits": 1 << 63,
    "NumPy's int": np.int64(5),
    "NumPy's bool": np.bool_(True),
    "no": "no",
    "empty": "",
    "blank": "   ",
    "lines": "a\nb",
    "NUL": "a\0b",
    "half": "a\ud800",
    "long": "x" * 10_000,
    "bytes": b"a",
    "a list": ["a"],
    "twice": ["a", "a"],
    "nested": [["a"]],
    "nones": [None],
    "ints": [1],
    "a set": {"a"},
    "a dictionary": {"a": 1},
    "a moment": datetime(2020, 1, 1, tzinfo=UTC),
    "a date": date(2020, 1, 1),
    "back": timedelta(seconds=-5),
    "longest": timedelta.max,
    "years": "1 year",
    "not a time": pd.NaT,
    "not there": pd.NA,
    "decimal": Decimal("1.5"),
    "an object": Odd(),
    "a class": Odd,
    "complex": 1j,
    "a data frame": pd.DataFrame({"a": [1]}),
    "a table": pa.table({"a": [1]}),
    "an array": np.array([1, 2]),
}


def app(root: Path) -> tm.App:
    spark: Any = SimpleNamespace(createDataFrame=None)
    return tm.App(spark, root / f"checkpoint{next(numbers)}")


def stream(root: Path) -> tm.Stream:
    return app(root).stream(tm.sources.memory(COLUMNS), event_time="at")


def query(root: Path) -> tm.Query:
    return stream(root).window("1 minute").agg(n=tm.count())


def joined(root: Path, **given: Any) -> tm.Stream:
    both = app(root)
    sides = {
        side: both.stream(tm.sources.memory(COLUMNS), event_time="at")
        for side in ("left", "right")
        if side not in given
    }
    return both.join(**{**sides, **given})


OF_FILES = {"order": "name", "settle": "1 second", "options": {"sep": ";"}, "partition_by": None}
CASES: dict[str, tuple[Callable[..., Any], Mapping[str, Any]]] = {
    "App": (
        lambda root, **given: tm.App(SimpleNamespace(createDataFrame=None), **given),
        {"checkpoint": "c", "name": "a"},
    ),  # type: ignore[arg-type]
    "App.stream": (
        lambda root, **given: app(root).stream(**{"source": tm.sources.memory(COLUMNS), **given}),
        {"event_time": "at", "watermark": "1 s", "name": "s"},
    ),
    "App.stream of": (
        lambda root, **given: app(root).stream(event_time="at", **given),
        {"source": tm.sources.memory(COLUMNS)},
    ),
    "App.join": (joined, {"on": "zone", "window": "1 minute", "how": "inner", "event_time": None, "name": "j"}),
    "App.join between": (joined, {"on": ["zone"], "between": ("1 second", "2 seconds"), "how": "left"}),
    "App.run": (lambda root, **given: app(root).run(**given), {"once": True, "close_all": True, "on_progress": None}),
    "App.start": (
        lambda root, **given: app(root).start(**given),
        {"once": True, "close_all": True, "on_progress": None},
    ),
    "map": (
        lambda root, **given: stream(root).map(**given),
        {"transformation": print, "deterministic": True, "costly": False},
    ),
    "where": (lambda root, **given: stream(root).where(**given), {"condition": "v > 1"}),
    "lookup": (
        lambda root, **given: stream(root).lookup(**given),
        {"table": tm.tables.parquet("t"), "on": "zone", "how": "inner", "refresh": "1 minute", "name": "t"},
    ),
    "deduplicate": (
        lambda root, **given: stream(root).deduplicate(**given),
        {"keys": "zone", "within": "1 hour", "name": "d"},
    ),
    "union": (lambda root, other: stream(root).union(other), {"other": None}),
    "union, named": (lambda root, name: stream(root).union(stream(root), name=name), {"name": "u"}),
    "apart": (lambda root, **given: stream(root).apart(**given), {"name": "x"}),
    "group_by": (lambda root, key: stream(root).group_by(key, other=key), {"key": "zone"}),
    "window": (
        lambda root, window, **given: stream(root).window(window, **given),
        {"window": "1 minute", "early": "1 s", "lateness": "1 s"},
    ),
    "agg": (lambda root, n: stream(root).window("1 minute").agg(n=n), {"n": tm.count()}),
    "within": (
        lambda root, **given: query(root).within(**given),
        {"limit": "1 second", "quantile": 0.9, "on_overload": "shed", "keep": 0.5},
    ),
    "fill": (lambda root, **given: query(root).fill(**given), {"value": "zero", "for_at_most": "1 day"}),
    "having": (lambda root, **given: query(root).having(**given), {"condition": "n > 1"}),
    "select": (lambda root, column: query(root).select(column), {"column": "n"}),
    "select, named": (lambda root, m: query(root).select("window_end", m=m), {"m": "n"}),
    "rename": (lambda root, n: query(root).rename(n=n), {"n": "n"}),
    "to": (lambda root, **given: query(root).to(**given), {"sink": tm.sinks.memory(), "name": "q"}),
    "results": (lambda root, **given: query(root).results(**given), {"name": "r", "early": False}),
    "late_rows": (lambda root, **given: query(root).late_rows(**given), {"watermark": "1 second", "name": "r"}),
    "rows.to": (
        lambda root, **given: stream(root).rows().to(**given),
        {"sink": tm.sinks.parquet("r"), "partition_by": "zone", "name": "q"},
    ),
    "watermark": (
        lambda root, **given: tm.watermark(**given),
        {"delay": "1 s", "idle_after": "1 s", "max_ahead": "1 day", "close_on_idle": "1 s", "from_source": False},
    ),
    "tumbling": (lambda root, **given: tm.tumbling(**given), {"length": "1 minute", "offset": "1 s"}),
    "sliding": (lambda root, **given: tm.sliding(**given), {"length": "1 minute", "every": "1 s", "offset": "1 s"}),
    "cumulate": (lambda root, **given: tm.cumulate(**given), {"length": "1 minute", "every": "1 s", "offset": "1 s"}),
    "calendar": (
        lambda root, **given: tm.calendar(**given),
        {"unit": "week", "zone": "UTC", "week_start": "monday", "offset": "1 hour"},
    ),
    "session": (
        lambda root, **given: tm.session_window(**given),
        {"gap": "1 s", "at_most": "1 minute", "ends_when": "v > 1"},
    ),
    "unbounded": (lambda root, **given: tm.unbounded(**given), {"every": "1 minute", "keys": 5}),
    "generator": (
        lambda root, **given: tm.sources.generator(**given),
        {"columns": {"a": "id"}, "rows_per_second": 5.0, "rows": 5, "start": 0, "partitions": 1},
    ),
    "memory": (lambda root, **given: tm.sources.memory(COLUMNS, **given), {"partitions": 1}),
    "memory.add": (
        lambda root, **given: tm.sources.memory(COLUMNS).add(**given),
        {"rows": [(0, "a", 1)], "partition": 0},
    ),
    "memory, of rows": (
        lambda root, at, zone, v: tm.sources.memory(COLUMNS).add([(at, zone, v)]),
        {"at": 0, "zone": "a", "v": 1},
    ),
    "memory.add_watermark": (lambda root, **given: tm.sources.memory(COLUMNS).add_watermark(**given), {"time": 0}),
    "files": (
        lambda root, **given: tm.sources.files(schema=COLUMNS, **given),
        {"path": "in/*.csv", "format": "csv", "max_files_per_cut": 5, **OF_FILES},
    ),
    "text": (
        lambda root, **given: tm.sources.text(**given),
        {"path": "in/*.txt", "regex": "(?<zone>a)", "max_files_per_cut": 5, **OF_FILES, "options": {}},
    ),
    "json": (lambda root, **given: tm.json(COLUMNS, **given), {"options": {}}),
    "csv": (lambda root, **given: tm.csv(COLUMNS, **given), {"options": {}}),
    "avro": (lambda root, **given: tm.avro(**given), {"schema": RECORD, "skip": 5}),
    "parquet": (lambda root, **given: tm.sinks.parquet(**given), {"path": "o"}),
    "sinks.csv": (lambda root, **given: tm.sinks.csv(**given), {"path": "o"}),
    "sinks.json": (lambda root, **given: tm.sinks.json(**given), {"path": "o"}),
    "console": (lambda root, **given: tm.sinks.console(**given), {"limit": 5, "stream": io.StringIO()}),
    "foreach": (lambda root, **given: tm.sinks.foreach(**given), {"function": print}),
    "sqlite": (lambda root, **given: tm.sinks.sqlite(**given), {"path": "a.db", "table": "t"}),
    "compact": (
        lambda root, **given: tm.sinks.compact(**given),
        {"path": "o", "before_cut": 1, "target_bytes": 5, "keep_newest": 1},
    ),
    "tables.parquet": (lambda root, **given: tm.tables.parquet(**given), {"path": "t"}),
    "tables.sql": (lambda root, **given: tm.tables.sql(**given), {"query": "select 1"}),
    "udaf": (
        lambda root, **given: tm.udaf(**given),
        {
            "inputs": {"x": "v"},
            "partial": print,
            "merge": print,
            "result": print,
            "state": "s long",
            "returns": "long",
            "name": "u",
        },
    ),
    "session_builder": (lambda root, **given: tm.session_builder(**given), {"kafka": False}),
    "Recovery": (
        lambda root, **given: tm.Recovery(**given),
        {"bound": "1 s", "path": "p", "policy": "edge", "relax": 3.0},
    ),
    "Settings": (
        lambda root, **given: tm.Settings(**given),
        {each: value for each, value in vars(tm.Settings()).items() if value != "off"},
    ),
    "settings": (
        lambda root, **given: tm.Settings.of(given),
        {"trigger": "1 s", "slots": 2, "share": True, "memory_bound": 0.5},
    ),
    "first": (lambda root, **given: tm.first(**given), {"x": "v", "ignore_nulls": True}),
    "sum": (lambda root, **given: tm.sum(**given), {"x": "v"}),
    "collect_list": (lambda root, **given: tm.collect_list(**given), {"x": "v", "limit": 5, "order_by": "v"}),
    "count_distinct": (lambda root, **given: tm.count_distinct(**given), {"x": "v", "at_most": 5}),
    "top_k": (lambda root, **given: tm.top_k(**given), {"x": "v", "k": 5, "max_items": 100, "weight": "v"}),
    "quantile": (lambda root, **given: tm.quantile(**given), {"x": "v", "p": 0.5, "k": 200}),
}
if importlib.util.find_spec("confluent_kafka"):
    CASES["kafka"] = (
        lambda root, **given: tm.sources.kafka(format=tm.raw(), **given),
        {"servers": "a:1", "topics": "t", "starting": "latest", "metadata": False, "group": "g", "options": {}},
    )
    CASES["kafka, pattern"] = (
        lambda root, **given: tm.sources.kafka("a:1", format=tm.raw(), **given),
        {"pattern": "t.*", "starting": {"t": {0: 5}}},
    )
    CASES["sinks.kafka"] = (
        lambda root, **given: tm.sinks.kafka(**given),
        {"servers": "a:1", "topic": "t", "key": "zone", "ledger": "l", "shared": False, "options": {}},
    )


@pytest.mark.parametrize("case", CASES)
def test_no_argument_ends_in_an_error_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tm.App, "_begin", lambda *_: pytest.fail("it begins"))
    make, right = CASES[case]
    for argument, wrong in itertools.product(right, WRONG):
        if case in ("App.run", "App.start") and (wrong == "true" or argument == "on_progress"):
            continue
        try:
            make(tmp_path, **{**right, argument: WRONG[wrong]})
        except TransomError as error:
            if not error.remedy:
                pytest.fail(f"{case}: {argument} is {wrong}: {error} has no remedy")
        except Exception as error:
            pytest.fail(f"{case}: {argument} is {wrong}: {type(error).__name__}: {error}")


@pytest.mark.parametrize(
    ("case", "argument", "wrong", "message"),
    [
        ("App", "checkpoint", "", "is no path. Name a file"),
        ("App", "checkpoint", 5, r"App: checkpoint is 5 \(int\). Give a text or a path."),
        ("App.stream", "name", "a\nb", r"stream: name is 'a\\nb' \(str\). Give a name of printable characters"),
        ("App.stream", "name", "x" * (LONGEST_NAME + 1), "1 to 1,000 of them"),
        ("App.stream", "event_time", "a\ud800", "with half a character"),
        ("App.stream of", "source", "in/*.json", r"no source. Write for example tm.sources.files"),
        ("App.run", "once", "no", r"run: once is 'no' \(str\). Give True or False."),
        ("App.join", "on", ["a", "a"], "join: on has 'a' twice"),
        ("App.join", "left", 5, r"join: left is 5 \(int\), no stream"),
        ("map", "deterministic", "no", "map: deterministic is 'no'"),
        ("lookup", "on", "", r"lookup: on\[0\] is ''"),
        ("watermark", "from_source", "false", "watermark: from_source is 'false'"),
        ("generator", "partitions", 10**9, "generator: partitions=1000000000 is not 1 to 100,000"),
        ("generator", "rows_per_second", math.nan, "rows_per_second is nan"),
        ("generator", "start", 1 << 62, "is no time"),
        ("memory", "partitions", np.int64(2), r"partitions is .* \(int64\). Give a whole number"),
        ("memory, of rows", "v", 1.5, r"v is 1.5 \(float\), and the column is int64"),
        ("memory, of rows", "at", 1.7e9, r"at is 1700000000.0 \(float\), and the column is timestamp"),
        ("memory.add_watermark", "time", 1.7e9, "Give whole microseconds"),
        ("files", "path", {"a": 1}, "files: path is .* Give a text or a path or a list"),
        ("files", "options", {"sep": None}, "files: options is a value of type dict. Give a dictionary of texts."),
        ("kafka", "options", [("sasl.password", "secret")], "kafka: options is a value of type list"),
        ("kafka", "starting", -1_000, "no place to begin"),
        ("kafka", "topics", ["a b"], r"kafka: topics is 'a b' \(str\), no name of a topic"),
        ("kafka, pattern", "pattern", "", "kafka: pattern is ''"),
        ("sinks.kafka", "key", ["a", "a"], "kafka: key has 'a' twice"),
        ("sinks.kafka", "shared", "no", "kafka: shared is 'no'"),
        ("parquet", "path", "", "is no path"),
        ("udaf", "name", "", "udaf: name is ''"),
        ("Settings", "slots", True, r"settings: slots is True \(bool\). Give a whole number."),
        ("Settings", "key_groups", 10**9, "up to 65,536"),
        ("Settings", "snapshot_bytes", 10**30, "Give less"),
    ],
)
def test_what_is_wrong_is_named_with_what_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, argument: str, wrong: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make, right = CASES[case]
    with pytest.raises(TransomError, match=message) as refused:
        make(tmp_path, **{**right, argument: wrong})
    assert "secret" not in str(refused.value)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("case", [case for case in CASES if case not in ("App.run", "App.start", "compact", "union")])
def test_what_is_right_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.chdir(tmp_path)
    make, right = CASES[case]
    make(tmp_path, **right)


def test_python_says_what_is_missing() -> None:
    with pytest.raises(TypeError, match=r"files\(\) missing 1 required positional argument: 'schema'"):
        tm.sources.files("in")  # type: ignore[call-arg]
