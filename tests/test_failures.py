"""What an error means, by the errors behind it: those of Python, of Spark, and those that a worker tells of."""

import errno
import os
import threading
from types import SimpleNamespace

import pytest
from pyspark.sql import functions as F

from transom import failures
from transom.causes import worker_errors
from transom.engine.spark.isolation import TRIES, run_isolated
from transom.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointFullError,
    JobChangedError,
    QueryFailedError,
    SessionError,
)
from transom.failures import FailureKind, classify, require_blame

QUERIES = [SimpleNamespace(name="q"), SimpleNamespace(name="r")]


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("No space left on device"), FailureKind.OTHER),
        (RuntimeError("CheckpointError, FileNotFoundError, MemoryError"), FailureKind.OTHER),
        (OSError(errno.ENOSPC, "whatever the system calls it"), FailureKind.DISK_FULL),
        (OSError(errno.EDQUOT, "quota"), FailureKind.DISK_FULL),
        (FileNotFoundError(errno.ENOENT, "no"), FailureKind.FILE_MISSING),
        (MemoryError(), FailureKind.MEMORY),
        (ConnectionRefusedError(errno.ECONNREFUSED, "a user's database"), FailureKind.OTHER),
        (CheckpointError("x"), FailureKind.CHECKPOINT),
        (JobChangedError("x"), FailureKind.CHECKPOINT),
        (CheckpointFullError("x"), FailureKind.DISK_FULL),
        (caused(RuntimeError("outside"), CheckpointCorruptError("x")), FailureKind.CHECKPOINT),
        (caused(QueryFailedError("outside"), MemoryError()), FailureKind.MEMORY),
    ],
)
def test_python_errors(error, kind):
    assert classify(error).kind is kind


TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n    ^^^\n'
DIRECT = "\n\nThe above exception was the direct cause of the following exception:\n\n"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (TRACE + "ValueError: no\n SQLSTATE: 38000", [("builtins.ValueError", "no")]),
        (TRACE + "MemoryError", [("builtins.MemoryError", "")]),
        (TRACE + "mine.errors.Bad: text: more", [("mine.errors.Bad", "text: more")]),
        (
            TRACE + "OSError: inner" + DIRECT + TRACE + "transom.errors.CheckpointFullError: outer",
            [("transom.errors.CheckpointFullError", "outer"), ("builtins.OSError", "inner")],
        ),
        (TRACE + "ValueError: a\n" + TRACE + "MemoryError", [("builtins.ValueError", "a\n" + TRACE + "MemoryError")]),
        ("no traceback\nMemoryError: x", []),
        (TRACE, []),
    ],
)
def test_the_traceback_of_a_worker(text, names):
    assert [(link.names[0], link.text) for link in worker_errors(text)] == names


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (None, "No such file or directory"),
        ("echo Traceback >&2; echo 'OSError: too long' >&2; exit 1", "OSError: too long"),
        ("exit 1", "EOFException occurred while reading the port number"),
    ],
)
def test_a_python_that_does_not_start_is_no_fault_of_a_query(spark, tmp_path, monkeypatch, program, reason):
    python = tmp_path / "python"
    if program is not None:
        python.write_text(f"#!/bin/sh\n{program}\n")
        python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    found = failure(lambda: spark.sparkContext.parallelize([1], 1).map(abs).collect())
    assert (found.kind, found.of_query) == (FailureKind.NO_PYTHON, False)
    assert reason in found.reason
    with pytest.raises(SessionError, match=r"Python cannot be started where tasks run: .*PYSPARK_PYTHON"):
        raise found.ending("The micro-batch")


def test_who_says_the_words_of_spark_is_no_python_that_does_not_start():
    assert classify(ValueError("Error from python worker:")).kind is FailureKind.OTHER


@pytest.mark.parametrize("text", ["No space left on device", "/a/b.parquet (No space left on device)"])
def test_a_full_disk_in_the_words_of_java(text):
    error = SimpleNamespace(names=("java.io.FileNotFoundException", "java.io.IOException"), text=text, code=None)
    assert failures._kind(error) is FailureKind.DISK_FULL


def raising(error):
    def function(batches):
        for _ in batches:
            pass
        raise error
        yield

    return function


