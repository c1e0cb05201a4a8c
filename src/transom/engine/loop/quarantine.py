"""Queries that fail are taken out, with those that read their results; the others go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from transom.engine.loop.journal import Journal
from transom.engine.loop.logrecords import Failed
from transom.engine.streams.stream import RunningStream
from transom.errors import QueryFailedError, SourceLostError
from transom.sinks.outlets import Outlets


class Quarantine:
    """Takes out queries; used on the loop's thread.

    Args:
        streams: The streams that run.
        journal: Where failures are logged.
    """

    def __init__(self, streams: Mapping[str, RunningStream], journal: Journal) -> None:
        self._streams = streams
        self._journal = journal
        self._lost: list[str] = []
        """Why queries failed that are in no stream."""
        self.resting: set[str] = set()
        """Streams whose states may not change for now: their windows are being merged."""
        self._postponed: dict[tuple[str, str], str] = {}

    def fail(self, stream: RunningStream, query: str, reason: str) -> None:
        """Take out a query, of a stream that rests as soon as it does no more: logged first, for restarts."""
        if stream.name in self.resting:
            self._postponed.setdefault((stream.name, query), reason)
            return
        self._journal.log(Failed(query, reason).to_json(), sync=True)
        stream.fail(query, reason)
        self.tell(query, reason)

    def halt(self, stream: RunningStream, error: QueryFailedError | SourceLostError) -> None:
        """Read no more of a stream in this run; nothing is logged, so that the next one tries again."""
        stream.halted = error
        names = ", ".join(query.name for query in stream.state.running())
        self._journal.note(f"{names}: no more results in this run; the other streams go on. {error}")

    def fail_postponed(self, stream: RunningStream) -> None:
        """Take out the queries that failed while their stream rested, unless they left or failed meanwhile."""
        for name, query in [key for key in self._postponed if key[0] == stream.name]:
            reason = self._postponed.pop((name, query))
            state = stream.state.queries.get(query)
            if state is not None and state.failure is None:
                self.fail(stream, query, reason)

    def tell(self, query: str, reason: str) -> None:
        """Tell people of a query that was taken out."""
        self._journal.note(f"{query} failed and was taken out; the others go on: {reason}")

    def stay_out(self, query: str, why: str, outlets: Outlets) -> None:
        """Take note of a query that failed earlier and is in no stream; its sinks still get what waits for them.

        Args:
            query: The query.
            why: Why it cannot start any more.
            outlets: Its sinks.

        Raises:
            SinkError: A sink belongs to another query or checkpoint.
        """
        known = self._journal.register.known.get(query)
        if known is not None and known.failure is None:  # it was killed before it could log that
            self._journal.log(Failed(query, why).to_json(), sync=True)
        outlets.claim(self._journal.claim(query))
        failure = why if known is None or known.failure is None else known.failure
        self._lost.append(failure)
        also = "" if failure == why else f" It could not start any more: {why}"
        self._journal.note(f"{query} failed earlier and stays out: {failure}{also}")

    def end_orphans(self) -> None:
        """Take out the queries that read results of a query which gives no more."""
        for stream in self._streams.values():
            reason = stream.feed.orphaned()
            if reason is not None:
                for query in stream.state.running():
                    self.fail(stream, query.name, reason)

    def _failures(self) -> Iterator[str | None]:
        yield from self._lost
        for stream in self._streams.values():
            stuck = stream.stuck
            yield from (query.failure or stuck for query in stream.state.queries.values())

    @property
    def all_failed(self) -> bool:
        """Whether there are queries, and none that runs or can be made to run."""
        found = False
        for failure in self._failures():
            if failure is None:
                return False
            found = True
        return found

    def require_a_query(self) -> None:
        """Raise when all have failed.

        Raises:
            QueryFailedError: No query is left.
        """
        if not self.all_failed:
            return
        for stream in self._streams.values():
            if stream.halted is not None:
                raise stream.halted
        raise QueryFailedError(
            f"Every query failed; the last reason: {list(self._failures())[-1]}",
            "Give the corrected queries new names, or start with a new checkpoint.",
        )
