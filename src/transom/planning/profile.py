"""A profile: what the phases of each stream of a job cost on a machine, as a value that is kept as JSON.

Costs are seconds of one core at rest for what tasks do, and seconds of the clock for the rest. What a cut costs follows
from its rows by the units of its phases; of how many keys so many rows have there is a curve.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from transom.errors import DefinitionError
from transom.model.phases import Phase
from transom.planning.keys import AGAIN, KeyCurve, PaneKeys
from transom.planning.moments import Residuals

FORMAT = 1
"""Version of the JSON; other ones are refused."""


def _number(value: Any, what: str) -> None:
    if not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise DefinitionError(f"{what} is {value}, not a number from 0 on.", AGAIN)


def _whole(value: Any, what: str, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise DefinitionError(f"{what} is {value}, not a whole number from {least} on.", AGAIN)


_NUMBERS = (
    *("merged", "results", "piece", "regular", "uneven", "most_rows", "pane", "span", "rows", "fanout"),
    *("row_cpu", "row_bytes", "exchanged_bytes"),
)
"""The parts of what is known of a stream that are numbers from 0 on."""


@dataclass(frozen=True)
class PhaseCost:
    """The cost of a phase: a line over its unit, and how far single ones are off."""

    fixed: float = 0.0
    """Seconds without any unit; of each task, where tasks run."""
    each: float = 0.0
    """Seconds for each unit: row, task, row of partials, or row of results; see `phases.UNITS`."""
    scv: float = 0.0
    """Variance over the squared mean of what single ones take."""
    ran: float = 0.0
    """Seconds for which executors say that a task ran, for each second that it costs; 0 where none runs, or unknown."""

    def __post_init__(self) -> None:
        for one in fields(self):
            _number(getattr(self, one.name), f"cost: {one.name}")

    def mean(self, units: float) -> float:
        """Return the seconds for so many units."""
        return self.fixed + self.each * units


NOTHING = PhaseCost()


@dataclass(frozen=True)
class StreamProfile:
    """What is known of a stream: its phases, its keys, and how its rows come."""

    costs: Mapping[Phase, PhaseCost]
    keys: KeyCurve = field(default_factory=KeyCurve)
    """Rows of partials over rows of a pane, after `map`."""
    pane: float = 0.0
    """Seconds of a pane; 0 where all rows of a cut are in one."""
    fanout: float = 1.0
    """Rows of partials that one row makes, at most: `map` may make several, and there may be several aggregations."""
    span: float = 0.0
    """Seconds of a window, on average."""
    closing: float = 1.0
    """Seconds from one closing of windows to the next."""
    rows: float = 0.0
    """Rows that came in this time where it was measured; 0 where results are as many at any rate."""
    flowing: bool = False
    """Whether results grow with the rows, as those of sessions, and not with the keys of a window."""
    merged: float = 0.0
    """Rows of partials that a closing merges, on average."""
    results: float = 0.0
    """Rows of results of a closing, on average."""
    groups: int = 1
    """Groups of a merge, of which the slowest counts; 1 on the driver."""
    piece: float = 0.0
    """Seconds from one arrival of rows (file, batch) to the next; 0 where they flow."""
    regular: float = 1.0
    """Squared coefficient of variation of that: 0 like clockwork, 1 at random."""
    uneven: float = 0.0
    """Squared coefficient of variation of the rows of cuts that take the same time to come."""
    parts: int = 0
    """Tasks that a cut can be divided into at most; 0 for no bound."""
    limit: float | None = None
    """Seconds within which its results are due, the tightest of its queries; None if none has a limit."""
    after: str | None = None
    """The stream whose results it reads; None if it reads a source."""
    residuals: Residuals = field(default_factory=Residuals)
    """Of cuts, from plan to commit; the quantiles of latencies are found by them."""
    cuts: int = 0
    """Cuts that were measured."""
    most_rows: float = 0.0
    """Rows of the largest of them; 0 if that is unknown."""
    row_cpu: float = 0.0
    """Seconds of processor time of all tasks for each row; for people, as plans are made of the clock."""
    row_bytes: float = 0.0
    """Bytes that were read for each row, as far as Spark counts them."""
    exchanged_bytes: float = 0.0
    """Bytes that went through an exchange for each row, in cuts that have one."""

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            _number(getattr(self, name), f"profile: {name}")
        if not 0 < self.closing < math.inf:
            raise DefinitionError(f"profile: closing is {self.closing}.", AGAIN)
        for name, least in (("groups", 1), ("parts", 0), ("cuts", 0)):
            _whole(getattr(self, name), f"profile: {name}", least)
        if self.limit is not None:
            _number(self.limit, "profile: limit")

    @property
    def exchanges(self) -> bool:
        """Whether its tasks exchange rows of partials; those that make them without Spark SQL do not."""
        return Phase.EXCHANGE in self.costs

    def cost(self, phase: Phase) -> PhaseCost:
        """Return the cost of a phase; nothing where it was never seen."""
        return self.costs.get(phase, NOTHING)

    def partials(self, rate: float) -> PaneKeys:
        """Return how many rows of partials so many rows make that come at a rate, rows per second."""
        return PaneKeys(self.keys, rate * self.pane if rate and self.pane else math.inf, self.fanout)

    def at(self, rate: float) -> StreamProfile:
        """Return the same with the rows of results, and of what is merged for them, at a rate, rows per second."""
        if not self.rows:
            return self
        if self.flowing:
            more = rate * self.closing / self.rows
        else:
            then, now = (self.keys.keys(self.fanout * self.span * each) for each in (self.rows / self.closing, rate))
            more = now / then if then else 1.0
        return replace(self, rows=rate * self.closing, merged=more * self.merged, results=more * self.results)


@dataclass(frozen=True)
class Equipment:
    """The machine that was measured, and what ran on it."""

    cores: int
    """Cores that ran tasks."""
    shared: bool = True
    """Whether the driver and its JVM run on the same cores, as in local mode."""
    driver: float = 0.0
    """Cores that they kept busy, beside tasks, on average."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of Transom, Spark, Java, Python, and the machine."""

    def __post_init__(self) -> None:
        _whole(self.cores, "profile: cores", 1)
        _number(self.driver, "profile: driver")
        if not isinstance(self.versions, Mapping):
            raise DefinitionError(f"profile: versions is {self.versions}.", AGAIN)


