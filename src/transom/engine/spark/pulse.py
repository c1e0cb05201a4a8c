"""A watch on Spark: it may end while nothing is asked of it, with Java, its context or its server."""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from transom.errors import SessionError
from transom.failures import FailureKind, classify
from transom.model.sessions import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

EVERY = 2.0
"""Seconds between two looks."""
LONGEST = 2.0
"""Seconds that a Spark Connect server has to answer."""
ALONE = 20.0
"""Seconds after which people are told that jobs wait for executors that do not come."""
MISSES = 2
"""A server that did not answer so often in a row is gone; Java on this machine is asked once."""
_LAST_WORDS = 1.0
"""Seconds in which a process whose connection broke is expected to have an exit code."""
_REMEDY = "Start the application again: it goes on from its last committed micro-batch."
_ALONE = (
    f"Jobs have waited {ALONE:.0f} s for an executor, and Spark has none. Either the cluster has no free cores or "
    "memory for one, or executors end as they start: the cluster's page and their standard error tell which."
)
_CODES = {52: "it had run out of memory", 137: "it was killed, perhaps for lack of memory", 143: "it was terminated"}


class Pulse:
    """Watches Spark while the body of a `with` runs.

    An error that leaves the body because Spark is gone becomes a `SessionError` that says so.

    Args:
        session: A classic or a Spark Connect session.
        every: Seconds between two looks.
    """

    def __init__(self, session: SparkSession, every: float = EVERY) -> None:
        self._session: Any = session
        self._every = every
        self._ended = threading.Event()
        self._misses = 0
        self._alone = 0
        """Looks in a row at which jobs waited and there was no executor."""
        self._told: SessionError | None = None

    def watch(self, tell: Callable[[SessionError], None]) -> None:
        """Look again and again, on a thread of its own; `tell` is called there, at most once, when Spark is gone."""

        def look() -> None:
            while not self._ended.wait(self._every):
                try:
                    reason, news = self.look(), self.news()
                except Exception:  # whoever watches goes on to, or nobody would hear that Spark is gone
                    logger.exception("Spark cannot be looked at; it is tried again.")
                    continue
                if reason is not None:
                    self._told = _gone(reason)
                    tell(self._told)
                    return
                if news is not None:
                    logger.warning("%s", news)

        threading.Thread(target=look, name="transom-pulse", daemon=True).start()

    def look(self) -> str | None:
        """Return why Spark is gone; None while it is there."""
        classic = not is_connect(self._session)
        return self._classic() if classic else self._remote()

    def news(self) -> str | None:
        """Return what people are to know of executors: once that jobs wait for the first one, once that it has come."""
        if is_connect(self._session):
            return None
        java = self._session.sparkContext._jsc
        try:
            if java is None or (context := java.sc()).isLocal():
                return None
            jobs = len(context.statusTracker().getActiveJobIds())
            alone = jobs > 0 and context.getExecutorMemoryStatus().size() <= 1  # the driver counts
        except Exception as error:  # the next look says whether Spark is gone
            logger.debug("No executors can be counted: %s", classify(error).reason)
            return None
        waited, self._alone = self._alone, self._alone + 1 if alone else 0
        bound = ALONE / self._every
        if waited < bound <= self._alone:
            return _ALONE
        return "Jobs wait for no executor any more." if waited >= bound and not alone else None

    def reason(self, error: Exception) -> str | None:
        """Return why Spark is gone, if that is why an error was raised; else None."""
        reason = self.look()
        if reason is None and (failure := classify(error)).kind is FailureKind.SPARK_GONE:
            reason = failure.reason
        return reason

    def _classic(self) -> str | None:
        context = self._session.sparkContext
        gateway = context._gateway
        process: subprocess.Popen[Any] | None = getattr(gateway, "proc", None)
        if process is not None and process.poll() is not None:
            return _ended(process.returncode)
        if context._jsc is None:
            return "its context was stopped"
        try:
            return "its context was stopped" if context._jsc.sc().isStopped() else None
        except Exception as error:
            if context._jsc is None:
                return "its context was stopped"
            if process is not None:
                with suppress(subprocess.TimeoutExpired):
                    return _ended(process.wait(_LAST_WORDS))
            return f"Java does not answer ({classify(error).reason})"

    def _remote(self) -> str | None:
        client = self._session.client
        if client.is_closed:
            return "its session was stopped"
        request = client._analyze_plan_request_with_metadata()
        request.spark_version.SetInParent()
        try:
            client._stub.AnalyzePlan(request, metadata=client._builder.metadata(), timeout=LONGEST)
        except Exception as error:
            self._misses += 1
            reason = classify(error).reason
            logger.warning("The Spark Connect server does not answer: %s", reason)
            return f"its Spark Connect server does not answer ({reason})" if self._misses >= MISSES else None
        self._misses = 0
        return None

    def __enter__(self) -> Pulse:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if isinstance(error, Exception) and error is not self._told and (reason := self.reason(error)) is not None:
            raise _gone(reason) from error


def _gone(reason: str) -> SessionError:
    return SessionError(f"Spark is gone: {reason}.", _REMEDY)


def _ended(code: int) -> str:
    """Return how Java ended, for people.

    >>> _ended(-9)
    'Java was ended by signal 9'
    >>> _ended(52)
    'Java ended with exit code 52: it had run out of memory'
    """
    if code < 0:
        return f"Java was ended by signal {-code}"
    return f"Java ended with exit code {code}" + (f": {_CODES[code]}" if code in _CODES else "")
