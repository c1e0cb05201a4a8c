"""A query with several sinks: each has its own place in the results, also over restarts with other sinks."""

from __future__ import annotations

import threading

import pytest
from faults_app import Killed

import transom as tm
from transom.engine.loop.delivery import FIRST_RETRY, Delivery, ResultBatch
from transom.errors import DefinitionError, JobChangedError, SinkError
from transom.model.time import ManualClock
from transom.sinks.base import WindowResults
from transom.sinks.inmemory import MemorySink
from transom.sinks.outlets import ONLY, Outlets, successors

pytestmark = pytest.mark.usefixtures("in_memory")

NOON = 1_700_000_000_000_000


class Kept(MemorySink):
    """A sink with a key, which fails while it is told to, and knows all that it was given."""

    def __init__(self, key: str, fails: bool = False) -> None:
        super().__init__()
        self.key, self.fails = key, fails
        self.given: list[int] = []

    def describe(self) -> str:
        return self.key

    def write(self, results: WindowResults) -> None:
        if self.fails:
            raise OSError("no route")
        self.given.append(results.cut)
        super().write(results)

    @property
    def windows(self) -> list[int]:
        return [row["window_start"].second for row in self.rows("q")]


def application(spark, tmp_path, rows, *sinks):
    source = tm.sources.memory("at long")
    source.add([(at,) for at in range(rows)])
    app = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(NOON), max_rows_per_cut=10)
    stream = app.stream(source, event_time="timestamp_seconds(at)", watermark=tm.watermark(0, max_ahead=None))
    stream.window("10 seconds").agg(n=tm.count()).to(list(sinks), "q")
    return app


def test_sinks_do_not_hold_up_one_another_and_keep_their_order():
    clock, woken = ManualClock(NOON), threading.Semaphore(0)
    good, bad = Kept("good"), Kept("bad", fails=True)
    delivery = Delivery({"q": Outlets.of([bad, good])}, clock, woken.release, 2, 1 << 20)
    import pyarrow as pa

    for cut in (1, 2, 3):
        delivery.send(ResultBatch(WindowResults("q", cut, pa.table({"n": [cut]})), 1, NOON))
    found = []

    def settle():
        while delivery.busy:
            assert woken.acquire(timeout=600)
            found.extend((item.sink, item.batch.results.cut, item.by_all) for item in delivery.collect())

    settle()
    assert found == [("good", cut, False) for cut in (1, 2, 3)]
    assert [(batch.results.cut, batch.sinks) for batch in delivery.waiting()] == [(cut, ("bad",)) for cut in (1, 2, 3)]
    assert delivery.behind("q") == {"bad": 3, "good": 0}
    assert list(delivery.failing()) == ["'q' (bad)"]
    assert delivery.stuck(1)
    bad.fails = False
    clock.advance(FIRST_RETRY)
    delivery.collect()
    found.clear()
    settle()
    assert found == [("bad", cut, True) for cut in (1, 2, 3)]
    assert delivery.waiting() == []
    assert delivery.close(10) == []


def test_a_sink_that_fails_to_the_end_gets_what_it_misses_from_the_next_run(spark, tmp_path):
    good, bad = Kept("good"), Kept("bad", fails=True)
    with pytest.raises(SinkError, match=r"The sink of 'q' \(bad\) fails: no route"):
        application(spark, tmp_path, 30, good, bad).run(once=True, close_all=True)
    assert good.windows == [0, 10, 20]
    again, mended = Kept("good"), Kept("bad")
    progress = application(spark, tmp_path, 30, mended, again).run(once=True)  # in another order
    assert mended.windows == [0, 10, 20]
    assert again.given == []
    assert (progress.queries[0].windows, progress.queries[0].behind) == (3, {"bad": 0, "good": 0})


