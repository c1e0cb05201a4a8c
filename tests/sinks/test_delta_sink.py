"""What the Delta sink does beyond the suite that all sinks pass."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

import transom as tm
from transom.errors import DefinitionError, SinkError
from transom.model.time import ManualClock
from transom.sinks.base import WindowResults
from transom.testing.sinks import opened, results

deltalake = pytest.importorskip("deltalake")


def table(path):
    return deltalake.DeltaTable(str(path))


def rows(path):
    return sorted((row["zone"], row["n"]) for row in table(path).to_pyarrow_table().to_pylist())


def test_each_cut_is_a_version_and_says_which(tmp_path):
    sink = opened(tm.sinks.delta(tmp_path), 1)
    for cut in (1, 4):
        sink.write(results(cut, {"Soho": cut}, window=cut))
    assert table(tmp_path).version() == 1
    assert table(tmp_path).transaction_version("transom-checkpoint-1-fares") == 4
    sink.close()


@pytest.mark.parametrize("written", [False, True])
def test_a_kill_around_the_commit(tmp_path, monkeypatch, written):
    """The engine does not know whether it was committed; the next run writes it again."""
    really = deltalake.write_deltalake
    sink = opened(tm.sinks.delta(tmp_path), 1)
    sink.write(results(1, {"Soho": 1}))

    def killed(*args, **options):
        if written:
            really(*args, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(deltalake, "write_deltalake", killed)
        with pytest.raises(KeyboardInterrupt):
            sink.write(results(2, {"Soho": 2}, window=1))
    again = opened(tm.sinks.delta(tmp_path), 3)
    again.write(results(2, {"Soho": 2}, window=1))
    assert rows(tmp_path) == [("Soho", 1), ("Soho", 2)]


def test_two_writers_of_one_cut_write_it_once(tmp_path, monkeypatch):
    """The other one commits after this one has looked."""
    one, two = (opened(tm.sinks.delta(tmp_path), 1) for _ in range(2))
    one.write(results(1, {"Soho": 1}))
    assert two._last_cut() == 1
    one.write(results(2, {"Soho": 2}, window=1))
    with monkeypatch.context() as patch:
        patch.setattr(two, "_last_cut", lambda: 1)
        with pytest.raises(deltalake.exceptions.CommitFailedError):
            two.write(results(2, {"Soho": 2}, window=1))
    two.write(results(2, {"Soho": 2}, window=1))
    assert rows(tmp_path) == [("Soho", 1), ("Soho", 2)]


def test_partitions_and_types(tmp_path):
    plain = results(1, {"Soho": 1, None: 2})
    odd = {
        "u": pa.array([2**64 - 1, None], pa.uint64()),
        "took": pa.array([timedelta(seconds=1), None], pa.duration("us")),
        "kind": pa.array(["x", None]).dictionary_encode(),
        "list": pa.array([[1], None], pa.list_(pa.int64())),
        "local": pa.array([0, None], pa.timestamp("us")),
    }
    whole = plain.table
    for name, column in odd.items():
        whole = whole.append_column(name, column)
    opened(tm.sinks.delta(tmp_path, partition_by=["zone", "kind"]), 1).write(
        WindowResults("fares", 1, whole, plain.keys)
    )
    assert table(tmp_path).metadata().partition_columns == ["zone", "kind"]
    found = {row["zone"]: row for row in table(tmp_path).to_pyarrow_table().to_pylist()}
    assert (found["Soho"]["u"], found["Soho"]["took"], found["Soho"]["kind"]) == (2**64 - 1, 1_000_000, "x")
    assert [found[None][name] for name in odd] == [None] * 5


def test_an_empty_text_is_no_partition(tmp_path):
    sink = opened(tm.sinks.delta(tmp_path, partition_by="zone"), 1)
    sink.write(results(1, {None: 1, "Soho": 2}))
    with pytest.raises(SinkError, match="zone has an empty text"):
        opened(tm.sinks.delta(tmp_path), 2).write(results(2, {"": 1}, window=1))
    assert {row["zone"] for row in table(tmp_path).to_pyarrow_table().to_pylist()} == {None, "Soho"}


def test_columns_stay_and_what_is_there_is_left_alone(tmp_path):
    sink = opened(tm.sinks.delta(tmp_path / "a"), 1)
    sink.write(results(1, {"Soho": 1}))
    with pytest.raises(SinkError, match="has other columns"):
        sink.write(results(2, {"Soho": 2}, window=1, revision=0))
    deltalake.write_deltalake(str(tmp_path / "b"), pa.table({"n": [1]}))
    with pytest.raises(SinkError, match="holds results already"):
        opened(tm.sinks.delta(tmp_path / "b"), 1)
    with pytest.raises(DefinitionError, match="twice"):
        tm.sinks.delta(tmp_path, partition_by=["zone", "zone"])
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="cannot be used"):
        tm.sinks.delta(tmp_path / "file").open("q")


def test_an_application_is_killed_and_goes_on(spark, tmp_path):
    def run(**options):
        source = tm.sources.memory("zone string, at long")
        source.add([("ab"[at % 2], at) for at in range(30)])
        app = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(0), max_rows_per_cut=10)
        stream = app.stream(source, event_time="timestamp_seconds(at)", watermark=tm.watermark(0, max_ahead=None))
        counts = stream.group_by("zone").window("10 seconds").agg(n=tm.count())
        counts.to(tm.sinks.delta(tmp_path / "out", partition_by="zone"), "q")
        app._on_step = options.get("on_step", app._on_step)
        return app.run(once=True, close_all=True)

    class Killed(BaseException):
        pass

    def kill(step):
        if step == "delivered":
            raise Killed

    with pytest.raises(Killed):
        run(on_step=kill)
    run()
    found = table(tmp_path / "out").to_pyarrow_table().to_pylist()
    assert sorted((row["window_start"].second, row["zone"], row["n"]) for row in found) == [
        (start, zone, 5) for start in (0, 10, 20) for zone in "ab"
    ]
