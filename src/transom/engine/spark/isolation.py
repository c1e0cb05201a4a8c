"""A failed job is run again without what made it fail: unreadable units of the source, then the culprit queries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from transom.causes import worker_traceback
from transom.engine.spark.columns import first_line
from transom.errors import QueryFailedError, SessionError
from transom.failures import PASSING, FailureKind, classify, require_blame
from transom.windows.query import WindowedQuery

logger = logging.getLogger(__name__)

T = TypeVar("T")

TRIES = 3
"""Number of tries of a job that fails for what may pass, such as a lost executor."""


@dataclass(frozen=True)
class Isolated(Generic[T]):
    """A result without the queries that failed."""

    value: T
    queries: tuple[WindowedQuery, ...]
    """The queries it was made for."""
    failures: dict[str, str] = field(default_factory=dict)
    """Why each of the others failed."""


def run_isolated(
    run: Callable[[Sequence[WindowedQuery]], T],
    queries: Sequence[WindowedQuery],
    apart: Callable[[Sequence[WindowedQuery]], T] | None = None,
) -> Isolated[T]:
    """Run a shared job; when it fails, find the culprits by bisection and run it for the others.

    Args:
        run: The job for some queries; raises when one of them makes it fail.
        queries: All queries.
        apart: The same job without anything shared, for queries that fail together only: one computes for the rows
            of another what it would not for its own.

    Raises:
        TransomError: What no query can be to blame for, such as Spark that is gone, or a full disk.
        Exception: What `run` raises for no queries at all, or the last way for all though for each half it does not:
            then no query is to blame either.
    """
    run = _again_if_it_may_pass(run)
    try:
        return Isolated(run(queries), tuple(queries))
    except Exception as error:
        require_blame(error, "A Spark job")
        if not queries:
            raise
        logger.warning("A shared job failed and is run again in parts: %s", first_line(error))
        run(())
        failures = _culprits(run, list(queries), error)
        survivors = [query for query in queries if query.name not in failures]
        if not failures:
            return Isolated(_again(run, queries, apart), tuple(queries))
        again = run_isolated(run, survivors, apart)
        return Isolated(again.value, again.queries, {**failures, **again.failures})


def _again_if_it_may_pass(run: Callable[[Sequence[WindowedQuery]], T]) -> Callable[[Sequence[WindowedQuery]], T]:
    def tried(queries: Sequence[WindowedQuery]) -> T:
        for left in reversed(range(TRIES)):
            try:
                return run(queries)
            except Exception as error:
                failure = classify(error)
                if failure.kind not in PASSING or not left:
                    raise
                logger.warning("A job failed, as %s, and is tried again: %s", failure.kind.value, failure.reason)
        raise AssertionError

    return tried


def _again(
    run: Callable[[Sequence[WindowedQuery]], T],
    queries: Sequence[WindowedQuery],
    apart: Callable[[Sequence[WindowedQuery]], T] | None,
) -> T:
    try:
        return run(queries)
    except Exception as error:
        require_blame(error, "A Spark job")
        if apart is None:
            raise
        logger.warning("Queries fail together only, and share no more from now on: %s", first_line(error))
        return apart(queries)


def _culprits(
    run: Callable[[Sequence[WindowedQuery]], T], queries: list[WindowedQuery], error: Exception
) -> dict[str, str]:
    """Return the queries that fail by themselves, given that they fail together; empty when it passed by itself."""
    if len(queries) == 1:
        if trace := worker_traceback(error):
            logger.warning("Query %s failed in a function of yours:\n%s", queries[0].name, trace)
        return {queries[0].name: classify(error).reason}
    middle = len(queries) // 2
    found: dict[str, str] = {}
    for half in (queries[:middle], queries[middle:]):
        try:
            run(half)
        except Exception as caught:
            require_blame(caught, "A Spark job")
            found.update(_culprits(run, half, caught))
    return found


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Let what fails in Spark, at the executors or in Arrow be an error that says so in a line.

    Args:
        what: What was done.

    Raises:
        QueryFailedError: It failed; the traceback is in the cause.
        SessionError: Spark is gone.
    """
    import pyarrow as pa
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException, PythonException

    try:
        yield
    except Exception as error:
        failure = classify(error)
        if failure.ours is None and failure.kind is FailureKind.SPARK_GONE:
            raise SessionError(
                f"{what} failed, as {failure.kind.value}: {failure.reason}.",
                "Start Spark again, and make and fill the collection again.",
            ) from error
        if isinstance(error, PythonException):
            raise QueryFailedError(
                f"{what} failed at an executor: {failure.reason}.",
                "Correct the function: it gets Arrow tables, and returns an Arrow table.",
            ) from error
        if isinstance(error, (PySparkException, Py4JError, pa.ArrowException)):
            raise QueryFailedError(
                f"{what} failed: {failure.reason}.", "The cause of this error has all that Spark says."
            ) from error
        raise
