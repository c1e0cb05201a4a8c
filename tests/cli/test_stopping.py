"""Ctrl-C while Spark starts and while it stops; no Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import pytest
from pyspark.java_gateway import launch_gateway

from transom.cli import quiet, running
from transom.cli.main import main
from transom.cli.signals import ENDING
from transom.errors import SourceError


@pytest.fixture
def interruptible():
    """Ctrl-C raises KeyboardInterrupt; a Spark session of other tests has an answer of its own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def launcher(tmp_path, monkeypatch):
    """Lets PySpark start a shell script in the place of Spark's; returns where it writes its process id."""

    def write(script: str):
        (tmp_path / "bin").mkdir()
        program = tmp_path / "bin" / "spark-submit"
        program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\n{script}\n")
        program.chmod(0o755)
        return tmp_path / "pid"

    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    return write


@pytest.mark.parametrize("ignored", [False, True])
def test_java_ends_when_it_is_interrupted_before_it_can_be_asked_to(interruptible, launcher, monkeypatch, ignored):
    monkeypatch.setattr(quiet, "LONGEST", 0.1 if ignored else 60.0)
    trap = "trap '' TERM\n" if ignored else ""
    pid = launcher(f"{trap}kill -INT {os.getpid()}\nexec sleep 600")
    with pytest.raises(KeyboardInterrupt), quiet._no_java_left():
        launch_gateway()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_java_ends_though_the_interrupt_came_in_the_middle_of_a_look_at_it():
    """Between taking the lock of `Popen.poll` and the block that gives it back."""
    process = subprocess.Popen(["sleep", "600"])
    process._waitpid_lock.acquire()
    ending = threading.Thread(target=quiet._end, args=[process], daemon=True)
    ending.start()
    ending.join(20)
    assert process.returncode == -signal.SIGTERM


def test_java_that_has_started_goes_on(launcher, monkeypatch):
    """The script says that it listens at port 1, with a secret of one letter, as Spark's program would."""
    started = []

    class Kept(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Kept)
    pid = launcher(
        "printf '\\000\\000\\000\\001\\000\\000\\000\\001s' > $_PYSPARK_DRIVER_CONN_INFO_PATH.new\n"
        "mv $_PYSPARK_DRIVER_CONN_INFO_PATH.new $_PYSPARK_DRIVER_CONN_INFO_PATH\nexec sleep 600"
    )
    with quiet._no_java_left(), suppress(ConnectionRefusedError):  # nobody listens there
        launch_gateway()
    with started[0] as process:
        assert process.pid == int(pid.read_text())
        assert process.poll() is None
        process.kill()


class Spark:
    """A session whose end takes as long as the test wants."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.threads: list[threading.Thread] = []
        self.sparkContext = self

    def setLogLevel(self, level: str) -> None:
        assert level == "OFF"

    def stop(self) -> None:
        self.threads.append(threading.current_thread())
        self.may_end.wait()


def test_an_interrupt_does_not_wait_for_ever_until_spark_has_stopped(monkeypatch):
    spark = Spark()
    monkeypatch.setattr(quiet, "start_spark", lambda *_: spark)
    monkeypatch.setattr(quiet, "LONGEST", 0.05)
    with pytest.raises(KeyboardInterrupt), quiet.spark_session("local", "test"):
        raise KeyboardInterrupt
    (thread,) = spark.threads
    assert thread is not threading.current_thread(), "the connection of this one may be in use"
    spark.may_end.set()
    thread.join()


@pytest.mark.parametrize("error", [None, ValueError])
def test_otherwise_it_is_stopped_before_the_program_goes_on(monkeypatch, error):
    spark = Spark()
    spark.may_end.set()
    monkeypatch.setattr(quiet, "start_spark", lambda *_: spark)
    try:
        with quiet.spark_session("local", "test"):
            if error is not None:
                raise error
    except ValueError:
        assert error is ValueError
    assert spark.threads == [threading.current_thread()]


@pytest.fixture
def signals():
    """None is ignored, however the tests were started; leaves the answers to signals as they were."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("error", [SourceError("The file cannot be read."), ValueError("read failed"), None])
def test_a_signal_ends_it_quietly_whatever_a_library_makes_of_it(signals, monkeypatch, capfd, number, error):
    """As pandas does, which tells only that it could not read on."""

    def load(*_):
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            if error is None:
                raise
        raise error

    monkeypatch.setattr(running, "load", load)
    monkeypatch.setattr("sys.argv", ["transom", "run", __file__])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 128 + number
    assert capfd.readouterr() == ("", "")
    assert signal.getsignal(number) is signal.SIG_DFL, "the next one ends the process"


def test_a_signal_that_is_ignored_stays_so(signals, monkeypatch):
    """As SIGHUP under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    heard = []
    monkeypatch.setattr(running, "load", lambda *_: heard.append(signal.raise_signal(signal.SIGHUP)) or sys.exit(7))
    monkeypatch.setattr("sys.argv", ["transom", "run", __file__])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 7
    assert heard == [None]


def test_an_interrupt_while_python_imports_is_quiet(tmp_path):
    """The first thing that is imported after the command's own module interrupts the process."""
    program = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "transom":
            os.kill(os.getpid(), signal.SIGINT)

from transom_command import main
sys.meta_path.insert(0, Interrupting())
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_interrupted_calls_of_the_jvm_are_not_told(tmp_path):
    """The program below has py4j interrupted while it waits for an answer, and logs one line of its own."""
    program = """
import logging, os, signal, socket, threading
from py4j.clientserver import ClientServer, JavaParameters
from transom.cli import quiet

quiet.no_stack_traces()
server = socket.create_server(("127.0.0.1", 0))

def serve():
    connection, _ = server.accept()
    connection.recv(1000)
    os.kill(os.getpid(), signal.SIGINT)
    connection.recv(1000)

threading.Thread(target=serve, daemon=True).start()
try:
    ClientServer(JavaParameters(port=server.getsockname()[1])).jvm.System
except KeyboardInterrupt:
    logging.error("one line")
os._exit(0)  # py4j would wait for an answer
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=600)
    assert done.stderr == "ERROR:root:one line\n"
