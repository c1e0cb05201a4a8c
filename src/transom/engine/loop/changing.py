"""Makes changes of the set of queries, on the loop's thread: sinks are prepared, the log written, memory follows."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

from transom.engine.changes.membership import Proposal, enact, propose
from transom.engine.changes.records import Fate, SetChange
from transom.engine.changes.requests import Addition, Change, ChangeRequest, Requests, stopped
from transom.engine.loop.delivery import Delivery
from transom.engine.loop.journal import Journal
from transom.engine.loop.tuning import Tuner
from transom.engine.streams.stream import RunningStream
from transom.engine.streams.taps import tap, untap
from transom.errors import DefinitionError, TransomError
from transom.model.time import MIN_TIME, Micros, format_time
from transom.sinks.outlets import Outlets


class Changer:
    """Makes changes; all methods run on the loop's thread.

    Args:
        streams: The streams that run.
        sinks: Sinks of each query at the start.
        delivery: Writes to the sinks.
        journal: The log.
        requests: What is asked for from other threads.
        forget: Called with the name of each query that leaves.
        tuner: Changes what is set of the streams.
    """

    def __init__(
        self,
        streams: Mapping[str, RunningStream],
        sinks: Mapping[str, Outlets],
        delivery: Delivery,
        journal: Journal,
        requests: Requests,
        forget: Callable[[str], None],
        tuner: Tuner,
    ) -> None:
        self._streams = streams
        self._sinks = dict(sinks)
        self._delivery = delivery
        self._journal = journal
        self.requests = requests
        self._forget = forget
        self._tuner = tuner
        self._waiting: list[ChangeRequest] = []
        self.held: frozenset[str] = frozenset()
        """Streams that start no cut until the change that waits for their running one is made."""
        self.sink_texts = {name: outlets.describe() for name, outlets in sinks.items()}

    # ---- at the start

    def begin(self, fate: Fate, quiet: bool) -> bool:
        """Prepare the sinks, and make the job's queries those of the application; return whether they changed.

        Args:
            fate: What becomes of the queries.
            quiet: Say nothing about new queries: all are.

        Raises:
            SinkError: A sink cannot be used.
        """
        streams = self._streams.values()
        added = {s.name: [name for name in fate.added if name in s.compiler.definitions] for s in streams}
        claimed = [(stream, name) for stream in streams for name in stream.state.queries]
        claimed += [(stream, name) for stream in streams for name in added[stream.name]]
        for _, name in claimed:  # all claim first: that ends what earlier runs still write anywhere
            self._sinks[name].claim(self._journal.claim(name))
        for stream, name in claimed:
            self._recover_sinks(stream, name, self._sinks[name])
        self._log_leaving(fate)
        for stream in streams:  # parents first: what a child misses depends on them
            self._begin_with(stream, added[stream.name], quiet)
        self._tell_leaving(fate)
        for stream in streams:
            for name, query in stream.state.queries.items():
                self.requests.begun(name, query.complete_from)
        return bool(fate.added or fate.left)

    def _log_leaving(self, fate: Fate) -> None:
        """Log which queries are not in the job any more, one record for each stream that they were of."""
        streams = {name: self._journal.register.known[name].stream for name in fate.left}
        for stream in dict.fromkeys(streams.values()):
            names = tuple(name for name in fate.left if streams[name] == stream)
            self._journal.log(SetChange(stream, left=names).to_json(), sync=False)

    def _begin_with(self, stream: RunningStream, added: Sequence[str], quiet: bool) -> None:
        """Add the queries that are new to a stream, and tell those who read its results where it is."""
        stream.state.cut = max(stream.state.cut, stream.dead_letters.earlier)
        if added:
            proposal = self._with_sinks(propose(stream, added=added), self._sinks)
            self._make(stream, proposal, quiet)
            for name, moment in proposal.change.added.items():
                if not quiet:
                    self._journal.note(f"{name} is new; {words(moment)}.")
        stream.tell_readers()
        stream.feed.settle(stream.state.offset, self._journal.check)
        stream.dead_letters.remove_uncommitted(stream.state.cut)

    def _tell_leaving(self, fate: Fate) -> None:
        """Tell people of the queries that are not in the job, or that a command took out of it."""
        for name in fate.left:
            self._journal.note(f"{name} is not in the job any more; its windows are dropped.")
        for name in fate.dismissed:
            self._journal.note(
                f"{name} was removed by a command and stays out, though the job still has it; add it again, or delete "
                "it from the job."
            )
            del self._sinks[name]
            for stream in self._streams.values():
                untap(stream, name)
            self._forget(name)

    def _recover_sinks(self, stream: RunningStream, name: str, outlets: Outlets) -> None:
        outlets.recover(name, max(stream.state.cut, self._journal.register.last_cut(name)) + 1)

    # ---- while it runs

    def make(self, busy: Container[str]) -> bool:
        """Make what was asked for, as far as the streams have no cut under way; return whether queries changed.

        Args:
            busy: The streams that have.

        Raises:
            CheckpointError: The checkpoint cannot be written.
        """
        waiting = self._waiting + self.requests.take()
        if not waiting:
            return False
        self._waiting, held, changed = [], set(), False
        try:
            while waiting:
                request = waiting.pop(0)
                name = self._stream_of(request)
                if name is not None and (name in busy or name in held):
                    held.add(name)
                    self._waiting.append(request)
                    continue
                try:
                    changed = self._fulfil(request) or changed
                except BaseException:
                    request.change._refuse(stopped(request.change))
                    raise
        finally:
            self._waiting += waiting
        self.held = frozenset(held)
        return changed

    def close(self) -> None:
        """Refuse what is not made: the application ends."""
        for request in self._waiting:
            request.change._refuse(stopped(request.change))
        self._waiting = []
        self.held = frozenset()
        self.requests.refuse_all()

    def _stream_of(self, request: ChangeRequest) -> str | None:
        """Return the stream that a request concerns; None when there is no such query."""
        name = request.change.query
        if request.retuning is not None:
            return None
        if request.addition is not None:
            return request.addition.stream
        asked = [r.addition.stream for r in self._waiting if r.addition is not None and r.change.query == name]
        return next((s.name for s in self._streams.values() if name in s.state.queries), asked[0] if asked else None)

    def _fulfil(self, request: ChangeRequest) -> bool:
        """Make one change, or refuse it; return whether queries changed."""
        change = request.change
        try:
            if request.retuning is not None:
                self._tuner.change(request.retuning.tuning, request.retuning.reason)
                change._made(None)
                return False
            stream, proposal = self._added(request.addition) if request.addition else self._changed(change)
        except TransomError as error:
            self._journal.note(f"{change.operation} {change.query}: refused. {error}")
            change._refuse(error)
            return False
        self._make(stream, proposal)
        if request.addition is not None:
            outlets = request.addition.outlets
            self._sinks[change.query], self.sink_texts[change.query] = outlets, outlets.describe()
            self._delivery.add(change.query, outlets)
        elif change.operation == "remove":
            del self._sinks[change.query], self.sink_texts[change.query]
            untap(stream, change.query)
            self._forget(change.query)
            self._delivery.remove(change.query)
        moment = proposal.change.begun.get(change.query)
        self._journal.note(
            f"{change.query} was {_PAST[change.operation]}" + ("" if moment is None else f"; {words(moment)}") + "."
        )
        change._made(moment)
        return True

    def _make(self, stream: RunningStream, proposal: Proposal, quiet: bool = False) -> None:
        self._journal.log(proposal.change.to_json(), sync=True)
        if not quiet:
            self._journal.step("change logged")
        enact(stream, proposal)

    def _added(self, addition: Addition) -> tuple[RunningStream, Proposal]:
        """Prepare a query that is to be added."""
        name, stream = addition.query.name, self._streams.get(addition.stream)
        if stream is None:
            raise DefinitionError(
                f"query {name!r}: the running application does not read its stream {addition.stream!r}, since no query "
                "needed it at the start.",
                "Streams cannot be added to a running application: stop it, and start it with the query.",
            )
        if any(name in other.state.queries for other in self._streams.values()):
            raise DefinitionError(f"query: there are two queries {name!r}.", "Give one of them another name.")
        if self._delivery.writes_for(name):
            raise DefinitionError(
                f"query {name!r}: results of the query that had this name are still being written.",
                "Add it again in a moment, or give it another name.",
            )
        if any(each.leaves or each.definition.rows_of is not None for each in self._streams.values()):
            raise DefinitionError(
                f"query {name!r}: queries cannot be added while several sites run an application.",
                "Stop all sites, and start them with the query and with new checkpoints.",
            )
        _require_running(stream, f"query {name!r}")
        stream.compiler.offer(addition.rows, addition.query)
        try:
            proposal = propose(stream, added=[name])
            addition.outlets.open(name)
            tap(stream, name, addition.outlets, proposal.compiled)
            addition.outlets.claim(self._journal.claim(name))
            self._recover_sinks(stream, name, addition.outlets)
        except BaseException:
            stream.compiler.withdraw(name)
            raise
        return stream, self._with_sinks(proposal, {name: addition.outlets})

    def _with_sinks(self, proposal: Proposal, sinks: Mapping[str, Outlets]) -> Proposal:
        """Return the change with the keys of the sinks of the queries that it adds, and the last cut of earlier lives.

        Those are lives of the queries, and of the stream, whose dead letters are still there.
        """
        keys = {name: sinks[name].keys for name in proposal.change.added}
        letters = self._streams[proposal.change.stream].dead_letters
        after = max([letters.earlier, *map(self._journal.register.last_cut, keys)])
        return replace(proposal, change=replace(proposal.change, sinks=keys, after=after))

    def _changed(self, change: Change) -> tuple[RunningStream, Proposal]:
        """Prepare another change."""
        name, operation = change.query, change.operation
        stream = next((s for s in self._streams.values() if name in s.state.queries), None)
        if stream is None:
            known = [name for s in self._streams.values() for name in s.state.queries]
            raise DefinitionError(
                f"{operation}: there is no query {name!r}.",
                f"The queries are {', '.join(known)}." if known else "The application has none.",
            )
        if stream.leaves:
            raise DefinitionError(
                f"{operation}: {name!r} makes partials for other sites, which wait for all of them.",
                f"{operation.capitalize()} the queries of the flow at their destination.",
            )
        _require_running(stream, f"{operation} {name!r}")
        state = stream.state.queries[name]
        if operation != "remove" and state.failure is not None:
            raise DefinitionError(
                f"{operation}: {name!r} failed: {state.failure}", "Remove it, correct it, and add it again."
            )
        readers = [
            query.name
            for child in self._streams.values()
            if operation != "resume" and child.feed.reads(name)
            for query in child.state.running()
        ]
        if readers:
            raise DefinitionError(
                f"{operation}: the results of {name!r} are read by {', '.join(readers)}.",
                f"First {operation} what reads them.",
            )
        if operation == "pause" and state.paused:
            raise DefinitionError(f"pause: {name!r} is paused already.", "Resume it with resume.")
        if operation == "resume" and not state.paused:
            raise DefinitionError(f"resume: {name!r} is not paused.", "Nothing has to be done.")
        if operation == "pause":
            return stream, propose(stream, paused=[name])
        if operation == "resume":
            return stream, propose(stream, resumed=[name])
        return stream, propose(stream, removed=[name])


def _require_running(stream: RunningStream, what: str) -> None:
    """Refuse a change of a stream whose cut can be committed by the next run only."""
    if stream.halted is not None:
        raise DefinitionError(f"{what}: {stream.halted.message}", "Correct that, and start the application again.")


_PAST = {"add": "added", "remove": "removed", "pause": "paused", "resume": "resumed"}


def words(complete_from: Micros) -> str:
    """Return from when on windows are complete, for people."""
    if complete_from <= MIN_TIME:
        return "all its windows are complete"
    return f"its windows are complete from {format_time(complete_from)} on"
