"""No thread can start, as the system has too many: nobody waits for what never begins."""

from __future__ import annotations

import os
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import transom as tm
from transom.api.gate import Gate
from transom.api.queries import Queries
from transom.cli import quiet
from transom.collections.batching import MOST, GroupQuestion, Question, SharedJobs
from transom.engine.cluster import merging
from transom.engine.cluster.merging import SparkGroupExecutors
from transom.engine.placed.aside import aside
from transom.model.time import ManualClock
from transom.placement.balance import Move
from transom.placement.migration import Strategy
from transom.placement.replicas import Place
from transom.sites.coordinating import Asking
from transom.sites.flight import FlightMail
from transom.storage.several import each_of
from transom.widearea.hellos import Hello

WHY = "can't start new thread"
_START = threading.Thread.start


@pytest.fixture(autouse=True)
def no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError(WHY)

    monkeypatch.setattr(threading.Thread, "start", fail)


def test_work_that_cannot_begin_has_failed() -> None:
    assert str(aside(lambda: 1, "work").exception(0)) == WHY


def test_key_groups_that_cannot_be_read_ahead_stay_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    context = SimpleNamespace(getLocalProperty=lambda name: None)
    session: Any = SimpleNamespace(sparkContext=context)
    there = [SimpleNamespace(id=name, cores=1, leaving=False) for name in ("1", "2")]
    monkeypatch.setattr(merging.placed, "executors", lambda session: there)
    executors = SparkGroupExecutors(session, tmp_path, ManualClock(), groups=2)
    executors.due_moves([], balance=False)
    here = executors.key_groups.assignment.homes[0]
    other = "2" if here == "1" else "1"
    merge: Any = SimpleNamespace(by_group=lambda home: [SimpleNamespace(home=home(0), rows=1)])
    executors.migrate([Move(0, here, other, 1.0)], Strategy.INSTANT, 1, 0, [merge])
    executors.arrive()
    assert executors.key_groups.assignment.homes[0] == here
    assert WHY in caplog.text


def test_a_gate_that_cannot_decide_lets_everything_through() -> None:
    driver: Any = SimpleNamespace(query=lambda: "q", done=lambda query, batch: None, stopped=lambda query: False)
    gate = Gate(driver, "klink", 1, 1_000_000, ManualClock())
    seen: list[int] = []
    written: Any = gate.batch(lambda frame, number: seen.append(number))
    for number in (1, 2):
        written(None, number)
    assert seen == [1, 2]


def test_questions_are_answered_by_who_asks() -> None:
    workers: Any = SimpleNamespace(
        cores={"a": 1},
        seconds=lambda size: 0.0,
        slack=lambda due, seconds: 0.0,
        booked=lambda tasks, groups: nullcontext([Place(task, "a", "a") for task in tasks]),
        now=lambda: 0.0,
        learned=lambda *_: None,
        run=lambda places, function: [function(number) for number in range(len(places))],
    )
    jobs = SharedJobs(workers, dict, lambda *_: None)
    question = Question([GroupQuestion(0, 1, {"a": [["file"]]})], lambda paths: paths[0][0].encode(), 0.1)
    others = [Question([GroupQuestion(0, 1, {"a": [[]]})], lambda paths: b"", 0.1, due=0.0) for _ in range(2 * MOST)]
    jobs._waiting += others  # more than go into one job, and more urgent
    assert jobs.run(question) == [b"file"]
    assert jobs.jobs == 3
    assert all(other.answers.result(0) == [b""] for other in others)


@pytest.mark.parametrize("first", [0, 2], ids=["none", "some"])
def test_what_is_done_several_at_a_time_is_done_one_by_one(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    """Some threads may start before one cannot."""
    started: list[threading.Thread] = []

    def start(thread: threading.Thread) -> None:
        if len(started) >= first:
            raise RuntimeError(WHY)
        started.append(thread)
        _START(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    seen: list[int] = []

    def act(number: int) -> int:
        seen.append(number)
        return -number

    assert each_of(range(5), act, 4) == [0, -1, -2, -3, -4]
    assert set(seen) == set(range(5))


def test_an_application_that_cannot_start_can_start_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark: Any = SimpleNamespace(createDataFrame=None)
    app = tm.App(spark, tmp_path)
    monkeypatch.setattr(Queries, "begin", lambda self, *_: setattr(self, "running", True))
    monkeypatch.setattr("transom.api.app.ordered", lambda queries, *_: queries.begin())
    with pytest.raises(RuntimeError, match=WHY):
        app.start()
    assert not app._queries.running


def test_a_site_that_cannot_be_called_is_called_again(caplog: pytest.LogCaptureFixture) -> None:
    mail = FlightMail(Hello("home"), "127.0.0.1:0", {"paris": "127.0.0.1:1"}, None)
    mail._carrier = SimpleNamespace(opening=lambda peer: None, closed=lambda peer: None, open={})  # type: ignore[assignment]
    for now in (0, 3_600_000_000):
        mail._connect(now)
        (connection,) = mail._out.values()
        mail._take(connection, mail._out, lambda *_: None, now)
        assert not mail._out
    assert WHY in caplog.text
    assert len(mail._calls["paris"]) == 1


def test_a_site_ends_whose_reports_never_began() -> None:
    asking = Asking("home", "127.0.0.1:1", "coordinator", None)
    with pytest.raises(RuntimeError, match=WHY):
        asking.begin(lambda: None)
    asking.end()


def test_standard_error_stays_what_it_was() -> None:
    before, files = os.fstat(2), len(os.listdir("/proc/self/fd"))
    with pytest.raises(RuntimeError, match=WHY), quiet._standard_error(None, fetching=False):
        pass
    assert (os.fstat(2).st_ino, len(os.listdir("/proc/self/fd"))) == (before.st_ino, files)
