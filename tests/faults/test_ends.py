"""The end of a run: nothing that hangs, raises or comes twice keeps it, and what is missing comes with the next run."""

from __future__ import annotations

import gc
import queue
import sys
import threading
import weakref
from types import SimpleNamespace

import pyarrow as pa
import pytest
from test_sink_faults import Failing, build, counts, of_windows, source

import transom as tm
from transom.engine.execution.runners import SparkCutRunner
from transom.engine.execution.threads import Threads
from transom.engine.loop import ending
from transom.engine.loop.delivery import Delivery, ResultBatch
from transom.engine.loop.journal import MOST_NOTES, Journal
from transom.engine.loop.opened import Opened
from transom.errors import SinkError
from transom.model.time import ManualClock
from transom.sinks.base import WindowResults
from transom.sinks.inmemory import MemorySink
from transom.sinks.outlets import Outlets
from transom.windows.store import PaneStore

without_jobs = pytest.mark.usefixtures("in_memory")


NOON = 1_700_000_000_000_000
MINUTE = 60_000_000


class Hanging(MemorySink):
    """Takes results when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.may_end, self.ended, self.closed = *(threading.Event() for _ in range(3)), 0

    def write(self, results):
        self.began.set()
        self.may_end.wait()
        super().write(results)

    def close(self):
        self.closed += 1
        super().close()
        self.ended.set()


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(ending, "AT_ONCE", 0.05)


def run_and_stop(app, clock, began):
    """Run; tell the application to stop when something hangs, and let minutes pass then."""
    done = threading.Event()

    def stop():
        began.wait()
        app.stop()
        while not done.wait(0.01):
            clock.advance(MINUTE)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        return app.run()
    finally:
        done.set()
        thread.join()


@without_jobs
def test_a_sink_that_hangs_does_not_keep_the_end(spark, tmp_path, short):
    clock, hanging, good = ManualClock(NOON), Hanging(), tm.sinks.memory()
    app = build(spark, tmp_path, source(30), {"bad": hanging, "good": good}, clock, stop_timeout="1 minute")
    progress = run_and_stop(app, clock, hanging.began)
    assert progress.stopping
    assert any("Stopped without the sink of bad, which did not end within 1 minute" in note for note in progress.notes)
    assert hanging.closed == 0, "another thread is in it"
    after = tm.sinks.memory()
    build(spark, tmp_path, source(30), {"bad": after, "good": good}).run(once=True, close_all=True)
    assert counts(after, "bad") == counts(good, "good") == of_windows(0, 10, 20)
    hanging.may_end.set()
    assert hanging.ended.wait(timeout=600), "who was in it closes it"
    assert hanging.closed == 1


def test_a_write_that_begins_after_the_end_is_none():
    """It would open anew what was closed."""
    sink = Closing()
    delivery = Delivery({"q": Outlets.of([sink])}, ManualClock(NOON), lambda: None, 1, 1 << 20)
    assert delivery.close(0) == []
    (lane,) = delivery._lanes["q"]
    delivery._write(lane, ResultBatch(WindowResults("q", 1, pa.table({"n": [1]})), 1, NOON))
    assert sink.to_table("q") is None


@without_jobs
def test_a_micro_batch_that_hangs_does_not_keep_the_end(spark, tmp_path, short, monkeypatch):
    clock, began, may_end = ManualClock(NOON), threading.Event(), threading.Event()

    def hang(*_):
        began.set()
        may_end.wait()

    with monkeypatch.context() as patch:
        patch.setattr(SparkCutRunner, "_run", hang)
        app = build(spark, tmp_path, source(30), {"q": tm.sinks.memory()}, clock)
        progress = run_and_stop(app, clock, began)
    assert any("Stopped without a micro-batch of stream1" in note for note in progress.notes)
    sink = tm.sinks.memory()
    build(spark, tmp_path, source(30), {"q": sink}).run(once=True, close_all=True)
    assert counts(sink, "q") == of_windows(0, 10, 20)
    may_end.set()


@without_jobs
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), OSError("no")])
def test_whatever_a_sink_raises_is_its_own(spark, tmp_path, error):
    class Leaving(Failing):
        def write(self, results):
            try:
                super().write(results)
            except OSError:
                raise error from None

    bad = Leaving(2)
    build(spark, tmp_path, source(30), {"bad": bad}).run(once=True, close_all=True)
    assert counts(bad, "bad") == of_windows(0, 10, 20)


class Closing(MemorySink):
    def __init__(self, error=None):
        super().__init__()
        self.error, self.closed = error, 0

    def close(self):
        self.closed += 1
        if self.error is not None:
            raise self.error


@without_jobs
def test_each_is_closed_once_whatever_another_one_raises(spark, tmp_path):
    sinks = {"a": Closing(OSError("a")), "b": Closing(ValueError("b")), "c": Closing()}
    app = build(spark, tmp_path, source(30), sinks)
    with pytest.raises(SinkError, match=r"memory.* and memory.* could not be closed"):
        app.run(once=True)
    assert [sink.closed for sink in sinks.values()] == [1, 1, 1]
    build(spark, tmp_path, source(30), sinks | {"a": Closing(), "b": Closing()}).run(once=True)  # the lock is free


def test_an_error_says_more_than_those_of_closing(caplog):
    Opened([Closing(OSError("x"))]).close([], ValueError())
    assert "could not be closed" in caplog.text


@without_jobs
def test_the_sink_of_a_query_that_was_removed_is_closed_while_the_others_go_on(spark, tmp_path):
    shared, own, sinks = Closing(), Closing(), {}
    app = build(spark, tmp_path, source(30), {"stays": shared, "shares": shared, "leaves": own})
    changes = []

    def look(progress):
        if not changes:
            changes.extend([app.remove("leaves"), app.remove("shares")])
        if all(change.done for change in changes) and own.closed:
            sinks.update(own=own.closed, shared=shared.closed, open=len(app._queries.opened._open))
            app.stop()

    app.run(on_progress=look)
    assert sinks == {"own": 1, "shared": 0, "open": 2}
    assert (own.closed, shared.closed) == (1, 1)


@without_jobs
@pytest.mark.parametrize("moment", ["before", "while it begins"])
def test_stop_when_there_is_no_loop_yet(spark, tmp_path, moment):
    """Before `run` there is nothing to stop; from its first moment on there is."""
    sink = tm.sinks.memory()
    app = build(spark, tmp_path, source(30), {"q": sink})
    if moment == "before":
        app.stop()
        app.run(once=True, close_all=True)
        assert counts(sink, "q") == of_windows(0, 10, 20)
    else:
        sink.open = lambda query: app.stop()
        assert app.run().stopping


@without_jobs
def test_runs_one_after_another(spark, tmp_path):
    rows, sink = source(15), tm.sinks.memory()
    app = build(spark, tmp_path, rows, {"q": sink})
    app.run(once=True)
    rows.add([("ab"[i % 2], i) for i in range(15, 30)])
    app.run(once=True, close_all=True)
    assert counts(sink, "q") == of_windows(0, 10, 20)


def test_nobody_reads_the_notes():
    journal = Journal(SimpleNamespace(head=None), lambda step: None)
    for number in range(2 * MOST_NOTES):
        journal.note(str(number))
    assert journal.take_notes() == tuple(str(number) for number in range(MOST_NOTES, 2 * MOST_NOTES))
    assert journal.take_notes() == ()


# ---- threads


def test_threads_do_what_is_submitted_and_end():
    threads = Threads(2, "test")
    done = [threads.submit(lambda n=n: n * n) for n in range(10)]
    assert [future.result(10) for future in done] == [n * n for n in range(10)]
    assert isinstance(threads.submit(sys.exit, 3).exception(10), SystemExit)
    assert threads.submit(int, "7").result(10) == 7, "the thread goes on"
    assert threads.close(10)


def test_there_may_be_more_threads_later():
    """As when more slots are set: two pieces of work that wait for each other need two threads."""
    threads, met = Threads(1, "test"), threading.Barrier(2)
    assert threads.submit(int).result(10) == 0
    threads.allow(2)
    done = [threads.submit(met.wait, 10) for _ in range(2)]
    assert sorted(future.result(20) for future in done) == [0, 1]
    assert threads.close(10)


def test_the_end_does_not_wait_for_work_that_a_thread_takes_first():
    threads, ended = Threads(1, "test"), threading.Event()

    class Overtaken(queue.SimpleQueue):
        def empty(self):
            return False  # as it was when it was looked at

    threads._work = Overtaken()
    threading.Thread(target=lambda: threads.close(10) and ended.set(), daemon=True).start()
    assert ended.wait(60)


def test_threads_that_hang_are_not_waited_for():
    threads, may_end = Threads(1, "test"), threading.Event()
    hangs, never = threads.submit(may_end.wait), threads.submit(int)
    assert not threads.close(0.01)
    assert never.cancelled()
    assert not hangs.done()
    may_end.set()
    assert threads.close(10)


@without_jobs
def test_partials_go_with_the_end_of_a_run(spark, tmp_path, monkeypatch):
    """They do not wait for Python's collector of cycles: there may be gigabytes of them."""
    made = []

    def noted(store, *arguments, **options):
        made.append(weakref.ref(store))
        original(store, *arguments, **options)

    original = PaneStore.__init__
    monkeypatch.setattr(PaneStore, "__init__", noted)
    sink = tm.sinks.memory()
    app = build(spark, tmp_path, source(30), {"q": sink})
    gc.collect()
    gc.disable()
    try:
        app.run(once=True)  # its last window stays open
        assert made
        assert [store for store in (each() for each in made) if store is not None] == []
    finally:
        gc.enable()
    assert counts(sink, "q") == of_windows(0, 10)
    app.run(once=True, close_all=True)
    assert counts(sink, "q") == of_windows(0, 10, 20)