def test_sinks_that_come_and_go_at_a_restart(spark, tmp_path):
    a = Kept("a")
    application(spark, tmp_path, 30, a).run(once=True)
    notes = []

    def run(rows, *sinks, **options):
        app = application(spark, tmp_path, rows, *sinks)
        return app.run(once=True, on_progress=lambda progress: notes.extend(progress.notes), **options)

    b = Kept("b", fails=True)
    a2 = Kept("a")
    with pytest.raises(SinkError):
        run(50, b, a2)  # b comes first in the list, and gets the results from here on
    assert a.windows == [0, 10]
    assert a2.windows == [20, 30]
    assert "q: its sink b is new; it gets the results from here on." in notes

    with pytest.raises(JobChangedError, match="results wait for b, which the job does not have any more"):
        run(50, Kept("c"), Kept("d"), Kept("a"))
    instead, a3 = Kept("c"), Kept("a")
    run(50, a3, instead)
    assert instead.windows == [20, 30]
    assert a3.windows == []

    with pytest.raises(SinkError):
        run(60, Kept("a", fails=True), Kept("c"))
    only = Kept("c")
    run(70, only)
    assert only.windows == [50]
    assert "q: its sink a is not in the job any more; 1 results that waited for it are dropped." in notes


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_kill_between_the_deliveries_of_two_sinks(spark, tmp_path, number):
    one, two = (tm.sinks.parquet(tmp_path / name) for name in ("one", "two"))
    app = application(spark, tmp_path, 30, one, two)
    steps = []

    def kill(step: str) -> None:
        steps.append(step)
        if steps.count("delivered") == number:
            raise Killed

    app._on_step = kill
    try:
        app.run(once=True, close_all=True)
    except Killed:
        assert steps.count("delivered") == number
    application(spark, tmp_path, 30, tm.sinks.parquet(tmp_path / "two"), tm.sinks.parquet(tmp_path / "one")).run(
        once=True, close_all=True
    )
    for name in ("one", "two"):
        rows = spark.read.parquet(str(tmp_path / name)).orderBy("window_start").collect()
        assert [(row.window_start.second, row.n) for row in rows] == [(0, 10), (10, 10), (20, 10)]


def test_sinks_one_after_another(spark, tmp_path):
    app = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(NOON))
    source = tm.sources.memory("at long")
    source.add([(1,)])
    query = app.stream(source, event_time="timestamp_seconds(at)").window("1 second").agg(n=tm.count())
    a, b, c = Kept("a"), Kept("b"), Kept("c")
    change = query.to(a, "q").to(b).to([c])
    assert app.explain().to_dict()["streams"][0]["queries"][0]["sink"] == "a and b and c"
    app.run(once=True, close_all=True)
    assert a.windows == b.windows == c.windows == [1]
    assert change.wait() is None
    with pytest.raises(DefinitionError, match="directory of its own"):
        query.to([tm.sinks.csv(tmp_path / "x"), tm.sinks.json(tmp_path / "x")], "r")
    with pytest.raises(DefinitionError, match="no sink"):
        query.to([], "r")


def test_keys_of_sinks_last(tmp_path):
    sinks = [tm.sinks.parquet("/o"), tm.sinks.sqlite("/d"), tm.sinks.sqlite("/d", "t"), tm.sinks.memory()]
    assert Outlets.of([*sinks, tm.sinks.memory()]).keys == (
        *("parquet:/o", "sqlite:/d", "sqlite:/d#t", "memory", "memory#2"),
    )
    database = tm.sinks.sqlite(tmp_path / "d")
    before = Outlets.of([database]).keys
    database.open("q")
    assert Outlets.of([database]).keys == before
    database.close()


@pytest.mark.parametrize(
    ("old", "new", "behind", "expected"),
    [
        ([ONLY], ["x", "y"], {ONLY}, {ONLY: "x"}),
        (["a"], ["b"], {"a"}, {"a": "b"}),
        (["a", "b"], ["b", "a"], {"a"}, {"a": "a", "b": "b"}),
        (["a", "b"], ["b"], {"a"}, {"b": "b"}),
        (["a"], ["b", "a"], {"a"}, {"a": "a"}),
        (["a"], ["b", "c"], set(), {}),
        (["a", "b"], ["c"], {"b"}, None),
    ],
)
def test_who_takes_what_waits(old, new, behind, expected):
    if expected is None:
        with pytest.raises(JobChangedError, match="one sink at a time"):
            successors("q", old, new, behind)
    else:
        assert successors("q", old, new, behind) == expected
