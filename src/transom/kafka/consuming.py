"""Ranges of offsets, read by librdkafka in a process that keeps its consumer.

A worker imports this module: what it imports has to be little.
"""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_left
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from transom.errors import SourceAwayError
from transom.kafka.client import client_settings, told, wrong_options

Settings: TypeAlias = "tuple[tuple[str, str], ...]"
"""Of a consumer, in order of their names."""

BLOCK = 4 << 20
"""Bytes of payloads of one range that are handed on together."""
HELD = 4 * BLOCK
"""Bytes of payloads that are held at most, of all ranges together."""
MOST = 2_000
"""Messages that are taken at a time, at most."""
LOOKS, LOOK = 10, 1.0
"""Brokers have to answer within so many looks of so many seconds, from one message to the next."""
_TUNED = {
    "fetch.wait.max.ms": "5",  # a range is there when it is read, so that brokers need not wait for more
    "queued.max.messages.kbytes": "8192",
    "fetch.max.bytes": str(8 << 20),
    "reconnect.backoff.max.ms": "1000",
}
"""What users may set otherwise."""
_FIXED = {
    "group.id": "transom",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "enable.partition.eof": "true",
    "check.crcs": "true",
    "allow.auto.create.topics": "false",
}
"""What decides which messages are read, and that they are whole. Nothing is committed for the group."""


@dataclass(frozen=True)
class TopicRange:
    """The offsets [begin, end) of a partition of a topic."""

    topic: str
    partition: int
    begin: int
    end: int


@dataclass(frozen=True)
class Taken:
    """Messages of a range, in their order."""

    number: int
    """Of the range."""
    values: list[bytes | None]
    stamps: list[int]
    """Their time stamps in milliseconds; empty if they are not wanted."""


@dataclass(frozen=True)
class Unread:
    """A range that could not be read to its end."""

    number: int
    why: str


def consumer_settings(servers: str, options: Mapping[str, str], committed: bool) -> Settings:
    """Return the settings of a consumer that reads ranges.

    Args:
        servers: The brokers.
        options: Options of the client.
        committed: Whether only messages of committed transactions are read.
    """
    level = "read_committed" if committed else "read_uncommitted"
    found = {**_TUNED, **client_settings(servers, options), **_FIXED, "isolation.level": level}
    return tuple(sorted(found.items()))


@functools.lru_cache(4)
def reader(settings: Settings) -> RangeReader:
    """Return the reader with some settings, which this process keeps: to connect takes longer than to read a little."""
    return RangeReader(settings)


class RangeReader:
    """Reads ranges with one consumer, at offsets that are said each time.

    Args:
        settings: Of the consumer.

    Raises:
        DefinitionError: The client does not take them.
    """

    def __init__(self, settings: Settings) -> None:
        from confluent_kafka import Consumer, KafkaException

        self._settings = dict(settings)
        try:
            self._consumer: Any = Consumer(self._settings)
        except (KafkaException, TypeError, ValueError) as error:
            raise wrong_options(error, self._settings) from None
        self._reading: dict[tuple[str, int], _Reading] = {}

    def read(self, ranges: Sequence[TopicRange], stamps: bool = False) -> Generator[Taken | Unread, None, None]:
        """Yield the messages of ranges, a block of one of them at a time, and those that cannot be read to their end.

        A range ends with a message from its end on, or where its partition ends: compaction and transactions leave
        offsets without one.

        Args:
            ranges: Of different partitions. None is read further once `leave` was told so.
            stamps: Whether time stamps are wanted.

        Raises:
            SourceAwayError: The brokers do not answer.
            confluent_kafka.KafkaException: The client cannot go on. After either it is not used again.
        """
        from confluent_kafka import KafkaException, TopicPartition

        mine = self._reading = {
            (each.topic, each.partition): _Reading(number, each, stamps) for number, each in enumerate(ranges)
        }
        assert len(mine) == len(ranges), "one range of each partition"
        places = [TopicPartition(each.topic, each.partition, each.begin) for each in ranges]
        looks, said = 0, ""
        self._consumer.assign(places)
        try:
            while mine:
                found = self._consumer.consume(MOST, 0) or self._consumer.consume(1, LOOK)
                looks = 0 if found else looks + 1
                if looks >= LOOKS:
                    raise self._away(said)
                for place, messages in _runs(found):
                    reading = mine.get(place)
                    if reading is not None:
                        reading.take(messages)
                    elif place[0] is None:  # what befalls the client and no partition
                        said = told_of(messages[-1], self._settings)
                yield from self._done()
        except (KafkaException, SourceAwayError):
            reader.cache_clear()
            raise
        finally:
            if self._reading is mine:  # else somebody who stopped in the middle has begun anew
                self._reading = {}
                self._consumer.unassign()

    def leave(self, number: int) -> None:
        """Read no more of a range."""
        for reading in self._reading.values():
            if reading.number == number:
                reading.left = True

    def _done(self) -> Iterator[Taken | Unread]:
        """Yield what is large enough, or complete, and let the brokers send no more of what is complete."""
        from confluent_kafka import TopicPartition

        for reading in list(self._reading.values()):
            if reading.size >= BLOCK or reading.ends:
                yield from reading.given()
        while sum(each.size for each in self._reading.values()) > HELD:
            yield from max(self._reading.values(), key=lambda each: each.size).given()
        ended = [place for place, reading in self._reading.items() if reading.ends]
        for place in ended:
            del self._reading[place]
        if ended and self._reading:
            self._consumer.incremental_unassign([TopicPartition(*place) for place in ended])

    def _away(self, said: str) -> SourceAwayError:
        waits = min(self._reading.values(), key=lambda each: each.number)
        return SourceAwayError(
            f"kafka: the brokers {self._settings['bootstrap.servers']} gave no message of {waits.range.topic}/"
            f"{waits.range.partition} from offset {waits.at} on for {LOOKS * LOOK:.0f} s{said and f': {said}'}.",
            "The stream waits for them; nothing is lost. Check `servers` and `options` if this does not end.",
        )