def failure(job):
    try:
        job()
    except Exception as error:
        return classify(error)
    raise AssertionError("nothing failed")


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (CheckpointCorruptError("damaged", "repair it."), FailureKind.CHECKPOINT, "damaged repair it."),
        (CheckpointFullError("full", "tidy."), FailureKind.DISK_FULL, "full tidy."),
        (MemoryError("too much"), FailureKind.MEMORY, "MemoryError: too much"),
        (FileNotFoundError(2, "gone"), FailureKind.FILE_MISSING, "FileNotFoundError: [Errno 2] gone"),
        (OSError(errno.ENOSPC, "No space"), FailureKind.DISK_FULL, f"OSError: [Errno {errno.ENOSPC}] No space"),
        (ValueError("transom.errors.CheckpointError: MemoryError"), FailureKind.OTHER, None),
        (ConnectionRefusedError("my database"), FailureKind.OTHER, "ConnectionRefusedError: my database"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@pytest.mark.parametrize("by", [pytest.param("rows", marks=pytest.mark.slow), "tasks"])
def test_errors_of_workers(spark, error, kind, reason, by):
    if by == "rows":
        found = failure(lambda: spark.range(3).mapInArrow(raising(error), "id long").toArrow())
    else:
        found = failure(lambda: spark.sparkContext.parallelize([1], 1).mapPartitions(raising(error)).collect())
    assert found.kind is kind
    assert reason is None or found.reason == reason
    if kind is FailureKind.CHECKPOINT:
        assert type(found.ours) is type(error)


def test_errors_of_spark(spark, tmp_path, small_disk):
    assert failure(lambda: spark.sql("SELECT 1 / 0").toArrow()).reason.startswith("[DIVIDE_BY_ZERO] Division by zero")
    assert failure(lambda: spark.sql("SELECT x").toArrow()).kind is FailureKind.OTHER
    udf = F.udf(lambda x: 1 // 0)
    assert failure(lambda: spark.range(1).select(udf("id")).toArrow()).reason.startswith("ZeroDivisionError: ")
    assert failure(lambda: spark.read.text(str(tmp_path / "none")).toArrow()).kind is FailureKind.OTHER
    disk = small_disk("300k")
    full = failure(lambda: spark.range(1_000_000).write.parquet(str(disk / "out")))
    assert (full.kind, full.of_query) == (FailureKind.DISK_FULL, False)


def test_a_cancelled_job(spark, tmp_path):
    began = tmp_path / "began"

    def slow(batches):
        began.touch()
        while began.exists():
            os.sched_yield()
        yield from batches

    def when_begun():
        while not began.exists():
            os.sched_yield()
        spark.interruptAll()
        began.unlink()

    thread = threading.Thread(target=when_begun)
    thread.start()
    found = failure(lambda: spark.range(1, numPartitions=1).mapInArrow(slow, "id long").toArrow())
    thread.join()
    assert found.kind is FailureKind.CANCELLED


def test_nobody_is_to_blame():
    require_blame(ValueError("x"), "A job")
    with pytest.raises(SessionError, match=r"A job failed, as memory ran out: MemoryError.*more memory"):
        require_blame(MemoryError(), "A job")
    ours = CheckpointCorruptError("x")
    with pytest.raises(CheckpointCorruptError) as caught:
        require_blame(ours, "A job")
    assert caught.value is ours


class Lost(Exception):
    def getCondition(self):
        return "SPARK_JOB_CANCELLED"


@pytest.mark.parametrize("times", [1, TRIES - 1, TRIES])
def test_what_may_pass_is_tried_again_and_blames_no_query(times):
    asked = []

    def run(some):
        asked.append(len(some))
        if len(asked) <= times:
            raise Lost
        return "done"

    if times < TRIES:
        assert run_isolated(run, QUERIES).value == "done"
        assert asked == [2] * (times + 1)
    else:
        with pytest.raises(SessionError, match="cancelled"):
            run_isolated(run, QUERIES)


@pytest.mark.parametrize("error", [MemoryError(), CheckpointFullError("full"), OSError(errno.ENOSPC, "full")])
def test_no_query_is_taken_out_for_what_it_cannot_help(error):
    def run(some):
        raise error

    with pytest.raises((SessionError, CheckpointFullError)):
        run_isolated(run, QUERIES)
