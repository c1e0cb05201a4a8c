"""The source that `kafka` makes: an offset is a number per partition that has been read from."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transom.errors import SourceAwayError, SourceError, SourceLostError
from transom.kafka.consuming import Settings, TopicRange
from transom.model.time import MICROS_PER_SECOND, Clock, Micros
from transom.sources.base import Cut, Mark, Offset, Unit, Waiting
from transom.sources.topics.arrivals import Arrivals
from transom.sources.topics.beginnings import first_offsets
from transom.sources.topics.book import Book, Part
from transom.sources.topics.brokers import Asking, Brokers, Place, Topic
from transom.sources.topics.ranges import Range, lost_of, numbers, shares, why_lost, without
from transom.sources.topics.reading import Reading
from transom.sources.topics.rows import read_ranges, rows_of, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

PATIENCE = 0.5
"""Seconds that a look waits for the brokers, who answer in milliseconds; what comes later is seen by a later one."""
LATE: Micros = 2 * MICROS_PER_SECOND
"""Without an answer for so long they count as away."""
TOPICS_EVERY: Micros = MICROS_PER_SECOND
"""So often it is looked which topics and partitions there are."""


@dataclass(frozen=True)
class _Seen:
    """What brokers said at a look."""

    at: Micros
    """Monotonic time."""
    topics: dict[str, Topic] | None
    """None if it was not asked."""
    ends: dict[Place, tuple[int, int]]
    newest: dict[Place, tuple[int, int]]
    earliest: dict[Place, tuple[int, int]]


class KafkaSource:
    """See `kafka`, which makes it. Its directory holds partitions.json: what was found, and where it begins."""

    pieces = 12

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._schema: StructType | None = None
        self._forget()

    def _forget(self) -> None:
        """Know nothing of brokers, as before the source is opened."""
        self._brokers: Brokers | None = None
        self._book: Book | None = None
        self._clock: Clock | None = None
        self._asking: Asking[_Seen] | None = None
        self._late_since: Micros | None = None
        """Since when a look has not been answered."""
        self._topics: dict[str, Topic] = {}
        self._topics_at: Micros | None = None
        self._ends: dict[str, int] = {}
        self._earliest: dict[str, int] = {}
        self._gone: frozenset[str] = frozenset()
        """Partitions of topics that are not there any more."""
        self._arrivals: dict[str, Arrivals] = {}
        self._looked: Micros = 0
        self._committed: dict[str, int] = {}

    @property
    def schema(self) -> StructType:
        """The columns of `read`, all of them nullable, without the optional ones."""
        if self._schema is None:
            self._schema = schema_of(self._reading.format, self._reading.about)
        return self._schema

    @property
    def partitions(self) -> Sequence[str]:
        """The partitions that were found so far; the list grows, also while the source is open."""
        return tuple(part.key for part in self._pages.parts) or ("",)

    def describe(self) -> str:
        """Return what it is and reads, in one line for people."""
        return f"Kafka {self._reading.what} at {self._reading.servers}, {self._reading.format.kind}"

    def open(self, spark: SparkSession, directory: Path, clock: Clock) -> None:
        """Ask which partitions there are, and fix where those begin that are new.

        Raises:
            SourceError: The brokers do not answer, or a topic does not exist.
            CheckpointCorruptError: The file in `directory` is damaged.
        """
        _ = self.schema
        self._forget()
        self._clock, self._book = clock, Book(directory)
        self._brokers = Brokers(self._reading.servers, self._reading.options, self._reading.committed)
        try:
            self._take(self._look())
        except SourceAwayError as error:
            if self._book.is_new:
                raise SourceAwayError(
                    error.message, "Check `servers` and `options`: the first run has to find the topics."
                ) from None
            logger.warning("%s", error)
        self._asking = Asking(self._look, self._time)

    def start(self) -> Offset:
        """Return an offset without any partition: each is then at its first offset, which is durable."""
        return {}

    def latest(self) -> Offset:
        """Return the ends of all partitions.

        Raises:
            SourceAwayError: The brokers do not answer.
            SourceLostError: A topic was deleted and made again.
        """
        assert self._asking is not None, "open() comes first"
        now = self._time.monotonic()
        since, self._late_since = self._late_since, None
        seen = self._asking.answer(PATIENCE)
        if seen is not None:
            self._take(seen)
        else:
            self._late_since = now if since is None else since
            if self._topics_at is None or now > self._late_since + LATE:
                raise SourceAwayError(
                    f"kafka: the brokers {self._reading.servers} do not answer.", "The stream waits for them."
                )
        return self._canonical(self._ends)

    def mark(self, offset: Offset) -> Mark:
        """Return what tells the topics and first offsets that an offset speaks of."""
        return self._pages.mark(numbers(offset))

    def cut(self, start: Offset, max_rows: int) -> Cut:
        """Return the end of a piece of at most `max_rows` offsets, in proportion to what waits in each partition.

        Raises:
            SourceLostError: Messages that were not read are gone, and are not to be skipped.
        """
        begins = numbers(start)
        for key in self._gone & begins.keys():  # where a former run read to; of what it left nobody knows
            self._ends[key] = max(self._ends.get(key, 0), begins[key])
        lost = {each.key: each.end for each in self._lost(begins, self._ends)}
        at = {key: max(self._begin(begins, key), lost.get(key, 0)) for key in self._ends}
        waiting = {key: max(0, end - at[key]) for key, end in self._ends.items()}
        taken = shares(waiting, max(max_rows, 1))
        end = {key: at[key] + taken[key] for key in self._ends}
        return Cut(self._canonical({**begins, **end}), sum(taken.values()))

    def waiting(self, offset: Offset) -> Waiting:
        """Return the partitions with offsets from there on; they may be of transactions only, without a row."""
        begins, index_of = numbers(offset), self._pages.index_of
        found = (index_of[key] for key, end in self._ends.items() if end > self._begin(begins, key))
        return Waiting(frozenset(found), self._looked)

    def read(self, spark: SparkSession, start: Offset, end: Offset, skip: Sequence[str] = ()) -> DataFrame:
        """Return the rows of the messages in [start, end)."""
        reading = self._reading
        parts = [(self._pages[each.key], each.begin, each.end) for each in self._without(start, end, skip)]
        records = read_ranges(spark, parts, self._pages.index_of, reading.settings, reading.about)
        return rows_of(records, reading.format, self.schema, reading.about, reading.keep_tombstones)

    @property
    def why_spark(self) -> str | None:
        """Why only Spark reads it, in words; None where readers without Spark do."""
        return self._reading.why_spark

    @property
    def consumer(self) -> Settings:
        """Settings of consumers for readers without Spark."""
        return self._reading.consumer

    @property
    def skips_tombstones(self) -> bool:
        """Whether messages without a value are no rows."""
        return not self._reading.keep_tombstones

    def topic_ranges(self, start: Offset, end: Offset, skip: Sequence[str] = ()) -> list[tuple[Unit, TopicRange]]:
        """Return what `read` reads, for readers without Spark."""
        found = [(each, self._pages[each.key]) for each in self._without(start, end, skip)]
        index_of = self._pages.index_of
        return [
            (Unit(str(each), index_of[each.key]), TopicRange(part.topic, part.partition, each.begin, each.end))
            for each, part in found
        ]

    def units(self, start: Offset, end: Offset) -> Sequence[Unit]:
        """Return the ranges of the partitions in [start, end)."""
        index_of = self._pages.index_of
        return [Unit(str(each), index_of[each.key]) for each in self._ranges(numbers(start), numbers(end))]

    def unfit(self, start: Offset, end: Offset) -> dict[str, str]:
        """Return the ranges in [start, end) whose messages are gone; asks the brokers.

        Raises:
            SourceAwayError: They do not answer.
            SourceLostError: Messages are gone, and are not to be skipped.
        """
        brokers, begins = self._open, numbers(start)
        ranges = self._ranges(begins, numbers(end))
        if not ranges:
            return {}
        parts = [self._pages[each.key] for each in ranges]
        there = brokers.topics(sorted({part.topic for part in parts}), None)
        known = [part for part in parts if _is(part, there)]
        places = [(part.topic, part.partition) for part in known]
        earliest = brokers.offsets({"earliest": places})["earliest"]
        firsts = {part.key: earliest[part.topic, part.partition][0] for part in known}
        gone = frozenset(part.key for part in parts if part.key not in firsts)
        lost = lost_of(ranges, firsts, gone)
        if lost and not self._reading.skips:
            raise self._loss(lost, gone)
        return {str(each): why_lost(each, gone) for each in lost}

    def unreadable(self, spark: SparkSession, start: Offset, end: Offset) -> dict[str, str]:
        """Return the ranges in [start, end) whose messages are gone by now."""
        return self.unfit(start, end)

    def same_rows(self, start: Offset, end: Offset, skip: Sequence[str] = ()) -> bool:
        """Tell whether the topics of [start, end) without `skip` are those that were found; asks the brokers.

        Spark reads a topic by its name: one that was made again is read in the place of the former one.
        """
        parts = [self._pages[each.key] for each in self._without(start, end, skip)]
        there = self._open.topics(sorted({part.topic for part in parts}), None)
        return all(_is(part, there) for part in parts)

    def ingested_at(self, start: Offset, end: Offset) -> Micros:
        """Return the newest time stamp in [start, end), as of the look that saw its end; 0 for nothing."""
        begins = numbers(start)
        times = [
            self._arrivals[key].before(at)
            for key, at in numbers(end).items()
            if key in self._arrivals and at > self._begin(begins, key)
        ]
        return max(times, default=0)

    def watermark(self, end: Offset) -> Micros | None:
        """Return None: messages carry no watermark."""
        return None

    def exhausted(self, offset: Offset) -> bool:
        """Tell whether all that the last look saw lies before `offset`."""
        return not self.waiting(offset).partitions

    def release(self, oldest_needed: Offset) -> None:
        """Tell the consumer group, and forget when older messages arrived."""
        needed = numbers(oldest_needed)
        for key, at in needed.items():
            if key in self._arrivals:
                self._arrivals[key].forget(at)
        group, parts = self._reading.group, [self._pages[key] for key in needed if key not in self._gone]
        news = {part.key: needed[part.key] for part in parts if self._committed.get(part.key) != needed[part.key]}
        if group is not None and news:
            self._committed.update(news)
            self._open.commit(group, {(self._pages[k].topic, self._pages[k].partition): at for k, at in news.items()})

    def close(self) -> None:
        """Let go of the client."""
        if self._asking is not None:
            self._asking.end()
        self._asking = self._brokers = self._book = None

    # ---- looking

    def _look(self) -> _Seen:
        """Ask the brokers; on any thread, changes nothing."""
        brokers, now = self._open, self._time.monotonic()
        topics = None
        if self._topics_at is None or now >= self._topics_at + TOPICS_EVERY:
            topics = brokers.topics(self._reading.topics, self._reading.pattern)
        places = [
            (topic.name, number)
            for topic in (self._topics if topics is None else topics).values()
            for number in range(topic.partitions)
        ]
        wanted = {"latest": places, "newest": places} | ({} if topics is None else {"earliest": places})
        found = brokers.offsets(wanted)
        return _Seen(now, topics, found["latest"], found["newest"], found.get("earliest", {}))

    def _take(self, seen: _Seen) -> None:
        if seen.topics is not None:
            self._take_topics(seen)
        now = self._time.now()
        for part in self._pages.parts:
            place = (part.topic, part.partition)
            if part.key in self._gone or place not in seen.ends:
                continue
            end, (_, newest) = seen.ends[place][0], seen.newest[place]
            self._ends[part.key] = max(end, self._ends.get(part.key, part.first))
            self._arrivals.setdefault(part.key, Arrivals()).saw(end, min(now, max(newest, 0) * 1_000))
            if place in seen.earliest:
                self._earliest[part.key] = seen.earliest[place][0]
        self._looked = seen.at

    def _take_topics(self, seen: _Seen) -> None:
        book, there = self._pages, seen.topics or {}
        if book.is_new and self._reading.topics is not None and (missing := set(self._reading.topics) - there.keys()):
            raise SourceError(
                f"kafka: the topic {sorted(missing)[0]!r} does not exist at {self._reading.servers}.",
                "Create it, or correct its name.",
            )
        for topic in there.values():
            before = book.latest_id(topic.name)
            if before not in (None, topic.id) and not self._reading.skips:
                raise SourceLostError(
                    f"kafka: the topic {topic.name!r} was deleted and made again since it was read (id {before}, "
                    f"now {topic.id}), so that messages may be gone that nobody has read.",
                    'With on_data_loss="skip" the new topic is read from its beginning.',
                )
            if before not in (None, topic.id):
                logger.warning(
                    "kafka: the topic %s was made again; the new one is read from its beginning.", topic.name
                )
        found = [
            (topic.name, topic.id, number)
            for topic in sorted(there.values(), key=lambda topic: topic.name)
            for number in range(topic.partitions)
            if book.named(topic.name, topic.id, number) not in book.index_of
        ]
        if found or book.is_new:
            begins = first_offsets(
                self._reading.starting if book.is_new else "earliest",
                {place: seen.earliest[place][0] for place in ((name, number) for name, _, number in found)},
                {place: end for place, (end, _) in seen.ends.items()},
                lambda places, at: self._open.offsets({at: places})[at],
            )
            book.add([(name, id, number, begins[name, number]) for name, id, number in found])
        gone = frozenset(part.key for part in book.parts if not _is(part, there))
        for key in sorted(gone - self._gone):
            if key in self._ends or book.is_latest(key):
                logger.warning("kafka: the partition %s is not there any more.", key)
        self._topics, self._topics_at, self._gone = dict(there), seen.at, gone

    # ---- offsets

    def _begin(self, begins: Mapping[str, int], key: str) -> int:
        return begins[key] if key in begins else self._pages[key].first

    def _canonical(self, offset: Mapping[str, int]) -> dict[str, int]:
        """Return an offset without the partitions that are where they began, so that equal ones are equal."""
        return {key: at for key, at in offset.items() if at > self._pages[key].first}

    def _ranges(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[Range]:
        ranges = [Range(key, self._begin(start, key), at) for key, at in end.items()]
        return [each for each in ranges if each.begin < each.end]

    def _without(self, start: Offset, end: Offset, skip: Sequence[str]) -> list[Range]:
        """Return the ranges of [start, end) without some units."""
        left_out = [unit for unit in map(Range.parse, skip) if unit is not None]
        return without(self._ranges(numbers(start), numbers(end)), left_out)

    def _lost(self, begins: Mapping[str, int], ends: Mapping[str, int]) -> list[Range]:
        """Return what is gone of what waits, as of the last look.

        Raises:
            SourceLostError: It is not to be skipped.
        """
        lost = lost_of(self._ranges(begins, ends), self._earliest, self._gone)
        if lost and not self._reading.skips:
            raise self._loss(lost, self._gone)
        return lost

    def _loss(self, lost: Sequence[Range], gone: frozenset[str]) -> SourceLostError:
        why = "the topic was deleted" if any(each.key in gone for each in lost) else "retention removed them"
        return SourceLostError(
            f"kafka: messages that were not read are gone, as {why}: {'; '.join(map(str, lost))}.",
            'With on_data_loss="skip" the stream goes on without them, and the dead letters name them.',
        )

    @property
    def _pages(self) -> Book:
        if self._book is None:
            raise SourceError(f"{self.describe()} is not open.", "Start the application first.")
        return self._book

    @property
    def _open(self) -> Brokers:
        assert self._brokers is not None, "open() comes first"
        return self._brokers

    @property
    def _time(self) -> Clock:
        assert self._clock is not None, "open() comes first"
        return self._clock


def _is(part: Part, there: Mapping[str, Topic]) -> bool:
    return part.topic in there and there[part.topic].id == part.id
