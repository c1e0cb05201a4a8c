"""Rows that a program adds itself, for tests and small experiments."""

from __future__ import annotations

import bisect
import itertools
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from transom.errors import DefinitionError, SourceError
from transom.model.arguments import shown
from transom.model.signatures import checked
from transom.model.time import MAX_TIME, MIN_TIME, Clock, Micros, SystemClock
from transom.sources.base import ARRIVAL, MOST_PARTITIONS, PARTITION, Cut, Mark, Offset, OwnRows, Unit, Waiting
from transom.sources.ranges import range_name, without
from transom.sources.schemas import as_struct, check_reserved, position
from transom.storage.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Rows: TypeAlias = "pa.Table | pa.RecordBatch | Iterable[Mapping[str, Any] | Sequence[Any]] | Any"
"""An Arrow table, dictionaries, tuples in the order of the schema, or a pandas or polars DataFrame."""


@checked
def memory(schema: StructType | str, partitions: int = 1) -> MemorySource:
    """Return a source of rows that the program adds with `.add(...)`.

    The rows live in the object: pass the same object to the next application to read them again.

    Args:
        schema: The columns, as a StructType or as text (which needs a Spark session).
        partitions: Number of source partitions.

    Raises:
        DefinitionError: A reserved column name, or no partition.
    """
    struct = as_struct(schema)
    check_reserved(struct.names, "memory")
    if not 0 < partitions <= MOST_PARTITIONS:
        raise DefinitionError(
            f"memory: partitions is {partitions}, not 1 to {MOST_PARTITIONS:,}.", "Leave it out for one."
        )
    return MemorySource(struct, partitions)


@dataclass(frozen=True)
class _Chunk:
    """Consecutive events: the rows of one `add`, or one watermark."""

    first: int
    """Offset of the first event."""
    table: pa.Table | None
    partition: int
    time: Micros
    """When the rows were added, or the watermark."""
    watermark: Micros | None
    """The highest one so far."""

    @property
    def end(self) -> int:
        return self.first + (1 if self.table is None else self.table.num_rows)


