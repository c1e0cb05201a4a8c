"""Queries that come, rest and go, case by case: ten rows a cut, one a second."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from changes import SCHEMA, WINDOWS, Changing, Drawn
from exact_helpers import SECOND, PiecewiseSource

import transom as tm
from transom.errors import DefinitionError, JobChangedError
from transom.model.time import MIN_TIME

without_jobs = pytest.mark.usefixtures("in_memory")


# ---- by hand: ten rows a cut, one a second

TOTAL = Drawn(("a",), (WINDOWS[3],), ("total",), False)
FINE = Drawn(("a", "b"), (WINDOWS[1], WINDOWS[3]), ("total", "rows"), False)
COARSE = Drawn(("a",), (WINDOWS[1],), ("rows",), False)
OTHER_EDGES = Drawn(("a", "b"), (WINDOWS[2],), ("total",), False)
OTHER_ROWS = Drawn(("a",), (WINDOWS[3],), ("total",), True)


def rows_until(seconds: int, start: int = 0) -> list[tuple[Any, ...]]:
    return [("pq"[i % 2], i % 3, i % 7 - 2, i / 4, i * SECOND) for i in range(start, seconds)]


def changing(spark, tmp_path, queries, seconds=60):
    source = PiecewiseSource(SCHEMA, (10,))
    source.add(rows_until(seconds))
    return Changing(spark, tmp_path, source, queries)


@pytest.mark.parametrize(
    ("later", "from_second"),
    [
        pytest.param(TOTAL, 0, id="a coarser key set with the same edges takes all panes"),
        pytest.param(COARSE, 0, id="so does one with another aggregate of them"),
        pytest.param(OTHER_EDGES, 20, id="edges that cut the panes begin after the newest row"),
        pytest.param(OTHER_ROWS, 20, id="so do other rows"),
    ],
)
def test_history_is_taken_where_it_is(interpreted, tmp_path, later, from_second):
    bench = changing(interpreted, tmp_path, [FINE, later])
    bench.run([(2, "add", 1)])
    (change,) = bench.asked
    moment = change.complete_from()
    assert moment == (MIN_TIME if from_second == 0 else (from_second - 1) * SECOND + 1)
    assert bench.check(interpreted, rows_until(60)) > 10
    first = min(row[0] for row in bench.bench.rows("q1"))
    assert first == {TOTAL: -20, COARSE: 0, OTHER_EDGES: 23, OTHER_ROWS: 20}[later] * SECOND


def test_a_paused_query_misses_what_comes_meanwhile_and_rests_at_a_restart(interpreted, tmp_path):
    bench = changing(interpreted, tmp_path, [OTHER_EDGES, OTHER_ROWS], 40)
    bench.job = {"q0", "q1"}
    bench.run([(2, "pause", 1)], keeps_removed=True, close_all=False)
    bench.source.add(rows_until(100, 40))
    progress = bench.run([(2, "resume", 1)], keeps_removed=True)
    assert "q1 is paused, as it was." in progress.notes
    assert bench.asked[-1].complete_from() == 59 * SECOND + 1
    assert {row[0] // SECOND for row in bench.bench.rows("q1")} == {60, 70, 80, 90}
    bench.check(interpreted, rows_until(100))


@without_jobs
def test_a_resumed_query_takes_panes_that_others_kept(interpreted, tmp_path):
    bench = changing(interpreted, tmp_path, [FINE, TOTAL], 100)
    bench.job = {"q0", "q1"}
    bench.run([(2, "pause", 1), (5, "resume", 1)])
    starts = {row[0] // SECOND for row in bench.bench.rows("q1")}
    assert starts == {10, 20, 30, 40, 50, 60, 70, 80, 90}
    bench.check(interpreted, rows_until(100))


@without_jobs
@pytest.mark.parametrize("step", ["change logged", "before snapshot", "after snapshot", "cut logged"])
def test_killed_around_a_change(interpreted, tmp_path, step):
    bench = changing(interpreted, tmp_path, [FINE, TOTAL], 60)
    assert bench.run([(2, "add", 1), (4, "remove", 0)], (step, 3 if step == "cut logged" else 0)) is None
    progress = bench.run([(3, "remove", 0)])
    assert progress is not None
    assert min(row[0] for row in bench.bench.rows("q1")) == -20 * SECOND
    assert bench.check(interpreted, rows_until(60)) > 10


@without_jobs
def test_a_removed_query_stays_out_and_its_name_is_free(interpreted, tmp_path):
    bench = changing(interpreted, tmp_path, [COARSE, FINE], 30)
    bench.job = {"q0", "q1"}
    bench.run([(1, "remove", 0)], keeps_removed=True)
    assert bench.bench.rows("q0") == []
    bench.source.add(rows_until(50, 30))
    progress = bench.run(keeps_removed=True)
    assert any(note.startswith("q0 was removed by a command and stays out") for note in progress.notes)
    assert [query.name for query in progress.queries] == ["q1"]
    assert bench.bench.rows("q0") == []
    bench.queries["q0"] = TOTAL
    bench.source.add(rows_until(70, 50))
    progress = bench.run()
    assert any(note.startswith("q0 is new") for note in progress.notes)
    assert bench.check(interpreted, rows_until(70)) > 10
    assert max(row[1] for row in bench.bench.rows("q0")) == 90 * SECOND
    bench.queries["q0"] = COARSE
    with pytest.raises(JobChangedError, match="remove the old one from the running application"):
        bench.run()


@without_jobs
def test_a_restart_adds_what_the_job_has_more_with_its_history(interpreted, tmp_path):
    bench = changing(interpreted, tmp_path, [FINE, TOTAL], 30)
    bench.run(close_all=False)
    bench.job = {"q0", "q1"}
    bench.source.add(rows_until(60, 30))
    progress = bench.run()
    assert any(note.startswith("q1 is new; all its windows are complete") for note in progress.notes)
    assert {row[0] // SECOND for row in bench.bench.rows("q1")} == {0, 10, 20, 30, 40, 50}
    bench.check(interpreted, rows_until(60))


@without_jobs
def test_what_cannot_be_done_is_refused_and_harms_nobody(interpreted, tmp_path):
    bench = changing(interpreted, tmp_path, [FINE, TOTAL], 60)
    bench.job = {"q0", "q1"}
    bench.queries["q2"] = FINE
    broken = Drawn(("c",), (WINDOWS[0],), ("rows",), False)
    asked = {}

    def act(step):
        if step == "committed" and not asked:
            asked["column"] = broken.add(bench.stream, bench.bench.sink, "q3")
            asked["unknown"] = app.pause("nobody")
            asked["running"] = app.resume("q0")
            asked["first"] = app.pause("q1")
            asked["paused"] = app.pause("q1")
            with pytest.raises(DefinitionError, match="there are two queries 'q0'"):
                FINE.add(bench.stream, bench.bench.sink, "q0")
            with pytest.raises(DefinitionError, match="the application is running, and reads the streams"):
                app.stream(bench.source, event_time="at")
            with pytest.raises(DefinitionError, match=r"run: the application is running\."):
                app.run()

    app = bench.bench.app()
    progress = bench.bench.run(True, None, act, app)
    assert asked.pop("first").wait() is None
    for name, words in {
        "column": "query 'q3': .*cannot be resolved",
        "unknown": "pause: there is no query 'nobody'. The queries are q0, q1",
        "running": "resume: 'q0' is not paused",
        "paused": "pause: 'q1' is paused already",
    }.items():
        with pytest.raises(DefinitionError, match=words):
            asked[name].wait("10 minutes")
    assert [query.name for query in progress.queries] == ["q0", "q1"]
    bench.check(interpreted, rows_until(60))


@without_jobs
def test_changes_asked_from_another_thread(interpreted, tmp_path):
    """They are made in the order in which they are asked for, also when that is before the start."""
    bench = changing(interpreted, tmp_path, [FINE, TOTAL], 60)
    app = bench.bench.app()
    asked = [app.pause("q0"), app.resume("q0")]
    found = []

    def ask():
        found.append(asked[1].wait("10 minutes"))
        change = TOTAL.add(bench.stream, bench.bench.sink, "q1")
        found.append(change.wait("10 minutes"))
        found.append(app.remove("q0").wait("10 minutes"))
        app.stop()

    thread = threading.Thread(target=ask)
    thread.start()
    bench.bench.run(close_all=False, app=app, once=False)
    thread.join()
    assert found[2] is None
    assert len(found) == 3
    late = app.pause("q1")
    assert not late.done
    with pytest.raises(TimeoutError):
        late.wait("1 ms")
    bench.check(interpreted, rows_until(60))


@without_jobs
def test_edges_come_to_the_panes_of_a_global_group(interpreted, tmp_path):
    bench = changing(interpreted, tmp_path, [Drawn((), (WINDOWS[1],), ("total",), False)] * 2, 60)
    bench.queries["q1"] = Drawn((), (WINDOWS[2],), ("rows",), False)
    bench.run([(2, "add", 1), (4, "remove", 1)])
    assert len(bench.bench.rows("q0")) == 6
    assert {row[0] // SECOND for row in bench.bench.rows("q1")} == set()
    bench.check(interpreted, rows_until(60))


def test_what_others_read_goes_after_them(interpreted, tmp_path):
    """A query over results comes late and has whole windows only; what it reads cannot leave before it."""
    bench = changing(interpreted, tmp_path, [], 100)
    asked = {}

    def define(app, sink):
        stream = app.stream(bench.source, event_time="at", watermark=tm.watermark(0, max_ahead=None))
        tens = stream.group_by("a").window("10 seconds").agg(total=tm.sum("n"))
        tens.to(sink, "tens")
        bench.results = tens.results()
        bench.results.window("20 seconds").agg(total=tm.sum("total")).to(sink, "twenties")

    def act(step):
        nonlocal commits
        commits += step == "committed"
        if step == "committed" and commits == 4:
            thirties = bench.results.window("30 seconds").agg(total=tm.sum("total"), rows=tm.count())
            asked["add"] = thirties.to(bench.bench.sink, "thirties")
            asked["read"] = app.remove("tens")
            asked["child"] = app.remove("twenties")
            asked["pause"] = app.pause("tens")

    commits = 0
    bench.bench.define = define
    app = bench.bench.app()
    progress = bench.bench.run(True, None, act, app)
    for name in ("read", "pause"):
        with pytest.raises(DefinitionError, match=r"the results of 'tens' are read by t.*First"):
            asked[name].complete_from()
    assert asked["child"].complete_from() is None
    first = -(-asked["add"].complete_from() // (30 * SECOND)) * 30
    assert {query.name for query in progress.queries} == {"tens", "thirties"}
    tens = {(start, key): total for start, _, key, total in bench.bench.rows("tens")}
    assert {start // SECOND for start, _ in tens} == set(range(0, 100, 10))
    thirties = {start // SECOND: (total, rows) for start, _, total, rows in bench.bench.rows("thirties")}
    assert set(thirties) == set(range(first, 100, 30))
    for start, (total, rows) in thirties.items():
        inside = [value for (at, _), value in tens.items() if start <= at // SECOND < start + 30]
        assert (total, rows) == (sum(inside), len(inside))
