"""Java ends, or Spark's context or server stops, while the application is idle or works."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from types import SimpleNamespace

import psutil
import pytest
from test_interrupts import STARTING, finish, start, wait_for

from transom.engine.spark.pulse import ALONE, MISSES, Pulse
from transom.errors import SessionError


class Process:
    """A process that ends when it is told to."""

    def __init__(self) -> None:
        self.returncode = None

    def poll(self):
        return self.returncode

    def wait(self, timeout):
        if self.returncode is None:
            raise subprocess.TimeoutExpired("java", timeout)
        return self.returncode


class Context:
    """A context as PySpark has it, without Java."""

    def __init__(self) -> None:
        self.stopped, self.process = False, Process()
        self._gateway, self._jsc = SimpleNamespace(proc=self.process), self

    def sc(self):
        return self

    def isStopped(self):
        if self.process.returncode is not None:
            raise ConnectionRefusedError("refused")
        return self.stopped

    def isLocal(self):
        if self.process.returncode is not None:
            raise ConnectionRefusedError("refused")
        return True


@pytest.fixture
def classic():
    return SimpleNamespace(_jsparkSession=None, sparkContext=Context())


def stop_in_java(context):
    context.stopped = True


def stop_in_python(context):
    context._jsc = None


def kill(context):
    context.process.returncode = -9


def out_of_memory(context):
    context.process.returncode = 52


ENDS = [
    (stop_in_java, "its context was stopped"),
    (stop_in_python, "its context was stopped"),
    (kill, "Java was ended by signal 9"),
    (out_of_memory, "exit code 52: it had run out of memory"),
]


class ClusterContext(Context):
    """One whose jobs and executors are counted."""

    jobs = 1
    executors = 0

    def isLocal(self):
        return False

    def statusTracker(self):
        return SimpleNamespace(getActiveJobIds=lambda: [0] * self.jobs)

    def getExecutorMemoryStatus(self):
        return SimpleNamespace(size=lambda: 1 + self.executors)


def test_jobs_that_wait_for_executors_are_told_of_once_and_that_they_go_on():
    context = ClusterContext()
    pulse = Pulse(SimpleNamespace(_jsparkSession=None, sparkContext=context), every=ALONE / 3)
    context.jobs = 0  # with dynamic allocation there are no executors while there is nothing to do
    assert [pulse.news() for _ in range(5)] == [None] * 5
    context.jobs = 1
    first, second, told, *more = (pulse.news() for _ in range(5))
    assert (first, second, more) == (None, None, [None, None])
    assert "Spark has none" in told
    context.executors = 1
    assert pulse.news() == "Jobs wait for no executor any more."
    assert pulse.news() is None


@pytest.mark.parametrize(("end", "reason"), ENDS)
def test_what_ended(classic, end, reason):
    pulse = Pulse(classic)
    assert pulse.look() is None
    end(classic.sparkContext)
    assert reason in pulse.look()


def test_a_gateway_that_somebody_else_started(classic):
    classic.sparkContext._gateway.proc = None
    classic.sparkContext.isStopped = lambda: socket.create_connection(("127.0.0.1", 1))
    assert "Java does not answer" in Pulse(classic).look()


@pytest.mark.parametrize(("end", "reason"), ENDS)
def test_somebody_is_told_once(classic, end, reason):
    told, once = [], threading.Event()

    def tell(error):
        told.append(error)
        once.set()

    def watched():
        with Pulse(classic, every=0.001) as pulse:
            pulse.watch(tell)
            end(classic.sparkContext)
            assert once.wait(30)
            raise told[0]

    with pytest.raises(SessionError, match=reason) as caught:
        watched()
    assert caught.value is told[0]
    assert len(told) == 1


def test_java_may_end_between_two_questions_of_one_look(classic):
    pulse = Pulse(classic)
    assert pulse.look() is None
    kill(classic.sparkContext)
    assert pulse.news() is None
    assert "Java was ended by signal 9" in pulse.look()


@pytest.mark.parametrize(("gone", "raised"), [(True, SessionError), (False, ValueError)])
def test_an_error_that_comes_of_it_says_so(classic, gone, raised):
    error = ValueError("whatever")

    def failing():
        with Pulse(classic):
            kill(classic.sparkContext) if gone else None
            raise error

    with pytest.raises(raised, match="Java was ended by signal 9" if gone else "whatever") as caught:
        failing()
    assert caught.value is error or caught.value.__cause__ is error


class Remote:
    """A Spark Connect session whose server answers or not."""

    def __init__(self, answers) -> None:
        self.answers = iter(answers)
        self.client = self._stub = self._builder = self
        self.is_closed = False

    def _analyze_plan_request_with_metadata(self):
        return SimpleNamespace(spark_version=SimpleNamespace(SetInParent=lambda: None))

    def metadata(self):
        return ()

    def AnalyzePlan(self, request, metadata, timeout):
        if not next(self.answers):
            raise TimeoutError("no answer")


def test_a_server_may_miss_once():
    pulse = Pulse(Remote([True, False, True, *[False] * MISSES]))
    assert [pulse.look() for _ in range(3)] == [None] * 3
    found = [pulse.look() for _ in range(MISSES)]
    assert found[:-1] == [None] * (MISSES - 1)
    assert "does not answer (TimeoutError: no answer)" in found[-1]


# ---- with Spark


def java_of(process):
    return next(child for child in psutil.Process(process.pid).children() if "java" in child.name())


@pytest.mark.slow
@pytest.mark.parametrize("when", ["idle", "busy"])
def test_java_is_killed(spark, tmp_path, when):
    """Nothing is asked of Java any more when all rows are read: the application looks whether it is there."""
    with start(tmp_path, DELAY_MS="2" if when == "busy" else "0") as process:
        wait_for(process, *(("committed", 6) if when == "idle" else ("cut logged", 2)))
        java_of(process).kill()
        out, errors = process.communicate(timeout=600)
    said = [line for line in errors.splitlines() if not line.startswith("step: ")]
    assert said == [
        "Spark is gone: Java was ended by signal 9.",
        "Start the application again: it goes on from its last committed micro-batch.",
    ]
    assert "Traceback" not in out
    assert process.returncode == 1
    finish(spark, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "when"),
    [
        *((signal.SIGTERM, when) for when in ("busy", "idle", "starting")),
        *((signal.SIGHUP, when) for when in ("busy", "idle")),
    ],
)
def test_all_processes_are_told_to_end(spark, tmp_path, number, when):
    """As systemd does. Java goes at once, with the job of the micro-batch that runs; the next run does it."""
    with start(tmp_path, start_new_session=True, DELAY_MS="5" if when == "busy" else "0") as process:
        if when != "starting":
            wait_for(process, "committed", 1 if when == "busy" else 6)
            wait_for(process, "cut logged", 1) if when == "busy" else None
        else:
            while not any("java" in child.name() for child in psutil.Process(process.pid).children()):
                os.sched_yield()
        os.killpg(process.pid, number)
        out, errors = process.communicate(timeout=600)
    said = [line for line in errors.splitlines() if not line.startswith("step: ") and line not in STARTING]
    assert "Traceback" not in out
    if when == "starting":
        assert process.returncode == 128 + number
        assert said in ([], ["Stopped at once; the next run goes on from the last committed micro-batch."])
    else:
        assert process.returncode == 0, said
        assert all("Spark ended first" in line for line in said)
        finish(spark, tmp_path)
