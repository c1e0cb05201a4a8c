"""The contract of a source: named, replayable offsets, and a DataFrame for each range of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from transom.model.time import Clock, Micros
from transom.native.dialects import Dialect
from transom.storage.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Offset: TypeAlias = "int | dict[str, int]"
"""A position in a source, as JSON holds it: one number, or one per source partition."""

Mark: TypeAlias = "int | None"
"""Tells the rows before an offset from any others."""

PlainFormat: TypeAlias = Literal["json", "parquet"] | Dialect
"""Formats of files that are read without Spark; of CSV also how it is written."""

MOST_PARTITIONS = 100_000
"""So many source partitions may rows have that are made up, or added by a program."""
CORRUPT = "_corrupt_record"
"""Optional column of `read`: the text of a row that could not be parsed, null for good rows."""
PARTITION = "_source_partition"
"""Optional column of `read`: index (int) into `partitions` of the row's source partition; absent means partition 0."""
ARRIVAL = "_source_arrival"
"""Optional column of `read`: when the row arrived in the source (bigint, microseconds since the epoch). From it the
delays of the rows are measured, which tell when a watermark is to be expected while none has come yet."""

ORIGIN = "_source_origin"
"""Optional column of `read`: where the row is in the source, a struct (topic, partition, offset); for dead letters."""


@dataclass(frozen=True)
class Cut:
    """The next piece of a backlog."""

    end: Offset
    rows: int
    """Rows in it; an estimate is allowed."""


@dataclass(frozen=True)
class Waiting:
    """The source partitions with rows that nobody has read yet."""

    partitions: frozenset[int]
    """Their indices into `partitions`. One that was seen, but is not named there yet, has an index behind the last."""
    at: Micros
    """When the source was looked at and this was so, monotonic time; after a pause it is older than the question."""


@dataclass(frozen=True)
class Unit:
    """A part of a source that `read` can leave out, when it is named in `skip`."""

    name: str
    partition: int = 0
    """Index into `partitions` of the source partition that it belongs to."""


class Divisible(Protocol):
    """What a source has besides if it can leave out parts of a range at little cost, without reading them.

    Provisional: may change in a minor version.
    """

    pieces: int
    """Into so many parts a range can be divided, of which any may be left out, without reading getting dearer."""

    def units(self, start: Offset, end: Offset) -> Sequence[Unit]:
        """Return the units in [start, end), for ends that `cut` returns; together they are all of it."""


def can_leave_out(source: Source) -> bool:
    """Tell whether pieces of a source can be left out: it is `Divisible`."""
    return getattr(source, "pieces", 1) > 1


class Source(Protocol):
    """A replayable source.

    Provisional: may change in a minor version.

    `open` is called once before anything else. Everything that decides offsets is durable in `directory` before an
    offset leaves the source, so that a restarted application reads the same rows for the same offsets.

    Several streams may read one source: `read` and `unreadable` are called from the threads of their jobs, at once and
    while the loop's thread calls the other methods, for any offsets that are not released.
    """

    @property
    def schema(self) -> StructType:
        """The columns of `read`, without the optional ones."""

    @property
    def partitions(self) -> Sequence[str]:
        """Names of the source partitions; each has its own watermark.

        The list may grow, when the source looks for new data; the index of a partition never changes, also not after a
        restart.
        """

    def describe(self) -> str:
        """Return what it is and reads, in one line for people."""

    def open(self, spark: SparkSession, directory: Place, clock: Clock) -> None:
        """Prepare for reading; `directory` is the source's own part of the checkpoint and exists.

        Raises:
            SourceError: It cannot be read at all.
        """

    def start(self) -> Offset:
        """Return the offset before the first row that is still there."""

    def latest(self) -> Offset:
        """Return the offset after the newest row that is readable now; looks for new data.

        Raises:
            SourceAwayError: It cannot be reached now; the stream waits, while others go on.
            SourceLostError: Rows that were not read are gone; the stream halts, while others go on.
        """

    def mark(self, offset: Offset) -> Mark:
        """Return what tells the rows before an offset from any others; the log keeps it, and compares it at a restart.

        Returns:
            None where nothing tells, or not any more.

        Raises:
            CheckpointCorruptError: An offset that has not left the source: what it keeps in the checkpoint is gone.
        """

    def cut(self, start: Offset, max_rows: int) -> Cut:
        """Return the end of a piece from `start` of at most `max_rows` rows, within the last `latest()`.

        One indivisible unit (a file) may be larger than `max_rows`; then it is returned alone. An empty backlog
        gives `Cut(start, 0)`.
        """

    def waiting(self, offset: Offset) -> Waiting:
        """Return which partitions have rows from `offset` on, as far as the last `latest()` has found out.

        Decides which of them hold back the watermark and when they are idle, so a partition may be named that has
        no row after all, but none may be missing that has one. Asked at each look: O(partitions), not O(rows).
        """

    def read(self, spark: SparkSession, start: Offset, end: Offset, skip: Sequence[str] = ()) -> DataFrame:
        """Return the rows in [start, end); the same rows every time. Lazy: runs no job.

        Args:
            spark: The session to read with.
            start: First offset.
            end: Offset after the last row.
            skip: Units (as named by `unreadable`) to leave out.
        """

    def unfit(self, start: Offset, end: Offset) -> dict[str, str]:
        """Return the units in [start, end) that do not fit the schema, each with the reason; reads no rows.

        They are never read, whatever else is in the range. Also called from the threads of jobs.

        Raises:
            SourceAwayError: It cannot be reached now; the cut waits.
            SourceLostError: It lacks rows that it had.
        """

    def unreadable(self, spark: SparkSession, start: Offset, end: Offset) -> dict[str, str]:
        """Return the units in [start, end) that cannot be read at all, each with the reason; runs jobs.

        Called after a job on the range failed. Empty when the source itself is fine. Raises what `unfit` does.
        """

    def same_rows(self, start: Offset, end: Offset, skip: Sequence[str] = ()) -> bool:
        """Tell whether who has just read [start, end) without `skip` can have read no other rows than its own.

        Asked after the last job on a range, from its thread: where something else may have come in the place of the
        rows meanwhile, nothing that was read counts, and the job runs again. Raises what `unfit` does.
        """

    def ingested_at(self, start: Offset, end: Offset) -> Micros:
        """Return when the newest row of [start, end) arrived in the source (file time, generator schedule)."""

    def watermark(self, end: Offset) -> Micros | None:
        """Return the watermark that the source itself injected before `end`; None when it injects none.

        Asked for `latest()` at each look, so that a watermark is known to be there before its rows are read: it should
        take no longer than `cut`.
        """

    def exhausted(self, offset: Offset) -> bool:
        """Tell whether no row after `offset` can come any more without somebody adding data (for `run(once=True)`)."""

    def release(self, oldest_needed: Offset) -> None:
        """Told after commits: nothing before this offset will be read again. For retention and clean-up."""

    def close(self) -> None:
        """Let go of everything."""


class OwnRows:
    """A part of sources that make or keep their rows themselves: all fit the schema, can be read, and stay as they are.

    The same offsets are the same rows for ever.
    """

    def unfit(self, start: Offset, end: Offset) -> dict[str, str]:
        """Return nothing: all rows have the schema."""
        return {}

    def unreadable(self, spark: SparkSession, start: Offset, end: Offset) -> dict[str, str]:
        """Return nothing: a failure to read is none of single rows."""
        return {}

    def same_rows(self, start: Offset, end: Offset, skip: Sequence[str] = ()) -> bool:
        """Return True: nothing comes in the place of a row."""
        return True
