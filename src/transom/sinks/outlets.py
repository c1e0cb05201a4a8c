"""The sinks of a query, one or several: each has a lasting key, by which a checkpoint knows what it has taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import cast

from transom.errors import DefinitionError, JobChangedError, SinkError
from transom.sinks.base import Sink, explained
from transom.sinks.owner import Claim
from transom.storage.places import Place, place

ONLY = ""
"""The key of a query's sink in a checkpoint of formats up to 2, where each query had one."""


@dataclass(frozen=True)
class Outlets:
    """The sinks of a query by their keys, in the order in which they were given."""

    sinks: Mapping[str, Sink]

    @classmethod
    def of(cls, sinks: Iterable[Sink]) -> Outlets:
        """Return some sinks, each with its key; of several with one key the second has it with `#2`, and so on.

        >>> from transom.sinks.inmemory import memory
        >>> list(Outlets.of([memory(), memory()]).sinks)
        ['memory', 'memory#2']
        """
        found: dict[str, Sink] = {}
        times: dict[str, int] = {}
        for sink in sinks:
            key = str(getattr(sink, "key", None) or sink.describe())
            times[key] = times.get(key, 0) + 1
            found[key if times[key] == 1 else f"{key}#{times[key]}"] = sink
        return cls(found)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys."""
        return tuple(self.sinks)

    def describe(self) -> str:
        """Return what they are and write, in one line for people."""
        return " and ".join(sink.describe() for sink in self.sinks.values())

    def open(self, query: str) -> None:
        """Open them for a query.

        Raises:
            SinkError: One cannot be used.
        """
        for sink in self.sinks.values():
            with explained(query, sink):
                sink.open(query)

    def claim(self, claim: Claim) -> None:
        """Take the places of all for a query.

        Raises:
            SinkError: One belongs to another query or checkpoint.
        """
        for sink in self.sinks.values():
            with explained(claim.query, sink):
                sink.claim(claim)

    def recover(self, query: str, next_cut: int) -> None:
        """Remove what an interrupted run left behind in any.

        Raises:
            SinkError: One holds results that are not of this checkpoint.
        """
        for sink in self.sinks.values():
            with explained(query, sink):
                sink.recover(query, next_cut)


def listed(sinks: Sink | Sequence[Sink]) -> list[Sink]:
    """Return one sink, or several, as a list."""
    return list(sinks) if isinstance(sinks, (list, tuple)) else [cast(Sink, sinks)]


def successors(query: str, old: Sequence[str], new: Sequence[str], behind: Set[str]) -> dict[str, str]:
    """Return for each sink that a query had which one now takes the results that it has not taken.

    One that is there no more has no successor, and what waits for it is dropped, unless one other came instead.

    Args:
        query: The query, for the message.
        old: Keys of the sinks that the checkpoint knows.
        new: Those of the job.
        behind: Those of `old` for which results wait.

    Raises:
        JobChangedError: It cannot be told which sink takes the results that wait.

    >>> successors("q", ["a", "b"], ["b", "c"], {"a"})
    {'b': 'b', 'a': 'c'}
    """
    if list(old) == [ONLY]:
        return {ONLY: new[0]}
    gone, come = [key for key in old if key not in new], [key for key in new if key not in old]
    kept = {key: key for key in old if key in new}
    if len(gone) == len(come) == 1:
        return kept | {gone[0]: come[0]}
    stuck = [key for key in gone if key in behind]
    if stuck and come:
        raise JobChangedError(
            f"query {query!r}: results wait for {' and '.join(stuck)}, which the job does not have any more, and which "
            f"of {' and '.join(come)} is to take them is not clear.",
            "Change one sink at a time: a sink in place of another takes what waits for it, a sink that only goes "
            "leaves it, and one that only comes takes what comes from then on.",
        )
    return kept


def require_usable(query: str, sinks: Sequence[object], holders: Mapping[Place, str]) -> None:
    """Make sure that a query can write to some sinks, all that it has.

    Args:
        query: Its name.
        sinks: What its results are to go to.
        holders: The directories in which queries write, each with the name of its query.

    Raises:
        DefinitionError: One is no sink, or another query or sink writes into the same directory.
    """
    if not sinks:
        raise DefinitionError(f"query {query!r}: it has no sink.", 'Write for example to(tm.sinks.parquet("out")).')
    for sink in sinks:
        if not hasattr(sink, "write"):
            raise DefinitionError(
                f"query {query!r}: {sink!r} is no sink.", 'Write for example to(tm.sinks.parquet("out")).'
            )
    mine: set[Place] = set()
    for where in directories(sinks):
        holder = query if where in mine else holders.get(where, query)
        if where in mine or holder != query:
            raise DefinitionError(
                f"query {query!r}: it would write into {where}, where {holder!r} writes.",
                "Give each query, and each of its sinks, a directory of its own.",
            )
        mine.add(where)


def directories(sinks: Iterable[object]) -> list[Place]:
    """Return the directories that some sinks own; one that two of them own is there twice.

    Raises:
        SinkError: One is no path.
    """
    return [where for where in map(_directory, sinks) if where is not None]


def _directory(sink: object) -> Place | None:
    """Return the directory that a sink owns, if it does."""
    path = getattr(sink, "directory", None)
    return None if path is None else place(path, "to", SinkError)
