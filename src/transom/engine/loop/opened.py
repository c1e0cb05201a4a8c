"""The sinks and sources that a run has opened: each sink and source is closed once, whatever another one raises."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import Protocol

from transom.errors import SinkError
from transom.failures import classify

logger = logging.getLogger(__name__)


class Closable(Protocol):
    """A sink or a source."""

    def describe(self) -> str:
        """Return what it is, in one line for people."""

    def close(self) -> None:
        """Let go of everything."""


class Opened:
    """The sinks and sources of a run, by identity: several queries may have one. May be used from any thread."""

    def __init__(self, some: Iterable[Closable] = ()) -> None:
        self._lock = threading.Lock()
        self._open = {id(each): each for each in some}
        self._ended = False
        self._late: set[int] = set()
        """Those that hung at the end of the run, and do not any more when the others are closed."""

    def add(self, each: Closable) -> None:
        """Take note of one more."""
        with self._lock:
            self._open[id(each)] = each

    def release(self, each: Closable) -> None:
        """Close one that is not needed any more, if it is open."""
        with self._lock:
            known = self._open.pop(id(each), None)
        if known is not None:
            _error_of_closing(known)

    def late(self, each: Closable) -> None:
        """Close one that hung at the end of the run, now that it does not any more."""
        with self._lock:
            if not self._ended:
                self._late.add(id(each))
                return
        self.release(each)

    def hand_over(self) -> None:
        """Leave those that still hang to another run."""
        with self._lock:
            self._open.clear()

    def close(self, busy: Sequence[Closable], error: BaseException | None) -> None:
        """Close all at the end of the run.

        Args:
            busy: Those that cannot be closed, as they hang.
            error: What ended the run; None if nothing did.

        Raises:
            SinkError: One could not be closed, and there is no error that says more.
        """
        with self._lock:
            self._ended, kept = True, {id(each) for each in busy} - self._late
            some = [self._open.pop(number) for number in list(self._open) if number not in kept]
        ended = [(each, _error_of_closing(each)) for each in some]
        failed = [(each.describe(), reason) for each, reason in ended if reason is not None]
        if failed and error is None:
            raise SinkError(
                f"{' and '.join(what for what, _ in failed)} could not be closed: "
                f"{'; '.join(classify(reason).reason for _, reason in failed)}.",
                "What was delivered is there; the log says where it went wrong.",
            ) from failed[0][1]


def _error_of_closing(each: Closable) -> Exception | None:
    """Close it; return what went wrong, which is logged, or None."""
    try:
        each.close()
    except Exception as error:
        logger.warning("%s could not be closed.", each.describe(), exc_info=error)
        return error
    return None
