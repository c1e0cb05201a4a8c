"""The lane without Spark SQL: the partials of a cut, made in Python workers by a job of one stage, or where rows are.

Spark is the judge: what is not certain here goes to Spark's lane, file by file or range by range, in the same cut.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import logging
import operator
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import pyarrow as pa

from transom.engine.execution.compressed import decompressed
from transom.engine.execution.generatedparts import Generating, gather, of_generated, parts_between
from transom.engine.execution.known import has_rows, is_generator, known_plan
from transom.engine.execution.splits import Answer, AnyPart, Asked, Found, Gathering, Part, Reads, answers, of_files
from transom.engine.execution.topicparts import Wanted, of_ranges, parts_of_range
from transom.engine.execution.workers import MOST_TASKS, run_in_workers
from transom.engine.spark.compile import Compiled
from transom.engine.spark.cutstats import CutStats
from transom.engine.spark.jobs import CutPartials
from transom.engine.spark.laneplan import LanePlan
from transom.engine.spark.plan import StreamPlan
from transom.engine.spark.programs import OnlySparkError
from transom.engine.spark.statictables import MOST_BYTES, MOST_ROWS
from transom.engine.streams.cuts import CutJob
from transom.engine.streams.stream import RunningStream
from transom.failures import FailureKind, classify, require_blame
from transom.model.phases import WorkersDid
from transom.native.values import UncertainError
from transom.sources.base import ARRIVAL, PARTITION, PlainFormat
from transom.sources.filesets.source import FileSource, PlainFile
from transom.sources.generated import GeneratorSource
from transom.sources.inmemory import MemorySource
from transom.sources.schemas import position
from transom.sources.shared import source_of
from transom.sources.topics.source import KafkaSource
from transom.storage.unpacking import packing

logger = logging.getLogger(__name__)

PART_BYTES = 32 << 20
"""A larger file is read in parts of about so many bytes."""
TASK_BYTES = 4 << 20
"""A task has at least about so many bytes to read, where there are so many."""
ROW_BYTES = 64
"""A row that is made counts as so many bytes."""
MESSAGE_BYTES = 256
"""An offset of a topic counts as so many bytes, as nobody knows before how long messages are."""
LONGEST_REST = 64
"""Cuts that go to Spark after one in which most had to, at most; twice as many each time."""


@dataclass(frozen=True)
class LaneOutcome:
    """What the lane made of a cut."""

    partials: CutPartials | None
    """Of what was certain; None if nothing was."""
    certain: tuple[str, ...]
    """The units of the source of which it made them."""
    judged: int
    """Units that are left to Spark."""
    workers: WorkersDid | None = None
    """What was done for it."""


class Lane:
    """The lane of a stream.

    Args:
        stream: The stream.
    """

    def __init__(self, stream: RunningStream) -> None:
        self._stream = stream
        self._source = source_of(stream.source)
        self._plans: WeakKeyDictionary[StreamPlan, tuple[LanePlan, bytes] | None] = WeakKeyDictionary()
        """Also pickled; None where only Spark knows something."""
        self._given: WeakKeyDictionary[StreamPlan, tuple[list[pa.Table], tuple[LanePlan, bytes] | None]]
        self._given = WeakKeyDictionary()
        """The last rows of the tables that a plan awaits, and what it is with them, as long as the stream has it."""
        self._rest, self._rests = 0, 0
        """The length of the last rest, and the cuts that are left of it."""

    def run(self, compiled: Compiled, job: CutJob, skip: Sequence[str]) -> LaneOutcome | None:
        """Return what the lane makes of a cut; None for nothing.

        Args:
            compiled: The queries.
            job: The job.
            skip: Units of the source that are not read.

        Raises:
            SourceError: The rows are gone.
            SessionError: Spark is gone.
        """
        plan = self._plan(compiled) if self._takes(compiled, job) else None
        if plan is not None and self._rests:
            self._rests -= 1
            return None
        if plan is not None and plan[0].lookups:
            plan = self._with_tables(plan[0], compiled, job)
        if plan is None:
            return None
        at_hand = has_rows(self._source) or (
            is_generator(self._source) and job.options.tuning.is_one_task(job.cut.rows)
        )
        found = self._at_hand(plan[0], job, skip) if at_hand else self._in_tasks(plan[1], job, skip)
        if found.judged > len(found.certain):
            self._rest_longer()
        elif not found.judged:
            self._rest = 0
        return found

    def _takes(self, compiled: Compiled, job: CutJob) -> bool:
        """Tell whether nothing but partials is wanted of the rows, and these on the driver."""
        elsewhere = any(map(job.options.puts_in_files, compiled.components))
        kept = any(buffer.late_of is None for buffer in self._stream.buffers)
        return not elsewhere and not kept and job.cut.thinning is None

    def _plan(self, compiled: Compiled) -> tuple[LanePlan, bytes] | None:
        if compiled.plan not in self._plans:
            from pyspark import cloudpickle  # takes users' functions, too

            try:
                plan = known_plan(self._stream.session, self._stream.definition, compiled)
                self._plans[compiled.plan] = plan, cloudpickle.dumps(plan)  # type: ignore[no-untyped-call]
            except OnlySparkError as reason:
                logger.info("Partials of the stream %s are made by Spark SQL: %s.", self._stream.name, reason)
                self._plans[compiled.plan] = None
        return self._plans[compiled.plan]

    def _with_tables(self, plan: LanePlan, compiled: Compiled, job: CutJob) -> tuple[LanePlan, bytes] | None:
        """Return a plan with the tables that a cut sees; None if they are too large, or Spark has to judge."""
        from pyspark import cloudpickle

        rows = self._stream.tables.rows(compiled.plan.lookup_tables, job.cut.tables, job.cut.at)
        tables = list(rows.values())
        known = self._given.get(compiled.plan)
        if known is not None and all(map(operator.is_, known[0], tables)):
            return known[1]
        small = all(table.num_rows <= MOST_ROWS and table.nbytes <= MOST_BYTES for table in tables)
        given = plan.given(rows) if small else None
        if given is None:
            why = "only Spark reads a table" if small else "a table is too large for tasks"
            logger.info("Partials of the stream %s are made by Spark SQL: %s.", self._stream.name, why)
        found = None if given is None else (given, cloudpickle.dumps(given))  # type: ignore[no-untyped-call]
        self._given[compiled.plan] = tables, found
        return found

    def _at_hand(self, plan: LanePlan, job: CutJob, skip: Sequence[str]) -> LaneOutcome:
        """Make partials of rows where they are: in memory, or made by a generator, as one task would."""
        source, cut = self._source, job.cut
        gathering, begun = Gathering(plan, cut.ahead, len(source.partitions)), time.thread_time()
        try:
            if isinstance(source, GeneratorSource):
                gather(gathering, plan, self._generating(job), position(cut.start), position(cut.end))
            else:
                self._gather_memory(gathering, plan, job, skip)
            found = _together([gathering.found()])
            return LaneOutcome(found, ("",), 0, WorkersDid(0, time.thread_time() - begun, found.stats.rows))
        except UncertainError:
            return LaneOutcome(None, (), 1)

    def _gather_memory(self, gathering: Gathering, plan: LanePlan, job: CutJob, skip: Sequence[str]) -> None:
        """Take the rows of a memory source.

        Raises:
            UncertainError: Spark has to judge.
        """
        source, cut = self._source, job.cut
        assert isinstance(source, MemorySource)
        for rows in source.rows(cut.start, cut.end, skip).to_batches():
            of = rows.column(PARTITION).to_numpy() if PARTITION in rows.schema.names else None
            arrived = rows.column(ARRIVAL).to_numpy() if job.options.measures_delays else None
            gathering.take(rows.select(plan.columns.names), of, arrived)

    def _generating(self, job: CutJob) -> Generating:
        """Return what those who make a generator's rows need to know."""
        source = self._source
        assert isinstance(source, GeneratorSource)
        return Generating(source.schedule, len(source.partitions), job.options.measures_delays)

    def _in_tasks(self, pickled: bytes, job: CutJob, skip: Sequence[str]) -> LaneOutcome:
        """Make partials of files, topics or a generator's rows in Python workers."""
        cut, spark, tuning = job.cut, self._stream.session, job.options.tuning
        tasks = tuning.tasks(cut.rows) or spark.sparkContext.defaultParallelism
        inputs = self._inputs(job, skip, tasks)
        piece, least = PART_BYTES, TASK_BYTES
        if tuning.rows_per_task is not None:  # a plan knows what a task costs
            piece, least = min(piece, max(1, -(-inputs.size // tasks))), 1
        work = divided(inputs.parts(piece), tasks, least)
        asked = Asked(pickled, inputs.form, cut.ahead, len(self._stream.source.partitions))
        parts = [[part for _, part in each] for each in work]
        try:
            given = run_in_workers(spark, functools.partial(answers, asked, inputs.reads, parts), len(work))
        except Exception as error:
            failure = classify(error)
            if failure.kind is FailureKind.SOURCE_AWAY:  # Spark's client may get an answer, when the cut is tried again
                self._rest_longer()
            require_blame(error, f"The job of the stream {self._stream.name!r}")
            logger.warning("Partials of the stream %s are made by Spark SQL: %s.", self._stream.name, failure.reason)
            return LaneOutcome(None, (), len(inputs.units))
        told: list[Answer] = [pickle.loads(decompressed(each)) for each in given]
        judged = frozenset[str]().union(*(each.judged for each in told))
        found = [each.whole for each in told if each.whole is not None]
        found += [part for each in told for unit, part in each.parts if unit not in judged]
        certain = tuple(unit for unit in inputs.units if unit not in judged)
        partials = _together(found) if certain else None
        read = sum(each.read for each in told) or inputs.size
        workers = WorkersDid(len(work), sum(each.cpu for each in told), cut.rows, read)
        return LaneOutcome(partials, certain, len(judged), workers)

    def _inputs(self, job: CutJob, skip: Sequence[str], tasks: int) -> _Inputs:
        """Return what so many tasks read for a cut."""
        source, start, end, asks = self._source, job.cut.start, job.cut.end, job.options.measures_delays
        if isinstance(source, GeneratorSource):
            made = parts_between(position(start), position(end), tasks)
            return _Inputs(
                tuple(part.unit for part in made),
                0,
                None,
                functools.partial(of_generated, self._generating(job)),
                lambda piece: [((part.last - part.first) * ROW_BYTES, part) for part in made],
            )
        if isinstance(source, KafkaSource):
            ranges = source.topic_ranges(start, end, skip)
            return _Inputs(
                tuple(unit.name for unit, _ in ranges),
                sum((each.end - each.begin) * MESSAGE_BYTES for _, each in ranges),
                "json",
                functools.partial(of_ranges, Wanted(source.consumer, asks, source.skips_tombstones)),
                lambda piece: [
                    (MESSAGE_BYTES * (part.range.end - part.range.begin), part)
                    for unit, each in ranges
                    for part in parts_of_range(unit, each, max(1, piece // MESSAGE_BYTES))
                ],
            )
        assert isinstance(source, FileSource)
        assert source.plain_format is not None
        files = source.plain_files(start, end, skip)
        return _Inputs(
            tuple(file.path for file in files),
            sum(file.size for file in files),
            source.plain_format,
            of_files,
            lambda piece: [part for file in files for part in parts_of(file, asks, piece)],
        )

    def _rest_longer(self) -> None:
        self._rest = self._rests = min(2 * self._rest or 1, LONGEST_REST)


@dataclass(frozen=True)
class _Inputs:
    """What tasks read for a cut."""

    units: tuple[str, ...]
    """Units of the source."""
    size: int
    """Bytes; of topics by offsets, until they are read."""
    form: PlainFormat | None
    """None where nothing is read."""
    reads: Reads
    """Reads them in a task."""
    parts: Callable[[int], list[tuple[int, AnyPart]]]
    """Gives the parts of at most so many bytes, each with its bytes."""


def _together(found: Sequence[Found]) -> CutPartials:
    """Return partials of several rows as those of all; a pane and key may be there several times."""
    tables = zip(*(each.tables for each in found), strict=True)
    return CutPartials(tuple(map(pa.concat_tables, tables)), sum((each.stats for each in found), CutStats()))


def both(one: CutPartials, other: CutPartials) -> CutPartials:
    """Return the partials of the lane and those that Spark made of other rows, with Spark's types."""
    tables = [
        pa.concat_tables([mine.select(theirs.column_names).cast(theirs.schema), theirs])
        for mine, theirs in zip(one.tables, other.tables, strict=True)
    ]
    return replace(other, tables=tuple(tables), stats=one.stats + other.stats)


def parts_of(file: PlainFile, measures_delays: bool, piece: int | None = None) -> list[tuple[int, AnyPart]]:
    """Return the parts in which a file is read, each with its bytes, about `PART_BYTES` at most or so many."""
    count = 1 if packing(file.path) else max(1, -(-file.size // (piece or PART_BYTES)))
    arrived = file.arrived if measures_delays else None
    edges: list[int | None] = [*(file.size * place // count for place in range(count)), None]
    pairs = itertools.pairwise(edges)
    return [(file.size // count, Part(file.path, start or 0, end, file.partition, arrived)) for start, end in pairs]


def divided(
    parts: Sequence[tuple[int, AnyPart]], tasks: int, least: int | None = None
) -> list[list[tuple[int, AnyPart]]]:
    """Return the parts of each task: at most so many tasks, with `TASK_BYTES` or `least` at least if there are several.

    >>> [len(task) for task in divided([(9 << 20, Part("a")), (5 << 20, Part("b")), (3 << 20, Part("c"))], 2)]
    [1, 2]
    """
    total = sum(size for size, _ in parts)
    count = max(1, min(tasks, len(parts), -(-total // (least or TASK_BYTES)), MOST_TASKS))
    loads = [(0, number) for number in range(count)]
    found: list[list[tuple[int, AnyPart]]] = [[] for _ in loads]
    for part in sorted(parts, key=lambda part: -part[0]):
        load, number = heapq.heappop(loads)
        found[number].append(part)
        heapq.heappush(loads, (load + part[0], number))
    return found
