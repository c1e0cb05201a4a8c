"""The events that the loop waits for: a job or a sink that is done, a request, or the next look at the sources."""

from __future__ import annotations

import queue

from transom.model.time import Clock, Micros


class Wakeups:
    """Lets any thread wake the loop's.

    Args:
        clock: The time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._events: queue.SimpleQueue[None] = queue.SimpleQueue()

    def wake(self) -> None:
        """End the present or the next `wait`; may be called from anywhere."""
        self._events.put(None)

    def wait(self, longest: Micros, busy: bool) -> None:
        """Return when woken, at the latest after so many microseconds.

        Args:
            longest: Until the next look at the sources.
            busy: Whether something runs that will wake, so that real time passes; else the clock decides.
        """
        if not self._events.empty():
            self._drain()
        elif busy:
            self._sleep(longest)
        else:
            self._clock.wait(self._clock.monotonic() + longest, self._sleep)

    def _sleep(self, timeout: Micros) -> bool:
        try:
            self._events.get(timeout=max(0.0, timeout / 1e6))
        except queue.Empty:
            return False
        self._drain()
        return True

    def _drain(self) -> None:
        while not self._events.empty():
            self._events.get()