@dataclass
class _Reading:
    """What was read of a range and not handed on."""

    number: int
    range: TopicRange
    stamped: bool
    at: int = field(init=False)
    """The offset from which on nothing was read."""
    left: bool = False
    why: str | None = None
    """Why it cannot be read."""
    size: int = 0
    values: list[bytes | None] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.at = self.range.begin

    @property
    def ends(self) -> bool:
        """Whether nothing more is read of it."""
        return self.left or self.why is not None or self.at >= self.range.end

    def take(self, messages: Sequence[Any]) -> None:
        """Take messages of the partition; what the client says of it comes as one, too."""
        from confluent_kafka import KafkaError, Message

        if not any(map(Message.error, messages)):
            self._take(messages)
            return
        for message in messages:
            error = message.error()
            if error is None:
                self._take([message])
            elif error.code() == KafkaError._PARTITION_EOF:  # one that is before the end may become later
                self.at = max(self.at, message.offset())
            elif not self.ends:
                self.why = error.str()

    def _take(self, messages: Sequence[Any]) -> None:
        from confluent_kafka import Message

        if self.ends:
            return
        if messages[0].offset() < self.at:
            self.why = f"offset {messages[0].offset()} came after {self.at - 1}"
            return
        last = messages[-1].offset()
        if last >= self.range.end:
            messages = messages[: bisect_left(messages, self.range.end, key=Message.offset)]
        self.at = last + 1
        values = list(map(Message.value, messages))
        self.values += values
        self.size += sum(map(len, filter(None, values)))
        if self.stamped:
            self.stamps += [stamp for _, stamp in map(Message.timestamp, messages)]

    def given(self) -> Iterator[Taken | Unread]:
        """Yield what there is to hand on, and forget it."""
        if self.why is not None:
            yield Unread(self.number, self.why)
        elif self.values and not self.left:
            yield Taken(self.number, self.values, self.stamps)
        self.values, self.stamps, self.size = [], [], 0


def _runs(messages: Sequence[Any]) -> Iterator[tuple[tuple[str, int], list[Any]]]:
    """Yield messages that follow each other and are of one partition, with its topic and number."""
    from confluent_kafka import Message

    for partition, some in itertools.groupby(messages, Message.partition):
        for topic, run in itertools.groupby(some, Message.topic):
            yield (topic, partition), list(run)


def told_of(message: Any, options: Mapping[str, str]) -> str:
    """Return what a client says in the place of a message, without what is secret."""
    from confluent_kafka import KafkaException

    return told(KafkaException(message.error()), options)
