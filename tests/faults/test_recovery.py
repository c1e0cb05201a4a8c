"""What a restart makes of a log that ends anywhere, and of a job that has changed meanwhile."""

from __future__ import annotations

import faults_app
import numpy as np
import pytest
from faults_app import Killed, at_step

import transom as tm
from transom.checkpoint.store import Checkpoint
from transom.engine.loop import delivery
from transom.engine.state import state
from transom.engine.state.stores import StoreEntry
from transom.errors import (
    CheckpointCorruptError,
    CheckpointFencedError,
    CheckpointInUseError,
    SessionError,
)
from transom.model.time import ManualClock

NOON = 1_700_000_000_000_000
SECOND = 1_000_000

without_jobs = pytest.mark.usefixtures("in_memory")


def source(until, of=2):
    """A row per second, alternating between zones."""
    added = tm.sources.memory("zone string, at timestamp, size long")
    added.add([("ab"[i % of], i * SECOND, i) for i in range(until)])
    return added


def build(spark, tmp_path, rows, queries, **settings):
    """One query per name: `size` sums, `n` counts, each over 10 s."""
    app = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(NOON), max_rows_per_cut=10, **settings)
    stream = app.stream(rows, event_time="at", watermark=tm.watermark(0, max_ahead=None))
    for name, (sink, values) in queries.items():
        stream.group_by("zone").window("10 seconds").agg(**values).to(sink, name)
    return app


def kill():
    raise Killed


def killed_at(app, step, number=1, **options):
    app._on_step = at_step(step, number, kill)
    with pytest.raises(Killed):
        app.run(once=True, **options)


def starts(sink, query):
    return [(row["window_start"].minute * 60 + row["window_start"].second, row["zone"]) for row in sink.rows(query)]


def both(*seconds):
    return [(second, zone) for second in seconds for zone in "ab"]


COUNT = {"n": tm.count()}


@without_jobs
def test_more_rows_after_all_windows_were_closed(spark, tmp_path):
    """Only the windows that were open are closed; later ones are not."""
    rows, sink = source(25), tm.sinks.memory()
    build(spark, tmp_path, rows, {"q": (sink, COUNT)}).run(once=True, close_all=True)
    assert starts(sink, "q") == both(0, 10, 20)
    rows.add([("a", 26 * SECOND, 0), ("b", 30 * SECOND, 0), ("a", 31 * SECOND, 0)])
    progress = build(spark, tmp_path, rows, {"q": (sink, COUNT)}).run(once=True, close_all=True)
    assert starts(sink, "q") == [*both(0, 10, 20), *both(30)]
    assert progress.queries[0].late_rows == 1


OVERFLOWING = "9223372036854775807"


def failing_at_close(spark, tmp_path, rows, sinks):
    """`bad` overflows in the window [10, 20) when its two partials are merged."""
    app = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(NOON), max_rows_per_cut=5)
    stream = app.stream(rows, event_time="at", watermark=tm.watermark(0, max_ahead=None))
    huge = stream.map(lambda df: df.selectExpr("at", f"IF(second(at) IN (12, 17), {OVERFLOWING}, 0) AS size"))
    huge.window("10 seconds").agg(size=tm.sum("size")).to(sinks["bad"], "bad")
    stream.group_by("zone").window("10 seconds").agg(n=tm.count()).to(sinks["good"], "good")
    return app


@pytest.mark.parametrize(
    "step", ["windows closed", *(pytest.param(step, marks=pytest.mark.slow) for step in ("cut logged", "none"))]
)
def test_a_query_that_fails_when_its_window_closes(spark, tmp_path, step):
    """Killed between the cut and the record of the failure, the failure is found again and not forgotten."""
    rows, sinks = source(40), {"good": tm.sinks.memory(), "bad": tm.sinks.memory()}
    if step != "none":
        killed_at(failing_at_close(spark, tmp_path, rows, sinks), step, 5)
    progress = failing_at_close(spark, tmp_path, rows, sinks).run(once=True, close_all=True)
    failures = {query.name: query.failure for query in progress.queries}
    assert failures["good"] is None
    assert "does not fit" in failures["bad"]
    assert [row["window_start"].second for row in sinks["bad"].rows("bad")] == [0]
    assert starts(sinks["good"], "good") == both(0, 10, 20, 30)


