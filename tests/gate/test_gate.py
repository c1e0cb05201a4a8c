"""Gated streaming queries on Spark: the same results, slots that come back, queries that stop while they wait."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import transom as tm
from transom.gate import batch_of, moment

SECOND = 1_000_000
NOON = 1_700_000_100 * SECOND
PATIENCE = 60.0


@pytest.fixture
def events(tmp_path: Path) -> str:
    """Four files of events, 20 s each; the last one closes what is before it."""
    directory = tmp_path / "events"
    directory.mkdir()
    for number in range(4):
        at = pa.array([NOON + number * 20 * SECOND + i * SECOND // 5 for i in range(100)], pa.timestamp("us", "UTC"))
        table = pa.table({"at": at, "k": pa.array([i % 3 for i in range(100)], pa.int64())})
        pq.write_table(table, directory / f"{number}.parquet")
        os.utime(directory / f"{number}.parquet", (NOON // SECOND + number,) * 2)  # Spark reads them in this order
    return str(directory)


@pytest.fixture
def user(spark: SparkSession) -> SparkSession:
    """A session of its own, with few partitions of state."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def counts(spark: SparkSession, path: str) -> DataFrame:
    """Count per key over 10 s, one file per micro-batch."""
    rows = spark.readStream.schema("at timestamp, k bigint").option("maxFilesPerTrigger", 1).parquet(path)
    return rows.withWatermark("at", "0 seconds").groupBy(F.window("at", "10 seconds"), "k").count()


def start(frame: DataFrame, function: Any, place: Path, name: str) -> Any:
    writer = frame.writeStream.foreachBatch(function).outputMode("append").trigger(availableNow=True)
    return writer.option("checkpointLocation", str(place / name)).start()


def test_results_are_those_without_the_gate(user: SparkSession, tmp_path: Path, events: str) -> None:
    found: dict[str, list[Any]] = {"plain": [], "a": [], "b": [], "c": []}

    def taking(name: str) -> Any:
        return lambda frame, number: found[name].append((number, sorted(map(tuple, frame.collect()))))

    start(counts(user, events), taking("plain"), tmp_path, "plain").awaitTermination()
    with tm.gate(user, slots=1) as gate:
        queries = [
            start(counts(user, events), gate.batch(taking(name), window="10 seconds"), tmp_path, name) for name in "abc"
        ]
        for query in queries:
            assert query.awaitTermination(PATIENCE)
    assert sum(len(rows) for _, rows in found["plain"]) == 21
    for name in "abc":
        assert found[name] == found["plain"]


def test_no_more_run_than_slots(user: SparkSession, tmp_path: Path, events: str) -> None:
    running, most, lock = 0, 0, threading.Lock()

    def write(frame: DataFrame, number: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        frame.count()
        with lock:
            running -= 1

    with tm.gate(user, policy="fcfs", slots=2) as gate:
        queries = [start(counts(user, events), gate.batch(write), tmp_path, name) for name in "abcd"]
        for query in queries:
            assert query.awaitTermination(PATIENCE)
    assert most == 2


def test_a_function_that_fails_ends_its_query_only(user: SparkSession, tmp_path: Path, events: str) -> None:
    batches: list[int] = []

    def fails(frame: DataFrame, number: int) -> None:
        raise ValueError("my own error")

    with tm.gate(user, slots=1) as gate:
        bad = start(counts(user, events), gate.batch(fails, window="10 seconds"), tmp_path, "bad")
        good = start(counts(user, events), gate.batch(lambda f, n: batches.append(f.count())), tmp_path, "good")
        with pytest.raises(StreamingQueryException, match="my own error"):
            bad.awaitTermination()
        assert good.awaitTermination(PATIENCE)
    assert len(batches) >= 4


def test_a_query_that_is_stopped_while_it_waits_leaves(user: SparkSession, tmp_path: Path, events: str) -> None:
    entered, leave = threading.Event(), threading.Event()

    def holds(frame: DataFrame, number: int) -> None:
        entered.set()
        leave.wait(PATIENCE)
        frame.count()

    gate = tm.gate(user, slots=1)
    first = start(counts(user, events), gate.batch(holds), tmp_path, "first")
    assert entered.wait(PATIENCE)
    second = start(counts(user, events), gate.batch(lambda f, n: f.count()), tmp_path, "second")
    stopper = threading.Thread(target=second.stop)
    stopper.start()
    stopper.join(PATIENCE)
    assert not stopper.is_alive()
    leave.set()
    gate.close()
    assert first.awaitTermination(PATIENCE)
    assert not gate._waiting
    assert not gate._running


def test_a_closed_gate_lets_everything_through(user: SparkSession, tmp_path: Path, events: str) -> None:
    entered, leave, done = threading.Event(), threading.Event(), threading.Event()

    def holds(frame: DataFrame, number: int) -> None:
        entered.set()
        leave.wait(PATIENCE)
        frame.count()

    gate = tm.gate(user, slots=1)
    first = start(counts(user, events), gate.batch(holds), tmp_path, "first")
    assert entered.wait(PATIENCE)
    second = start(counts(user, events), gate.batch(lambda f, n: f.count() or done.set()), tmp_path, "second")
    gate.close()
    assert done.wait(PATIENCE)
    leave.set()
    for query in (first, second):
        assert query.awaitTermination(PATIENCE)


def test_a_sink_is_written_as_a_format(user: SparkSession, tmp_path: Path, events: str) -> None:
    with tm.gate(user) as gate:
        frame = counts(user, events).select("window.end", "k", "count")
        write = gate.sink("parquet", str(tmp_path / "out"), window="10 seconds", compression="none")
        assert start(frame, write, tmp_path, "q").awaitTermination(PATIENCE)
    assert user.read.parquet(str(tmp_path / "out")).count() == 21


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda user: tm.gate(user, policy="best"), "policy"),
        (lambda user: tm.gate(user, slots=0), "slots"),
        (lambda user: tm.gate(user, longest_wait=0), "longest wait"),
        (lambda user: tm.gate(user).batch("write"), "function"),
        (lambda user: tm.gate(user).batch(print, window=tm.session("1 minute")), "session"),
        (lambda user: tm.gate(user).batch(print, limit="soon"), "limit"),
    ],
)
def test_wrong_input_is_named(user: SparkSession, call: Any, names: str) -> None:
    with pytest.raises(tm.DefinitionError, match=names):
        call(user)


def test_connect_is_refused() -> None:
    with pytest.raises(tm.SessionError, match="Connect"):
        tm.gate(object())  # type: ignore[arg-type]


def test_progress_is_read() -> None:
    progress = {
        "timestamp": "2023-11-14T22:15:00.250Z",
        "numInputRows": 7,
        "eventTime": {"max": "2023-11-14T22:15:00.000Z", "watermark": "1970-01-01T00:00:00.000Z"},
    }
    batch = batch_of(progress)
    assert (batch.started, batch.rows, batch.newest, batch.watermark) == (NOON + SECOND // 4, 7, NOON, None)
    assert moment("1970-01-01T00:00:01.500Z") == 1_500_000
    assert batch_of({**progress, "eventTime": {}}).newest is None
