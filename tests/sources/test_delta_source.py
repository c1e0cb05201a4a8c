"""A Delta table as a stream: what is appended to it, and what of it is refused."""

from __future__ import annotations

import errno
import json
from unittest.mock import Mock

import pyarrow as pa
import pytest

import transom as tm
from transom.errors import CheckpointFullError, SourceError
from transom.model.time import ManualClock
from transom.sources.filesets import deltalog
from transom.sources.filesets.deltalog import DeltaLog, TableColumns

deltalake = pytest.importorskip("deltalake")


def append(path, *numbers, **options):
    table = pa.table({"zone": [f"z {n % 2}" if n % 3 else None for n in numbers], "n": list(numbers)})
    deltalake.write_deltalake(str(path), table, mode="append", **options)


def follow(path, directory, ignore_changes=False):
    """Return a log and the names of files that it finds, by poll."""
    log = DeltaLog(path, directory, ignore_changes)
    known = set()

    def poll():
        found = log.poll(known, None)
        known.update(name for name, *_ in found)
        return len(found)

    return log, poll


@pytest.fixture
def state(tmp_path):
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


def test_files_come_by_version_and_once(tmp_path, state):
    path = tmp_path / "t"
    append(path, 1)
    append(path, 2)
    _, poll = follow(path, state)
    assert [poll(), poll()] == [2, 0]
    append(path, 3)
    append(path, 4, 5)
    assert [poll(), poll()] == [2, 0]
    deltalake.DeltaTable(str(path)).optimize.compact()
    assert poll() == 0
    append(path, 6)
    assert poll() == 1
    _, poll = follow(path, state)
    assert poll() == 1, "the last poll is repeated, since nobody knows whether its files were noted"


def test_a_disk_that_is_full_for_a_while_leaves_no_gap(tmp_path, state, monkeypatch):
    """What could not be noted is noted by the next poll, before its files are returned."""
    path = tmp_path / "t"
    append(path, 1)
    _, poll = follow(path, state)
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    for number in (2, 3):
        with monkeypatch.context() as patch:
            patch.setattr(deltalog, "replacing", full)
            with pytest.raises(CheckpointFullError):
                poll()
        assert poll() == 1
        _, again = follow(path, state)
        assert again() == 1, "the last poll is repeated"
        append(path, number)


def test_a_snapshot_is_repeated_as_it_was(tmp_path, state):
    """What was removed after it and before the restart is found."""
    path = tmp_path / "t"
    append(path, 1)
    append(path, 2)
    _, poll = follow(path, state)
    assert poll() == 2
    deltalake.DeltaTable(str(path)).delete("n = 1")
    _, poll = follow(path, state)
    assert poll() == 2
    with pytest.raises(SourceError, match=r"version 2 of .* removes or rewrites rows.*ignore_changes"):
        poll()


def test_versions_that_change_rows_are_passed_over_if_asked(tmp_path, state):
    path = tmp_path / "t"
    append(path, 1, 2)
    _, poll = follow(path, state, ignore_changes=True)
    assert poll() == 1
    deltalake.DeltaTable(str(path)).update(updates={"n": "n + 10"}, predicate="n = 1")
    append(path, 3)
    assert poll() == 1


