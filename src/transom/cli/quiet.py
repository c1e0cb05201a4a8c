"""A Spark session that says nothing but errors, for programs that own the terminal."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from transom.cli.java import check_java
from transom.errors import SessionError

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

_LOGGERS_OF_ERRORS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark writes each exception it raises to standard error with these, as JSON with Java's stack trace."""

_NOISE = ("WARNING: Using incubator modules", "Warning: Java versions > Java 11 can only operate in restricted")
"""Starts of lines that Java and DataSketches print at every start, and about which nobody can do anything."""


def start_spark(master: str, name: str, say: Callable[[str], None] | None = None) -> SparkSession:
    """Return a new session with Spark's log at level ERROR.

    Args:
        master: Spark master URL, e.g. `local[2]`.
        name: Name of the Spark application.
        say: Told each line that Java writes to standard error; None leaves it on standard error.

    Raises:
        SessionError: Java is missing or too old, or Spark does not start.
    """
    check_java()
    from pyspark.logger import PySparkLogger

    from transom.engine.spark.session import session_builder

    for logger in _LOGGERS_OF_ERRORS:
        PySparkLogger.getLogger(logger).disabled = True
    directory = tempfile.mkdtemp(prefix="transom-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    settings = Path(directory, "log4j2.properties")
    settings.write_text(_LOG4J, encoding="utf-8")
    builder = (
        session_builder()
        .master(master)
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.defaultJavaOptions", f"-Dlog4j2.configurationFile={settings.as_uri()}")
    )
    if master.startswith("local"):
        # Otherwise the name of the machine must resolve, which it often does not in a container.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.driver.host", "127.0.0.1")
    try:
        with _standard_error(say):
            return builder.getOrCreate()
    except SessionError:
        raise
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise SessionError(
            f"Spark does not start on master {master!r}: {reason[0]}", "Check --master and the lines above."
        ) from error


def silence(spark: SparkSession) -> None:
    """Let Spark say nothing more: of a session that is stopped under running tasks it reports each as an error."""
    with suppress(Exception):  # Spark may be gone already
        spark.sparkContext.setLogLevel("OFF")


@contextmanager
def _standard_error(say: Callable[[str], None] | None) -> Iterator[None]:
    """Filter what processes started inside write to standard error, for as long as they live."""
    keep = os.dup(2)
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    threading.Thread(target=_copy_lines, args=(reading, keep, say), daemon=True, name="transom-stderr").start()
    try:
        yield
    finally:
        os.dup2(keep, 2)


def _copy_lines(reading: int, keep: int, say: Callable[[str], None] | None) -> None:
    with open(reading, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith(_NOISE):
                continue
            if say is None:
                os.write(keep, line.encode())
            else:
                say(line.rstrip("\n"))
    os.close(keep)
