"""Records of the log as values: each class knows how it is written, and `record_of` reads any of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from transom.engine.changes.records import RECORD, SetChange
from transom.engine.streams.cuts import CutOutcome, LoggedCut
from transom.errors import DefinitionError
from transom.model.time import Micros
from transom.model.tuning import Tuning
from transom.sinks.outlets import ONLY
from transom.windows.components import Arrangement


@dataclass(frozen=True)
class Delivered:
    """Results that sinks have made visible, by query, cut and key of the sink."""

    items: tuple[tuple[str, int, str], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the record as the log keeps it."""
        return {"type": "delivered", "items": self.items}


@dataclass(frozen=True)
class Failed:
    """A query that was taken out."""

    query: str
    error: str

    def to_json(self) -> dict[str, Any]:
        """Return the record as the log keeps it."""
        return {"type": "failed", "query": self.query, "error": self.error}


@dataclass(frozen=True)
class Planned:
    """The way in which a stream's key sets are computed from here on."""

    stream: str
    arrangement: Arrangement

    def to_json(self) -> dict[str, Any]:
        """Return the record as the log keeps it."""
        return {"type": "plan", "stream": self.stream, "arrangement": self.arrangement.to_json()}


@dataclass(frozen=True)
class Tuned:
    """What is set from here on; results do not depend on it."""

    tuning: Tuning
    """For all streams."""
    settings: Tuning
    """What the settings say: with others it is not gone on with."""
    reason: str
    """Why it changed, for people."""
    at: Micros = 0
    """When; wall time."""
    planned: bool = False
    """Whether it follows a plan, so that it holds only as long as the application plans."""

    def to_json(self) -> dict[str, Any]:
        """Return the record as the log keeps it."""
        said = {"tuning": self.tuning.to_json(), "settings": self.settings.to_json(), "reason": self.reason}
        return {"type": "tuning", **said, "at": self.at, "planned": self.planned}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Tuned | None:
        """Return what `to_json` wrote; None for what another Transom wrote and this one cannot follow."""
        try:
            tuning, settings = Tuning.from_json(record["tuning"]), Tuning.from_json(record["settings"])
        except DefinitionError:
            return None
        return cls(tuning, settings, record["reason"], record.get("at", 0), record.get("planned", False))


@dataclass(frozen=True)
class Begun:
    """A cut of a stream, before anything of it happens."""

    stream: str
    cut: LoggedCut

    def to_json(self) -> dict[str, Any]:
        """Return the record as the log keeps it."""
        return {"type": "cut", "stream": self.stream, "cut": self.cut.to_json()}


@dataclass(frozen=True)
class Committed:
    """The outcome of a cut; `CutOutcome.record` writes it."""

    stream: str
    number: int
    """The cut's."""
    tables: Mapping[str, Any] | None
    """Where its partials are; None where there are none, or only in files."""
    record: Mapping[str, Any]

    @property
    def early(self) -> Mapping[str, Any] | None:
        """Where the partials of early results are, under "tables", or why they are not known, under "failure"."""
        return self.record.get("early")

    def outcome(self, cut: LoggedCut) -> CutOutcome:
        """Return what the job of the cut gave, without the tables."""
        return CutOutcome.recorded(cut, self.record)


@dataclass(frozen=True)
class Shipped:
    """A cut range of a flow, fixed before its first byte leaves."""

    stream: str
    flow: str
    upto: int
    """Its last cut; the first is the one after the range before."""
    tick: int
    """That on which it leaves."""

    def to_json(self) -> dict[str, Any]:
        """Return the record as the log keeps it."""
        return {"type": "shipped", **self.__dict__}


@dataclass(frozen=True)
class Arrived:
    """The cuts of a flow that its destination has, durably."""

    stream: str
    flow: str
    upto: int
    """The last of them."""

    def to_json(self) -> dict[str, Any]:
        """Return the record as the log keeps it."""
        return {"type": "arrived", **self.__dict__}


LogRecord: TypeAlias = SetChange | Delivered | Failed | Planned | Tuned | Begun | Committed | Shipped | Arrived


def record_of(record: Mapping[str, Any]) -> LogRecord | None:
    """Return a record of the log as a value; None for one that replaying does not need."""
    match record["type"]:
        case "delivered":
            # Up to format 2 each query had one sink.
            return Delivered(tuple((query, cut, *(sink or [ONLY])) for query, cut, *sink in record["items"]))
        case "failed":
            return Failed(record["query"], record["error"])
        case "plan":
            return Planned(record["stream"], Arrangement.from_json(record["arrangement"]))
        case "tuning":
            return Tuned.from_json(record)
        case "cut":
            return Begun(record["stream"], LoggedCut.from_json(record["cut"]))
        case "commit":
            return Committed(record["stream"], record["number"], record["tables"], record)
        case "shipped":
            return Shipped(record["stream"], record["flow"], record["upto"], record["tick"])
        case "arrived":
            return Arrived(record["stream"], record["flow"], record["upto"])
        case kind if kind == RECORD:
            return SetChange.from_json(record)
    return None
