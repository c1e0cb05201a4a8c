"""The progress of a running application: plain values, made by the engine, shown by front ends."""

from __future__ import annotations

from dataclasses import dataclass, field

from transom.model.time import MICROS_PER_SECOND, MIN_TIME, Micros
from transom.windows.query import LatencyTarget


@dataclass(frozen=True)
class QueryProgress:
    """One query so far in this run."""

    name: str
    stream: str
    sink: str
    windows: int
    """Windows written, by all of its sinks."""
    result_rows: int
    latency: dict[str, Micros]
    """Quantiles of the result latency of the last windows: keys p50, p95, p99. Counted are those that were completed by
    rows which arrived after the stream had caught up; empty before the first of them."""
    target: LatencyTarget | None
    late_rows: int
    """Rows that came when all their windows of this query were closed."""
    waiting: int
    """Results that not all of its sinks have taken yet."""
    failure: str | None
    """Why the query was taken out, or why its stream, or one that feeds it, is read no more; None while it runs."""
    paused: bool = False
    complete_from: Micros = MIN_TIME
    """Windows that start earlier miss rows and are not emitted."""
    behind: dict[str, int] = field(default_factory=dict)
    """Results that each of its sinks has not taken yet, by what it is."""


@dataclass(frozen=True)
class StreamProgress:
    """One stream so far in this run."""

    name: str
    source: str
    cuts: int
    rows: int
    rows_per_second: float
    """Over the last seconds."""
    backlog: int
    """Rows (an estimate is allowed) that are in the source and not committed."""
    watermark: Micros
    max_event_time: Micros
    dead_letters: dict[str, int]
    """Rows by reason; a late row counts once for each query that lost it."""
    batch_micros: Micros
    """Duration of the last micro-batch."""
    key_groups: dict[str, int] = field(default_factory=dict)
    """Key groups of partials on the executors, by executor; empty while the driver holds all partials."""
    moved_groups: int = 0
    """Key groups that went to other executors, as loads were uneven or executors will go."""
    lost_executors: tuple[str, ...] = ()
    """Those that were lost last; their part of the windows was read from files again."""
    recovery_micros: Micros | None = None
    """Duration of the merges that had to do so; None while no executor was lost."""
    recovery_estimate_micros: Micros = 0
    """Its time at most, by the measured speed of reading, if one is lost now; 0 while it is not known."""
    rests_until: Micros | None = None
    """When the watermark of its next window is expected, for which its backlog waits on purpose; None otherwise."""
    catching_up: bool = False
    """Whether it still reads what had come before it could, e.g. while the application did not run."""
    time_left: Micros | None = None
    """Time that this takes at the speed of the last seconds; None while it is not known, or the backlog grows."""
    phases: dict[str, Micros] = field(default_factory=dict)
    """Mean time of each phase of the last micro-batches, from look to deliver, as far as it was measured; `job` is
    plan to collect together, which Spark is asked about for every eighth of them, and one every three seconds."""
    tuning: dict[str, int] = field(default_factory=dict)
    """What is set of it now: trigger (microseconds); rows_per_cut, rows_per_task and partitions where they are set."""
    measured: Micros | None = None
    """Mean time from the arrival of a row to visible results: all phases together, as far as they were measured; None
    while no micro-batch was."""
    planned: Micros | None = None
    """The same as the last plan expects it; None without a plan, or where it expects that a backlog grows."""
    shed_share: float = 0.0
    """Share of the rows of the last seconds that was left out, as there was more than could be read in time."""
    native_cuts: int = 0
    """Micro-batches whose partials were made without Spark SQL; none with `lane="spark"`."""
    judged_files: int = 0
    """Files in these, or ranges of offsets or of made-up rows, that were left to Spark SQL, as they hold something of
    which only Spark can tell what it is; each counts once, however many tasks read parts of it."""


@dataclass(frozen=True, repr=False)
class Progress:
    """The application at one moment."""

    at: Micros
    """Wall time."""
    started: Micros
    """`at` without the time that the run has taken so far, also if the wall clock was set meanwhile."""
    streams: tuple[StreamProgress, ...]
    queries: tuple[QueryProgress, ...]
    stopping: bool = False
    scheduling: float = 0.0
    """Seconds of processor time that the choice of what runs next has taken, so far in this run."""
    memory: float = 0.0
    """Largest share of memory in use: of the driver, of Spark's cache, of the JVM's heap."""
    slots: int = 0
    """Spark jobs that may run at once."""
    memory_mode: bool = False
    """Whether the streams go first that free most memory."""
    executors: int = 0
    """Executors that there are, where plans ask for them (`max_executors`); else 0."""
    asked_executors: int = 0
    """Executors that there are to be, by the last plan that asked for some or gave some back; else as many as there
    are."""
    notes: tuple[str, ...] = field(default=())
    """Sentences that a person should see once, e.g. a quarantined query; new since the last progress."""

    @property
    def ran(self) -> Micros:
        """The time that the run has taken so far."""
        return self.at - self.started

    def __repr__(self) -> str:
        said = [f"{one.name}: {one.rows:,} rows, {one.backlog:,} left" for one in self.streams]
        said += [f"{one.name}: {one.result_rows:,} results{', failed' * bool(one.failure)}" for one in self.queries]
        return f"Progress({'; '.join([f'after {self.ran / MICROS_PER_SECOND:.1f} s', *said])})"
