"""Requests to change the queries of a running application, from any thread, and what became of them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from transom.engine.spark.plan import Rows
from transom.errors import DefinitionError, StoppedError, TransomError
from transom.model.time import MIN_TIME, Duration, Micros, parse_duration
from transom.model.tuning import Tuning
from transom.sinks.base import Sink
from transom.sinks.outlets import Outlets, listed
from transom.windows.query import WindowedQuery

Operation = Literal["add", "remove", "pause", "resume", "tune"]
ALL_STREAMS = "all streams"
"""What a change of the tuning concerns, in the place of a query."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Change:
    """A change that an application was asked for; it is made between two micro-batches of the query's stream.

    Args:
        query: Name of the query.
        operation: What was asked for.
    """

    def __init__(self, query: str, operation: Operation) -> None:
        self.query = query
        self.operation = operation
        self._future: Future[Micros | None] = Future()
        self._more: Callable[[Sequence[Sink]], None] | None = None
        """Gives a query more sinks; None where it was added to an application that runs."""

    def to(self, sink: Sink | Sequence[Sink]) -> Change:
        """Send the results of a query that `Query.to` added to one more sink, or several, each exactly once.

        Before the application runs only; while it does, give `Query.to` all sinks as a list.

        Raises:
            DefinitionError: The application is running, or the sink's directory is taken.
        """
        if self._more is None:
            raise DefinitionError(
                f"to: the sinks of {self.query!r} cannot change while it runs.",
                "Give all of them at once, to([a, b]), when the query is added; or stop the application, and start it "
                "with the other sinks.",
            )
        self._more(listed(sink))
        return self

    @property
    def done(self) -> bool:
        """Whether it was made or refused."""
        return self._future.done()

    @property
    def refused(self) -> bool:
        """Whether it was refused."""
        return self.done and self._future.exception() is not None

    def wait(self, timeout: Duration | None = None) -> datetime | None:
        """Wait until it is made, and return from when on the windows of the query are complete.

        Args:
            timeout: For example "30 seconds"; None waits for as long as it takes. A change that was asked for before
                `App.run` is made when that starts.

        Returns:
            The earliest start of a window that the query emits, UTC; None when it emits all, and for a query that was
            paused or removed.

        Raises:
            DefinitionError: The query cannot work, or there is none of that name; the application goes on unharmed.
            SinkError: The sink cannot be used; the application goes on unharmed.
            StoppedError: The application ended before.
            TimeoutError: It is not made yet.
        """
        seconds = None if timeout is None else parse_duration(timeout, "timeout") / 1e6
        moment = self._future.result(seconds)
        return None if moment is None or moment <= MIN_TIME else _EPOCH + timedelta(microseconds=moment)

    def complete_from(self) -> Micros | None:
        """Return what a change that is done gave, in microseconds; raises as `wait` does."""
        return self._future.result(0)

    def when_done(self, call: Callable[[], None]) -> None:
        """Call on the thread that makes it, once it is made or refused; at once if it is."""
        self._future.add_done_callback(lambda _: call())

    def _made(self, complete_from: Micros | None) -> None:
        """Say that it is made; the engine does. Nothing happens the second time."""
        if not self._future.done():
            self._future.set_result(complete_from)

    def _refuse(self, error: TransomError) -> None:
        """Say why it is not made; the engine does. Nothing happens the second time."""
        if not self._future.done():
            self._future.set_exception(error)

    def __repr__(self) -> str:
        return f"Change({self.operation} {self.query!r}, {'done' if self.done else 'waiting'})"


@dataclass(frozen=True)
class Addition:
    """A query that is to be added."""

    stream: str
    rows: Rows
    """The stream's transformations, with those of the query."""
    query: WindowedQuery
    outlets: Outlets


@dataclass(frozen=True)
class Retuning:
    """What is to be set from now on."""

    tuning: Tuning
    """The slots, and the streams for which something is set anew."""
    reason: str
    """For people."""


@dataclass(frozen=True)
class ChangeRequest:
    """A change, and what is needed to make it."""

    change: Change
    addition: Addition | None = None
    retuning: Retuning | None = None


class Requests:
    """The requests of one application, in the order in which they came. May be used from any thread."""

    def __init__(self) -> None:
        self._waiting: deque[ChangeRequest] = deque()
        self._lock = threading.Lock()
        self._defined: dict[str, Change] = {}
        self.wake: Callable[[], None] = lambda: None
        """Called after each request."""
        self.look: Callable[[], None] = lambda: None
        """Called before requests are taken: looks for some that came another way."""

    def ask(self, request: ChangeRequest) -> Change:
        """Take in a request, and return its change."""
        with self._lock:
            self._waiting.append(request)
        self.wake()
        return request.change

    def tune(self, tuning: Tuning, reason: str) -> Change:
        """Ask for another tuning; its change is made at the loop's next turn, whatever runs.

        Args:
            tuning: The slots, and the streams for which something is set anew.
            reason: Why, for people.
        """
        return self.ask(ChangeRequest(Change(ALL_STREAMS, "tune"), retuning=Retuning(tuning, reason)))

    def define(self, name: str) -> Change:
        """Return the change for a query that is added before the application runs; it is made when that starts."""
        self._defined[name] = Change(name, "add")
        return self._defined[name]

    def begun(self, name: str, complete_from: Micros) -> None:
        """Say from when on the windows of a query are complete that the application starts with."""
        change = self._defined.pop(name, None)
        if change is not None:
            change._made(complete_from)

    def take(self) -> list[ChangeRequest]:
        """Return all that wait, and forget them."""
        self.look()
        if not self._waiting:
            return []
        with self._lock:
            taken = list(self._waiting)
            self._waiting.clear()
        return taken

    def refuse_all(self) -> None:
        """Refuse all that wait: the application ends."""
        self.look = lambda: None
        for request in self.take():
            request.change._refuse(stopped(request.change))


def stopped(change: Change) -> StoppedError:
    """Return why a change is not made when the application ends before."""
    return StoppedError(
        f"{change.operation} {change.query!r}: the application ended before.", "Ask again while it is running."
    )
