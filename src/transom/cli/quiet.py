"""A Spark session that says nothing but errors and ends with the program, for programs that own the terminal."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.cli.choice import SparkChoice
from transom.cli.java import check_java
from transom.errors import SessionError
from transom.failures import FailureKind, classify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} Spark %p %c{1}: %m%n%maxLen{%ex{8}}{2000}
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.tasks.name = org.apache.spark.executor.Executor
logger.tasks.level = off
logger.tasksets.name = org.apache.spark.scheduler.TaskSetManager
logger.tasksets.level = off
"""
"""Failed tasks are left out: Transom reports the query or the file that made them fail."""

_NOISE = ("WARNING: Using incubator modules", "Warning: Java versions > Java 11 can only operate in restricted")
"""Starts of lines that Java and DataSketches print at every start, and about which nobody can do anything."""

_ERRORS_OF_FETCHING = ("Exception", "UNRESOLVED", "unresolved", "not found:")
"""Parts of the lines that say why a jar cannot be had."""

LONGEST = 3.0
"""Seconds that Ctrl-C waits for Spark to clean up after itself; it then ends in any case."""


@contextmanager
def spark_session(choice: SparkChoice, name: str, say: Callable[[str], None] | None = None) -> Iterator[SparkSession]:
    """Start a session, as `start_spark` does, that is stopped with the block; after Ctrl-C within `LONGEST`.

    Raises:
        SessionError: Java is missing or too old, or Spark does not start.
    """
    spark = start_spark(choice, name, say)
    try:
        yield spark
    except KeyboardInterrupt:
        # This thread may have been in the middle of a call to the JVM, whose connection no other call may use.
        thread = threading.Thread(target=_stop_silently, args=[spark], name="transom-stop", daemon=True)
        thread.start()
        thread.join(LONGEST)
        raise
    except BaseException:
        with suppress(Exception):  # that error says more
            spark.stop()
        raise
    try:
        spark.stop()
    except Exception as error:
        if classify(error).kind is not FailureKind.SPARK_GONE:
            raise


def start_spark(choice: SparkChoice, name: str, say: Callable[[str], None] | None = None) -> SparkSession:
    """Return a new session with Spark's log at level ERROR.

    Ctrl-C raises `KeyboardInterrupt`, also when it comes while Spark starts, of which nothing is left then.

    Args:
        choice: Where Spark runs, and its settings.
        name: Name of the Spark application.
        say: Told each line that Java writes to standard error; None leaves it on standard error.

    Raises:
        SessionError: Java is missing or too old, or Spark does not start.
    """
    check_java()
    from transom.engine.spark.session import session_builder

    no_stack_traces()
    directory = tempfile.mkdtemp(prefix="transom-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    settings = Path(directory, "log4j2.properties")
    settings.write_text(_LOG4J, encoding="utf-8")
    quiet = {"spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={settings.as_uri()}"}
    builder = session_builder().appName(name)
    asked = choice.settings(submitted="PYSPARK_GATEWAY_PORT" in os.environ)
    for key, value in {**quiet, **asked}.items():
        builder = builder.config(key, value)
    try:
        with _no_java_left(), _interrupts_kept(), _standard_error(say, fetching=choice.packages is not None):
            return builder.getOrCreate()
    except SessionError:
        raise
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise SessionError(
            f"Spark does not start on master {asked.get('spark.master', 'of spark-submit')!r}: {reason[0]}",
            "Check --master, --conf, --packages and the lines above.",
        ) from error


def no_stack_traces() -> None:
    """Keep PySpark from writing exceptions to standard error: the command line prints those that nobody catches."""
    from pyspark.logger import PySparkLogger

    from transom.engine.spark.silence import LOGGERS_OF_ERRORS, silence_interrupted_calls

    for logger in LOGGERS_OF_ERRORS:
        PySparkLogger.getLogger(logger).disabled = True
    silence_interrupted_calls()


def _stop_silently(spark: SparkSession) -> None:
    with suppress(Exception):  # Spark may be gone already
        spark.sparkContext.setLogLevel("OFF")  # it reports each running task of a session that is stopped as an error
        spark.stop()


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Leave Ctrl-C as it was: PySpark's own answer to it calls the JVM in the middle of another call."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _no_java_left() -> Iterator[None]:
    """End the JVM that PySpark starts inside when the block fails or is interrupted.

    The JVM first writes where it listens into a directory of PySpark's, then goes when this process goes. PySpark
    removes the directory when it is interrupted: the JVM's main thread fails, and its others stay for ever.
    """
    java_gateway: Any = import_module("pyspark.java_gateway")
    started: list[subprocess.Popen[Any]] = []

    class Noted(subprocess.Popen[Any]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            started.append(self)  # before it starts, since an interrupt may come before it returns
            super().__init__(*arguments, **options)

    popen = java_gateway.Popen
    java_gateway.Popen = Noted
    try:
        yield
    except BaseException:
        for process in started:
            _end(process)
        raise
    finally:
        java_gateway.Popen = popen


def _end(process: subprocess.Popen[Any]) -> None:
    """End a process and wait for it, without its lock: an interrupt in the middle of `poll` leaves that taken."""
    with suppress(Exception), process:  # it did not even start; closes its pipe
        if process.returncode is None:
            process.returncode = _ended(process.pid)


def _ended(pid: int) -> int:
    """End a child, which may take its time or not listen; return how it ended."""
    statuses: list[int] = []
    waiting = threading.Thread(target=lambda: statuses.append(os.waitpid(pid, 0)[1]), daemon=True)
    os.kill(pid, signal.SIGTERM)
    waiting.start()
    waiting.join(LONGEST)
    if waiting.is_alive():
        os.kill(pid, signal.SIGKILL)
        waiting.join()
    return os.waitstatus_to_exitcode(statuses[0])


@contextmanager
def _standard_error(say: Callable[[str], None] | None, *, fetching: bool) -> Iterator[None]:
    """Filter what processes started inside write to standard error, for as long as they live; nothing after Ctrl-C.

    Args:
        say: See `start_spark`.
        fetching: Whether they begin with fetching jars, of which only errors are worth reading.
    """
    interrupted, started = threading.Event(), threading.Event()
    if not fetching:
        started.set()
    keep = os.dup(2)
    reading, writing = os.pipe()
    arguments = (reading, keep, say, interrupted, started)
    try:
        threading.Thread(target=_copy_lines, args=arguments, daemon=True, name="transom-stderr").start()
    except RuntimeError:  # nobody would read what is written there
        for each in (keep, reading, writing):
            os.close(each)
        raise
    os.dup2(writing, 2)
    os.close(writing)
    try:
        yield
    except KeyboardInterrupt:
        interrupted.set()
        raise
    finally:
        started.set()
        os.dup2(keep, 2)


def _copy_lines(
    reading: int,
    keep: int,
    say: Callable[[str], None] | None,
    interrupted: threading.Event,
    started: threading.Event,
) -> None:
    with open(reading, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith(_NOISE) or interrupted.is_set():
                continue
            if not started.is_set() and not any(word in line for word in _ERRORS_OF_FETCHING):
                continue
            if say is None:
                os.write(keep, line.encode())
            else:
                say(line.rstrip("\n"))
    os.close(keep)