@without_jobs
@pytest.mark.parametrize("snapshot_bytes", [1, 1 << 20], ids=["snapshots", "log"])
def test_a_query_that_was_removed_and_comes_back_is_new(spark, tmp_path, snapshot_bytes):
    """Nothing that it left in the log comes out again, and no window that misses the rows of its absence."""
    options = {"snapshot_bytes": snapshot_bytes}
    rows, n, size = source(35), tm.sinks.memory(), tm.sinks.memory()
    sums = {"size": tm.sum("size")}
    app = build(spark, tmp_path, rows, {"n": (n, COUNT), "size": (size, sums)}, **options)
    killed_at(app, "windows closed", 3)  # window 0 of `size` is perhaps not delivered
    before = starts(size, "size")
    rows.add([("ab"[i % 2], i * SECOND, i) for i in range(35, 55)])
    killed_at(build(spark, tmp_path, rows, {"n": (n, COUNT)}, **options), "committed", 4)
    again = tm.sinks.memory()
    rows.add([("ab"[i % 2], i * SECOND, i) for i in range(55, 75)])
    app = build(spark, tmp_path, rows, {"n": (n, COUNT), "size": (again, sums)}, **options)
    app.run(once=True, close_all=True)
    assert starts(n, "n") == both(0, 10, 20, 30, 40, 50, 60, 70)
    assert before in ([], both(0))
    found = starts(again, "size")
    assert found == both(0, 10, 20, 30, 40, 50, 60, 70)[-len(found) :]
    assert found[0][0] >= 50
    assert {(row["window_start"].second + 60 * row["window_start"].minute, row["n"]) for row in n.rows("n")} == {
        *((start, 5) for start in range(0, 70, 10)),
        (70, 3),
        (70, 2),
    }
    by_start = [
        sum(row["size"] for row in again.rows("size") if row["window_start"].timestamp() == s) for s in (60, 70)
    ]
    assert by_start == [sum(range(60, 70)), sum(range(70, 75))]


@without_jobs
def test_a_second_run_is_refused_while_the_first_lives(spark, tmp_path):
    rows, sink = source(30), tm.sinks.memory()
    refused = []

    def second():
        with pytest.raises(CheckpointInUseError, match="is in use by process"):
            build(spark, tmp_path, rows, {"q": (tm.sinks.memory(), COUNT)}).run(once=True)
        refused.append(True)

    app = build(spark, tmp_path, rows, {"q": (sink, COUNT)})
    app._on_step = at_step("committed", 2, second)
    app.run(once=True, close_all=True)
    assert refused
    assert starts(sink, "q") == both(0, 10, 20)


@without_jobs
@pytest.mark.parametrize("step", ["cut logged", "job done", "committed", "delivered", "before snapshot"])
def test_a_driver_that_was_replaced_commits_no_more(spark, tmp_path, monkeypatch, step):
    opened = Checkpoint.open
    monkeypatch.setattr(Checkpoint, "open", lambda path, clock: opened(path, clock, lock=False))
    rows, out = source(30), tmp_path / "out"

    def replace():
        build(spark, tmp_path, rows, {"q": (tm.sinks.json(out), COUNT)}).run(once=True, close_all=True)

    app = build(spark, tmp_path, rows, {"q": (tm.sinks.json(out), COUNT)})
    app._on_step = at_step(step, 1 if step == "before snapshot" else 2, replace)
    with pytest.raises(CheckpointFencedError, match="took over"):
        app.run(once=True, close_all=True)
    found = faults_app.results(tmp_path, "")["out"]
    assert len(found) == len(set(found)) == 6


