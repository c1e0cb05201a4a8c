"""Runs in the background: what the handle promises, with runs that do what the test says; then one on Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

import transom as tm
from transom.api.running import Running
from transom.engine.execution.threads import Threads
from transom.engine.loop.progress import Progress
from transom.sinks.inmemory import memory as memory_sink
from transom.sources.inmemory import memory

END = Progress(7, 0, (), ())


class Run:
    """A run that shows one progress and goes on until it is stopped."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error, self.stops, self.at_once = error, 0, 0
        self.shown, self.may_end = threading.Event(), threading.Event()

    def __call__(self, show):
        show(Progress(1, 0, (), ()))
        self.shown.set()
        self.may_end.wait()
        if self.error is not None:
            raise self.error
        return END

    def stop(self):
        self.stops += 1
        self.may_end.set()

    def stop_at_once(self):
        self.at_once += 1
        self.may_end.set()

    def start(self) -> Running:
        return Running(self, self.stop, self.stop_at_once, "flights")


def test_progress_while_it_runs_and_at_the_end():
    run = Run()
    running = run.start()
    run.shown.wait()
    assert (running.progress.at, running.done) == (1, False)
    assert repr(running) == "Running('flights', running)"
    running.stop()
    assert running.wait() == END == running.progress
    assert running.done
    running.stop()
    assert run.stops == 1, "a run that has ended is not stopped"
    assert running.wait() == END, "as often as one likes"


def test_errors_are_raised_by_wait():
    run = Run(tm.SourceError("The directory is gone.", "Make it again."))
    running = run.start()
    run.may_end.set()
    with pytest.raises(tm.SourceError, match="The directory is gone"):
        running.wait()
    assert "failed: The directory is gone" in repr(running)


def test_a_wait_may_be_short():
    run = Run()
    running = run.start()
    with pytest.raises(TimeoutError, match="flights has not ended within 1 ms; it goes on"):
        running.wait("1 ms")
    with pytest.raises(tm.DefinitionError, match="timeout"):
        running.wait("soon")
    assert not running.done
    running.stop()
    assert running.wait("1 minute") == END


def test_as_a_context_manager_it_is_stopped_and_waited_for():
    run = Run()
    with run.start() as running:
        assert not running.done
    assert running.done
    with pytest.raises(ValueError, match="of the body"), Run(tm.SourceError("Of the run.")).start():
        raise ValueError("of the body")
    with pytest.raises(tm.SourceError), Run(tm.SourceError("Of the run.")).start():
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_main_thread_waits_stops_it_and_the_second_at_once(number):
    before = signal.getsignal(number)
    stops, at_once, may_end = [], [], threading.Event()

    def run(show):
        while signal.getsignal(number) is before:
            show(END)
        os.kill(os.getpid(), number)
        may_end.wait()
        return END

    def stop():
        stops.append(number)
        signal.raise_signal(number)  # the run takes its time, and the user loses patience

    def stop_at_once():
        at_once.append(number)
        may_end.set()

    running = Running(run, stop, stop_at_once, "flights")
    with pytest.raises(KeyboardInterrupt):
        running.wait()
    assert (len(stops), len(at_once)) == (1, 1)
    assert signal.getsignal(number) is before
    assert running.wait() == END


def test_one_that_is_forgotten_ends_with_the_interpreter():
    program = """
import threading
from types import SimpleNamespace
from transom.api.running import Running

told = threading.Event()

def run(show):
    told.wait()
    print("the last micro-batch is done", flush=True)
    if FAILS:
        raise ValueError("of the run")

Running(run, told.set, told.set, "flights")
print("the program ends", flush=True)
"""
    for fails, said in ((False, ""), (True, "The run of flights, for which nobody waited, ended with an error: of")):
        code = program.replace("FAILS", repr(fails))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
        assert done.stdout == "the program ends\nthe last micro-batch is done\n"
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_work_is_done_though_no_thread_can_start(monkeypatch):
    """As from Python 3.12 on while the interpreter ends."""

    def start(self):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", start)
    threads = Threads(2, "some")
    assert [threads.submit(lambda n: n + 1, n).result(0) for n in (1, 2)] == [2, 3]
    assert threads.close(0)


def test_a_run_on_spark(spark, tmp_path):
    app, sink = tm.App(spark, tmp_path / "checkpoint"), memory_sink()
    rows = memory("k string, t timestamp")
    app.stream(rows, event_time="t").group_by("k").window("1 second").agg(n=tm.count()).to(sink, name="counts")
    with pytest.raises(tm.DefinitionError, match="start: close_all needs once=True"):
        app.start(close_all=True)
    running = app.start()
    try:
        for start in (app.start, app.run):
            with pytest.raises(tm.DefinitionError, match=f"{start.__name__}: the application is running"):
                start()
        running.stop()
    finally:
        app.stop()
        final = running.wait()
    assert [query.name for query in final.queries] == ["counts"]
    again = app.start(once=True)
    assert again.wait().queries == final.queries


def test_relative_paths_are_of_the_directory_in_which_they_were_given(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    app = tm.App(SimpleNamespace(createDataFrame=None), checkpoint="ckpt")
    monkeypatch.chdir("/")
    assert app.checkpoint == tmp_path / "ckpt"


def test_what_users_see_of_values_is_short():
    app = tm.App(SimpleNamespace(createDataFrame=None), checkpoint="ckpt")
    source = tm.sources.generator({"page": "'a'", "at": "event_time"}, rows_per_second=1)
    clicks = app.stream(source, event_time="at", name="clicks")
    assert repr(clicks) == "Stream('clicks')"
    rows = clicks.map(lambda df: df).where("page <> ''")
    query = rows.group_by("page").window("1 minute", tm.calendar("day", zone="Europe/Berlin")).agg(n=tm.count())
    print(repr(query))
    assert repr(query).startswith("Stream('clicks').map(...).where(\"page <> ''\").group_by('page').window(")
    assert repr(query).endswith(").agg(n)")
    assert len(repr(query)) < 160
    assert repr(END) == "Progress(after 0.0 s)"