class MemorySource(OwnRows):
    """See `memory`, which makes it.

    Each row and each watermark takes one offset, in the order they were added.
    """

    pieces = 64

    def __init__(self, schema: StructType, partitions: int) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._schema = schema
        self._arrow = to_arrow_schema(schema, timezone="UTC")
        self._partitions = tuple(str(i) for i in range(partitions)) if partitions > 1 else ("",)
        self._chunks: list[_Chunk] = []
        self._lock = threading.Lock()
        self._clock: Clock = SystemClock()

    @property
    def schema(self) -> StructType:
        """The columns of `read`, without the optional ones."""
        return self._schema

    @property
    def partitions(self) -> Sequence[str]:
        """Numbers of the source partitions."""
        return self._partitions

    @checked
    def add(self, rows: Rows, partition: int = 0) -> None:
        """Add rows after those that are there.

        Args:
            rows: Dictionaries (a missing column is null), tuples, an Arrow table or a data frame. Timestamps
                are datetimes (UTC when they name no zone) or microseconds since the epoch.
            partition: The source partition that they come from.

        Raises:
            SourceError: The rows do not fit the schema, or there is no such partition.
        """
        if not 0 <= partition < len(self._partitions):
            raise SourceError(
                f"memory: there is no partition {partition}.", "Give `partitions` when you make the source."
            )
        try:
            table = self._table(rows)
        except (pa.ArrowException, TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
            raise SourceError(
                f"memory: the rows do not fit the schema: {error}.", "Compare them with the schema."
            ) from error
        if table.num_rows:
            self._append(table, partition, self._clock.now())

    @checked
    def add_watermark(self, time: Micros) -> None:
        """Promise that no row before `time` comes any more; takes an offset of its own, without a row."""
        self._append(None, 0, min(max(time, MIN_TIME), MAX_TIME))

    def describe(self) -> str:
        """Return what it is and reads, in one line for people."""
        return f"memory ({', '.join(self._schema.names)})"

    def open(self, spark: SparkSession, directory: Place, clock: Clock) -> None:
        """Take the clock that dates the rows that are added from now on."""
        self._clock = clock

    def start(self) -> Offset:
        """Return 0: nothing is ever dropped."""
        return 0

    def latest(self) -> Offset:
        """Return the number of rows and watermarks added."""
        with self._lock:
            return self._chunks[-1].end if self._chunks else 0

    def mark(self, offset: Offset) -> Mark:
        """Return None: it is lost with the program, and nothing of it is in the checkpoint."""
        return None

    def cut(self, start: Offset, max_rows: int) -> Cut:
        """Return the end of a piece of at most `max_rows` rows (at least one), and the watermarks after them.

        A piece that holds only watermarks has no rows, and an end after `start`.
        """
        first = position(start)
        end, rows, limit = first, 0, max(max_rows, 1)
        for chunk in self._between(first, position(self.latest())):
            if chunk.table is None:
                end = chunk.end
                continue
            more = min(chunk.end - max(chunk.first, first), limit - rows)
            if more <= 0:
                break
            rows += more
            end = max(chunk.first, first) + more
            if end < chunk.end:
                break
        return Cut(end, rows)

    def waiting(self, offset: Offset) -> Waiting:
        """Return the partitions of the rows from `offset` on; O(what was added since), at most until all have some."""
        at, first, found = self._clock.monotonic(), position(offset), set[int]()
        with self._lock:
            low = max(bisect.bisect_right(self._chunks, first, key=lambda chunk: chunk.first) - 1, 0)
            for chunk in itertools.islice(self._chunks, low, None):
                if chunk.table is not None and chunk.end > first:
                    found.add(chunk.partition)
                    if len(found) == len(self._partitions):
                        break
        return Waiting(frozenset(found), at)

    def read(self, spark: SparkSession, start: Offset, end: Offset, skip: Sequence[str] = ()) -> DataFrame:
        """Return the rows in [start, end)."""
        from pyspark.sql.types import IntegerType, LongType, StructType

        schema = StructType(list(self._schema.fields))
        if len(self._partitions) > 1:
            schema = schema.add(PARTITION, IntegerType(), False)
        return spark.createDataFrame(self.rows(start, end, skip), schema.add(ARRIVAL, LongType(), False))

    def rows(self, start: Offset, end: Offset, skip: Sequence[str] = ()) -> pa.Table:
        """Return the rows in [start, end) as `read` does, but as they lie in memory."""
        tables = [
            table for first, last in without(position(start), position(end), skip) for table in self._rows(first, last)
        ]
        arrow = self._arrow
        if len(self._partitions) > 1:
            arrow = arrow.append(pa.field(PARTITION, pa.int32(), False))
        arrow = arrow.append(pa.field(ARRIVAL, pa.int64(), False))
        whole = pa.concat_tables(tables).cast(arrow) if tables else arrow.empty_table()
        return whole.combine_chunks()

    def _rows(self, first: int, last: int) -> list[pa.Table]:
        tables = []
        for chunk in self._between(first, last):
            if chunk.table is not None:
                offset = max(first - chunk.first, 0)
                table = chunk.table.slice(offset, min(last, chunk.end) - chunk.first - offset)
                if len(self._partitions) > 1:
                    numbers = pa.repeat(pa.scalar(chunk.partition, pa.int32()), table.num_rows)
                    table = table.append_column(PARTITION, numbers)
                arrived = pa.repeat(pa.scalar(chunk.time, pa.int64()), table.num_rows)
                tables.append(table.append_column(ARRIVAL, arrived))
        return tables

    def units(self, start: Offset, end: Offset) -> Sequence[Unit]:
        """Return the rows of [start, end), those of each `add` apart."""
        first, last = position(start), position(end)
        chunks = [chunk for chunk in self._between(first, last) if chunk.table is not None]
        spans = [(max(chunk.first, first), min(chunk.end, last), chunk.partition) for chunk in chunks]
        return [Unit(range_name(low, high), partition) for low, high, partition in spans]

    def ingested_at(self, start: Offset, end: Offset) -> Micros:
        """Return when the newest row of [start, end) was added; 0 for none."""
        chunks = self._between(position(start), position(end))
        return max((chunk.time for chunk in chunks if chunk.table is not None), default=0)

    def watermark(self, end: Offset) -> Micros | None:
        """Return the highest watermark added before `end`, or None; O(log of what was added)."""
        with self._lock:
            before = bisect.bisect_left(self._chunks, position(end), key=lambda chunk: chunk.first)
            return self._chunks[before - 1].watermark if before else None

    def exhausted(self, offset: Offset) -> bool:
        """Tell whether everything that was added lies before `offset`."""
        return position(offset) >= position(self.latest())

    def release(self, oldest_needed: Offset) -> None:
        """Do nothing: the rows stay for the next application."""

    def close(self) -> None:
        """Do nothing: the rows stay for the next application."""

    def _append(self, table: pa.Table | None, partition: int, time: Micros) -> None:
        with self._lock:
            first = self._chunks[-1].end if self._chunks else 0
            highest = self._chunks[-1].watermark if self._chunks else None
            if table is None:
                highest = time if highest is None else max(highest, time)
            self._chunks.append(_Chunk(first, table, partition, time, highest))

    def _between(self, start: int, end: int) -> list[_Chunk]:
        with self._lock:
            low = max(bisect.bisect_right(self._chunks, start, key=lambda chunk: chunk.first) - 1, 0)
            high = bisect.bisect_left(self._chunks, end, key=lambda chunk: chunk.first)
            return [chunk for chunk in self._chunks[low:high] if chunk.end > start]

    def _table(self, rows: Rows) -> pa.Table:
        if hasattr(rows, "__arrow_c_stream__") or isinstance(rows, pa.RecordBatch):
            table = pa.table(rows)
        elif type(rows).__module__.startswith("pandas"):
            table = pa.Table.from_pandas(rows, preserve_index=False)
        elif hasattr(rows, "toArrow"):
            table = rows.toArrow()
        else:
            return self._from_python(list(rows))
        names = self._arrow.names
        return table.select(names).cast(self._arrow)

    def _from_python(self, rows: Sequence[Any]) -> pa.Table:
        names = self._arrow.names
        columns: list[list[Any]] = [[] for _ in names]
        for row in rows:
            if isinstance(row, Mapping):
                unknown = row.keys() - set(names)
                if unknown:
                    raise ValueError(f"unknown columns {sorted(unknown)}")
                values = [row.get(name) for name in names]
            else:
                values = list(row)
                if len(values) != len(names):
                    raise ValueError(f"a row has {len(values)} values instead of {len(names)}")
            for column, value in zip(columns, values, strict=True):
                column.append(value)
        for column, field in zip(columns, self._arrow, strict=True):
            _require_exact(column, field)
        arrays = [
            pa.array(column, field.type, from_pandas=False) for column, field in zip(columns, self._arrow, strict=True)
        ]
        return pa.table(arrays, schema=self._arrow)


def _require_exact(values: Sequence[Any], field: pa.Field) -> None:
    """Refuse numbers that a column of whole numbers or times would cut off: seconds as of time.time() are no time.

    Raises:
        ValueError: There is one.
    """
    if pa.types.is_integer(field.type) or pa.types.is_temporal(field.type):
        for value in values:
            if isinstance(value, (float, Decimal, np.floating, np.bool_)) and (
                isinstance(value, np.bool_) or pa.types.is_temporal(field.type) or value % 1 != 0
            ):
                raise ValueError(f"{field.name} is {shown(value)}, and the column is {field.type}")
