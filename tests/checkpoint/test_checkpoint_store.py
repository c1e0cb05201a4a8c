"""A checkpoint that is opened, written and opened again."""

from __future__ import annotations

import json
import logging
import shutil

import pyarrow as pa
import pytest
from checkpoint_helpers import files, reopen, segments, table

from transom.checkpoint import describe
from transom.checkpoint.names import quoted
from transom.errors import CheckpointCorruptError, CheckpointError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint"


def fill(path, *records, tables=None):
    with reopen(path) as checkpoint:
        for record in records:
            checkpoint.append(record, sync=True)
        for name, content in (tables or {}).items():
            checkpoint.write_tables(name, content)


def test_a_new_checkpoint_is_empty(path):
    with reopen(path) as checkpoint:
        assert checkpoint.is_new
        assert checkpoint.epoch == 1
        assert checkpoint.snapshot is None
        assert checkpoint.records == []


def test_records_come_back_in_order_across_openings(path):
    fill(path, {"n": 1}, {"n": 2})
    fill(path)
    fill(path, {"n": 3})
    with reopen(path) as checkpoint:
        assert not checkpoint.is_new
        assert checkpoint.epoch == 4
        assert checkpoint.records == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_tables_come_back(path):
    rich = pa.table(
        {
            "s": pa.array(["a", None]).dictionary_encode(),
            "l": [[1, 2], []],
            "t": pa.array([0, 1], pa.timestamp("us", "UTC")),
        }
    ).replace_schema_metadata({b"key": b"value"})
    written = {"rich": rich, "ünï/codé": table(1, 2), "empty": table(), "slice": table(1, 2, 3)[1:2]}
    with reopen(path) as checkpoint:
        receipt = checkpoint.write_tables("cut-1", written)
        checkpoint.write_tables("none", {})
        assert json.loads(json.dumps(receipt)) == receipt
    with reopen(path) as checkpoint:
        found = checkpoint.read_tables("cut-1", receipt)
        assert list(found) == list(written)
        assert all(found[name].equals(written[name], check_metadata=True) for name in written)
        assert checkpoint.read_tables("none") == {}


@pytest.mark.parametrize(
    "name", ["trips-000000000012", "a/b", "..", ".", "a.b", "a b", "%", "Ä", "\x00", "\udc80", "x" * 500, "~"]
)
def test_tables_may_have_any_name(path, name):
    with reopen(path) as checkpoint:
        checkpoint.write_tables(name, {"t": table(1)})
        checkpoint.write_tables(name + "x", {"t": table(2)})
    with reopen(path) as checkpoint:
        assert checkpoint.read_tables(name)["t"].equals(table(1))
        assert checkpoint.read_tables(name + "x")["t"].equals(table(2))


def test_quoting_keeps_names_apart():
    names = ["a", "A", "%61", "a.b", "a%2Eb", "", "x" * 160, "x" * 161, "x" * 162, "x" * 127 + "~"]
    assert len({quoted(name) for name in names}) == len(names)
    assert all(len(quoted(name)) <= 160 for name in names)


def test_tables_are_replaced_by_name(path):
    with reopen(path) as checkpoint:
        checkpoint.write_tables("cut", {"t": table(1), "u": table(1)})
        checkpoint.write_tables("cut", {"t": table(2)})
        assert len(files(path, "partials")) == 1
    with reopen(path) as checkpoint:
        checkpoint.write_tables("cut", {"t": table(3)}, sync=False)
        assert len(files(path, "partials")) == 1
    with reopen(path) as checkpoint:
        assert checkpoint.read_tables("cut") == {"t": table(3)}


def test_a_snapshot_replaces_all_before_it(path):
    fill(path, {"n": 1}, tables={"a": {"t": table(1)}})
    with reopen(path) as checkpoint:
        checkpoint.append({"n": 2}, sync=False)
        checkpoint.write_tables("b", {"t": table(2)})
        checkpoint.write_snapshot({"last": 2}, {"open": table(1, 2)})
        assert len(segments(path)) == 1
        assert [len(files(path, kind)) for kind in ("partials", "snapshots")] == [0, 1]
        checkpoint.append({"n": 3}, sync=True)
        checkpoint.write_tables("c", {"t": table(3)})
    for _ in range(2):
        with reopen(path) as checkpoint:
            assert not checkpoint.is_new
            assert checkpoint.snapshot is not None
            assert checkpoint.snapshot.state == {"last": 2}
            assert dict(checkpoint.snapshot.tables) == {"open": table(1, 2)}
            assert checkpoint.records == [{"n": 3}]
            assert checkpoint.read_tables("c") == {"t": table(3)}
            with pytest.raises(CheckpointCorruptError, match="'b' are missing"):
                checkpoint.read_tables("b")
    with reopen(path) as checkpoint:
        checkpoint.write_snapshot({"last": 3}, {})
        assert checkpoint.snapshot is None
        checkpoint.write_snapshot({"last": 4}, {})
    with reopen(path) as checkpoint:
        assert checkpoint.snapshot is not None
        assert (checkpoint.snapshot.state, checkpoint.records) == ({"last": 4}, [])
        assert len(files(path, "snapshots")) == 1


