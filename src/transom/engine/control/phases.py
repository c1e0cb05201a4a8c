"""The phases of cuts as they are measured: what each stream waits for, and the stamps of each of its cuts."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from transom.engine.spark.stages import JobTimes
from transom.engine.streams.cuts import CutOutcome, LoggedCut
from transom.model.phases import OF_A_JOB, CutPhases, Phase, StageTasks, WorkersDid
from transom.model.time import MICROS_PER_SECOND, Micros
from transom.model.tuning import StreamTuning
from transom.scheduling.waits import mean_waits

WATCHED = 8
"""Of every so many cuts that read rows, Spark's status store is asked about one,"""
UNWATCHED: Micros = 3 * MICROS_PER_SECOND
"""and about the first that begins so long after the last one: who begins with too few cores, so that cuts are long,
would learn for many minutes that they are too few."""
KEPT = 64
"""Cuts of a stream that are remembered."""
DEFAULT = StreamTuning()
JOB = "job"
"""The phases of a job together."""
MOST_OPEN = 64
"""Cuts whose results may be on their way to their sinks; what is known of the oldest is taken as it is then."""


@dataclass
class _Measured:
    """A cut so far; times are monotonic unless they are said to be of the wall."""

    stream: str
    number: int
    begun: Micros
    line: Sequence[tuple[Micros, Phase]] = ()
    """What the stream waited for before it began."""
    oldest: Micros | None = None
    """Arrival of the first of its rows."""
    tuning: StreamTuning = DEFAULT
    """By which it was divided."""
    rows: int = 0
    partials: int = 0
    results: int = 0
    windows: int = 0
    seconds: dict[Phase, float] = field(default_factory=dict)
    job: float | None = None
    ended: float = 0.0
    """Wall time at which its job ended, seconds."""
    committed: Micros = 0
    batching: float | None = None
    stages: tuple[StageTasks, ...] = ()
    workers: WorkersDid | None = None
    """What was done without Spark SQL."""
    asked: Future[JobTimes | None] | None = None
    """What Spark's status store says, while it is being asked."""
    completes: Micros | None = None
    """The watermark that it leads to, while the cut that closes windows by it is not logged."""
    closes: bool = False
    """Whether these windows are being closed."""
    undelivered: set[tuple[str, int]] = field(default_factory=set)
    """Results of the windows that it completed, by query and cut, which are not visible."""
    sent: Micros = 0
    """Wall time at which they went to the sinks."""

    @property
    def open(self) -> bool:
        """Whether more is to come."""
        return self.asked is not None or self.completes is not None or self.closes or bool(self.undelivered)

    def spent(self, phase: Phase, seconds: float) -> None:
        """Add to a phase; clocks that are set leave nothing below 0."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + max(0.0, seconds)

    def take_tasks(self) -> None:
        """Divide the time of the job into its phases, if Spark has said."""
        if self.asked is None or not self.asked.done():
            return
        times = None if self.asked.cancelled() or self.asked.exception() is not None else self.asked.result()
        self.asked = None
        if times is None and self.workers is not None and not self.workers.tasks:
            times = JobTimes((), 0.0, 0.0, 0.0, self.ended)  # no job of Spark's
        if times is None or self.job is None:
            return
        self.stages = times.stages if self.workers is None else self.workers.added(times.stages)
        here = 0.0 if self.workers is None or self.workers.tasks else self.workers.cpu
        known = {
            Phase.LAUNCH: times.launch,
            Phase.MAP: times.map + here,
            Phase.EXCHANGE: times.exchange,
            Phase.COLLECT: max(0.0, self.ended - times.ended),
        }
        self.seconds |= known
        self.seconds[Phase.PLAN] = max(0.0, self.job - sum(known.values()))

    def value(self) -> CutPhases:
        """Return what is known."""
        ordered = {phase: self.seconds[phase] for phase in Phase if phase in self.seconds}
        tasks = next((stage.tasks for stage in self.stages if stage.rows or stage.in_workers), None)
        if tasks is None and self.stages:
            tasks = self.stages[0].tasks
        return CutPhases(
            self.stream,
            self.number,
            self.rows,
            ordered,
            self.job,
            tasks,
            self.stages,
            self.partials,
            self.results,
            self.windows,
            self.batching,
            self.tuning.tasks(self.rows) or 0,
        )


class PhaseRecorder:
    """Takes the stamps of all cuts of an application; used on the loop's thread, with monotonic times.

    Args:
        on_cut: Called with the phases of each cut as soon as all of them are known.
        every: Of so many cuts that read rows, Spark's status store is asked about one.
    """

    def __init__(self, on_cut: Callable[[CutPhases], None] = lambda phases: None, every: int = WATCHED) -> None:
        self.on_cut = on_cut
        self._every = every
        self.closely: set[str] = set()
        """Streams of which Spark is asked about every cut."""
        self._lines: defaultdict[str, list[tuple[Micros, Phase]]] = defaultdict(list)
        self._read: defaultdict[str, int] = defaultdict(int)
        """Cuts of each stream that read rows."""
        self._watched: dict[str, Micros] = {}
        """When the last of them began that Spark was asked about."""
        self._under_way: dict[str, _Measured] = {}
        self._completing: dict[str, _Measured] = {}
        """Of each stream, the committed cut whose windows the next one closes."""
        self._open: deque[_Measured] = deque()
        self._means: defaultdict[str, dict[str, tuple[int, float]]] = defaultdict(dict)
        """For each stream and phase the number of cuts that count, and the mean of their seconds."""
        self._recent: defaultdict[str, deque[CutPhases]] = defaultdict(lambda: deque(maxlen=KEPT))

    # ---- what happens

    def waits(self, stream: str, phase: Phase, now: Micros) -> None:
        """Note what a stream without a cut under way waits for from now on."""
        line = self._lines[stream]
        if not line or line[-1][1] is not phase:
            line.append((now, phase))

    def started(
        self, stream: str, cut: LoggedCut, oldest: Micros | None, now: Micros, tuning: StreamTuning = DEFAULT
    ) -> None:
        """Note that a cut begins: nothing of it is logged.

        Args:
            stream: Its stream.
            cut: The cut.
            oldest: Arrival of the first row that waits.
            now: The time.
            tuning: By which it is divided.
        """
        if cut.empty:
            return
        self._under_way[stream] = _Measured(stream, cut.number, now, tuple(self._lines[stream]), oldest, tuning)
        self._lines[stream] = [(now, Phase.TURN)]

    def watches(self, stream: str, now: Micros) -> bool:
        """Tell whether Spark should be asked about the tasks of the cut that begins now."""
        self._read[stream] += 1
        asks = stream in self.closely or self._read[stream] % self._every == 1 % self._every
        asks = asks or now >= self._watched.get(stream, now) + UNWATCHED
        if asks:
            self._watched[stream] = now
        return asks

    def logged(self, stream: str, cut: LoggedCut, due: bool, now: Micros) -> None:
        """Note that a cut is logged, and whether it closes windows."""
        before = self._completing.pop(stream, None)
        if before is None or before.completes is None:
            return
        if due and cut.watermark <= before.completes:
            before.spent(Phase.CLOSE, (now - before.committed) / MICROS_PER_SECOND)
            before.closes = True
        before.completes = None

    def closed(
        self,
        stream: str,
        cut: LoggedCut,
        queries: Collection[str],
        rows: int,
        took: Micros,
        wall: Micros,
        windows: int = 0,
    ) -> None:
        """Note that the windows of a cut are merged and on their way to the sinks.

        Args:
            stream: Its stream.
            cut: The cut.
            queries: Those that have results.
            rows: Rows of them.
            took: Time of the merge.
            wall: Wall time.
            windows: That were merged.
        """
        completed = next((each for each in self._open if each.stream == stream and each.closes), None)
        if completed is None:
            if not queries:
                return
            completed = _Measured(stream, cut.number, 0)  # a source's watermark, or time, completed them
            self._open.append(completed)
        completed.closes = False
        if queries:
            completed.spent(Phase.CONSOLIDATE, took / MICROS_PER_SECOND)
            completed.undelivered = {(query, cut.number) for query in queries}
            completed.results, completed.windows, completed.sent = rows, windows, wall
        self.settle()

    def delivered(self, query: str, cut: int, wall: Micros) -> None:
        """Note that all sinks of a query have its results of a cut, the last of them since a wall time."""
        for each in self._open:
            if (query, cut) in each.undelivered:
                each.undelivered.discard((query, cut))
                passed = max(0.0, (wall - each.sent) / MICROS_PER_SECOND)
                each.seconds[Phase.DELIVER] = max(each.seconds.get(Phase.DELIVER, 0.0), passed)
        self.settle()

    def committed(
        self,
        stream: str,
        outcome: CutOutcome,
        newest: Micros,
        ended: Micros,
        completes: Micros | None,
        asked: Future[JobTimes | None] | None,
        now: Micros,
        ahead: Micros,
    ) -> None:
        """Note that a cut with rows is committed.

        Args:
            stream: Its stream.
            outcome: What its job brought.
            newest: Arrival of the last of its rows.
            ended: When its job ended.
            completes: The watermark from now on, if windows are due by it.
            asked: What Spark will say of its tasks, if it was asked.
            now: The time.
            ahead: By how much the wall clock is ahead of it.
        """
        cut = self._under_way.pop(stream, None)
        if cut is None:  # of an earlier run
            return
        oldest = newest if cut.oldest is None else cut.oldest
        newest = min(newest, cut.begun)
        cut.seconds |= mean_waits(cut.line, cut.begun, min(oldest, newest), newest)
        cut.rows, cut.partials = outcome.stats.rows, sum(table.num_rows for table in outcome.tables)
        cut.job, cut.ended = (ended - cut.begun) / MICROS_PER_SECOND, (ended + ahead) / MICROS_PER_SECOND
        cut.spent(Phase.COMMIT, (now - ended) / MICROS_PER_SECOND)
        delays = outcome.stats.delays
        cut.batching = delays.mean / MICROS_PER_SECOND if delays.records else None
        cut.committed, cut.asked, cut.completes, cut.workers = now, asked, completes, outcome.workers
        if completes is not None:
            self._completing[stream] = cut
        self._open.append(cut)
        self.settle()

    def settle(self) -> None:
        """Take the cuts of which all is known; in their order as far as the results of none are on their way long."""
        for cut in self._open:
            cut.take_tasks()
        while len(self._open) > MOST_OPEN:
            self._open[0].completes = None
            self._take(self._open.popleft())
        if any(not cut.open for cut in self._open):
            done, self._open = [cut for cut in self._open if not cut.open], deque(cut for cut in self._open if cut.open)
            for cut in done:
                self._take(cut)

    def _take(self, cut: _Measured) -> None:
        phases, means = cut.value(), self._means[cut.stream]
        self._recent[cut.stream].append(phases)
        seconds = {str(phase): each for phase, each in phases.seconds.items()}
        if phases.job is not None:
            seconds[JOB] = phases.job
        for name, each in seconds.items():
            count, mean = means.get(name, (0, 0.0))
            count = min(count + 1, KEPT)
            means[name] = count, mean + (each - mean) / count
        self.on_cut(phases)

    # ---- what is known

    def recent(self, stream: str) -> Sequence[CutPhases]:
        """Return the phases of the last cuts of a stream."""
        return tuple(self._recent[stream])

    def means(self, stream: str) -> dict[str, Micros]:
        """Return the mean time of each phase over the last cuts that had it, and of whole jobs (plan to collect)."""
        self.settle()
        return {name: round(MICROS_PER_SECOND * mean) for name, (_, mean) in self._means[stream].items()}

    def latency(self, stream: str) -> Micros | None:
        """Return the mean of all phases together; None while no job was measured."""
        means = self.means(stream)
        beside = sum(means.get(str(phase), 0) for phase in Phase if phase not in OF_A_JOB)
        return beside + means[JOB] if JOB in means else None
