"""The task of a cut in a Python worker: reads its parts of files or topics, and gives their partials and counts.

A worker imports this module: what it imports has to be little.
"""

from __future__ import annotations

import functools
import gc
import io
import pickle
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from transom.engine.execution.compressed import compressed
from transom.engine.spark.columns import TIME
from transom.engine.spark.counting import counted
from transom.engine.spark.cutstats import CutStats
from transom.engine.spark.laneplan import LanePlan
from transom.model.time import FIRST_EVENT, LAST_EVENT, Micros
from transom.native.dialects import Dialect
from transom.native.evaluate import Runner
from transom.native.lines import LineReader
from transom.native.program import Judge
from transom.native.sums import check_sums
from transom.native.values import UncertainError
from transom.sources.base import CORRUPT, PlainFormat
from transom.storage.unpacking import UNPACKING_ERRORS, opened_text

BLOCK = 4 << 20
"""Bytes of lines that are read together."""
GATHERED = 1 << 20
"""Rows that are aggregated together at most."""
_READ = re.compile(r"/[^/.]*$|\.([jJ][sS][oO][nN][lL]?|[cC][sS][vV]|tsv|ndjson|log|txt|gz|zst|zstd|[0-9][^/.]*)$")
"""Names of files of which it is known how Spark unpacks them: not at all, or from gzip or Zstandard."""


class AnyPart(Protocol):
    """A part of a unit of the source, which Spark judges whole."""

    @property
    def unit(self) -> str:
        """The name of the unit."""

    @property
    def whole(self) -> bool:
        """Whether it is all of the unit."""


@dataclass(frozen=True)
class Part:
    """The lines, or groups of rows, of a file that begin in a range of its bytes."""

    path: str
    start: int = 0
    end: int | None = None
    """None for the end of the file."""
    partition: int | None = None
    """The source partition; None where rows do not say."""
    arrived: Micros | None = None
    """When it arrived; None where nobody asks."""

    @property
    def unit(self) -> str:
        """The file."""
        return self.path

    @property
    def whole(self) -> bool:
        """Whether it is all of the file."""
        return self.start == 0 and self.end is None


@dataclass(frozen=True)
class Asked:
    """What tasks need to know besides their parts."""

    plan: bytes
    """Of the job, pickled: workers keep what they make of it."""
    form: PlainFormat | None
    """Of the files; None where nothing is read."""
    ahead: Micros | None
    partitions: int

    def gathering(self) -> Gathering:
        """Return what takes rows."""
        return Gathering(plan_of(self.plan), self.ahead, self.partitions)


@dataclass(frozen=True)
class Found:
    """Partials and counts of some rows."""

    tables: tuple[pa.Table, ...]
    """For each component."""
    stats: CutStats


@dataclass(frozen=True)
class Answer:
    """What a task gives."""

    whole: Found | None
    """Of the parts that are whole units."""
    parts: tuple[tuple[str, Found], ...]
    """Of each of the others, with its unit."""
    cpu: float
    """Seconds of processor time."""
    judged: frozenset[str]
    """Units that Spark has to judge; of those nothing is in `whole`."""
    read: int = 0
    """Bytes that were read, where the driver cannot know it."""


Reads: TypeAlias = "Callable[[Asked, Sequence[Any]], Iterator[tuple[AnyPart, Gathering | None]]]"
"""Gives what was made of the rows of each part; None where Spark has to judge."""


def answers(asked: Asked, reads: Reads, work: Sequence[Sequence[AnyPart]], numbers: Iterable[int]) -> Iterator[bytes]:
    """Yield what tasks with some numbers give; this is what workers are sent.

    Args:
        asked: What they need to know.
        reads: What reads parts.
        work: The parts of each task.
        numbers: Of the tasks.
    """
    return (answer(asked, reads, work[number]) for number in numbers)


def awake(numbers: Iterable[int]) -> Iterable[bytes]:
    """Let a worker import what the parts of most tasks need, also what Arrow does at its first values and groups."""
    pa.table({"number": pa.array(list(numbers))}).group_by("number", use_threads=False).aggregate([])
    gc.freeze()
    return ()