def test_bytes_are_counted_since_the_last_snapshot(path):
    with reopen(path) as checkpoint:
        empty = checkpoint.log_bytes
        checkpoint.append({"n": 1}, sync=False)
        assert checkpoint.log_bytes == segments(path)[-1].stat().st_size
        first = checkpoint.write_tables("a", {"t": table(*range(1000))})
        second = checkpoint.write_tables("a", {"t": table(1)})
        assert first["bytes"] > second["bytes"]
        assert checkpoint.total_bytes == checkpoint.log_bytes + second["bytes"]
        before = checkpoint.log_bytes
    with reopen(path) as checkpoint:
        assert checkpoint.log_bytes > before
        assert checkpoint.total_bytes == checkpoint.log_bytes + second["bytes"]
        checkpoint.write_snapshot({}, {})
        assert checkpoint.total_bytes == checkpoint.log_bytes <= empty


def test_directories_for_others(path):
    with reopen(path) as checkpoint:
        kept = checkpoint.directory("sources", "a/b..c")
        (kept / "files.log").write_text("x")
        assert checkpoint.directory("sources", "..").parent == kept.parent == path / "sources"
        checkpoint.write_snapshot({}, {})
        for reserved in (("log",), ("partials", "x"), (), ("sources", "")):
            with pytest.raises(ValueError, match="not a directory for others"):
                checkpoint.directory(*reserved)
    with reopen(path) as checkpoint:
        assert (checkpoint.directory("sources", "a/b..c") / "files.log").read_text() == "x"
        assert sorted(checkpoint.names_in("sources")) == sorted(each.name for each in (path / "sources").iterdir())
        assert checkpoint.names_in("sources", "a/b..c") == ["files.log"]
        assert checkpoint.names_in("others") == []
        checkpoint.keep_only("others", [])
        checkpoint.keep_only("sources", ["a/b..c", "new"])
        assert checkpoint.names_in("sources", "..") == []
        assert checkpoint.names_in("sources", "a/b..c") == ["files.log"]
        checkpoint.clear("others")
        checkpoint.clear("sources", "a/b..c")
        assert checkpoint.names_in("sources") == []


def test_a_closed_checkpoint_is_not_written(path):
    with reopen(path) as checkpoint:
        pass
    checkpoint.close()
    with pytest.raises(CheckpointError, match="is closed"):
        checkpoint.append({}, sync=True)


def test_an_unknown_format_is_refused(path):
    fill(path, {"n": 1})
    (path / "checkpoint.json").write_text('{"format": 4}')
    for look in (reopen, describe):
        with pytest.raises(CheckpointError, match=r"has format 4; .* reads formats up to 3\. Use the version"):
            look(path)
    (path / "checkpoint.json").write_text("{")
    with pytest.raises(CheckpointCorruptError, match=r"checkpoint\.json is damaged"):
        reopen(path)


def test_what_is_no_checkpoint_is_left_alone(path):
    path.mkdir()
    (path / "thesis.tex").write_text("x")
    with pytest.raises(CheckpointError, match=r"not empty and no checkpoint: it holds 'thesis\.tex'"):
        reopen(path)
    assert [p.name for p in path.iterdir()] == ["thesis.tex"]
    with pytest.raises(CheckpointError, match="is a file"):
        reopen(path / "thesis.tex")
    with pytest.raises(CheckpointError, match="There is no checkpoint"):
        describe(path / "missing")


