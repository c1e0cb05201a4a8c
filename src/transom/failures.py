"""The meaning of an error: who is to blame, told by the classes of the errors behind it, wherever they were raised.

An error of Spark has others behind it: Python's causes, Java's, and those of Python workers, of which only the text of
their traceback comes back. `classify` follows them all. What has no class of its own in Spark, such as a lost executor,
is told by Spark's words, here and nowhere else.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile

from transom.causes import Link, links_of, python_causes
from transom.errors import CheckpointError, CheckpointFullError, SessionError, SourceAwayError, TransomError

LONGEST = 500
"""Characters of a reason."""


class FailureKind(Enum):
    """The kind of a failure; of several, the first says most."""

    CHECKPOINT = "the checkpoint cannot be used"
    DISK_FULL = "a disk is full"
    SPARK_GONE = "Spark is gone"
    MEMORY = "memory ran out"
    CANCELLED = "the Spark job was cancelled"
    NO_PYTHON = "Python cannot be started where tasks run"
    EXECUTOR_LOST = "an executor was lost"
    PARTITION_GONE = "a partition is gone that can be made again"
    SOURCE_AWAY = "its source did not answer"
    FILE_MISSING = "a file is missing"
    OTHER = "anything else: what a query, a function or a row of it does"


PASSING = frozenset({FailureKind.CANCELLED, FailureKind.EXECUTOR_LOST})
"""The kinds that may go well when they are tried again."""


@dataclass(frozen=True)
class Failure:
    """An error as one decides about it."""

    kind: FailureKind
    reason: str
    """For people: the innermost cause that says something, in a line."""
    ours: TransomError | None = None
    """The error of Transom among its causes; raised anew when a Python worker raised it."""

    @property
    def of_query(self) -> bool:
        """Whether a query, or the rows it reads, may be to blame; else trying other queries tells nothing."""
        return self.kind in (FailureKind.OTHER, FailureKind.PARTITION_GONE, FailureKind.FILE_MISSING)

    def ending(self, what: str) -> TransomError:
        """Return the error that ends the application, for a failure that is not a query's.

        Args:
            what: What failed, as the beginning of a sentence.
        """
        if self.ours is not None:
            return self.ours
        if self.kind is FailureKind.SOURCE_AWAY:
            return SourceAwayError(f"{what} failed, as {self.kind.value}: {self.reason}.", _REMEDIES[self.kind])
        return SessionError(f"{what} failed, as {self.kind.value}: {self.reason}.", _REMEDIES[self.kind])


_AGAIN = "Nothing of it was committed"
_REMEDIES = {
    FailureKind.DISK_FULL: f"{_AGAIN}: free some space where Spark keeps its files (spark.local.dir), and run again.",
    FailureKind.SPARK_GONE: f"{_AGAIN}: start the application again; it goes on from its checkpoint.",
    FailureKind.MEMORY: f"{_AGAIN}: give Spark or Python more memory, or set max_rows_per_cut lower, and run again.",
    FailureKind.CANCELLED: f"{_AGAIN}: run again, and let its Spark jobs end.",
    FailureKind.NO_PYTHON: f"{_AGAIN}: let every machine have the driver's Python and packages, at the path that "
    "PYSPARK_PYTHON or spark.pyspark.python says, and run again.",
    FailureKind.EXECUTOR_LOST: f"{_AGAIN}: see in the logs of the executors why they end, and run again.",
    FailureKind.SOURCE_AWAY: f"{_AGAIN}: it is read again when the source answers.",
    FailureKind.CHECKPOINT: "Repair it, and run again.",
}


def classify(error: BaseException) -> Failure:
    r"""Return what an error means.

    >>> classify(OSError(28, "No space left on device")).kind
    <FailureKind.DISK_FULL: 'a disk is full'>
    >>> classify(ValueError("a\nb")).reason
    'ValueError: a'
    """
    links = list(links_of(error))
    ours = next((link.error for link in links if link.error is not None), None)
    reason = str(ours) if ours is not None else _reason(links, error)
    found = {kind for link in links if (kind := _kind(link)) is not None}
    if _spark_gone(error):
        found.add(FailureKind.SPARK_GONE)
    if isinstance(ours, CheckpointFullError):
        return Failure(FailureKind.DISK_FULL, reason, ours)
    if isinstance(ours, CheckpointError):
        return Failure(FailureKind.CHECKPOINT, reason, ours)
    if isinstance(ours, SourceAwayError):
        return Failure(FailureKind.SOURCE_AWAY, reason, ours)
    return Failure(next((kind for kind in FailureKind if kind in found), FailureKind.OTHER), reason, ours)


def require_blame(error: BaseException, what: str) -> None:
    """Return when a query may be to blame for an error.

    Args:
        error: The error.
        what: What failed, as the beginning of a sentence.

    Raises:
        TransomError: None is; it says what is.
    """
    failure = classify(error)
    if failure.of_query:
        return
    if failure.ours is error:
        raise error
    raise failure.ending(what) from error


def is_of_files(error: BaseException) -> bool:
    """Tell whether a file system, of this machine or of a store, is behind an error.

    >>> is_of_files(OSError(5, "Input/output error")), is_of_files(ValueError("a"))
    (True, False)
    """
    return any(not {"builtins.OSError", "java.io.IOException"}.isdisjoint(link.names) for link in links_of(error))


# ---- one error

_GONE = ("Py4JNetworkError", "SparkContext was shut down", "Cannot call methods on a stopped SparkContext")
_LOST = ("ExecutorLostFailure", "FetchFailed")
"""Spark's names of the ends of tasks; that of a job has them in its text only."""
_UNFETCHED = "Cannot fetch record for offset"
"""Words of Spark's Kafka reader when no broker answers in time, in an exception that means any timeout."""
_NO_DAEMON = "Error from python worker:"
"""First words of Spark where Python said something else than the port that it listens at; then what it said."""
_NO_PORT = "EOFException occurred while reading the port number"
"""The same where it said nothing."""
_NOT_RUN = "Cannot run program"
"""First words of Java where there is no such file."""
_PATH = "PYTHONPATH was:"
_FULL = {errno.ENOSPC: "No space left on device", errno.EDQUOT: "Disk quota exceeded"}
_WORDS = (*_FULL.values(), *map(os.strerror, _FULL))
"""Java has no class or number for them, only the words of the operating system; in brackets if it opened a file."""