def answer(asked: Asked, reads: Reads, parts: Sequence[AnyPart]) -> bytes:
    """Return what a task gives for its parts, pickled and compressed."""
    begun = time.process_time()
    judged: set[str] = set()
    together = asked.gathering()
    apart: list[tuple[str, Found]] = []
    read = 0
    for part, mine in reads(asked, parts):
        if mine is None:
            judged.add(part.unit)
            continue
        read += mine.read
        if part.whole:
            together.join(mine)
            continue
        try:
            apart.append((part.unit, mine.found()))
        except UncertainError:
            judged.add(part.unit)
    try:
        whole = together.found()
    except UncertainError:
        whole, judged = None, judged | {part.unit for part in parts if part.whole}
    given = pickle.dumps(Answer(whole, tuple(apart), time.process_time() - begun, frozenset(judged), read))
    gc.freeze()  # Spark's daemon collects garbage after each task, over all that was imported
    return compressed(given)


def of_files(asked: Asked, parts: Sequence[Part]) -> Iterator[tuple[Part, Gathering | None]]:
    """Yield what is made of the rows of parts of files; None where Spark has to judge."""
    read = _reads(asked.plan, asked.form)
    for part in parts:
        mine = asked.gathering()
        try:
            check_file(part)
            for rows in read(part):
                mine.take(rows, part.partition, part.arrived)
        except (UncertainError, *UNPACKING_ERRORS):
            yield part, None
        else:
            yield part, mine


@functools.lru_cache(4)
def plan_of(pickled: bytes) -> LanePlan:
    """Return the plan of a job; workers keep it."""
    made: LanePlan = pickle.loads(pickled)
    return made


@functools.lru_cache(4)
def _reads(plan: bytes, form: PlainFormat) -> Callable[[Part], Iterator[pa.RecordBatch]]:
    """Return what gives the rows of a part."""
    made = plan_of(plan)
    if form == "parquet":
        from transom.native.parquet import ParquetReader

        of_groups = ParquetReader(made.columns)
        return lambda part: of_groups.read(part.path, part.start, part.end)
    if isinstance(form, Dialect):
        from transom.native.csvlines import CsvReader

        of_values = CsvReader(made.columns, form, made.utc)
        return functools.partial(rows_of_lines, of_values.read)
    of_objects = LineReader(made.columns, (CORRUPT,), made.utc, made.wanted)
    return functools.partial(rows_of_lines, lambda block, first: of_objects.read(block))


def check_file(part: Part) -> None:
    """See that Spark reads what is in the file of a part.

    Raises:
        UncertainError: It does not read files with a colon in their names, nor those that have other sums.
        OSError: They cannot be read.
    """
    if ":" in part.path:
        raise UncertainError(f"what the name of {part.path} says")
    if not part.start:
        check_sums(part.path)


