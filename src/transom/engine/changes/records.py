"""Changes of the set of queries, as the log tells of them, and what they make of a stream, live and at a restart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

from transom.engine.partials.contents import branch_of
from transom.engine.state.queries import QueryState
from transom.model.time import MIN_TIME, Micros
from transom.sinks.outlets import ONLY
from transom.windows.aggregates.widening import goes_on, widens
from transom.windows.query import WindowedQuery

RECORD = "queries"
"""Type of the log's records that tell of a change."""
MOST_GONE = 1000
"""So many queries that left are known by name, beside those of the job."""


@dataclass(frozen=True)
class SetChange:
    """Queries of one stream that come and go between two of its cuts."""

    stream: str
    added: Mapping[str, Micros] = field(default_factory=dict)
    """From when on the windows of each query are complete: their earliest start; microseconds."""
    definitions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of the queries that are added."""
    resumed: Mapping[str, Micros] = field(default_factory=dict)
    """As `added`, for queries that were paused."""
    paused: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    """Queries that were taken out by a command; they stay out while the job still has them as they were."""
    left: tuple[str, ...] = ()
    """Queries that the job does not have any more."""
    sinks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Keys of the sinks of the queries that are added."""
    after: int = 0
    """The stream's next cuts have higher numbers: in earlier lives the queries that are added had cuts up to this."""

    @property
    def begun(self) -> dict[str, Micros]:
        """The queries that run from here on."""
        return {**self.added, **self.resumed}

    @property
    def ended(self) -> frozenset[str]:
        """The queries that do not run from here on."""
        return frozenset((*self.paused, *self.removed, *self.left))

    @property
    def names(self) -> frozenset[str]:
        """All queries that it concerns."""
        return frozenset(self.begun) | self.ended

    def only(self, names: Iterable[str]) -> SetChange:
        """Return the change without what concerns other queries."""
        kept = frozenset(names)
        lists = (self.paused, self.removed, self.left)
        paused, removed, left = (tuple(name for name in some if name in kept) for some in lists)
        return SetChange(
            self.stream,
            {name: at for name, at in self.added.items() if name in kept},
            {name: text for name, text in self.definitions.items() if name in kept},
            {name: at for name, at in self.resumed.items() if name in kept},
            paused,
            removed,
            left,
            {name: keys for name, keys in self.sinks.items() if name in kept},
            self.after,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the change as a record of the log."""
        return {"type": RECORD, **self.__dict__}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> SetChange:
        """Return what `to_json` wrote."""
        value = {name: item for name, item in record.items() if name != "type"}
        lists = {name: tuple(value[name]) for name in ("paused", "removed", "left")}
        sinks = {name: tuple(keys) for name, keys in value.get("sinks", {}).items()}
        return cls(**{**value, **lists, "sinks": sinks})


@dataclass(frozen=True)
class KnownQuery:
    """A query as a checkpoint knows it."""

    stream: str
    definition: Mapping[str, Any]
    complete_from: Micros = MIN_TIME
    paused: bool = False
    failure: str | None = None
    sinks: tuple[str, ...] = (ONLY,)
    """Keys of its sinks."""

    @property
    def whole(self) -> dict[str, Any]:
        """Its definition with its stream, as the checkpoint keeps it."""
        return {"stream": self.stream, **self.definition}

    @property
    def state(self) -> QueryState:
        """Its progress."""
        return QueryState(self.complete_from, self.failure, self.paused)

    @property
    def words(self) -> str:
        """Its state, for people."""
        return f"failed: {self.failure}" if self.failure else "paused" if self.paused else "running"


@dataclass
class Register:
    """The queries that a checkpoint knows, at one point of its log; changed only by `take`."""

    known: dict[str, KnownQuery] = field(default_factory=dict)
    """Queries that run, are paused, or failed."""
    gone: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Those that left, with `asked`: whether a command removed them, the number of the last `cut` that they may have
    results of, and of those that a command removed the last `definition`, by which they stay out at a restart."""
    cuts: dict[str, int] = field(default_factory=dict)
    """Number of the last cut of each stream."""
    forgotten: int = 0
    """Number of the last cut that queries may have results of which left so long ago that they are no more in `gone`;
    0 without any."""
    job: Set[str] = frozenset()
    """Queries of the job, which are never forgotten: what a command removed of it stays out."""

    @classmethod
    def of(cls, snapshot: Mapping[str, Any]) -> Register:
        """Return the register at a snapshot; empty without one."""
        known = {}
        for name, definition in snapshot.get("definitions", {}).items():
            values = snapshot["streams"].get(definition["stream"], {}).get("state", {}).get("queries", {}).get(name)
            values = snapshot.get("lost", {}).get(name, values)
            if values is not None:
                rest = {key: value for key, value in definition.items() if key != "stream"}
                known[name] = KnownQuery(
                    definition["stream"],
                    rest,
                    values["complete_from"],
                    values["paused"],
                    values["failure"],
                    tuple(snapshot.get("sinks", {}).get(name, (ONLY,))),
                )
        cuts = {name: stream.get("state", {}).get("cut", 0) for name, stream in snapshot.get("streams", {}).items()}
        return cls(known, dict(snapshot.get("gone", {})), cuts, snapshot.get("forgotten", 0))

    @classmethod
    def at_end(
        cls, snapshot: Mapping[str, Any], records: Iterable[Mapping[str, Any]], job: Set[str] = frozenset()
    ) -> Register:
        """Return the register after all records that follow a snapshot, given the queries of the job."""
        register = cls.of(snapshot)
        register.job = job
        for record in records:
            register.take(record)
        return register

    def last_cut(self, name: str) -> int:
        """Return the number of the last cut that a query may have results of in its earlier lives; 0 without one."""
        if name in self.known:
            return 0
        return self._cut_of(self.gone[name]) if name in self.gone else self.forgotten

    def _cut_of(self, gone: Mapping[str, Any]) -> int:
        return int(gone.get("cut", max(self.cuts.values(), default=0)))

    def take(self, record: Mapping[str, Any]) -> None:
        """Take in a record of the log."""
        if record["type"] == RECORD:
            self._change(SetChange.from_json(record))
        elif record["type"] == "cut":
            self.cuts[record["stream"]] = record["cut"]["number"]
        elif record["type"] == "failed":
            self._fail(record["query"], record["error"])
        elif record["type"] == "commit":
            for name, why in record["failures"].items():
                self._fail(name, why)

    def _fail(self, name: str, why: str) -> None:
        if name in self.known and self.known[name].failure is None:
            self.known[name] = replace(self.known[name], failure=why)

    def _change(self, change: SetChange) -> None:
        self.cuts[change.stream] = last = max(self.cuts.get(change.stream, 0), change.after)
        for name, moment in change.added.items():
            self.gone.pop(name, None)
            sinks = change.sinks.get(name, (ONLY,))
            self.known[name] = KnownQuery(change.stream, dict(change.definitions[name]), moment, sinks=sinks)
        for name, moment in change.resumed.items():
            self.known[name] = replace(self.known[name], complete_from=moment, paused=False)
        for name in change.paused:
            self.known[name] = replace(self.known[name], paused=True)
        for name in (*change.removed, *change.left):
            query, asked = self.known.pop(name), name in change.removed
            self.gone[name] = {"asked": asked, "cut": last} | ({"definition": query.whole} if asked else {})
        self._forget()

    def _forget(self) -> None:
        """Forget the queries that left first: those that left the job, then those that commands removed."""
        too_many = max(0, len(self.gone) - MOST_GONE)
        others = [name for name in self.gone if too_many and name not in self.job]
        others.sort(key=lambda name: bool(self.gone[name]["asked"]))
        for name in others[:too_many]:
            self.forgotten = max(self.forgotten, self._cut_of(self.gone.pop(name)))


def streams_begun(snapshot: Mapping[str, Any], records: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the streams of which a checkpoint knows how far they are.

    Args:
        snapshot: The state of the last snapshot; empty without one.
        records: The log since then.
    """
    return {*snapshot.get("streams", {}), *(each["stream"] for each in records if each["type"] == "cut")}


@dataclass(frozen=True)
class Fate:
    """The decision of a restart about each query of the job, given what the checkpoint knows."""

    added: tuple[str, ...]
    """The checkpoint does not know them."""
    left: tuple[str, ...]
    """The job does not have them any more."""
    dismissed: tuple[str, ...]
    """The job still has them, but a command removed them."""
    changed: tuple[str, ...]
    """They have another definition than in the checkpoint."""


def fate(register: Register, job: Mapping[str, Mapping[str, Any]]) -> Fate:
    """Compare the job with the checkpoint.

    Args:
        register: What the checkpoint knows at the end of its log.
        job: Definitions of the job's queries, as JSON, each with its stream.
    """
    known = {name: without_types(query.whole) for name, query in register.known.items()}
    offered = {name: without_types(definition) for name, definition in job.items()}
    unknown = [name for name in job if name not in known]
    dismissed = [
        name
        for name in unknown
        if name in register.gone
        and register.gone[name]["asked"]
        and without_types(register.gone[name]["definition"]) == offered[name]
    ]
    return Fate(
        tuple(name for name in unknown if name not in dismissed),
        tuple(name for name in known if name not in job),
        tuple(dismissed),
        tuple(name for name in job if name in known and known[name] != offered[name]),
    )


def without_types(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes a query another one when it changes: types may, where states go on; so may unused columns."""
    kept = {name: value for name, value in definition.items() if name not in ("types", "source", "time")}
    return kept | {"branch": branch_of(definition)}


def type_changes(old: Mapping[str, Any], new: Mapping[str, Any], query: WindowedQuery) -> tuple[bool, list[str]]:
    """Compare the types of two definitions of a query that are the same otherwise.

    Args:
        old: What the checkpoint has; of an older version, it has no types.
        new: What the job has.
        query: The query.

    Returns:
        Whether types changed, and with which changes the states of the query cannot go on, in words.
    """
    changed: list[tuple[str, str, str, str]] = []
    for part, names in new.get("types", {}).items():
        before = old.get("types", {}).get(part, {})
        changed += [(part, name, before[name], now) for name, now in names.items() if before.get(name, now) != now]
    users: dict[str, list[str]] = {}
    for _, aggregate in query.aggregates:
        for primitive in aggregate.primitives:
            for expression in primitive.inputs:
                users.setdefault(expression.text, []).append(primitive.key)
    words = []
    for part, name, was, now in changed:
        stuck = [key for key in users.get(name, ()) if part == "inputs" and not goes_on(key, was, now)]
        if stuck or (part != "inputs" and not widens(was, now)):
            use = {"keys": "a key", "rows": "a column of a join"}.get(part) or " and ".join(
                aggregate.describe() for _, aggregate in query.aggregates if name in {e.text for e in aggregate.inputs}
            )
            words.append(f"query {query.name!r}: the type of {name} ({use}) was {was} and is {now}.")
    return bool(changed), words
