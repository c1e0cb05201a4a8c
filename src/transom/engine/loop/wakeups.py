"""The events that the loop waits for: a job or a sink that is done, a request, or the next look at the sources."""

from __future__ import annotations

import queue
import time

from transom.model.time import Clock, Micros

GATHER = 0.05
"""Seconds from the beginning of a turn of the loop until it begins the next one for what can wait that long."""


class Wakeups:
    """Lets any thread wake the loop's.

    Args:
        clock: The time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._events: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Of each, whether it is to be seen to at once."""
        self._turned = time.monotonic()
        """When the last turn began."""
        self._at_once = False

    def wake(self) -> None:
        """End the present or the next `wait`; may be called from anywhere."""
        self._events.put(True)

    def wake_soon(self) -> None:
        """Do as `wake`, for messages of other sites: others may come first, within `GATHER`.

        A turn costs about the same for one message and for ten.
        """
        self._events.put(False)

    def wait(self, longest: Micros, busy: bool) -> bool:
        """Return when woken, at the latest after so many microseconds: whether by something that is no message.

        Args:
            longest: Until the next look at the sources.
            busy: Whether something runs that will wake, so that real time passes; else the clock decides.
        """
        self._at_once = False
        if busy or not self._events.empty():
            self._sleep(longest)
        else:
            self._clock.wait(self._clock.monotonic() + longest, self._sleep)
        self._turned = time.monotonic()
        return self._at_once

    def _sleep(self, timeout: Micros) -> bool:
        if (at_once := self._next(timeout / 1e6)) is None:
            return False
        while not at_once and (left := self._turned + GATHER - time.monotonic()) > 0:
            at_once = bool(self._next(left))
        while (another := self._next(0.0)) is not None:
            at_once |= another
        self._at_once = at_once
        return True

    def _next(self, timeout: float) -> bool | None:
        """Return the next event; None if there is none for so many seconds."""
        try:
            return self._events.get(timeout=max(0.0, timeout))
        except queue.Empty:
            return None
