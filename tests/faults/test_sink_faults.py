"""Sinks that fail: their own query waits, the others go on, and nothing is lost."""

from __future__ import annotations

import threading

import pytest

import transom as tm
from transom.engine.loop.delivery import FIRST_RETRY, Delivery, ResultBatch
from transom.errors import DefinitionError, QueryFailedError, SinkError
from transom.model.time import ManualClock
from transom.sinks.base import WindowResults
from transom.sinks.inmemory import MemorySink
from transom.sinks.outlets import Outlets

without_jobs = pytest.mark.usefixtures("in_memory")


NOON = 1_700_000_000_000_000
SECOND = 1_000_000


class Failing(MemorySink):
    """Fails the first times; counts its tries."""

    def __init__(self, times: float) -> None:
        super().__init__()
        self.times = times
        self.tries = []
        self.clock = None

    def write(self, results):
        self.tries.append(self.clock.now() if self.clock else results.cut)
        if len(self.tries) <= self.times:
            raise OSError("no route to the warehouse")
        super().write(results)


def source(rows, start=0):
    added = tm.sources.memory("zone string, at long")
    added.add([("ab"[i % 2], i) for i in range(start, rows)])
    return added


def build(spark, tmp_path, rows, sinks, clock=None, **settings):
    """An application of one count per sink, over 10 s windows of a row per second, 10 rows per cut."""
    app = tm.App(spark, tmp_path / "checkpoint", clock=clock or ManualClock(NOON), max_rows_per_cut=10, **settings)
    stream = app.stream(rows, event_time="timestamp_seconds(at)", watermark=tm.watermark(0, max_ahead=None))
    for name, sink in sinks.items():
        stream.group_by("zone").window("10 seconds").agg(n=tm.count()).to(sink, name)
    return app


def counts(sink, query):
    return [(row["window_start"].second, row["zone"], row["n"]) for row in sink.rows(query)]


def of_windows(*starts):
    return [(start, zone, 5) for start in starts for zone in "ab"]


def results(cut, rows=1):
    import pyarrow as pa

    return WindowResults("q", cut, pa.table({"n": list(range(rows))}))


def test_retries_back_off_and_keep_the_order():
    clock, woken = ManualClock(NOON), threading.Semaphore(0)
    sink, other = Failing(4), MemorySink()
    sink.clock = clock
    delivery = Delivery({"q": Outlets.of([sink]), "other": Outlets.of([other])}, clock, woken.release, 2, 1 << 20)
    for cut in (1, 2):
        delivery.send(ResultBatch(results(cut), 1, NOON))
    delivered = []
    while len(delivered) < 2:
        while delivery.busy:
            assert woken.acquire(timeout=600)
            delivered += delivery.collect()
        if delivery.waiting():
            assert list(delivery.failing()) == ["'q'"]
            clock.advance(1)
            delivery.collect()
            assert not delivery.busy
            clock.advance(FIRST_RETRY * 2 ** (delivery.failures("q") - 1) - 1)
            delivered += delivery.collect()
    assert [item.batch.results.cut for item in delivered] == [1, 2]
    waits = [b - a for a, b in zip(sink.tries[:4], sink.tries[1:5], strict=True)]
    assert waits == [FIRST_RETRY, 2 * FIRST_RETRY, 4 * FIRST_RETRY, 8 * FIRST_RETRY]
    assert delivery.failing() == {}
    assert delivery.failures("q") == 0
    assert delivery.close(10) == []


@without_jobs
def test_others_are_not_held_up(spark, tmp_path):
    """The sink of one query recovers only after all results of the other are there."""
    good, bad = MemorySink(), Failing(1000)

    def watch(progress):
        if len(good.tables) == 3:
            bad.times = 0

    app = build(spark, tmp_path, source(40), {"good": good, "bad": bad})
    progress = app.run(once=True, on_progress=watch)
    assert counts(good, "good") == counts(bad, "bad") == of_windows(0, 10, 20)
    assert len(bad.tries) > 3
    assert [query.waiting for query in progress.queries] == [0, 0]


@without_jobs
def test_a_sink_that_never_works_at_the_end_of_the_input(spark, tmp_path):
    good, bad = MemorySink(), Failing(float("inf"))
    app = build(spark, tmp_path, source(30), {"good": good, "bad": bad})
    with pytest.raises(SinkError, match=r"The sink of 'bad' fails: no route .* kept in the checkpoint"):
        app.run(once=True, close_all=True)
    assert len(bad.tries) == 8
    assert counts(good, "good") == of_windows(0, 10, 20)

    mended = MemorySink()
    build(spark, tmp_path, source(30), {"good": good, "bad": mended}).run(once=True)
    assert counts(mended, "bad") == of_windows(0, 10, 20)
    assert counts(good, "good") == of_windows(0, 10, 20)


