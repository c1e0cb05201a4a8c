"""Rows made up at a steady rate, for demonstrations and benchmarks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING

from transom.errors import CheckpointCorruptError, DefinitionError, SourceError
from transom.model.arguments import shown
from transom.model.lines import CORRUPT_REMEDY
from transom.model.signatures import checked
from transom.model.time import FIRST_EVENT, LAST_EVENT, MICROS_PER_SECOND, Clock, Micros, format_time
from transom.model.tuning import ONE_TASK_ROWS
from transom.native.schedules import EVENT_TIME, ID, Schedule
from transom.sources.base import ARRIVAL, MOST_PARTITIONS, PARTITION, Cut, Mark, Offset, OwnRows, Waiting
from transom.sources.ranges import without
from transom.sources.schemas import check_reserved, position
from transom.storage.durable import replacing
from transom.storage.places import Place
from transom.storage.translated import translated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

STATE_NAME = "generator.json"
_ROWS_PER_TASK = 10_000
_OFTEN = 10
"""Seconds after which a cut may have what one task does not do alone."""
_LIMIT = (1 << 63) // MICROS_PER_SECOND
_UNSTABLE = re.compile(
    r"\b(current_timestamp|current_date|localtimestamp|unix_timestamp(?=\s*\(\s*\))"
    r"|(?:rand|randn|random|randstr|uuid|shuffle|now|curdate|uniform|monotonically_increasing_id|spark_partition_id"
    r"|input_file_name|over)(?=\s*\())\b",
    re.IGNORECASE,
)


@checked
def generator(
    columns: Mapping[str, str],
    rows_per_second: float,
    rows: int | None = None,
    start: Micros | str | None = None,
    partitions: int = 1,
) -> GeneratorSource:
    """Make up rows at a rate; the rate does not depend on how fast they are processed (open loop).

    Row i is scheduled at start + i / rate, and can be read from then on. Its offset is i.

    Args:
        columns: A SQL expression for each column, over `id` (bigint, the number of the row) and `event_time`
            (timestamp, when the row is scheduled). It must give the same value every time; use `hash(id)` or
            `xxhash64(id, 1)` for what looks random.
        rows_per_second: The rate; a fraction is allowed.
        rows: How many rows there are; None is without end. `run(once=True)` ends after them, or, without end,
            after the rows that were scheduled when the source was opened.
        start: When row 0 is scheduled: microseconds since the epoch, or ISO 8601 text (UTC when it names no
            zone); by default when the source is first opened. It is kept in the checkpoint.
        partitions: Number of source partitions; row i is in partition i modulo this.

    Raises:
        DefinitionError: The arguments cannot work.

    >>> generator({"t": "event_time", "key": "id % 3"}, rows_per_second=100, rows=1000).describe()
    'generator of 1000 rows, 100 per second'
    """
    check_reserved(list(columns), "generator")
    for name, expression in columns.items():
        if not isinstance(expression, str) or not expression.strip():
            raise DefinitionError(
                f"generator: the column {name} is {shown(expression)}.", 'Write a SQL expression, such as "id % 3".'
            )
        match = _UNSTABLE.search(expression)
        if match is not None:
            raise DefinitionError(
                f"generator: the column {name} uses {match[1]}, which differs each time it is computed.",
                "Compute it from id, for example with xxhash64(id, 1).",
            )
    if not 0 < rows_per_second < _LIMIT:
        raise DefinitionError(f"generator: rows_per_second={rows_per_second!r} is no rate.", "Give a positive number.")
    rate = Fraction(rows_per_second).limit_denominator(1_000 if rows_per_second >= 1 else 1_000_000)
    if rate <= 0 or rate.numerator * rate.denominator >= _LIMIT:
        raise DefinitionError(f"generator: rows_per_second={rows_per_second!r} is too small or too fine.", "Round it.")
    if rows is not None and not 0 <= rows < 1 << 62:
        raise DefinitionError(f"generator: rows={rows} is no number of rows.", "Leave it out for no end.")
    if not 0 < partitions <= MOST_PARTITIONS:
        raise DefinitionError(
            f"generator: partitions={partitions} is not 1 to {MOST_PARTITIONS:,}.", "Leave it out for one."
        )
    return GeneratorSource(dict(columns), rate, rows, _moment(start), partitions)


class GeneratorSource(OwnRows):
    """See `generator`, which makes it. Its directory holds generator.json: the start and the rate."""

    def __init__(
        self,
        columns: Mapping[str, str],
        rate: Fraction,
        rows: int | None,
        start: Micros | None,
        partitions: int,
    ) -> None:
        self._columns = columns
        self._rate = rate
        self._rows = rows
        self._given_start = start
        self._partitions = tuple(str(i) for i in range(partitions)) if partitions > 1 else ("",)
        self._schema: StructType | None = None
        self._schedule = Schedule(0, rate.numerator, rate.denominator)
        self._clock: Clock | None = None
        self._latest = 0
        self._looked: Micros = 0
        self._end_of_once = 0

    @property
    def schema(self) -> StructType:
        """The columns with the types that Spark gives the expressions; known once it is open."""
        if self._schema is None:
            raise SourceError("generator: its schema is not known yet.", "Open the source first.")
        return self._schema

    @property
    def partitions(self) -> Sequence[str]:
        """Numbers of the source partitions."""
        return self._partitions

    def describe(self) -> str:
        """Return what it is and makes, in one line for people."""
        count = "rows" if self._rows is None else f"{self._rows} rows"
        return f"generator of {count}, {float(self._rate):g} per second"

    def open(self, spark: SparkSession, directory: Place, clock: Clock) -> None:
        """Fix the start, or find it in `directory`.

        Raises:
            SourceError: An expression cannot be analysed, or start or rate differ from those in the
                checkpoint.
            CheckpointFullError: The disk is full.
            CheckpointError: The start cannot be read, or written, for another reason.
        """
        from pyspark.errors import PySparkException

        start = self._durable_start(directory / STATE_NAME, clock.now())
        self._schedule = Schedule(start, self._rate.numerator, self._rate.denominator)
        self._clock = clock
        try:
            self._schema = self.over(self._numbers(spark, [], 1)).schema
        except PySparkException as error:
            raise SourceError(
                f"generator: {str(error).splitlines()[0]}", "The columns may use id and event_time."
            ) from error
        self._latest = 0
        self._end_of_once = position(self.latest()) if self._rows is None else self._rows

    def start(self) -> Offset:
        """Return 0: every row can be made again."""
        return 0

    def latest(self) -> Offset:
        """Return how many rows are scheduled up to now."""
        if self._clock is None:
            raise SourceError("generator: it is not open.", "Start the application first.")
        self._looked = self._clock.monotonic()
        elapsed = self._clock.now() - self._schedule.start
        if elapsed >= 0:
            # Row i is due when floor(i * 1e6 / rate) <= elapsed.
            due = -((elapsed + 1) * self._rate.numerator // -(MICROS_PER_SECOND * self._rate.denominator))
            self._latest = max(self._latest, due if self._rows is None else min(due, self._rows))
        return self._latest

    def mark(self, offset: Offset) -> Mark:
        """Return when the first row was due, on which all others depend."""
        return self._schedule.start

    def cut(self, start: Offset, max_rows: int) -> Cut:
        """Return the end of a piece of exactly `max_rows` rows, or of what there is; at least one row."""
        first = position(start)
        count = max(min(max(max_rows, 1), self._latest - first), 0)
        return Cut(first + count, count)

    def waiting(self, offset: Offset) -> Waiting:
        """Return the partitions of the rows that are scheduled from `offset` up to the last look."""
        first, count = position(offset), len(self._partitions)
        return Waiting(frozenset(row % count for row in range(first, min(self._latest, first + count))), self._looked)

    def read(self, spark: SparkSession, start: Offset, end: Offset, skip: Sequence[str] = ()) -> DataFrame:
        """Return rows start to end - 1."""
        ranges = without(position(start), position(end), skip)
        tasks = 1 if sum(last - first for first, last in ranges) <= _ROWS_PER_TASK else None
        own = []
        if len(self._partitions) > 1:
            own.append(f"CAST({ID} % {len(self._partitions)} AS INT) AS {PARTITION}")
        return self.over(self._numbers(spark, ranges, tasks), *own, f"unix_micros({EVENT_TIME}) AS {ARRIVAL}")

    @property
    def schedule(self) -> Schedule:
        """When rows are due; known once it is open."""
        return self._schedule

    @property
    def is_large(self) -> bool:
        """Tell whether it may give many rows at once."""
        return (self._rows is None or self._rows > ONE_TASK_ROWS) and self._rate * _OFTEN > ONE_TASK_ROWS

    def over(self, numbers: DataFrame, *others: str) -> DataFrame:
        """Return the columns that it makes, and others, of rows with `id` (bigint) and `event_time` (timestamp)."""
        return numbers.selectExpr(*(f"({sql}) AS {_quoted(name)}" for name, sql in self._columns.items()), *others)

    def ingested_at(self, start: Offset, end: Offset) -> Micros:
        """Return when the last row before `end` is scheduled."""
        return self._schedule.due(max(position(end) - 1, 0))

    def watermark(self, end: Offset) -> Micros | None:
        """Return None: it carries no watermark."""
        return None

    def exhausted(self, offset: Offset) -> bool:
        """Tell whether all rows are read; without end, all that were scheduled when the source was opened."""
        return position(offset) >= self._end_of_once

    def release(self, oldest_needed: Offset) -> None:
        """Do nothing: rows are not kept."""

    def close(self) -> None:
        """Forget the clock."""
        self._clock = None

    def _numbers(self, spark: SparkSession, ranges: Sequence[tuple[int, int]], tasks: int | None) -> DataFrame:
        """Return the numbers and times of the rows of some ranges, in ascending order."""
        n, period = self._rate.numerator, MICROS_PER_SECOND * self._rate.denominator
        # Whole multiples of n apart, so that no product overflows.
        elapsed = f"(id div {n}L) * {period}L + ((id % {n}L) * {period}L) div {n}L"
        time = f"timestamp_micros({self._schedule.start}L + {elapsed}) AS {EVENT_TIME}"
        frame = spark.range(ranges[0][0] if ranges else 0, ranges[-1][1] if ranges else 0, 1, tasks)
        if len(ranges) > 1:
            frame = frame.where(" OR ".join(f"id BETWEEN {first}L AND {last - 1}L" for first, last in ranges))
        return frame.selectExpr(ID, time)

    def _durable_start(self, path: Place, now: Micros) -> Micros:
        rate = [self._rate.numerator, self._rate.denominator]
        if not path.exists():
            start = now if self._given_start is None else self._given_start
            with translated(path, "write"), replacing(path) as file:
                file.write((json.dumps({"start": start, "rate": rate}) + "\n").encode())
            return start
        with translated(path, "read"):
            text = path.read_bytes()
        try:
            known = json.loads(text)
            start, before = int(known["start"]), Fraction(*known["rate"])
        except (ValueError, KeyError, TypeError, ArithmeticError):
            raise CheckpointCorruptError(f"The file {path} is damaged.", CORRUPT_REMEDY) from None
        if known["rate"] != rate or self._given_start not in (None, start):
            raise SourceError(
                f"generator: the checkpoint has {float(before):g} rows per second from {format_time(start)}, "
                "so another rate or start would give its offsets other rows.",
                "Use a new checkpoint.",
            )
        return start


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _moment(start: Micros | str | None) -> Micros | None:
    if start is None:
        return start
    if isinstance(start, int):
        if not FIRST_EVENT <= start <= LAST_EVENT:
            raise DefinitionError(f"generator: start={start} is no time.", "Give microseconds since the epoch.")
        return start
    try:
        moment = datetime.fromisoformat(start.replace("Z", "+00:00"))
    except ValueError as error:
        raise DefinitionError(
            f"generator: start={start!r} is no time.", 'Write for example "2026-01-01T00:00:00Z".'
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    elapsed = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (elapsed.days * 86_400 + elapsed.seconds) * MICROS_PER_SECOND + elapsed.microseconds
