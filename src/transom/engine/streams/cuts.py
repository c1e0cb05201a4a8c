"""A cut of a stream as it was decided, and the outcome of its job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from transom.engine.cluster.files import PartialFiles
from transom.engine.partials.early import EarlyPartials
from transom.engine.spark.columns import STEPS, Thinning
from transom.engine.spark.compile import Compiled
from transom.engine.spark.cutstats import CutStats
from transom.engine.spark.rowfiles import KeptRows
from transom.engine.state.absence import Missing, missing_from_json, missing_to_json
from transom.engine.state.shares import Stretch
from transom.engine.streams.partialsource import Taken
from transom.engine.streams.tableversions import Version
from transom.model.phases import WorkersDid
from transom.model.time import Micros
from transom.model.tuning import StreamTuning
from transom.sources.base import Mark, Offset
from transom.windows.components import Component


@dataclass(frozen=True)
class Shed:
    """What a cut of a stream whose queries allow it leaves out of its range, and when its rows are taken to be."""

    units: tuple[str, ...] = ()
    """The pieces that are not read, as the source names them."""
    rows: int = 0
    """Estimated by the source."""
    stretches: tuple[Stretch, ...] = ()
    """Estimated event times, of what is read too: shares of windows follow from them."""
    sixteenths: int = STEPS
    """Of the rows that are read so many parts go on to costly transformations."""

    @property
    def leaves_out(self) -> bool:
        """Whether any row may be left out."""
        return bool(self.units) or self.sixteenths < STEPS

    def thinned(self, rows: int) -> int:
        """Return about how many of some rows do not go on."""
        return rows * (STEPS - self.sixteenths) // STEPS

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Shed:
        """Return what stands in the log."""
        stretches = tuple(Stretch(*each) for each in value["stretches"])
        return cls(tuple(value["units"]), value["rows"], stretches, value["sixteenths"])

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class LoggedCut:
    """The decisions of a cut; in the log before anything happens."""

    number: int
    start: Offset
    end: Offset
    rows: int
    """Estimated by the source."""
    watermark: Micros
    """In force for this cut: windows up to it are closed. MAX_TIME closes those that hold a row."""
    closed: Micros
    """The end of the last window that it closes, at least that of the cut before: the watermark, except at MAX_TIME."""
    ahead: Micros | None
    at: Micros
    """Wall time."""
    mark: Mark = None
    """The source's mark of the rows before its end, which other rows would not have; None where it reads nothing."""
    shed: Shed | None = None
    """What is left out; None where no query allows that anything is."""
    tables: Mapping[str, Version] = field(default_factory=dict)
    """The version of each table that its rows are looked up in, by name."""
    missing: Missing = field(default_factory=dict)
    """Sites that the windows which it closes may lack."""

    def to_json(self) -> dict[str, Any]:
        """Return the cut as JSON."""
        value = dict(self.__dict__)
        del value["shed"], value["tables"], value["missing"]
        if self.missing:
            value["missing"] = missing_to_json(self.missing)
        if self.tables:
            value["tables"] = {name: version.to_json() for name, version in self.tables.items()}
        return value if self.shed is None else {**value, "shed": self.shed.to_json()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> LoggedCut:
        """Return what `to_json` wrote."""
        shed = value.get("shed")
        tables = {name: Version(*version) for name, version in value.get("tables", {}).items()}
        missing = missing_from_json(value.get("missing", {}))
        shed = None if shed is None else Shed.from_json(shed)
        return cls(**{**value, "shed": shed, "tables": tables, "missing": missing})

    def only_closing(self) -> LoggedCut:
        """Return the cut without its rows."""
        return replace(self, end=self.start, rows=0, mark=None, shed=None, tables={})

    @property
    def left_out(self) -> tuple[str, ...]:
        """The pieces of its range that are not read, as the source names them."""
        return () if self.shed is None else self.shed.units

    @property
    def thinning(self) -> Thinning | None:
        """Which of its rows go on to costly transformations; None for all."""
        few = self.shed is not None and self.shed.sixteenths < STEPS
        return Thinning(self.shed.sixteenths, self.number) if self.shed is not None and few else None

    @property
    def empty(self) -> bool:
        """Whether it reads nothing: it only closes windows."""
        return self.start == self.end


@dataclass(frozen=True)
class JobOptions:
    """The options of a stream's jobs that do not change results; decided from measurements."""

    in_files: frozenset[str] = frozenset()
    """Names of the finest key sets of the components whose partials the jobs write into files."""
    all_in_files: bool = False
    """Whether they do so for all components."""
    measures_delays: bool = True
    """Whether they sum the delays of the rows, which costs some percent of their time."""
    tuning: StreamTuning = field(default_factory=StreamTuning)
    """How they are divided into tasks."""

    def puts_in_files(self, component: Component) -> bool:
        """Tell whether the jobs write a component's partials into files."""
        return self.all_in_files or component.finest.name in self.in_files


@dataclass(frozen=True)
class CutJob:
    """The job of a cut, as its stream was when the cut was logged."""

    cut: LoggedCut
    compiled: Compiled
    options: JobOptions
    group: str | None = None
    """The name by which Spark will be asked about its tasks; None if nobody asks."""


@dataclass(frozen=True)
class CutOutcome:
    """The outcome of the job of a cut."""

    cut: LoggedCut
    tables: tuple[pa.Table, ...] = ()
    """Partials that say what they are (`PartialTable`)."""
    stats: CutStats = field(default_factory=CutStats)
    skipped: dict[str, str] = field(default_factory=dict)
    """Units of the source that could not be read, with the reason."""
    failures: dict[str, str] = field(default_factory=dict)
    """Queries that made the job fail, with the reason."""
    late: dict[str, int] = field(default_factory=dict)
    """Rows that were late for each query."""
    kept: dict[str, KeptRows] = field(default_factory=dict)
    """The rows that were kept for each query that needs rows."""
    files: tuple[PartialFiles, ...] = ()
    """Partials that the tasks wrote."""
    taken: tuple[Taken, ...] = ()
    """The cuts of other sites that it brought, where partials come instead of rows."""
    anew: bool = False
    """Whether rows were lost before it that are in no window which begins after the newest row now."""
    early: EarlyPartials | None = None
    """What the early results are that count from its commit on; None where those before go on."""
    workers: WorkersDid | None = None
    """What was done without Spark SQL; None where nothing was."""
    judged: int | None = None
    """Files that a cut left to Spark SQL whose other partials were made without; None where Spark SQL made all."""

    def record(
        self, stream: str, tables: Mapping[str, Any] | None, early: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the record of its commit for the log.

        Args:
            stream: Name of the stream.
            tables: Where the partials are; None where there are none, or only in files.
            early: Where those of early results are; None where there are none.
        """
        known = {} if self.early is None else {"early": {"tables": early, "failure": self.early.failure}}
        record = {
            "type": "commit",
            "stream": stream,
            "number": self.cut.number,
            "tables": tables,
            "files": [files.to_json() for files in self.files],
            "stats": self.stats.to_json(),
            "skipped": self.skipped,
            "failures": self.failures,
            "late": self.late,
            "kept": {query: rows.to_json() for query, rows in self.kept.items()},
        }
        taken = {"taken": [each.to_json() for each in self.taken]} if self.taken else {}
        return record | known | taken | ({"anew": True} if self.anew else {})

    @classmethod
    def recorded(cls, cut: LoggedCut, record: Mapping[str, Any]) -> CutOutcome:
        """Return what `record` wrote, without the tables, which are files of their own."""
        return cls(
            cut,
            files=tuple(PartialFiles.from_json(files) for files in record.get("files", ())),
            stats=CutStats.from_json(record["stats"]),
            skipped=record["skipped"],
            failures=record["failures"],
            late=record["late"],
            kept={query: KeptRows.from_json(rows) for query, rows in record["kept"].items()},
            taken=tuple(map(Taken.from_json, record.get("taken", ()))),
            anew=record.get("anew", False),
        )
