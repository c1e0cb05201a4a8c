"""What can be set while an application runs: jobs at once, and for each stream how often, how much and how divided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from transom.errors import DefinitionError, did_you_mean
from transom.model.time import LONGEST, MICROS_PER_SECOND, Micros, format_duration

MOST_SLOTS = 1_000
"""Each job that runs has a thread of its own."""
MOST_PARTITIONS = 100_000
MOST_EXECUTORS = 1_000
ONE_TASK_ROWS = 50_000
"""Up to so many rows one task does a whole cut if nothing else is set: no exchange, one stage."""


@dataclass(frozen=True)
class StreamTuning:
    """What can be set of a stream. None leaves it to the settings, to Transom or to Spark.

    Raises:
        DefinitionError: A value that makes no sense.

    >>> StreamTuning(200_000, rows_per_task=25_000).tasks(60_000)
    3
    """

    trigger: Micros = 200_000
    """Least time between the starts of two cuts that take all there is; microseconds."""
    rows_per_cut: int | None = None
    """Largest cut in rows; None for the setting `max_rows_per_cut`."""
    rows_per_task: int | None = None
    """A cut has at most one task for so many rows that it reads; None for one task up to 50,000 rows, and beyond as
    many as its source is divided into."""
    partitions: int | None = None
    """Tasks that aggregate after an exchange; None for as many as the session has cores."""

    def __post_init__(self) -> None:
        if not _is_whole(self.trigger) or not 0 <= self.trigger <= LONGEST:
            raise DefinitionError(
                f"tuning: trigger is {self.trigger!r}.", "Give microseconds, a whole number of at least 0."
            )
        for name, most in (("rows_per_cut", 1 << 60), ("rows_per_task", 1 << 60), ("partitions", MOST_PARTITIONS)):
            value = getattr(self, name)
            if value is not None and not (_is_whole(value) and 0 < value <= most):
                raise DefinitionError(
                    f"tuning: {name} is {value!r}.", f"Give a whole number from 1 to {most:,}, or None to set nothing."
                )

    @property
    def trigger_seconds(self) -> float:
        """The trigger in seconds."""
        return self.trigger / MICROS_PER_SECOND

    def is_one_task(self, rows: int) -> bool:
        """Tell whether one task does a whole cut of so many rows because nothing is set."""
        return self.rows_per_task is None and rows <= ONE_TASK_ROWS

    def tasks(self, rows: int) -> int | None:
        """Return the most tasks that read a cut of so many rows; None for as many as its source is divided into."""
        if self.rows_per_task is None:
            return 1 if rows <= ONE_TASK_ROWS else None
        return max(1, -(-rows // self.rows_per_task))

    def on_looks(self, poll: Micros) -> StreamTuning:
        """Return the same with a trigger that is a whole number of looks at the source, the next greater one.

        >>> StreamTuning(120_000).on_looks(50_000).trigger
        150000
        """
        return replace(self, trigger=-(-self.trigger // poll) * poll)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON; what is None is left out."""
        return {key: value for key, value in self.__dict__.items() if value is not None}

    @classmethod
    def from_json(cls, value: Any) -> StreamTuning:
        """Return what `to_json` wrote.

        Raises:
            DefinitionError: It is something else.
        """
        return cls(**_known(value, cls, "of a stream"))


