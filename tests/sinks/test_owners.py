"""Who may write where: every kind of place decides alike, and says so before anything in it is touched."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime
from json import dumps as json_text
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from transom.errors import SinkError
from transom.sinks.base import Sink, WindowResults
from transom.sinks.compaction import compact
from transom.sinks.databases import sqlite
from transom.sinks.directories import json, parquet
from transom.sinks.owner import MARK, Claim, Owner, owner_of
from transom.sinks.topics import kafka

MINE, HERS = Owner("c1", "q", "/mine"), Owner("c2", "q", "/hers")
KINDS = ["parquet", "json", "sqlite", pytest.param("kafka", marks=pytest.mark.kafka)]
WHERE: dict[str, Any] = {}
"""The broker, and the topic of the test."""


@pytest.fixture(autouse=True)
def topic(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("kafka"):
        WHERE["broker"] = request.getfixturevalue("kafka")
        WHERE["topic"] = WHERE["broker"].topic()


def place(kind: str, root: Path, query: str = "q") -> Sink:
    kinds = {
        "parquet": parquet,
        "json": json,
        "sqlite": lambda path: sqlite(path / "r.db", "t"),
        "kafka": lambda path: kafka(WHERE["broker"].servers, WHERE["topic"]),
    }
    made = kinds[kind](root / "out")
    made.open(query)
    return made


def write(sink: Sink, cut: int) -> None:
    moments = pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    sink.write(WindowResults("q", cut, pa.table({"window_start": moments, "window_end": moments, "n": [cut]})))


def without_mark(kind: str, root: Path) -> None:
    """Leave the place as versions left it that knew no owners."""
    if kind == "kafka":
        sink = place(kind, root)
        name = json_text([sink._ledger.place, "owner"])
        WHERE["broker"].put("transom-ledger", [None], key=name)
        sink.close()
        return
    if kind != "sqlite":
        (root / "out" / MARK).unlink()
        return
    with closing(sqlite3.connect(root / "out" / "r.db")) as database:
        for name in ("checkpoint", "path"):
            database.execute(f"ALTER TABLE transom_results DROP COLUMN {name}")


def content(kind: str, root: Path) -> dict[str, Any]:
    if kind == "kafka":
        sink = place(kind, root)
        ledger = sink._ledger.read()
        sink.close()
        return {"messages": [m.value() for m in WHERE["broker"].read(WHERE["topic"])], "ledger": ledger}
    return {path.name: path.read_bytes() for path in (root / "out").iterdir() if path.is_file()}


# What the place is, who comes, and what it is told; None: it may have it.
CASES = {
    "empty": ("empty", Claim(MINE, is_new=True), None),
    "marked, nothing written": ("marked", Claim(MINE, is_new=True), None),
    "its own": ("written", Claim(MINE), None),
    "its own, from elsewhere": ("written", Claim(Owner("c1", "q", "/moved")), None),
    "its own, but the log is gone": ("written", Claim(MINE, is_new=True), "does not know the query"),
    "another checkpoint": ("written", Claim(HERS), r"query 'q' of the checkpoint /mine \(id c1\)"),
    "another checkpoint, nothing written": ("marked", Claim(HERS, is_new=True), "/mine"),
    "another query": ("written", Claim(Owner("c1", "r", "/mine"), is_new=True), "the query 'q' of this checkpoint"),
    "older, its own": ("older", Claim(MINE, adopts=True), None),
    "older, a new query": ("older", Claim(MINE, is_new=True, adopts=True), "does not know the query"),
    "without a mark": ("older", Claim(MINE), "does not say whose"),
}


SOON = ("another checkpoint",)
"""Cases that are tried with a broker, too, in each run of the tests; all others in the long one."""
TRIED = [(kind, case) for kind in ("parquet", "json", "sqlite") for case in CASES] + [
    pytest.param("kafka", case, marks=[pytest.mark.kafka, *([] if case in SOON else [pytest.mark.slow])])
    for case in CASES
]


@pytest.mark.parametrize(("kind", "case"), TRIED)
def test_who_may_have_it(kind: str, case: str, tmp_path: Path) -> None:
    state, claim, refusal = CASES[case]
    sink = place(kind, tmp_path)
    if state != "empty":
        sink.claim(Claim(MINE, is_new=True))
    if state in ("written", "older"):
        write(sink, 7)
    sink.close()
    if state == "older":
        without_mark(kind, tmp_path)
    sink = place(kind, tmp_path, claim.query)
    before = content(kind, tmp_path)
    if refusal is None:
        sink.claim(claim)
        sink.claim(claim)
        with closing(place(kind, tmp_path)) as other, pytest.raises(SinkError, match="belongs to the query 'q'"):
            other.claim(Claim(HERS))
    else:
        with pytest.raises(SinkError, match=refusal):
            sink.claim(claim)
        assert content(kind, tmp_path) == before
    sink.close()


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
@pytest.mark.parametrize("kind", KINDS)
def test_of_several_that_come_at_once_one_gets_it(
    kind: str, links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "no links here")

    if not links:
        monkeypatch.setattr(os, "link", no_link)
    together, won = threading.Barrier(8), []

    def come(number: int) -> None:
        sink = place(kind, tmp_path)
        together.wait()
        try:
            sink.claim(Claim(Owner(f"c{number}", "q", ""), is_new=True))
            won.append(number)
        except SinkError:
            pass
        sink.close()

    threads = [threading.Thread(target=come, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    with closing(place(kind, tmp_path)) as sink:
        sink.claim(Claim(Owner(f"c{won[0]}", "q", "")))


def test_a_table_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "r.db")) as database:
        database.execute("CREATE TABLE q (mine)")
    sink = sqlite(tmp_path / "r.db")
    sink.open("q")
    with closing(sink), pytest.raises(SinkError, match="does not know the query"):
        sink.claim(Claim(MINE, is_new=True))


def test_a_damaged_mark_is_nobodys(tmp_path: Path) -> None:
    sink = place("json", tmp_path)
    sink.claim(Claim(MINE, is_new=True))
    for text in (b"", b"{", b"[]", b'{"checkpoint": 1}', b"\xff"):
        (tmp_path / "out" / MARK).write_bytes(text)
        with pytest.raises(SinkError, match="is damaged"):
            sink.claim(Claim(MINE))


def test_what_a_kill_left_while_it_was_marked_goes(tmp_path: Path) -> None:
    sink = place("json", tmp_path)
    (tmp_path / "out" / f".{MARK}.0123abcd.tmp").write_text("torn")
    sink.claim(Claim(MINE, is_new=True))
    sink.recover("q", 1)
    assert set(content("json", tmp_path)) == {MARK}
    assert owner_of(tmp_path / "out") == MINE


def test_only_results_of_a_known_owner_are_merged(tmp_path: Path) -> None:
    """Files of two applications in one directory could not be told apart any more."""
    sink = place("json", tmp_path)
    for cut in range(4):
        write(sink, cut)
    with pytest.raises(SinkError, match="does not say whose results"):
        compact(tmp_path / "out")
    sink.claim(Claim(MINE, adopts=True))
    assert compact(tmp_path / "out").files_after == 2
    assert owner_of(tmp_path / "out") == MINE
