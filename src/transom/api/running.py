"""A run of an application that goes on in the background."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from transom.engine.loop.interrupts import interrupts
from transom.engine.loop.progress import Progress
from transom.model.time import MIN_TIME, Duration, parse_duration
from transom.views.dashboard import render
from transom.views.notebook import Picture

logger = logging.getLogger(__name__)

POLL = 0.2
"""Seconds between two moments at which a wait notices signals, which some systems do not let interrupt it."""
AT_ONCE = 5.0
"""Seconds that the end of the interpreter waits for a run that was stopped at once."""
NOTHING_YET = Progress(MIN_TIME, MIN_TIME, (), ())
"""The progress of a run that has not shown any yet."""


class Running:
    """A run in the background, which `App.start` returns; the end of a `with` block stops it and waits for it.

    Args:
        run: Runs until the end; given what to call with progress.
        stop: Ends it after its running micro-batches.
        stop_at_once: Ends it without waiting for them.
        name: Name of the application.
    """

    def __init__(
        self,
        run: Callable[[Callable[[Progress], None]], Progress],
        stop: Callable[[], None],
        stop_at_once: Callable[[], None],
        name: str,
    ) -> None:
        self._run, self._stop, self._stop_at_once = run, stop, stop_at_once
        self._name = name
        self._progress = NOTHING_YET
        self._error: BaseException | None = None
        self._ended = threading.Event()
        # The interpreter waits for threads that are no daemons before it calls what is registered for its exit.
        self._thread = threading.Thread(target=self._go, name="transom-run", daemon=True)
        self._thread.start()
        atexit.register(self._leave)

    def _go(self) -> None:
        try:
            self._progress = self._run(self._show)
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def _show(self, progress: Progress) -> None:
        self._progress = progress

    @property
    def progress(self) -> Progress:
        """The newest progress; without streams and queries as long as none has been made."""
        return self._progress

    @property
    def done(self) -> bool:
        """Whether the run has ended, well or with an error."""
        return self._ended.is_set()

    @property
    def failed(self) -> bool:
        """Whether the run has ended with an error, which `wait` raises."""
        return self.done and self._error is not None

    def stop(self) -> None:
        """End the run after its running micro-batches; returns at once, and `wait` says when it is done."""
        if not self.done:
            self._stop()

    def wait(self, timeout: Duration | None = None) -> Progress:
        """Wait until the run ends, and return what was done.

        On the main thread the first Ctrl-C (SIGINT or SIGTERM) finishes the running micro-batches, the second stops at
        once, as in `App.run`.

        Args:
            timeout: For example "30 seconds"; None waits for as long as it takes.

        Raises:
            TransomError: What ended the run; see `App.run`.
            TimeoutError: It has not ended in time; it goes on.
            KeyboardInterrupt: The second Ctrl-C.
        """
        left = None if timeout is None else parse_duration(timeout, "timeout") / 1e6
        with interrupts(self.stop, self._stop_at_once):
            while not self._ended.wait(POLL if left is None else min(POLL, left)):
                if left is not None and (left := left - POLL) <= 0:
                    raise TimeoutError(f"The run of {self._name} has not ended within {timeout}; it goes on.")
        atexit.unregister(self._leave)
        if self._error is not None:
            raise self._error
        return self._progress

    def _leave(self) -> None:
        """End with the interpreter."""
        self.stop()
        try:
            self.wait()
        except KeyboardInterrupt:
            self._ended.wait(AT_ONCE)
        except BaseException as error:
            logger.error("The run of %s, for which nobody waited, ended with an error: %s", self._name, error)

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if error is None:
            self.wait()
            return
        with suppress(Exception):  # that error says more
            self.wait()

    @property
    def _state(self) -> str:
        return "running" if not self.done else "ended" if self._error is None else f"failed: {self._error}"

    def _repr_html_(self) -> str:
        ended = self.done and self._error is None
        notes = list(self._progress.notes)
        return Picture(render(self._progress, notes, ended, hint=self._state))._repr_html_()

    def __repr__(self) -> str:
        return f"Running({self._name!r}, {self._state})"
