"""The events that the loop waits for: a job or a sink that is done, a request, or the next look at the sources."""

from __future__ import annotations

import queue

from transom.model.time import Clock, Micros

GATHER: Micros = 50_000
"""From the beginning of a turn of the loop until it begins the next one for what can wait that long."""


class Wakeups:
    """Lets any thread wake the loop's.

    Args:
        clock: The time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._events: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Of each, whether it is to be seen to at once."""
        self._woken = self._at_once = False
        """Whether there was an event since the last turn, and one to be seen to at once."""
        self._turned = clock.monotonic()
        """When the last turn began."""

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
        self._woken = self._at_once = False
        if busy or not self._events.empty():
            self._take(longest)
        else:
            self._clock.wait(self._clock.monotonic() + longest, self._take)
        if self._woken and not self._at_once:
            self._clock.wait(self._turned + GATHER, self._gather)
        while not self._events.empty():
            self._take(0)
        self._turned = self._clock.monotonic()
        return self._at_once

    def _gather(self, timeout: Micros) -> bool:
        """Wait for so long, or until something comes that is to be seen to at once; tell whether it has."""
        until = self._clock.monotonic() + timeout
        while not self._at_once and self._take(until - self._clock.monotonic()):
            pass
        return self._at_once

    def _take(self, timeout: Micros) -> bool:
        """Take the next event; tell whether there was one in so many microseconds."""
        try:
            self._at_once |= self._events.get(timeout=max(0.0, timeout / 1e6))
        except queue.Empty:
            return False
        self._woken = True
        return True
