"""The rows of a stream as files: each once, whatever is killed when."""

from __future__ import annotations

import errno
import os

import pytest

import transom as tm
from transom.checkpoint.files import Written
from transom.engine.spark.rowfiles import KeptRows
from transom.engine.streams import taps
from transom.errors import CheckpointError, DefinitionError, SinkError
from transom.model.time import ManualClock
from transom.storage import durable

NOON = 1_700_000_000_000_000


class Killed(BaseException):
    pass


def application(spark, tmp_path, rows=40, late=()):
    """Rows of a second each, ten to a cut; the pairs (zone, at) of `late` come as the last ones."""
    source = tm.sources.memory("zone string, n int, at long")
    source.add([("ab"[at % 2] if at % 5 else None, at, at) for at in range(rows)])
    source.add([("late", n, at) for n, at in late])
    app = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(NOON), max_rows_per_cut=10)
    return app, app.stream(source, event_time="timestamp_seconds(at)", watermark=tm.watermark(0, max_ahead=None))


def written(spark, path, kind="parquet"):
    if not list(path.rglob(f"rows-*.{kind}")):
        return []
    reader = spark.read.option("header", "true").schema("n int, zone string") if kind != "parquet" else spark.read
    return sorted(row.n for row in reader.format(kind).load(str(path)).select("n").collect())


@pytest.mark.parametrize("kind", ["parquet", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("json", "csv"))])
def test_rows_after_map_and_where(spark, tmp_path, kind):
    app, stream = application(spark, tmp_path)
    sink = getattr(tm.sinks, kind)(tmp_path / "out")
    mapped = stream.map(lambda df: df.selectExpr("n * 2 as n", "zone", "at")).where("n % 4 = 0")
    mapped.rows().to(sink, "kept")
    counts = tm.sinks.memory()
    stream.window("10 seconds").agg(n=tm.count()).to(counts, "counts")
    progress = app.run(once=True, close_all=True)
    assert written(spark, tmp_path / "out", kind) == [2 * n for n in range(40) if n % 2 == 0]
    assert [row["n"] for row in counts.rows("counts")] == [10] * 4
    assert {query.name: query.result_rows for query in progress.queries} == {"kept": 1, "counts": 4}
    assert progress.streams[0].dead_letters == {}
    left = [path.name for path in (tmp_path / "out").iterdir()]
    assert all(name.startswith("rows-00000000000") or name == "_transom" for name in left), left


def test_rows_by_directory(spark, tmp_path):
    app, stream = application(spark, tmp_path, 20)
    stream.rows().to(tm.sinks.parquet(tmp_path / "out"), partition_by="zone")
    app.run(once=True)
    assert {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()} == {
        *("zone=a", "zone=b", "zone=__HIVE_DEFAULT_PARTITION__"),
    }
    assert written(spark, tmp_path / "out") == list(range(20))


