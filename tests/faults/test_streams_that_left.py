"""Streams that leave the job: what they kept goes, their dead letters stay, and who has their name begins anew."""

from __future__ import annotations

import json

import pytest
from faults_app import Killed

import transom as tm
from transom.checkpoint import describe
from transom.errors import JobChangedError
from transom.model.time import ManualClock
from transom.sources.inmemory import MemorySource

NOON = 1_700_000_000_000_000


class KeepingSource(MemorySource):
    """Keeps a file in its directory, and remembers what it found there."""

    def open(self, spark, directory, clock):
        super().open(spark, directory, clock)
        self.found = sorted(path.name for path in directory.iterdir())
        (directory / "kept").touch()


def keeping(last):
    source = tm.sources.memory("at long")
    source.__class__ = KeepingSource
    source.add([(at,) for at in range(last)])
    return source


def run(spark, tmp_path, streams, kill_at=None):
    """Run over sources by the names of their streams, each with the query `NAME query`, or that of another name."""
    app = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(NOON), max_rows_per_cut=10)
    for name, (source, query) in streams.items():
        stream = app.stream(source, event_time="timestamp_seconds(at)", watermark=tm.watermark(0), name=name)
        stream.window("10 seconds").agg(n=tm.count()).to(tm.sinks.memory(), query)

    def kill(step):
        if step == kill_at:
            raise Killed

    app._on_step = kill
    if kill_at is None:
        app.run(once=True, close_all=True)
    else:
        with pytest.raises(Killed):
            app.run(once=True, close_all=True)


def kept(tmp_path, directory):
    return sorted(path.name for path in (tmp_path / "checkpoint" / directory).iterdir())


def letters_of(tmp_path, *cuts):
    """Write dead letters of cuts of the stream a, as jobs do."""
    root = tmp_path / "checkpoint" / "dead-letters" / "a"
    for cut in cuts:
        (root / f"cut={cut}").mkdir()
        (root / f"cut={cut}" / "part-00000.parquet").write_text(f"cut {cut}")
    return root


def cuts_of(tmp_path, stream):
    """Return the number of the last cut in the last snapshot, and those of the cuts that were logged since."""
    known = describe(tmp_path / "checkpoint", last=1000)
    saved = (known["snapshot"] or {"state": {"streams": {}}})["state"]["streams"].get(stream)
    logged = [each["cut"]["number"] for each in known["last_records"] if each["type"] == "cut"]
    return [*([saved["state"]["cut"]] if saved else []), *logged]


@pytest.mark.parametrize("kill_at", [None, "before snapshot", "after snapshot"])
def test_what_streams_that_left_kept_is_removed_but_for_dead_letters(spark, tmp_path, in_memory, kill_at):
    """However the run ends in which the checkpoint forgets them."""
    run(spark, tmp_path, {"a": (keeping(30), "q"), "b": (keeping(10), "r")})
    root = letters_of(tmp_path, 1, 2)
    assert kept(tmp_path, "sources") == ["a", "b"]
    staying = {"b": (keeping(10), "r")}
    if kill_at is not None:
        run(spark, tmp_path, staying, kill_at)
        assert kept(tmp_path, "sources") == ["a", "b"], "an older snapshot, or the log, may need it"
    run(spark, tmp_path, staying)
    assert [kept(tmp_path, part) for part in ("sources", "files")] == [["b"], ["b"]]
    assert sorted(path.name for path in root.iterdir()) == ["cut=1", "cut=2"]


@pytest.mark.parametrize("kill_at", [None, "change logged", "job done"])
def test_a_stream_that_comes_back_reads_anew_and_leaves_older_dead_letters_alone(spark, tmp_path, in_memory, kill_at):
    """Also where what its source kept is still there, as after a kill."""
    b = keeping(10)
    run(spark, tmp_path, {"a": (keeping(30), "q"), "b": (b, "r")})
    run(spark, tmp_path, {"b": (b, "r")})
    root = letters_of(tmp_path, 3, 70)
    (tmp_path / "checkpoint" / "sources" / "a").mkdir()
    (tmp_path / "checkpoint" / "sources" / "a" / "of another source").touch()
    a = keeping(20)
    streams = {"a": (a, "new"), "b": (b, "r")}
    if kill_at is not None:
        run(spark, tmp_path, streams, kill_at)
        assert a.found == []
    run(spark, tmp_path, streams)
    assert a.found == ([] if kill_at is None else ["kept"]), "the checkpoint knows it since its queries were logged"
    assert max(cuts_of(tmp_path, "a")) > 70
    assert sorted(path.name for path in root.iterdir()) == ["cut=3", "cut=70"]
    assert (root / "cut=70" / "part-00000.parquet").read_text() == "cut 70"


def test_a_stream_beside_one_that_is_known_shares_what_its_source_keeps(spark, tmp_path, in_memory):
    """It belongs to the stream that is named first, also where that one is new and its source is not."""
    source, b = keeping(10), keeping(10)
    run(spark, tmp_path, {"a": (source, "q"), "b": (b, "r")})
    run(spark, tmp_path, {"a": (source, "q"), "beside": (source, "s"), "b": (b, "r")})
    assert source.found == ["kept"]
    run(spark, tmp_path, {"a": (source, "q"), "b": (b, "r")})
    assert source.found == ["kept"]
    assert kept(tmp_path, "sources") == ["a", "b"]


def test_a_source_whose_first_stream_left_is_refused_and_goes_on_with_it(spark, tmp_path):
    """A generator would have begun at another time, without a word."""
    shared, own = tm.sources.generator({"at": "id"}, 10, rows=20), keeping(10)
    first, second = {"a": (shared, "q")}, {"b": (shared, "r"), "c": (own, "s")}
    run(spark, tmp_path, first | second)
    before = (tmp_path / "checkpoint" / "sources" / "a" / "generator.json").read_bytes()
    with pytest.raises(JobChangedError, match="'b' read its source together with one that is not in") as refused:
        run(spark, tmp_path, second)
    assert "one of a;" in refused.value.remedy
    run(spark, tmp_path, first | second)
    assert (tmp_path / "checkpoint" / "sources" / "a" / "generator.json").read_bytes() == before


def test_files_of_another_directory_are_not_read_for_a_stream_of_the_same_name(spark, tmp_path):
    """What the source of the former stream had found was read again, or missed where it had been deleted."""
    for name, numbers in {"former": (0, 1), "latter": (100,)}.items():
        (tmp_path / name).mkdir()
        for number in numbers:
            (tmp_path / name / f"{number}.json").write_text(json.dumps({"at": number}) + "\n")

    def streams(name=None):
        b = tm.sources.memory("at long")
        b.add([(0,)])
        files = tm.sources.files(f"{tmp_path}/{name}/*.json", "at long")
        return {"b": (b, "r")} if name is None else {"a": (files, name), "b": (b, "r")}

    run(spark, tmp_path, streams("former"))
    run(spark, tmp_path, streams())
    (tmp_path / "former" / "0.json").unlink()
    run(spark, tmp_path, streams("latter"))
    assert "100.json" in (tmp_path / "checkpoint" / "sources" / "a" / "files.jsonl").read_text()
    assert "former" not in (tmp_path / "checkpoint" / "sources" / "a" / "files.jsonl").read_text()
