"""The queries of an application: they come, rest and leave, before it runs and while it does, from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from transom.api.streams import Stream
from transom.engine.changes.requests import Addition, Change, ChangeRequest, Requests
from transom.engine.loop.opened import Closable, Opened
from transom.engine.streams.taps import RowFiles
from transom.errors import DefinitionError
from transom.sinks.base import Sink
from transom.sinks.nowhere import Nowhere
from transom.sinks.outlets import Outlets, directories, require_usable
from transom.storage.places import Place
from transom.windows.query import WindowedQuery


class Queries:
    """The queries of an application by name, with their streams and sinks. May be used from any thread."""

    def __init__(self) -> None:
        self.requests = Requests()
        """Changes that wait for the run."""
        self.opened = Opened()
        """The sinks and sources of the run."""
        self.running = False
        """Whether a run has begun and not ended, so that queries come and go by requests."""
        self.extend: Callable[[str, Sequence[str]], Sequence[Change]] | None = None
        """Adds queries of a job file; None if the application was not started from one."""
        self._sinks: dict[str, Outlets] = {}
        self._holders: dict[Place, str] = {}
        """The directories in which queries write, each with the name of its query."""
        self._unnumbered = 1
        """No number below this one is free for the name of a query that has none."""
        self._streams: dict[str, Stream] = {}
        """Stream of each query."""
        self._lock = threading.RLock()

    @property
    def sinks(self) -> dict[str, Outlets]:
        """Sinks of each query."""
        with self._lock:
            return dict(self._sinks)

    def begin(self, what: str, sources: Callable[[], Sequence[Closable]]) -> dict[str, Outlets]:
        """Begin a run, and return the sinks of each query that it has.

        Args:
            what: The method that begins it, for the message.
            sources: Returns what it opens besides sinks; may define the queries that others read.

        Raises:
            DefinitionError: One goes on.
        """
        with self._lock:
            if self.running:
                raise DefinitionError(
                    f"{what}: the application is running.",
                    "Stop that run and wait for its end first, or make another App with a checkpoint of its own.",
                )
            self.opened.hand_over()
            also = sources()
            self.opened = Opened([*(sink for each in self._sinks.values() for sink in each.sinks.values()), *also])
            self.running = True
            return dict(self._sinks)

    def mute(self) -> None:
        """Let the results of all queries go nowhere.

        Raises:
            DefinitionError: A query writes rows, which the job of a cut does.
        """
        with self._lock:
            for name, outlets in self._sinks.items():
                if any(isinstance(sink, RowFiles) for sink in outlets.sinks.values()):
                    raise DefinitionError(
                        f"profile: query {name!r} writes rows as files, which cannot be left out.",
                        "Profile a copy of the job without it.",
                    )
            self._sinks = {name: Outlets.of([Nowhere()]) for name in self._sinks}
            self._holders = {}

    def end(self) -> None:
        """End the run; the changes that still wait are refused."""
        with self._lock:
            self.running = False
        self.requests.refuse_all()

    @contextmanager
    def ended_if_it_fails(self) -> Iterator[None]:
        """End the run if the body raises, as where no thread can start: nobody else would."""
        try:
            yield
        except BaseException:
            self.end()
            raise

    def add(
        self, stream: Stream, sinks: Sequence[Sink], name: str | None, query: Callable[[str], WindowedQuery]
    ) -> Change:
        """Add a query: at once to the definitions, and by a request to a run that goes on.

        Args:
            stream: The stream that it reads.
            sinks: Each takes its results.
            name: Its name; None for query1, query2, ...
            query: Makes it, given its name.

        Raises:
            DefinitionError: The name or a sink is taken.
        """
        with self._lock:
            label = name or self._numbered()
            if label in self._sinks:
                raise DefinitionError(f"query: there are two queries {label!r}.", "Give one of them another name.")
            require_usable(label, sinks, self._holders)
            made, outlets = query(label), Outlets.of(sinks)
            stream._queries.append(made)
            self._streams[label] = stream
            self._send(label, outlets)
            if not self.running:
                defined = self.requests.define(label)
                defined._more = lambda more: self._add_sinks(label, more)
                return defined
            change = Change(label, "add")
            change.when_done(lambda: self._forget_if_refused(change, sinks))
            addition = Addition(stream.name, stream._rows, made, outlets)
            for sink in sinks:
                self.opened.add(sink)
            # A run that ends meanwhile refuses it after this: the next one, which has the query, would take it as one
            # of two with its name.
            return self.requests.ask(ChangeRequest(change, addition))

    def _numbered(self) -> str:
        """Return the first of query1, query2, ... that is free."""
        while f"query{self._unnumbered}" in self._sinks:
            self._unnumbered += 1
        return f"query{self._unnumbered}"

    def _send(self, name: str, outlets: Outlets) -> None:
        """Let the results of a query go to some sinks, from now on."""
        self._sinks[name] = outlets
        self._holders.update(dict.fromkeys(directories(outlets.sinks.values()), name))

    def _add_sinks(self, name: str, sinks: Sequence[Sink]) -> None:
        with self._lock:
            if self.running or name not in self._sinks:
                raise DefinitionError(
                    f"to: the sinks of {name!r} cannot change while the application runs.", "Stop it first."
                )
            mine = list(self._sinks[name].sinks.values())
            if any(isinstance(sink, RowFiles) for sink in mine):
                raise DefinitionError(
                    f"to: {name!r} writes rows, and has one directory for them.",
                    "Write rows().to(...) once more, with the other one.",
                )
            require_usable(name, [*mine, *sinks], self._holders)
            self._send(name, Outlets.of([*mine, *sinks]))

    def pause(self, name: str) -> Change:
        """Let a query rest."""
        return self.requests.ask(ChangeRequest(Change(name, "pause")))

    def resume(self, name: str) -> Change:
        """Let a paused query run again."""
        return self.requests.ask(ChangeRequest(Change(name, "resume")))

    def remove(self, name: str) -> Change:
        """Take a query out for good."""
        return self.requests.ask(ChangeRequest(Change(name, "remove")))

    def act(self, request: Mapping[str, Any]) -> Sequence[Change]:
        """Do what a command asks for.

        Raises:
            DefinitionError: It adds queries, and the application was not started from a job file.
        """
        operation, names = request["operation"], request["names"]
        if operation == "add":
            if self.extend is None:
                raise DefinitionError(
                    "add: the application was not started from a TOML job.",
                    "Add queries in its Python code, with to() on one of its streams.",
                )
            return self.extend(request["job"], names)
        acts = {"pause": self.pause, "resume": self.resume, "remove": self.remove}
        return [acts[operation](name) for name in names]

    def forget(self, name: str) -> None:
        """Take a query out of the definitions; its sink is closed when it has taken all, or when the run ends."""
        with self._lock:
            del self._sinks[name]
            self._holders = {where: holder for where, holder in self._holders.items() if holder != name}
            self._unnumbered = 1
            self._streams.pop(name)._forget(name)

    def release(self, sink: Sink) -> None:
        """Close a sink, unless a query has it."""
        with self._lock:
            needed = any(sink is other for each in self._sinks.values() for other in each.sinks.values())
        if not needed:
            self.opened.release(sink)

    def _forget_if_refused(self, change: Change, sinks: Sequence[Sink]) -> None:
        if change.refused:
            self.forget(change.query)
            for sink in sinks:
                self.release(sink)
