"""Silence on standard error about errors that Transom reports itself: PySpark and Java write about them, too.

Only what Transom causes is kept back: errors of the user's own calls and all other lines of Spark are written as ever.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from transom.errors import DefinitionError
from transom.model.sessions import is_connect, java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGGERS_OF_ERRORS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark writes each exception it raises to standard error with these, as JSON with Java's stack trace."""
LOGGERS_OF_TASKS = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")
"""Spark writes each task that fails with these, with a stack trace each."""
LOG4J = "org.apache.logging.log4j"
PY4J = "py4j"
"""The library through which PySpark calls Java writes a stack trace of each call that is interrupted."""


def is_not_ours(record: logging.LogRecord) -> bool:
    """Tell whether a record was logged by a call that did not come from Transom."""
    frame = sys._getframe()
    while (before := frame.f_back) is not None:
        frame = before
        if frame.f_globals.get("__name__", "").startswith("transom.") and frame.f_code.co_filename != __file__:
            return False
    return True


def silence_exceptions() -> None:
    """Keep PySpark from writing the exceptions that Transom catches and reports; those of the user's calls stay."""
    from pyspark.logger import PySparkLogger

    for name in LOGGERS_OF_ERRORS:
        PySparkLogger.getLogger(name).addFilter(is_not_ours)  # the same filter is added once only


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return PY4J not in Path(record.pathname).parts


def silence_interrupted_calls() -> None:
    """Keep py4j from writing about calls that are interrupted, or fail as Java ends first: from now on, for good."""
    logging.getLogger().addFilter(_is_not_of_py4j)  # in part it does so by the root logger
    logging.getLogger(PY4J).setLevel(logging.CRITICAL + 1)


@contextmanager
def short_tracebacks() -> Iterator[None]:
    """Let a `DefinitionError` of the body leave out the error of Spark that it repeats, with its plan and its frames.

    Where a line of the user's led to that, as in `map`, it stays: that line is what has to be changed.
    """
    from pyspark.errors import PySparkException

    try:
        yield
    except DefinitionError as error:
        cause = error.__cause__
        if not isinstance(cause, PySparkException) or _led_to_by_users(cause.__traceback__):
            raise
        raise error from None


def _led_to_by_users(trace: TracebackType | None) -> bool:
    """Tell whether a function was called in between that is neither ours nor Spark's."""
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] not in ("transom", "pyspark", PY4J):
            return True
        trace = trace.tb_next
    return False


_lock = threading.Lock()
_users: dict[str, int] = {}
"""Number of blocks that keep each logger of tasks silent now."""


@contextmanager
def silent_tasks(spark: SparkSession) -> Iterator[None]:
    """Keep Spark's driver from writing tasks that fail while the block runs: its body reports why they did.

    A logger that the user has configured stays as it is. On Spark Connect the log is the server's.

    Args:
        spark: The session; all of its context are meant.
    """
    if is_connect(spark):
        yield
        return
    silenced = [name for name in LOGGERS_OF_TASKS if _silence(spark, name)]
    try:
        yield
    finally:
        for name in silenced:
            with suppress(Exception):  # Java may be gone
                _let_speak(spark, name)


def _context(spark: SparkSession) -> Any:
    return java_class(spark, f"{LOG4J}.LogManager").getContext(False)


def _silence(spark: SparkSession, name: str) -> bool:
    with _lock:
        if not _users.get(name):
            if _context(spark).getConfiguration().getLoggerConfig(name).getName() == name:
                return False
            off = java_class(spark, f"{LOG4J}.Level").OFF
            java_class(spark, f"{LOG4J}.core.config.Configurator").setLevel(name, off)
        _users[name] = _users.get(name, 0) + 1
    return True


def _let_speak(spark: SparkSession, name: str) -> None:
    with _lock:
        _users[name] -= 1
        if not _users[name]:
            context = _context(spark)
            context.getConfiguration().removeLogger(name)
            context.updateLoggers()