def rows_of_lines(read: Callable[[memoryview, bool], pa.RecordBatch | None], part: Part) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part of a file of lines.

    Args:
        read: Gives the rows of some lines, told whether they are the first ones of the file.
        part: The part.

    Raises:
        UncertainError: Spark has to judge.
        OSError, EOFError, zlib.error: It cannot be read.
    """
    if not may_read(part.path):
        raise UncertainError(f"what the name of {part.path} says")
    first = not part.start
    for block in lines_of(part):
        rows, first = read(block, first), False
        if rows is None:
            raise UncertainError(f"lines of {part.path}")
        yield rows


class Gathering:
    """Rows that come one batch after the other, until their partials are made.

    Args:
        plan: The job.
        ahead: Largest event time that is believed.
        partitions: Number of source partitions.
    """

    def __init__(self, plan: LanePlan, ahead: Micros | None, partitions: int) -> None:
        self._plan, self._ahead, self._partitions = plan, ahead, partitions
        self.read = 0
        """Bytes that were read, where the driver cannot know it."""
        self._stats = CutStats()
        self._rows: list[list[pa.RecordBatch]] = [[] for _ in plan.branches]
        self._made: list[list[pa.Table]] = [[] for _ in range(plan.components)]

    def take(self, rows: pa.RecordBatch, partition: Any, arrived: Any) -> None:
        """Take some rows; their source partition and arrival are those of all or of each.

        Raises:
            UncertainError: Spark has to judge.
        """
        times = _made(self._plan.time, rows).column(TIME)
        stats, good = counted(times, self._ahead, self._partitions, partition, arrived)
        self._stats += stats
        timed = pa.RecordBatch.from_arrays([*rows.columns, times], names=[*rows.schema.names, TIME])
        if stats.bad:
            timed = timed.filter(pa.array(good))
        for (runner, _), gathered in zip(self._plan.branches, self._rows, strict=True):
            made = _made(runner, timed)
            check_times(made.column(TIME))
            gathered.append(made)
        if any(sum(batch.num_rows for batch in gathered) >= GATHERED for gathered in self._rows):
            self._aggregate()

    def join(self, other: Gathering) -> None:
        """Take what another one has."""
        self._stats += other._stats
        for mine, theirs in zip(self._rows + self._made, other._rows + other._made, strict=True):
            mine += theirs

    def found(self) -> Found:
        """Return the partials and counts of all rows.

        Raises:
            UncertainError: Spark has to judge.
        """
        self._aggregate()
        return Found(tuple(pa.concat_tables(tables) for tables in self._made), self._stats)

    def _aggregate(self) -> None:
        for number, (runner, groupings) in enumerate(self._plan.branches):
            rows = pa.Table.from_batches(self._rows[number], runner.program.schema).combine_chunks().to_batches()
            batch = rows[0] if rows else pa.RecordBatch.from_pylist([], runner.program.schema)
            self._rows[number] = []
            for place, grouping in groupings:
                self._made[place].append(grouping.of(batch))


def check_times(times: pa.Array) -> None:
    """See that all rows have a time that can be used, also after a map, which may compute it once more.

    Raises:
        UncertainError: Spark has to tell how many do not.
    """
    if times.null_count:
        raise UncertainError
    micros = times.to_numpy()
    if len(micros) and (micros.min() < FIRST_EVENT or micros.max() > LAST_EVENT):
        raise UncertainError


def _made(runner: Runner, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return what a program makes of rows.

    Raises:
        UncertainError: Spark has to judge.
    """
    made = runner(rows)
    if isinstance(made, Judge):
        raise UncertainError(made.why)
    return made


def may_read(path: str) -> bool:
    """Tell whether a file is read as it is, or unpacked here: files of other names Spark may know how to unpack.

    >>> [may_read(path) for path in ("/a/b.json", "/a/b", "/a/b.json.gz", "/a/b.csv.zst", "/a/b.bz2", "/a/b.GZ")]
    [True, True, True, True, False, False]
    """
    return _READ.search(path) is not None


def lines_of(part: Part, size: int = BLOCK) -> Iterator[memoryview]:
    """Yield the lines of a part, each with its newline, about `size` bytes at a time, in the place of those before.

    Raises:
        OSError, EOFError, zlib.error: It cannot be read.
    """
    with opened_text(part.path) as file:
        place = _line_from(file, part.start)
        until = None if part.end is None else _line_from(file, part.end)
        if not part.whole:
            file.seek(place)
        memory, held = bytearray(size + 1), 0  # new memory for each block would take as long as reading it
        while count := file.readinto(
            memoryview(memory)[held : -1 if until is None else min(held + until - place, size)]
        ):
            place, held = place + count, held + count
            lines = memory.rfind(b"\n", held - count, held) + 1
            if lines:
                yield memoryview(memory)[:lines]
                memory[: held - lines] = memory[lines:held]
                held -= lines
            elif held == size:
                size *= 2
                memory = memory + bytes(size + 1 - len(memory))
        if held:
            memory[held] = ord("\n")
            yield memoryview(memory)[: held + 1]


def _line_from(file: io.BufferedReader, place: int) -> int:
    """Return where the first line begins that begins at a place of a file or behind it."""
    if not place:
        return 0
    file.seek(place - 1)
    return place - 1 + len(file.readline())