@dataclass(frozen=True)
class Tuning:
    """What can be set of an application. Results do not depend on it; when they are there does.

    Raises:
        DefinitionError: A value that makes no sense.
    """

    slots: int = 2
    """Spark jobs that run at once."""
    streams: Mapping[str, StreamTuning] = field(default_factory=dict)
    """The streams, by name."""
    executors: int | None = None
    """Executors that the cluster manager is asked for; None for as many as there are."""

    def __post_init__(self) -> None:
        if not _is_whole(self.slots) or not 0 < self.slots <= MOST_SLOTS:
            raise DefinitionError(f"tuning: slots is {self.slots!r}.", f"Give a whole number from 1 to {MOST_SLOTS:,}.")
        if self.executors is not None and not (_is_whole(self.executors) and 0 < self.executors <= MOST_EXECUTORS):
            raise DefinitionError(
                f"tuning: executors is {self.executors!r}.",
                f"Give a whole number from 1 to {MOST_EXECUTORS:,}, or None to set nothing.",
            )
        object.__setattr__(self, "streams", MappingProxyType(dict(self.streams)))

    def __hash__(self) -> int:
        return hash((self.slots, frozenset(self.streams.items()), self.executors))

    def of(self, stream: str) -> StreamTuning:
        """Return what is set of a stream."""
        return self.streams[stream]

    def over(self, before: Tuning) -> Tuning:
        """Return this tuning for all the streams of another one, which says what this one leaves out.

        Raises:
            DefinitionError: There is no stream of that name.
        """
        for name in self.streams:
            if name not in before.streams:
                known = list(before.streams)
                remedy = did_you_mean(name, known, f"Streams are {', '.join(known)}.")
                raise DefinitionError(f"tuning: there is no stream {name!r}.", remedy)
        executors = before.executors if self.executors is None else self.executors
        return Tuning(self.slots, {**before.streams, **self.streams}, executors)

    def only(self, streams: Iterable[str]) -> Tuning:
        """Return the same without what it says of other streams."""
        kept = set(streams)
        return replace(self, streams={name: each for name, each in self.streams.items() if name in kept})

    def on_looks(self, poll: Micros) -> Tuning:
        """Return the same with triggers that are whole numbers of looks, so that streams over a source share them."""
        return replace(self, streams={name: each.on_looks(poll) for name, each in self.streams.items()})

    def changes(self, before: Tuning) -> list[str]:
        """Return what differs from another one, in words.

        >>> Tuning(3, {"a": StreamTuning(partitions=4)}).changes(Tuning(2, {"a": StreamTuning()}))
        ['slots 2 -> 3', 'a: partitions unset -> 4']
        """
        found = [] if self.slots == before.slots else [f"slots {before.slots} -> {self.slots}"]
        if self.executors != before.executors:
            here = "" if before.executors is None else f" {before.executors} ->"  # None: as many as there were
            found.insert(0, f"executors{here} {_words('', self.executors)}")
        for name, each in self.streams.items():
            other = before.streams.get(name, each)
            for key in (key for key in each.__dict__ if getattr(each, key) != getattr(other, key)):
                found.append(f"{name}: {key} {_words(key, getattr(other, key))} -> {_words(key, getattr(each, key))}")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON; executors that are None are left out."""
        found = {"slots": self.slots, "streams": {name: each.to_json() for name, each in self.streams.items()}}
        return found if self.executors is None else {**found, "executors": self.executors}

    @classmethod
    def from_json(cls, value: Any) -> Tuning:
        """Return what `to_json` wrote.

        Raises:
            DefinitionError: It is something else.
        """
        known = _known(value, cls, "of an application")
        streams = known.get("streams", {})
        if not isinstance(streams, Mapping):
            raise DefinitionError(f"tuning: streams is {streams!r}.", "Give an object with a value for each stream.")
        return cls(**{**known, "streams": {name: StreamTuning.from_json(each) for name, each in streams.items()}})


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _words(key: str, value: int | None) -> str:
    if value is None:
        return "unset"
    return format_duration(value) if key == "trigger" else f"{value:,}"


def _known(value: Any, cls: type[StreamTuning] | type[Tuning], what: str) -> Mapping[str, Any]:
    """Return an object of JSON whose keys are fields of a class."""
    if not isinstance(value, Mapping):
        raise DefinitionError(f"tuning {what}: {value!r} is no object.", 'Give for example {"slots": 2}.')
    names = [each.name for each in fields(cls)]
    for key in value:
        if key not in names:
            raise DefinitionError(
                f"tuning {what}: there is no {key!r}.", did_you_mean(key, names, f"There are {', '.join(names)}.")
            )
    return value
