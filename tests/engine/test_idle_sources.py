"""When a source partition is idle: it was looked at and found empty, for so long, while the application ran."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import transom as tm
from transom.api.app import App
from transom.engine.execution.onspark import run_on_spark
from transom.engine.loop.progress import Progress
from transom.engine.state.watermarks import Idleness, WatermarkState
from transom.model.time import VirtualClock
from transom.simulation.virtual import JobCosts, SimulatedCutRunner
from transom.sinks.inmemory import MemorySink
from transom.sources.base import Source, Waiting

without_jobs = pytest.mark.usefixtures("in_memory")


SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND


class Played:
    """An application in virtual time, on one checkpoint and one sink; seconds count from noon."""

    def __init__(self, spark: SparkSession, directory: Path, policy: Any, **settings: Any) -> None:
        self.spark, self.directory, self.policy = spark, directory, policy
        self.settings = {"poll": "20 ms", "trigger": 0, **settings}
        self.clock = VirtualClock(NOON)
        self.sink = MemorySink()

    def at(self, second: float, action: Callable[[], object]) -> None:
        self.clock.at(NOON + round(second * SECOND), action)

    def run(self, source: Source, costs: JobCosts, until: float | None, work: Any = None) -> Progress:
        app = App(self.spark, self.directory, clock=self.clock, **self.settings)
        app._runner = SimulatedCutRunner(self.clock, costs, **({} if work is None else {"work": work}))
        stream = app.stream(source, event_time="at", watermark=self.policy)
        stream.window("1 second").agg(n=tm.count()).to(self.sink, "q")
        if until is None:
            return app.run(once=True)
        self.at(until, app.stop)
        return app.run()

    def windows(self) -> dict[int, int]:
        """Return the rows of each window by the second in which it starts."""
        table = self.sink.to_table("q")
        found = [] if table is None else table.to_pylist()
        return {round(row["window_start"].timestamp()) - NOON // SECOND: row["n"] for row in found}


def add(source: Any, second: float, partition: int = 0) -> Callable[[], object]:
    return lambda: source.add([(NOON + round(second * SECOND),)], partition)


def late(progress: Progress) -> int:
    return progress.queries[0].late_rows


@without_jobs
def test_rows_that_wait_for_the_trigger_are_no_idleness(spark: SparkSession, tmp_path: Path) -> None:
    source = tm.sources.memory("at timestamp")
    played = Played(spark, tmp_path, tm.watermark("500 ms", close_on_idle="1 second"), trigger="4 seconds")
    for number in range(57):
        played.at(number / 4, add(source, number / 4))
    progress = played.run(source, JobCosts(), 20)
    assert late(progress) == 0
    assert sum(played.windows().values()) == 57


@without_jobs
def test_time_for_which_the_application_does_not_run_is_no_idleness(spark: SparkSession, tmp_path: Path) -> None:
    source = tm.sources.memory("at timestamp")
    played = Played(spark, tmp_path, tm.watermark(0, close_on_idle="10 seconds"))
    played.at(0, add(source, 0))
    played.at(1, add(source, 1))
    played.run(source, JobCosts(), 3)
    played.clock.advance(60 * SECOND)
    for second in (2, 3, 50):
        add(source, second)()
    progress = played.run(source, JobCosts(), 80)
    assert late(progress) == 0
    assert played.windows() == {0: 1, 1: 1, 2: 1, 3: 1, 50: 1}


@without_jobs
def test_a_cut_under_way_is_no_idleness(spark: SparkSession, tmp_path: Path) -> None:
    source = tm.sources.memory("at timestamp")
    played = Played(spark, tmp_path, tm.watermark(0, close_on_idle="1 second"), max_rows_per_cut=1)
    for number in range(6):
        played.at(0, add(source, number / 10))
    progress = played.run(source, JobCosts(fixed=1_500_000, row=0), 15)
    assert late(progress) == 0
    assert played.windows() == {0: 6}


@without_jobs
def test_a_source_that_is_empty_for_so_long_is_closed(spark: SparkSession, tmp_path: Path) -> None:
    source = tm.sources.memory("at timestamp")
    played = Played(spark, tmp_path, tm.watermark(0, close_on_idle="5 seconds"))
    seen: dict[float, int] = {}
    played.at(0, add(source, 0.5))
    for second in (4.9, 5.5):
        played.at(second, lambda second=second: seen.update({second: len(played.windows())}))  # type: ignore[misc]
    played.run(source, JobCosts(), 6)
    assert seen == {4.9: 0, 5.5: 1}


def put(folder: Path, name: str, seconds: Sequence[float]) -> None:
    rows = [{"at": f"2023-11-14T22:13:{20 + second:09.6f}Z"} for second in seconds]
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{name}"
    temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(temporary, (NOON // SECOND, NOON // SECOND))
    temporary.rename(folder / name)


def test_files_that_are_not_read_yet_are_no_silence(spark: SparkSession, tmp_path: Path) -> None:
    """Everything lies in both directories from the start; that of A is read first, and takes longer than a second."""
    for folder in "ab":
        for number in range(3):
            put(tmp_path / "in" / folder, f"{folder}{number}.json", [number * 2 + each / 5 for each in range(10)])
    source = tm.sources.files(f"{tmp_path}/in/*/*.json", "at timestamp", partition_by="directory", max_files_per_cut=1)
    policy = tm.watermark(0, idle_after="1 second")
    played = Played(spark, tmp_path / "checkpoint", policy)
    progress = played.run(source, JobCosts(fixed=1, row=150_000), None, run_on_spark)
    assert late(progress) == 0
    assert sum(played.windows().values()) == 50, "all but the last second, in which the data end"


def test_a_directory_that_comes_later_holds_the_watermark_back_until_it_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path / "in" / "a", "a0.json", [0.5])
    (tmp_path / "in" / "b").mkdir()
    source = tm.sources.files(f"{tmp_path}/in/*/*.json", "at timestamp", partition_by="directory", max_files_per_cut=1)
    played = Played(spark, tmp_path / "checkpoint", tm.watermark(0))

    def come() -> None:
        put(tmp_path / "in" / "a", "a1.json", [9.0])
        put(tmp_path / "in" / "b", "b0.json", [1.5, 9.0])

    played.at(2, come)
    progress = played.run(source, JobCosts(fixed=3_000_000, row=0), 20, run_on_spark)
    assert late(progress) == 0
    assert played.windows() == {0: 1, 1: 1}


@without_jobs
def test_a_partition_counts_as_silent_also_where_a_cut_takes_longer(spark: SparkSession, tmp_path: Path) -> None:
    source = tm.sources.memory("at timestamp", partitions=2)
    played = Played(spark, tmp_path, tm.watermark(0, idle_after="1 second"), max_rows_per_cut=1)
    played.at(0, add(source, 0.1, 0))
    for number in range(6):
        played.at(0, add(source, number, 1))
    played.run(source, JobCosts(fixed=2_600_000, row=0), 30)
    assert played.windows() == {0: 2, 1: 1, 2: 1, 3: 1, 4: 1}


@without_jobs
def test_two_streams_of_one_source_have_each_their_own_idleness(spark: SparkSession, tmp_path: Path) -> None:
    """What one of them has read waits for the other."""
    source, clock, sink = tm.sources.memory("at timestamp"), VirtualClock(NOON), MemorySink()
    app = App(spark, tmp_path, clock=clock, poll="20 ms", trigger=0, max_rows_per_cut=1)
    costs = {"fast": JobCosts(100_000, 0), "slow": JobCosts(3_000_000, 0)}
    app._runner = SimulatedCutRunner(clock, costs.__getitem__, run_on_spark)
    stream = app.stream(source, event_time="at", watermark=tm.watermark(0, close_on_idle="1 second"), name="fast")
    for name, read in (("q", stream), ("slow", stream.apart("slow"))):
        read.window("1 second").agg(n=tm.count()).to(sink, name)
    for second in (0, 0.2, 0.4, 0.6):
        clock.at(NOON, add(source, second))
    clock.at(NOON + 20 * SECOND, app.stop)
    progress = app.run()
    assert [query.late_rows for query in progress.queries] == [0, 0]
    assert [row["n"] for name in ("q", "slow") for row in sink.to_table(name).to_pylist()] == [4, 4]  # type: ignore[union-attr]


# ---- pure

LOOKS = st.lists(
    st.tuples(st.integers(0, 5), st.frozensets(st.integers(0, 2)), st.integers(1, 3)), min_size=1, max_size=20
)


@given(LOOKS)
def test_a_partition_is_idle_for_as_long_as_all_looks_found_it_empty(
    looks: list[tuple[int, frozenset[int], int]],
) -> None:
    state, now = Idleness(), 0
    moments: list[tuple[int, frozenset[int]]] = []
    for passed, found, partitions in looks:
        now += passed
        moments.append((now, found))
        state = state.looked(Waiting(found, now), partitions)
        for index, length in enumerate(state.lengths):
            if index in found:
                assert length is None
            else:
                assert length is not None
                full = max((moment for moment, rows in moments if index in rows), default=-1)
                assert length <= now - min(moment for moment, rows in moments if moment >= full and index not in rows)


def test_a_look_that_is_old_says_nothing_new() -> None:
    """As in a pause between two listings of a large directory."""
    state = Idleness().looked(Waiting(frozenset(), 10), 1)
    assert state.looked(Waiting(frozenset(), 10), 1).lengths == (0,)
    assert state.looked(Waiting(frozenset(), 30), 1).lengths == (20,)
    assert state.looked(Waiting(frozenset({0}), 30), 1).looked(Waiting(frozenset(), 50), 1).lengths == (0,)


@pytest.mark.parametrize(
    ("newest", "idle", "expected"),
    [
        ((30, 10), (None, None), 10),
        ((30, 10), (None, 4), 10),
        ((30, 10), (None, 5), 30),
        ((30, 10), (5, 5), 10),  # the watermark rests where the data ended
        ((30, None), (None, 4), None),  # a partition without a row yet
        ((30, None), (None, 5), 30),
        ((30,), (None, None), None),  # one that was just found
        ((30,), (None, 5), 30),
        ((30, 10), (None,), 30),  # one that the source has no more
    ],
)
def test_which_partitions_hold_the_watermark_back(
    newest: tuple[int | None, ...], idle: tuple[int | None, ...], expected: int | None
) -> None:
    state, policy = WatermarkState(newest, value=-1), tm.watermark(0, idle_after=5)
    assert state.advanced(policy, idle).value == (-1 if expected is None else expected)


@pytest.mark.parametrize(
    ("newest", "idle", "expected"),
    [
        ((30, 10), (9, 9), 10),
        ((30, 10), (10, 12), 40),
        ((30, 10), (None, 12), 10),
        ((30, None), (10, 10), 40),  # one that never had a row cannot hold the last windows for ever
        ((None, None), (99, 99), None),
    ],
)
def test_when_all_is_idle_time_moves_the_watermark(
    newest: tuple[int | None, ...], idle: tuple[int | None, ...], expected: int | None
) -> None:
    state, policy = WatermarkState(newest, value=-1), tm.watermark(0, close_on_idle=10)
    assert state.advanced(policy, idle).value == (-1 if expected is None else expected)


def test_what_an_older_version_wrote_of_the_watermark_is_read() -> None:
    old: Mapping[str, Any] = {"newest": [1, None], "active_at": [5, 5], "injected": None, "value": 0}
    assert WatermarkState.from_json(old) == WatermarkState((1, None), None, 0)