@pytest.mark.parametrize(
    "step",
    [
        "job done",
        "committed",
        *(pytest.param(step, marks=pytest.mark.slow) for step in ("cut logged", "before snapshot")),
    ],
)
@pytest.mark.parametrize("number", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_kill_at_any_step(spark, tmp_path, step, number):
    app, stream = application(spark, tmp_path)
    stream.rows().to(tm.sinks.parquet(tmp_path / "out"), "kept")
    seen = []

    def kill(name):
        seen.append(name)
        if seen.count(step) == number:
            raise Killed

    app._on_step = kill
    try:
        app.run(once=True)
    except Killed:
        assert written(spark, tmp_path / "out") in [list(range(10 * cuts)) for cuts in range(5)]
    app, stream = application(spark, tmp_path)
    stream.rows().to(tm.sinks.parquet(tmp_path / "out"), "kept")
    app.run(once=True)
    assert written(spark, tmp_path / "out") == list(range(40))


def test_a_kill_while_files_get_their_names(spark, tmp_path, monkeypatch):
    really, moved = os.replace, []

    def replace(source, target):
        if "rows-" in str(target):
            moved.append(target)
            if len(moved) == 5:  # the second of a cut's three directories
                raise Killed
        really(source, target)

    app, stream = application(spark, tmp_path)
    stream.rows().to(tm.sinks.parquet(tmp_path / "out"), "kept", partition_by="zone")
    with monkeypatch.context() as patch:
        patch.setattr(durable.os, "replace", replace)
        with pytest.raises(Killed):
            app.run(once=True)
    app, stream = application(spark, tmp_path)
    stream.rows().to(tm.sinks.parquet(tmp_path / "out"), "kept", partition_by="zone")
    app.run(once=True)
    assert written(spark, tmp_path / "out") == list(range(40))


def test_late_rows_of_a_query(spark, tmp_path):
    late = [(100, 3), (101, 39), (102, 12)]
    app, stream = application(spark, tmp_path, 40, late)
    query = stream.window("10 seconds").agg(n=tm.count())
    query.to(tm.sinks.memory(), "counts")
    query.late_rows().rows().to(tm.sinks.parquet(tmp_path / "late"), "late")
    stream.rows().to(tm.sinks.parquet(tmp_path / "all"), "all")
    progress = app.run(once=True)
    assert written(spark, tmp_path / "late") == [100, 102]
    assert written(spark, tmp_path / "all") == [*range(40), 100, 101, 102]
    assert {query.name: query.late_rows for query in progress.queries} == {"counts": 2, "late": 0, "all": 0}


def test_a_query_that_comes_back_writes_into_its_new_directory_only(spark, tmp_path):
    """Removed and added again while the application runs; the stream that stays forgets the former directory."""
    app, stream = application(spark, tmp_path)
    stream.rows().to(tm.sinks.parquet(tmp_path / "former"), "kept")
    stream.window("10 seconds").agg(n=tm.count()).to(tm.sinks.memory(), "counts")
    asked, left = [], []

    def change(step):
        if step == "committed" and not asked:
            asked.append(app.remove("kept"))
        elif len(asked) == 1 and "kept" not in app.names:
            left.extend(app._loop.streams["stream1"].buffers)
            even = stream.where("n % 2 = 0").rows()
            asked.append(even.to(tm.sinks.parquet(tmp_path / "new"), "kept"))

    app._on_step = change
    app.run(once=True)
    former = written(spark, tmp_path / "former")
    new = written(spark, tmp_path / "new")
    assert former == list(range(len(former)))
    assert new == list(range(new[0], 40, 2))
    assert new[0] >= len(former) > 0
    assert left == []


@pytest.mark.parametrize("late", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_query_is_not_to_blame_for_where_its_rows_go(spark, tmp_path, late):
    """A file is where rows are to be written; when it is away, the next run takes the same rows."""
    where = tmp_path / "checkpoint" / "sources" / "counts.late" if late else tmp_path / "out"

    def make():
        app, stream = application(spark, tmp_path, 20, [(100, 3), (101, 4)])
        query = stream.window("10 seconds").agg(n=tm.count())
        query.to(tm.sinks.memory(), "counts")
        rows = query.late_rows().rows() if late else stream.rows()
        rows.to(tm.sinks.parquet(tmp_path / "out"), "kept")
        return app

    def block(step):
        if step == "cut logged" and not where.is_file():
            where.rename(tmp_path / "aside") if where.exists() else None
            where.write_text("in the way")

    app = make()
    app._on_step = block
    with pytest.raises(
        CheckpointError, match=f"Could not keep the rows of {'counts' if late else 'kept'} in .*{where}"
    ):
        app.run(once=True)
    where.unlink()
    (tmp_path / "aside").rename(where) if (tmp_path / "aside").exists() else None
    progress = make().run(once=True)
    assert [query.failure for query in progress.queries] == [None, None]
    assert written(spark, tmp_path / "out") == ([100, 101] if late else [*range(20), 100, 101])


@pytest.mark.parametrize(
    ("kind", "select", "by", "message"),
    [
        ("csv", ["array(n) as many", "at"], (), "'kept': the column 'many' has the type array, which CSV cannot hold"),
        ("json", ["array(n) as many", "at"], "zoen", "'kept': partition_by: there is no column 'zoen'.*many, at"),
        ("parquet", ["zone", "at"], ("ZONE", "at"), "'kept': partition_by: all columns are in it"),
    ],
)
def test_rows_that_cannot_be_written_are_refused_at_the_start(spark, tmp_path, kind, select, by, message):
    app, stream = application(spark, tmp_path, 10)
    sink = getattr(tm.sinks, kind)(tmp_path / "out")
    stream.map(lambda df: df.selectExpr(*select)).rows().to(sink, "kept", partition_by=by)
    with pytest.raises(DefinitionError, match=message):
        app.run(once=True)


def test_a_query_whose_rows_cannot_be_computed_is_taken_out(spark, tmp_path):
    app, stream = application(spark, tmp_path, 10)
    bad = "if(n < 5, n, raise_error('no')) as n"  # which no count of the rows needs
    stream.map(lambda df: df.selectExpr(bad, "at")).rows().to(tm.sinks.csv(tmp_path / "out"), "kept")
    stream.rows().to(tm.sinks.parquet(tmp_path / "all"), "all")
    progress = app.run(once=True)
    assert [bool(query.failure) for query in progress.queries] == [True, False]
    assert written(spark, tmp_path / "all") == list(range(10))


def test_rows_that_wait_when_the_directory_changes_are_seen_where_they_were_to_go(spark, tmp_path, monkeypatch):
    app, stream = application(spark, tmp_path, 20)
    stream.rows().to(tm.sinks.parquet(tmp_path / "former"), "kept")
    with monkeypatch.context() as patch:
        patch.setattr(taps, "move", refused)
        with pytest.raises(SinkError, match="rows of the committed micro-batch 1 wait"):
            app.run(once=True)
    assert written(spark, tmp_path / "former") == []
    app, stream = application(spark, tmp_path, 20)
    stream.rows().to(tm.sinks.parquet(tmp_path / "new"), "kept")
    app.run(once=True)
    assert written(spark, tmp_path / "former") == list(range(10))
    assert written(spark, tmp_path / "new") == list(range(10, 20))


def test_rows_that_wait_when_their_query_is_not_in_the_job_any_more_are_seen(spark, tmp_path, monkeypatch):
    app, stream = application(spark, tmp_path, 20)
    stream.rows().to(tm.sinks.parquet(tmp_path / "former"), "kept")
    with monkeypatch.context() as patch:
        patch.setattr(taps, "move", refused)
        with pytest.raises(SinkError):
            app.run(once=True)
    app, stream = application(spark, tmp_path, 20)
    stream.window("10 seconds").agg(n=tm.count()).to(tm.sinks.memory(), "counts")
    app.run(once=True)
    assert written(spark, tmp_path / "former") == list(range(10))
    assert not list((tmp_path / "former").glob(".rows-*"))


def test_what_is_left_of_a_query_is_named_if_it_is_there_and_can_be(tmp_path, monkeypatch, caplog):
    name = ".rows-000000000001.ab.tmp/zone=a/part-0.json"
    rows = KeptRows(0, {name: Written(1, 0)}, str(tmp_path / "out"))
    taps.publish_left(1, rows)
    assert not (tmp_path / "out").exists()
    (tmp_path / "out" / name).parent.mkdir(parents=True)
    (tmp_path / "out" / name).write_text("x")
    with monkeypatch.context() as patch:
        patch.setattr(taps, "move", refused)
        taps.publish_left(1, rows)
    assert "micro-batch 1 wait in" in caplog.text
    taps.publish_left(1, rows)
    assert (tmp_path / "out" / "zone=a" / "rows-000000000001-part-0.json").read_text() == "x"
    assert not (tmp_path / "out" / name).parent.parent.exists()


def refused(*_):
    raise OSError(errno.EIO, "no")


def test_places_that_are_taken_or_cannot_be(spark, tmp_path):
    app, stream = application(spark, tmp_path, 10)
    stream.rows().to(tm.sinks.parquet(tmp_path / "out"), "kept")
    app.run(once=True)
    app, stream = application(spark, tmp_path / "other", 10)
    stream.rows().to(tm.sinks.parquet(tmp_path / "out"), "kept")
    with pytest.raises(SinkError, match="belongs to the query 'kept' of the checkpoint"):
        app.run(once=True)
    with pytest.raises(DefinitionError, match="written as files"):
        stream.rows().to(tm.sinks.memory())
    with pytest.raises(DefinitionError, match="writes rows"):
        stream.rows().to(tm.sinks.parquet(tmp_path / "more")).to(tm.sinks.memory())
    with pytest.raises(DefinitionError, match="directory of its own"):
        stream.window("1 minute").agg(n=tm.count()).to(tm.sinks.parquet(tmp_path / "out"), "q")
    assert written(spark, tmp_path / "out") == list(range(10))