@dataclass(frozen=True)
class Profile:
    """What the streams of a job cost on a machine."""

    job: str
    """Digest of what the queries are, so that no other job is planned by it."""
    equipment: Equipment
    streams: Mapping[str, StreamProfile]

    def __post_init__(self) -> None:
        for name in self.streams:
            seen, before = {name}, self.streams[name].after
            while before is not None:
                if before not in self.streams or before in seen:
                    raise DefinitionError(f"profile: stream {name} reads {before}, which cannot be.", AGAIN)
                seen.add(before)
                before = self.streams[before].after

    def dearer(self, factor: float) -> Profile:
        """Return the same where all costs are so many times as high; sources are looked at as often."""

        def costs(stream: StreamProfile) -> dict[Phase, PhaseCost]:
            return {
                phase: cost
                if phase is Phase.LOOK
                else replace(cost, fixed=factor * cost.fixed, each=factor * cost.each)
                for phase, cost in stream.costs.items()
            }

        return replace(self, streams={name: replace(each, costs=costs(each)) for name, each in self.streams.items()})

    def chain(self, name: str) -> list[str]:
        """Return a stream, the one whose results it reads, and so on to the one that reads a source."""
        before = self.streams[name].after
        return [name, *(self.chain(before) if before is not None else [])]

    def to_json(self) -> str:
        """Return it as text that `from_json` reads."""
        streams = {
            name: {
                **asdict(stream),
                "costs": {phase.value: asdict(cost) for phase, cost in stream.costs.items()},
                "keys": stream.keys.points,
                "residuals": stream.residuals.values,
            }
            for name, stream in self.streams.items()
        }
        made = {"format": FORMAT, "job": self.job, "equipment": asdict(self.equipment), "streams": streams}
        return json.dumps(made, indent=1)

    @classmethod
    def from_json(cls, text: str, name: str) -> Profile:
        """Read a profile.

        Args:
            text: The JSON.
            name: Of the file, for errors.

        Raises:
            DefinitionError: It is damaged, or of another version.
        """
        try:
            made = json.loads(text)
            version = made["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise DefinitionError(f"{name} is not a profile, or damaged.", AGAIN) from error
        if version != FORMAT:
            raise DefinitionError(f"{name} has format {version}, and this Transom reads {FORMAT}.", AGAIN)
        try:
            streams = {stream: _stream(values) for stream, values in made["streams"].items()}
            return cls(made["job"], Equipment(**made["equipment"]), streams)
        except DefinitionError as error:
            raise DefinitionError(f"{name}: {error.message}", AGAIN) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DefinitionError(f"{name} is damaged: {error}.", AGAIN) from error

    def require(self, job: str, versions: Mapping[str, str], name: str) -> None:
        """Refuse a profile of another job, machine or version, with the differences.

        Raises:
            DefinitionError: It is one.
        """
        if self.job != job:
            raise DefinitionError(
                f"{name} was made of another job, or the queries or their lane have changed since.", AGAIN
            )
        known = self.equipment.versions
        others = [
            f"{key} {known.get(key, 'unknown')}, here {now}" for key, now in versions.items() if known.get(key) != now
        ]
        if others:
            raise DefinitionError(f"{name} was made elsewhere: {'; '.join(others)}.", AGAIN)


def _stream(values: Mapping[str, Any]) -> StreamProfile:
    residuals = Residuals(tuple(map(float, values["residuals"])))
    return replace(
        StreamProfile(**{**values, "costs": {}, "keys": KeyCurve(), "residuals": Residuals()}),
        costs={Phase(phase): PhaseCost(**cost) for phase, cost in values["costs"].items()},
        keys=KeyCurve(tuple((float(rows), float(keys)) for rows, keys in values["keys"])),
        residuals=residuals,
    )