def _kind(link: Link) -> FailureKind | None:
    """Return what one error by itself says; None if nothing."""
    names, text = set(link.names), link.text
    if link.code in _FULL or ("java.io.IOException" in names and text.rstrip(")").endswith(_WORDS)):
        return FailureKind.DISK_FULL
    if names & {"builtins.MemoryError", "java.lang.OutOfMemoryError"}:
        return FailureKind.MEMORY
    if "transom.engine.placed.mapped.PartitionGoneError" in names:
        return FailureKind.PARTITION_GONE
    if names & {"builtins.FileNotFoundError", "java.io.FileNotFoundException", "java.nio.file.NoSuchFileException"}:
        return FailureKind.FILE_MISSING
    if _is_no_python(names, text):
        return FailureKind.NO_PYTHON
    if "org.apache.kafka.common.errors.RetriableException" in names or text.startswith(_UNFETCHED):
        return FailureKind.SOURCE_AWAY
    if link.condition == "SPARK_JOB_CANCELLED":
        return FailureKind.CANCELLED
    if "org.apache.spark.SparkException" in names:
        if any(word in text for word in _GONE):
            return FailureKind.SPARK_GONE
        if any(word in text for word in _LOST):
            return FailureKind.EXECUTOR_LOST
    if "java.lang.IllegalStateException" in names and any(word in text for word in _GONE):
        return FailureKind.SPARK_GONE
    return None


def _is_no_python(names: Collection[str], text: str) -> bool:
    """Tell whether Java says that a Python, or what Spark starts there, did not begin to work."""
    started = "java.io.IOException" in names and text.startswith(_NOT_RUN)
    return started or ("org.apache.spark.SparkException" in names and text.lstrip().startswith((_NO_DAEMON, _NO_PORT)))


def _spark_gone(error: BaseException) -> bool:
    """Tell whether PySpark could not reach Spark: Java has ended, the server is away, or the context was stopped."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark import SparkContext

    for each in python_causes(error):
        if isinstance(each, Py4JError) and not isinstance(each, Py4JJavaError):
            return True  # Java does not answer, or does not know what PySpark asks for
        if isinstance(each, (ConnectionError, EOFError)) and _raised_in(each) in ("py4j", "pyspark"):
            return True
        if isinstance(each, AttributeError) and _raised_in(each) == "pyspark":  # it asked the context, which is None
            return SparkContext._active_spark_context is None
        status = getattr(each, "getGrpcStatusCode", getattr(each, "code", None))
        if callable(status) and getattr(status(), "name", "") == "UNAVAILABLE":
            return True
    return False


def _raised_in(error: BaseException) -> str:
    """Return the package of the function that raised an error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]


def _reason(links: Sequence[Link], error: BaseException) -> str:
    """Return the innermost cause that says something; of a worker's errors, the one that left it."""
    said = [link for link in links if link.at_worker] or [link for link in reversed(links) if link.text]
    if not said:
        return type(error).__name__
    name, lines = said[0].names[0].removeprefix("builtins."), said[0].text.strip().splitlines()
    if lines and lines[0].strip() == _NO_DAEMON:  # of a traceback the last line says why
        told = [line.strip() for line in takewhile(lambda line: line.strip() != _PATH, lines[1:])]
        return (next((line for line in reversed(told) if line), "") or _NO_DAEMON)[:LONGEST]
    text = lines[0].strip() if lines else ""
    if re.match(r"\[[A-Z0-9_.]+\] ", text):  # an error condition of Spark
        return text[:LONGEST]
    return f"{name}: {text}".removesuffix(": ")[:LONGEST]


# ---- the errors behind an error
