"""Gated streaming queries on Spark: the same results, slots that come back, queries that stop while they wait."""

from __future__ import annotations

import os
import sys
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
from transom.api.gate import Gate, StoppedInGateError
from transom.model.time import SystemClock
from transom.scheduling.turns import BatchDone

SECOND = 1_000_000
NOON = 1_700_000_100 * SECOND
PATIENCE = 600.0


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
    found: dict[str, list[Any]] = {"plain": [], "a": [], "b": []}
    running = threading.Semaphore(1)

    def taking(name: str) -> Any:
        def take(frame: DataFrame, number: int) -> None:
            assert running.acquire(blocking=False), "no more run than there are slots"
            found[name].append((number, sorted(map(tuple, frame.collect()))))
            running.release()

        return take

    start(counts(user, events), taking("plain"), tmp_path, "plain").awaitTermination()
    with tm.gate(user, slots=1) as gate:
        queries = [
            start(counts(user, events), gate.batch(taking(name), window="10 seconds"), tmp_path, name) for name in "ab"
        ]
        for query in queries:
            assert query.awaitTermination(PATIENCE)
    assert sum(len(rows) for _, rows in found["plain"]) == 21
    for name in "ab":
        assert found[name] == found["plain"]


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


@pytest.mark.slow
def test_a_query_that_is_stopped_while_it_waits_ends_and_goes_on_later(
    user: SparkSession, tmp_path: Path, events: str
) -> None:
    entered, leave = threading.Event(), threading.Event()
    batches: list[int] = []

    def holds(frame: DataFrame, number: int) -> None:
        entered.set()
        leave.wait(PATIENCE)
        frame.count()

    def write(frame: DataFrame, number: int) -> None:
        batches.append(number)
        frame.count()

    gate = tm.gate(user, slots=1)
    first = start(counts(user, events), gate.batch(holds), tmp_path, "first")
    assert entered.wait(PATIENCE)
    second = start(counts(user, events), gate.batch(write), tmp_path, "second")
    with gate._changed:
        assert gate._changed.wait_for(lambda: second.id in gate._turn_of, PATIENCE)
    stopper = threading.Thread(target=second.stop)
    stopper.start()
    stopper.join(PATIENCE)
    assert not stopper.is_alive()
    assert second.awaitTermination(PATIENCE)
    assert second.exception() is None, "as for every query that is stopped"
    assert batches == []
    leave.set()
    assert first.awaitTermination(PATIENCE)
    again = start(counts(user, events), gate.batch(write), tmp_path, "second")
    assert again.awaitTermination(PATIENCE)
    assert batches[:4] == [0, 1, 2, 3]
    assert not gate._turn_of
    gate.close()


@pytest.mark.slow
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


@pytest.mark.slow
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
        (lambda user: tm.gate(user).batch(print, window=tm.session_window("1 minute")), "session"),
        (lambda user: tm.gate(user).batch(print, limit="soon"), "limit"),
    ],
)
def test_wrong_input_is_named(user: SparkSession, call: Any, names: str) -> None:
    with pytest.raises(tm.DefinitionError, match=names):
        call(user)


def test_connect_is_refused() -> None:
    with pytest.raises(tm.SessionError, match="Connect"):
        tm.gate(object())  # type: ignore[arg-type]


class FakeSpark:
    """Queries that are threads of the test, named as they are."""

    def __init__(self) -> None:
        self.stopping: set[str] = set()

    def query(self) -> str | None:
        name = threading.current_thread().name
        return None if name == "MainThread" else name

    def done(self, query: str, batch: int) -> BatchDone | None:
        return None

    def stopped(self, query: str) -> bool:
        return query in self.stopping


class Queries:
    """Threads that each run one batch; a batch runs until it is let go."""

    def __init__(self, policy: str = "fcfs", slots: int = 1) -> None:
        self.driver = FakeSpark()
        self.gate = Gate(self.driver, policy, slots, 3600 * SECOND, SystemClock())
        self.ran: list[str] = []
        self.errors: dict[str, Exception] = {}
        self.go: dict[str, threading.Event] = {}
        self.threads: dict[str, threading.Thread] = {}
        self.function = self.gate.batch(self.write)

    def write(self, frame: Any, number: int) -> None:
        name = threading.current_thread().name
        with self.gate._changed:
            self.ran.append(name)
            self.gate._changed.notify_all()
        assert self.go[name].wait(PATIENCE)
        if name.startswith("bad"):
            raise ValueError("my own error")

    def run(self, name: str) -> None:
        try:
            self.function(None, 0)  # type: ignore[arg-type]
        except Exception as error:
            self.errors[name] = error

    def start(self, name: str) -> None:
        """Start a query, and wait until its batch is at the gate or runs."""
        self.go[name] = threading.Event()
        self.threads[name] = threading.Thread(target=self.run, args=(name,), name=name)
        self.threads[name].start()
        self.wait(lambda: name in self.gate._turn_of or name in self.ran)

    def wait(self, condition: Any) -> None:
        with self.gate._changed:
            assert self.gate._changed.wait_for(condition, PATIENCE)

    def end(self, name: str) -> None:
        """Let a batch end, and wait until it is through."""
        self.go[name].set()
        self.threads[name].join(PATIENCE)
        assert not self.threads[name].is_alive()