@without_jobs
@pytest.mark.parametrize("damage", ["half", "changed", "garbage"])
def test_the_last_record_is_damaged(spark, tmp_path, damage):
    """What a torn write leaves: the record does not count, and the run goes on before it."""
    rows, sink = source(40), tm.sinks.memory()
    killed_at(build(spark, tmp_path, rows, {"q": (sink, COUNT)}), "committed", 3)
    log = max((tmp_path / "checkpoint" / "log").glob("*.log"))
    data = log.read_bytes()
    last = data.rindex(b"\n", 0, -1) + 1
    if damage == "half":
        data = data[: last + (len(data) - last) // 2]
    elif damage == "changed":
        data = data[: last + 20] + b"#" + data[last + 21 :]
    else:
        data += b"\x00" * 100
    log.write_bytes(data)
    if damage != "garbage":  # it was durable, which the head tells
        with pytest.raises(CheckpointCorruptError, match="The end of the log"):
            build(spark, tmp_path, rows, {"q": (sink, COUNT)}).run(once=True, close_all=True)
        max((tmp_path / "checkpoint" / "log").glob("*.head")).unlink()
    build(spark, tmp_path, rows, {"q": (sink, COUNT)}).run(once=True, close_all=True)
    assert starts(sink, "q") == both(0, 10, 20, 30)
    assert {row["n"] for row in sink.rows("q")} == {5}


def test_merged_results_are_not_written_again(spark, tmp_path):
    """Results that were written but not logged as delivered, and merged by a compaction before the restart."""
    rows, out = source(45), tmp_path / "out"
    app = build(spark, tmp_path, rows, {"q": (tm.sinks.json(out), COUNT)})
    killed_at(app, "delivered", 3)
    (out / "part-999999999999.json").write_text("")  # the newest file is never merged
    from transom.sinks.compaction import compact

    assert compact(out).files_before > 2
    (out / "part-999999999999.json").unlink()
    build(spark, tmp_path, rows, {"q": (tm.sinks.json(out), COUNT)}).run(once=True, close_all=True)
    found = faults_app.results(tmp_path, "")["out"]
    assert len(found) == len(set(found)) == 10


@without_jobs
def test_two_streams_killed_again_and_again(spark, tmp_path):
    """Their records mix in one log, and snapshots find cuts of both under way."""
    sources, sinks = [source(40), source(50)], [tm.sinks.memory(), tm.sinks.memory()]

    def two():
        app = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(NOON), max_rows_per_cut=10, snapshot_bytes=3_000)
        for rows, sink, name in zip(sources, sinks, "xy", strict=True):
            stream = app.stream(rows, event_time="at", watermark=tm.watermark(0, max_ahead=None))
            windows = stream.group_by("zone").window("10 seconds", tm.sliding("20 seconds", every="10 seconds"))
            windows.agg(n=tm.count()).to(sink, name)
        return app

    for number in range(8, 200, 3):
        app = two()
        app._on_step = at_step("any", number, kill)
        try:
            app.run(once=True, close_all=True)
        except Killed:
            continue
        break
    assert number > 14
    for sink, name, until in zip(sinks, "xy", (40, 50), strict=True):
        found = sorted((row["window_start"].timestamp(), row["zone"], row["n"]) for row in sink.rows(name))
        tumbling = [(start, zone, 5) for start in range(0, until, 10) for zone in "ab"]
        sliding = [
            (start, zone, 5 if start in (-10, until - 10) else 10) for start in range(-10, until, 10) for zone in "ab"
        ]
        assert found == sorted(tumbling + sliding)


def all_kinds(spark, tmp_path, rows, sinks):
    """Windows, sessions, early results, and a query that reads the results of another.

    The jobs of all streams take about as long, so that the query that reads results is not many cuts behind.
    """
    app = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(NOON), max_rows_per_cut=5, lane="spark")
    stream = app.stream(rows, event_time="at", watermark=tm.watermark(0, max_ahead=None), name="rows")
    keyed = stream.group_by("zone")
    plain = keyed.window("10 seconds").agg(n=tm.count(), size=tm.sum("size"))
    plain.to(sinks["plain"], "plain")
    plain.results().window("20 seconds").agg(size=tm.sum("size")).to(sinks["chain"], "chain")
    keyed.window(tm.session_window("3 seconds")).agg(n=tm.count()).to(sinks["sessions"], "sessions")
    keyed.window("15 seconds", early="1 second", lateness="5 seconds").agg(n=tm.count()).to(sinks["early"], "early")
    return app


class AtOnce:
    """Does what is submitted before anything else happens."""

    def __init__(self, count, name):
        pass

    def submit(self, function, *arguments):
        function(*arguments)

    def close(self, longest):
        return True