def test_what_is_refused(tmp_path, state):
    with pytest.raises(SourceError, match="there is no Delta table"):
        DeltaLog(tmp_path / "nothing", state, False)
    with pytest.raises(SourceError, match="column mapping"):
        TableColumns.of(tmp_path, '{"fields": []}', (), {"delta.columnMapping.mode": "name"})
    kinds = json.dumps({"fields": [{"name": "at", "type": "timestamp"}]})
    with pytest.raises(SourceError, match="partitioned by at, a timestamp"):
        TableColumns.of(tmp_path, kinds, ("at",), {})
    path = tmp_path / "t"
    append(path, 1)
    log, poll = follow(path, state)
    poll()
    with pytest.raises(SourceError, match="needs a reader that knows flying"):
        log._check_features(["flying", "timestampNtz"])
    add = {"add": {"path": "x.parquet", "dataChange": True, "deletionVector": {"storageType": "u"}}}
    version = path / "_delta_log" / f"{1:020d}.json"
    version.write_text(json.dumps(add))
    with pytest.raises(SourceError, match=r"deletion vectors.*REORG"):
        poll()
    version.write_text(json.dumps({"add": {"path": "gone.parquet", "dataChange": True}}))
    with pytest.raises(SourceError, match="VACUUM has removed it"):
        poll()
    version.unlink()
    deltalake.write_deltalake(
        str(path), pa.table({"zone": ["a"], "n": [1], "more": [1]}), mode="append", schema_mode="merge"
    )
    with pytest.raises(SourceError, match=r"the columns of .* changed with version 1.*Start the application again"):
        poll()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_version_that_is_removed_before_it_is_read(tmp_path, state, restarted):
    """There are later ones, so it is not one that is still to come, also if there was none when the log was opened."""
    path = tmp_path / "t"
    append(path, 1)
    _log, poll = follow(path, state)
    assert [poll(), poll(), poll()] == [1, 0, 0]
    append(path, 2)
    append(path, 3)
    if restarted:
        _log, poll = follow(path, state)
    (path / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(SourceError, match=r"has version 1 no more.*delta.logRetentionDuration"):
        poll()


def test_a_snapshot_that_cannot_be_repeated(tmp_path, state):
    path = tmp_path / "t"
    append(path, 1)
    _, poll = follow(path, state)
    assert poll() == 1
    append(path, 2)
    deltalake.DeltaTable(str(path)).create_checkpoint()
    (path / "_delta_log" / f"{0:020d}.json").unlink()
    _, poll = follow(path, state)
    with pytest.raises(SourceError, match="has version 0 no more"):
        poll()


@pytest.mark.parametrize("versions", [0, 1, 4])
@pytest.mark.parametrize("runs", [True, False])
def test_a_table_that_was_made_anew(tmp_path, state, versions, runs):
    """Its versions are not those that were to come, however many there are."""
    path = tmp_path / "t"
    append(path, 1)
    append(path, 2)
    _, poll = follow(path, state)
    assert [poll(), poll()] == [2, 0]
    path.rename(tmp_path / "old")
    for number in range(versions):
        append(path, number + 1)
    look = poll if runs else lambda: follow(path, state)
    with pytest.raises(SourceError, match=r"made anew|there is no Delta table"):
        look()


def test_a_table_that_is_replaced_in_a_version_is_still_the_same(tmp_path, state):
    path = tmp_path / "t"
    append(path, 1)
    _, poll = follow(path, state, ignore_changes=True)
    assert [poll(), poll()] == [1, 0]
    deltalake.DeltaTable.create(str(path), deltalake.DeltaTable(str(path)).schema(), mode="overwrite")
    append(path, 2)
    for found in (1, 1):
        _, poll = follow(path, state, ignore_changes=True)
        assert poll() == found
    assert poll() == 0
    append(path, 3)
    _, poll = follow(path, state, ignore_changes=True)
    assert poll() == 1


def test_a_partitioned_table_feeds_an_application(spark, tmp_path):
    path = tmp_path / "a table"
    at = pa.array([0, 1_000_000, 2_000_000, 3_000_000], pa.timestamp("us", "UTC"))
    rows = pa.table({"zone": ["a b", None, "c/d", "a b"], "n": [1, 2, 3, 4], "at": at})
    deltalake.write_deltalake(str(path), rows, partition_by=["zone", "n"])
    sink = tm.sinks.memory()

    def run():
        app = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(0))
        source = tm.sources.delta(path)
        stream = app.stream(source, event_time="at", watermark=tm.watermark(0, max_ahead=None))
        stream.group_by("zone").window("1 hour").agg(total=tm.sum("n")).to(sink, "q")
        return app, source

    app, source = run()
    assert source.schema.simpleString() == "struct<zone:string,n:bigint,at:timestamp>"
    app.run(once=True)
    deltalake.write_deltalake(str(path), rows, mode="append")
    app, _ = run()
    app.run(once=True, close_all=True)
    assert {row["zone"]: row["total"] for row in sink.rows("q")} == {"a b": 10, None: 4, "c/d": 6}