def test_they_run_one_after_the_other_in_the_order_of_the_policy() -> None:
    queries = Queries("fcfs", slots=1)
    for name in "cab":
        queries.start(name)
        queries.wait(lambda: queries.ran == ["c"])
    for number, name in enumerate("cab"):
        queries.wait(lambda number=number: len(queries.ran) > number)
        assert queries.ran[number] == name
        queries.end(name)
    assert not queries.gate._turn_of
    queries.gate.close()


def test_as_many_run_as_there_are_slots() -> None:
    queries = Queries(slots=2)
    for name in "abcd":
        queries.start(name)
        queries.wait(lambda: queries.ran in (["a"], ["a", "b"]))
    queries.wait(lambda: queries.ran == ["a", "b"])
    for running, name in zip((["a", "b", "c"], ["a", "b", "c", "d"]), "ab", strict=True):
        assert queries.ran == running[:-1]
        queries.end(name)
        queries.wait(lambda running=running: queries.ran == running)
    for name in "cd":
        queries.end(name)
    queries.gate.close()


def test_an_error_is_the_users_and_frees_the_slot() -> None:
    queries = Queries(slots=1)
    queries.start("bad")
    queries.wait(lambda: queries.ran == ["bad"])
    queries.start("good")
    queries.end("bad")
    assert str(queries.errors["bad"]) == "my own error"
    queries.wait(lambda: queries.ran == ["bad", "good"])
    queries.end("good")
    assert queries.errors.keys() == {"bad"}
    queries.gate.close()


def test_stopped_queries_leave_whether_they_wait_or_run() -> None:
    queries = Queries(slots=1)
    for name in ("bad", "waits", "next"):
        queries.start(name)
        queries.wait(lambda: queries.ran == ["bad"])
    queries.driver.stopping = {"bad", "waits"}
    queries.threads["waits"].join(PATIENCE)
    assert isinstance(queries.errors["waits"], StoppedInGateError)
    assert queries.ran == ["bad"]
    queries.end("bad")
    assert isinstance(queries.errors["bad"], StoppedInGateError), "what fails because it is stopped says so"
    queries.wait(lambda: queries.ran == ["bad", "next"])
    queries.end("next")
    queries.gate.close()


def test_closing_lets_through_what_waits_and_what_comes() -> None:
    queries = Queries(slots=1)
    with queries.gate:
        queries.start("a")
        queries.wait(lambda: queries.ran == ["a"])
        queries.start("b")
        assert queries.ran == ["a"]
    queries.wait(lambda: queries.ran == ["a", "b"])
    queries.start("c")
    queries.wait(lambda: queries.ran == ["a", "b", "c"])
    for name in "abc":
        queries.end(name)
    assert queries.errors == {}


def test_a_gate_that_cannot_decide_lets_everything_through(caplog: pytest.LogCaptureFixture) -> None:
    queries = Queries(slots=1)
    queries.start("a")
    queries.wait(lambda: queries.ran == ["a"])
    queries.gate._turns.next = lambda now: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    queries.start("b")
    queries.wait(lambda: queries.ran == ["a", "b"])
    for name in "ab":
        queries.end(name)
    assert "cannot decide" in caplog.text


def test_outside_of_a_query_nothing_waits() -> None:
    gate = Gate(FakeSpark(), "klink", 1, 3600 * SECOND, SystemClock())
    calls: list[int] = []

    @gate.batch(window="10 seconds")
    def write(frame: DataFrame, number: int) -> None:
        """What it says."""
        calls.append(number)

    write(None, 3)  # type: ignore[arg-type]
    assert calls == [3]
    assert write.__doc__ == "What it says."


def test_what_is_known_of_queries_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["transom.api.gate"], "QUERIES", 3)
    gate = Gate(FakeSpark(), "klink", 1, 3600 * SECOND, SystemClock())
    for name in "abcab":
        gate._estimate(name, None, SECOND)
    gate._estimate("d", None, SECOND)
    assert list(gate._estimates) == ["a", "b", "d"]