class Slow(MemorySink):
    """Does not come back from its first write before it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def write(self, results):
        assert self.go_on.wait(timeout=600)
        super().write(results)


@without_jobs
def test_a_slow_sink_holds_back_the_reading_not_the_memory(spark, tmp_path):
    slow, notes, waiting = Slow(), [], []

    def watch(progress):
        notes.extend(progress.notes)
        waiting.append(progress.queries[0].waiting)
        if progress.notes:
            slow.go_on.set()

    app = build(spark, tmp_path, source(100), {"slow": slow}, max_waiting_bytes=60)
    app.run(once=True, on_progress=watch)
    assert counts(slow, "slow") == of_windows(0, 10, 20, 30, 40, 50, 0, 10, 20)
    said = "The sink of slow (memory) is slow; its stream is not read until it has taken what waits for it."
    assert set(notes) == {said}, "on a busy machine it may be slow more than once"
    assert max(waiting) == 2


@without_jobs
def test_too_many_results_wait(spark, tmp_path):
    """The query is taken out; what it has computed is written at the next start, and nothing of it after that."""
    good, bad = MemorySink(), Failing(float("inf"))
    notes = []
    app = build(spark, tmp_path, source(60), {"good": good, "bad": bad}, max_waiting_bytes=60)
    with pytest.raises(SinkError, match="bad"):
        app.run(once=True, close_all=True, on_progress=lambda progress: notes.extend(progress.notes))
    assert any("bad failed" in note and "no route" in note and "new name" in note for note in notes), notes
    assert counts(good, "good") == of_windows(0, 10, 20, 30, 40, 50)

    mended = MemorySink()
    app = build(spark, tmp_path, source(80), {"good": good, "bad": mended})
    progress = app.run(once=True, close_all=True)
    assert "new name" in {query.name: query.failure for query in progress.queries}["bad"]
    written = counts(mended, "bad")
    assert written == of_windows(0, 10, 20, 30, 40, 50)[: len(written)]
    assert 2 <= len(written) < 12
    assert counts(good, "good") == [(s, z, 5) for s in (0, 10, 20, 30, 40, 50, 0, 10) for z in "ab"]


@without_jobs
def test_the_only_query_is_taken_out_and_its_results_are_written_at_the_next_start(spark, tmp_path):
    for sink in (Failing(float("inf")), MemorySink()):
        app = build(spark, tmp_path, source(60), {"q": sink}, max_waiting_bytes=60)
        with pytest.raises(QueryFailedError, match="Every query failed"):
            app.run(once=True, close_all=True)
    assert counts(sink, "q")[:2] == of_windows(0)


@without_jobs
def test_a_sink_that_cannot_be_opened(spark, tmp_path):
    class Closed(MemorySink):
        def open(self, query):
            raise ConnectionError("refused")

    good = MemorySink()
    with pytest.raises(SinkError, match=r"query 'bad': its sink \(memory\) cannot be used: ConnectionError: refused"):
        build(spark, tmp_path, source(30), {"good": good, "bad": Closed()}).run(once=True, close_all=True)
    assert good.tables == {}
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="is or lies in a file"):
        build(spark, tmp_path, source(30), {"bad": tm.sinks.parquet(tmp_path / "file")}).run(once=True)
    build(spark, tmp_path, source(30), {"good": good}).run(once=True, close_all=True)
    assert counts(good, "good") == of_windows(0, 10, 20)


@without_jobs
@pytest.mark.parametrize("kind", [tm.sinks.parquet, tm.sinks.json])
def test_results_of_another_checkpoint(spark, tmp_path, kind):
    """They are neither removed nor mixed with new ones."""
    out = tmp_path / "out"
    build(spark, tmp_path, source(30), {"q": kind(out)}).run(once=True, close_all=True)
    before = {path.name: path.read_bytes() for path in out.glob("part-*")}
    assert before
    again = tmp_path / "again"
    build(spark, again, source(20), {"q": kind(tmp_path / "other")}).run(once=True)
    for checkpoint in (again, tmp_path / "new"):  # whether or not that has made results of its own
        with pytest.raises(SinkError, match=rf"q: {out} belongs to the query 'q' of the checkpoint {tmp_path}"):
            build(spark, checkpoint, source(30), {"q": kind(out)}).run(once=True, close_all=True)
    # nor with a new query of the same checkpoint, and trying again changes nothing
    for _ in range(2):
        with pytest.raises(SinkError, match="belongs to the query 'q' of this checkpoint"):
            build(spark, tmp_path, source(30), {"renamed": kind(out)}).run(once=True, close_all=True)
    assert {path.name: path.read_bytes() for path in out.glob("part-*")} == before
    build(spark, tmp_path, source(30), {"q": kind(out)}).run(once=True, close_all=True)
    assert {path.name: path.read_bytes() for path in out.glob("part-*")} == before


@without_jobs
def test_two_queries_in_one_directory(spark, tmp_path):
    with pytest.raises(DefinitionError, match="directory of its own"):
        build(
            spark, tmp_path, source(1), {"a": tm.sinks.parquet(tmp_path / "out"), "b": tm.sinks.json(tmp_path / "out")}
        )


@without_jobs
def test_stopping_does_not_wait_for_a_failing_sink(spark, tmp_path):
    """What waits is kept over any number of starts, until the sink works."""
    bad = Failing(float("inf"))
    app = build(spark, tmp_path, source(30), {"bad": bad})
    progress = app.run(on_progress=lambda progress: app.stop() if bad.tries and progress.streams[0].cuts >= 3 else None)
    assert progress.stopping
    assert progress.queries[0].waiting == 2
    with pytest.raises(SinkError):
        build(spark, tmp_path, source(30), {"bad": Failing(float("inf"))}, snapshot_bytes=1).run(once=True)
    mended = Failing(2)
    build(spark, tmp_path, source(30), {"bad": mended}).run(once=True, close_all=True)
    assert counts(mended, "bad") == of_windows(0, 10, 20)