def test_a_restart_merges_only_what_is_not_delivered(spark, tmp_path, monkeypatch):
    """What the sinks have, and what the streams behind have read, moves on without being made again."""
    monkeypatch.setattr(delivery, "Threads", AtOnce)  # else how much is not delivered depends on the machine
    rows = tm.sources.memory("zone string, at timestamp, size long")
    rows.add([("ab"[i % 2], (i + 10 * (i // 8)) * SECOND, i) for i in range(60)])
    names = ("plain", "chain", "sessions", "early")
    whole, sinks = ({name: tm.sinks.memory() for name in names} for _ in range(2))
    all_kinds(spark, tmp_path / "whole", rows, whole).run(once=True, close_all=True)

    merged, asked = [], state.asked

    def counting(stores, wanted, after, watermark, settled):
        merged.extend(
            (query, span)
            for query, windows in wanted.items()
            if query not in settled
            for span in {*(emission.span for emission in windows.emissions), *windows.final}
        )
        return asked(stores, wanted, after, watermark, settled)

    killed_at(all_kinds(spark, tmp_path, rows, sinks), "committed", 12)
    monkeypatch.setattr(state, "asked", counting)
    app = all_kinds(spark, tmp_path, rows, sinks)
    killed_at(app, "cut logged", 1)  # of the run that replays: no cut of its own has closed anything
    with Checkpoint.open(tmp_path / "checkpoint", ManualClock(NOON)) as checkpoint:
        records = checkpoint.records
    delivered = [tuple(item) for record in records if record["type"] == "delivered" for item in record["items"]]
    assert len(delivered) > 10
    assert len(merged) <= 4, "what the last cut before the kill closed"
    all_kinds(spark, tmp_path, rows, sinks).run(once=True, close_all=True)
    for name in names:
        assert sorted(map(str, sinks[name].rows(name))) == sorted(map(str, whole[name].rows(name))), name


def clash(*arguments, **options):
    """Raise what NumPy raises for states of types that do not fit."""
    return np.maximum(np.array(["a"], object), np.array([1]), dtype=np.int64)


@without_jobs
@pytest.mark.parametrize("step", ["none", "windows closed", "committed"])
@pytest.mark.parametrize("where", ["merging", "taking in"])
def test_an_error_of_the_engine_takes_out_its_queries_only_and_is_logged(
    spark, tmp_path, monkeypatch, caplog, where, step
):
    def one_and_two(rows, sinks):
        app = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(NOON), max_rows_per_cut=10)
        stream = app.stream(rows, event_time="at", watermark=tm.watermark(0, max_ahead=None))
        zones = stream.group_by("zone")
        zones.window("10 seconds").agg(n=tm.count()).to(sinks["good"], "good")
        bad = zones if where == "merging" else stream
        bad.window("20 seconds").agg(n=tm.count()).to(sinks["bad"], "bad")
        return app

    close, take = StoreEntry.close, StoreEntry.take

    def closed(entry, spans, *rest):
        return clash() if any(end - start == 20_000_000 for start, end in spans) else close(entry, spans, *rest)

    def taken(entry, *rest):
        return take(entry, *rest) if entry.key_set.keys else clash()

    monkeypatch.setattr(StoreEntry, *(("close", closed) if where == "merging" else ("take", taken)))
    rows, sinks = source(40), {"good": tm.sinks.memory(), "bad": tm.sinks.memory()}
    if step != "none":
        killed_at(one_and_two(rows, sinks), step, 3)
    progress = one_and_two(rows, sinks).run(once=True, close_all=True)
    failures = {query.name: query.failure for query in progress.queries}
    assert failures["good"] is None
    assert "its windows cannot be merged" in failures["bad"]
    assert starts(sinks["good"], "good") == both(0, 10, 20, 30)
    assert sinks["bad"].rows("bad") == []
    assert any(record.exc_info and record.name == "transom.engine.state.closing" for record in caplog.records)


@without_jobs
@pytest.mark.parametrize("error", [MemoryError(), CheckpointCorruptError("damaged")])
def test_what_no_query_can_help_ends_the_run_and_takes_out_none(spark, tmp_path, monkeypatch, error):
    rows, sinks = source(40), {"q": (tm.sinks.memory(), COUNT)}
    with monkeypatch.context() as patch:
        patch.setattr(StoreEntry, "close", lambda *arguments: (_ for _ in ()).throw(error))
        with pytest.raises((SessionError, CheckpointCorruptError)):
            build(spark, tmp_path, rows, sinks).run(once=True, close_all=True)
    progress = build(spark, tmp_path, rows, sinks).run(once=True, close_all=True)
    assert progress.queries[0].failure is None
    assert starts(sinks["q"][0], "q") == both(0, 10, 20, 30)