def test_a_torn_record_is_dropped_and_said(path, caplog):
    with reopen(path.with_name("killed")) as checkpoint:
        checkpoint.append({"n": 1}, sync=True)
        checkpoint.append({"n": 2}, sync=False)
        shutil.copytree(checkpoint.path, path)
    (segment,) = segments(path)
    segment.write_bytes(segment.read_bytes()[:-3])
    assert describe(path)["torn_bytes"] > 0
    with caplog.at_level(logging.WARNING), reopen(path) as checkpoint:
        assert checkpoint.records == [{"n": 1}]
        checkpoint.append({"n": 3}, sync=True)
    assert "interrupted before it was complete" in caplog.text
    with reopen(path) as checkpoint:
        assert checkpoint.records == [{"n": 1}, {"n": 3}]


def test_a_damaged_record_in_the_middle_is_an_error(path):
    fill(path, {"n": 1}, {"n": 2})
    (segment,) = segments(path)
    data = bytearray(segment.read_bytes())
    data[data.index(b'"n":1') + 1] ^= 1
    segment.write_bytes(data)
    with pytest.raises(CheckpointCorruptError, match=f"Line 2 of {segment} is damaged. The disk"):
        reopen(path)
    segment.write_bytes(data.replace(b"o", b"n"))
    with pytest.raises(CheckpointCorruptError):  # the lock was released, too
        reopen(path)


def test_the_last_record_of_an_older_segment_must_be_there(path):
    fill(path, {"n": 1})
    fill(path, {"n": 2})
    older, _ = segments(path)
    data = older.read_bytes()
    older.write_bytes(data[:-1])
    with pytest.raises(CheckpointCorruptError, match=r"e000001-000001\.log has \d+ bytes, but had"):
        reopen(path)
    older.unlink()
    with pytest.raises(CheckpointCorruptError, match=r"e000001-000001\.log is missing"):
        reopen(path)
    older.write_bytes(segments(path)[-1].read_bytes())
    with pytest.raises(CheckpointCorruptError):
        reopen(path)


def test_every_changed_or_missing_byte_of_tables_is_found(path):
    with reopen(path) as checkpoint:
        checkpoint.write_tables("cut", {"t": table(1, 2), "u": table(3)})
        (file,) = (path / "partials").iterdir()
        data = file.read_bytes()
        for position in range(len(data)):
            file.write_bytes(data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
            with pytest.raises(CheckpointCorruptError, match=r"\.tables is damaged"):
                checkpoint.read_tables("cut")
        for length in range(0, len(data), 7):
            file.write_bytes(data[:length])
            with pytest.raises(CheckpointCorruptError):
                checkpoint.read_tables("cut")
        file.unlink()
        with pytest.raises(CheckpointCorruptError, match="is missing"):
            checkpoint.read_tables("cut")


def test_tables_that_the_log_does_not_tell_of_are_found(path):
    with reopen(path) as checkpoint:
        first = checkpoint.write_tables("cut", {"t": table(1)})
        checkpoint.write_tables("cut", {"t": table(2)})
        with pytest.raises(CheckpointCorruptError, match="not the one that the log tells of"):
            checkpoint.read_tables("cut", first)


def test_a_damaged_snapshot_is_an_error(path):
    with reopen(path) as checkpoint:
        checkpoint.write_snapshot({"n": 1}, {"t": table(1)})
    (file,) = (path / "snapshots").iterdir()
    data = file.read_bytes()
    file.write_bytes(data[:100] + b"?" + data[101:])
    with pytest.raises(CheckpointCorruptError, match=r"\.snapshot is damaged"):
        reopen(path)
    file.write_bytes(data)
    segments(path)[-1].unlink()
    with pytest.raises(CheckpointCorruptError, match=r"e000001-000002\.log is missing"):
        reopen(path)


def test_what_a_crash_left_behind_is_removed(path):
    fill(path, {"n": 1}, tables={"a": {"t": table(1)}})
    for kind in ("", "log", "partials", "snapshots"):
        (path / kind / ".x.tmp").write_text("half")
    (path / "partials" / "notes.txt").write_text("somebody's")
    fill(path)
    assert not list(path.rglob("*.tmp"))
    assert (path / "partials" / "notes.txt").exists()


def test_a_value_that_json_cannot_hold_changes_nothing(path):
    with reopen(path) as checkpoint:
        checkpoint.append({"n": 1}, sync=True)
        with pytest.raises(TypeError):
            checkpoint.append({"n": {1}}, sync=True)
        with pytest.raises(TypeError):
            checkpoint.write_snapshot({"n": {1}}, {"t": table(1)})
        checkpoint.append({"n": 2}, sync=True)
    with reopen(path) as checkpoint:
        assert (checkpoint.snapshot, checkpoint.records) == (None, [{"n": 1}, {"n": 2}])
