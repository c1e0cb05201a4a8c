"""What brokers know of topics: asked on a thread of its own, so that a broker that does not answer holds up nobody."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from transom.errors import SourceAwayError
from transom.kafka.client import admin, told
from transom.model.time import MICROS_PER_SECOND, Clock, Micros

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

T = TypeVar("T")

ANSWER = 5.0
"""Seconds in which a broker has to answer."""
OLD: Micros = MICROS_PER_SECOND
"""Time after which an answer that nobody took says nothing of now: whoever looks only now and then asks again."""

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True)
class Topic:
    """A topic as it is now."""

    name: str
    id: str
    partitions: int


class Brokers:
    """One long-lived client. Its methods block for at most `ANSWER` seconds.

    Args:
        servers: The brokers.
        options: Options of the client.
        committed: Whether only rows of committed transactions are read.
    """

    def __init__(self, servers: str, options: Mapping[str, str], committed: bool) -> None:
        self._servers, self._options, self._committed = servers, options, committed
        self._admin = admin(servers, options)

    def topics(self, names: Sequence[str] | None, pattern: re.Pattern[str] | None) -> dict[str, Topic]:
        """Return the topics that are there, of some names or those that match.

        Raises:
            SourceAwayError: No broker answers.
        """
        from confluent_kafka import KafkaException, TopicCollection

        def ask() -> dict[str, Topic]:
            wanted = names
            if pattern is not None:
                wanted = [name for name in self._admin.list_topics(timeout=ANSWER).topics if pattern.fullmatch(name)]
            if not wanted:
                return {}
            found: dict[str, Topic] = {}
            asked = self._admin.describe_topics(TopicCollection(list(wanted)), request_timeout=ANSWER)
            for name, future in asked.items():
                try:
                    about = future.result(2 * ANSWER)
                except KafkaException as error:
                    if error.args[0].name() not in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
                        raise
                    continue
                found[name] = Topic(name, str(about.topic_id), len(about.partitions))
            return found

        return self._answered(ask)

    def offsets(self, wanted: Mapping[str, Sequence[Place]]) -> dict[str, dict[Place, tuple[int, int]]]:
        """Return offset and time stamp in milliseconds (each -1 for none) of places, for "earliest" and so on.

        Args:
            wanted: Places by "earliest", "latest", "newest" (the record with the largest time stamp), or a time in
                milliseconds as text (the first record from then on).

        Raises:
            SourceAwayError: No broker answers.
        """

        def ask() -> dict[str, dict[Place, tuple[int, int]]]:
            asked = {what: self._list(what, places) for what, places in wanted.items()}
            return {what: {place: _answer(future) for place, future in some.items()} for what, some in asked.items()}

        return self._answered(ask)

    def commit(self, group: str, offsets: Mapping[Place, int]) -> None:
        """Tell how far a consumer group has read; returns at once, and whether it works decides nothing."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        places = [TopicPartition(topic, partition, at) for (topic, partition), at in offsets.items()]
        with suppress(Exception):  # the lag that others see is old for a while
            self._admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])

    def _list(self, what: str, places: Sequence[Place]) -> dict[Place, Future[Any]]:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        if not places:
            return {}
        named: dict[str, Any] = {
            "earliest": OffsetSpec.earliest,
            "latest": OffsetSpec.latest,
            "newest": OffsetSpec.max_timestamp,
        }
        spec: Any = named[what]() if what in named else OffsetSpec.for_timestamp(int(what))
        request: dict[TopicPartition, Any] = {TopicPartition(*place): spec for place in places}
        level = IsolationLevel.READ_COMMITTED if self._committed else IsolationLevel.READ_UNCOMMITTED
        asked = self._admin.list_offsets(request, isolation_level=level, request_timeout=ANSWER)
        return {(each.topic, each.partition): future for each, future in asked.items()}

    def _answered(self, ask: Callable[[], T]) -> T:
        from confluent_kafka import KafkaException

        try:
            return ask()
        except (KafkaException, TimeoutError) as error:
            raise SourceAwayError(
                f"kafka: the brokers {self._servers} do not answer: {told(error, self._options) or 'too slow'}.",
                "The stream waits for them; nothing is lost. Check `servers` and `options` if this does not end.",
            ) from None


def _answer(future: Future[Any]) -> tuple[int, int]:
    answer = future.result(2 * ANSWER)
    return answer.offset, answer.timestamp


class Asking(Generic[T]):
    """A question that is asked on another thread, again and again; one at a time.

    Args:
        question: Asks it.
        clock: Real time.
    """

    def __init__(self, question: Callable[[], T], clock: Clock) -> None:
        self._question, self._clock = question, clock
        self._wanted: queue.SimpleQueue[Future[T] | None] = queue.SimpleQueue()
        self._pending: Future[T] | None = None
        self._late = False
        self._answered: Micros = 0
        """When the last answer came, monotonic time."""
        threading.Thread(target=self._work, name="transom-kafka", daemon=True).start()

    def answer(self, patience: float) -> T | None:
        """Return a new answer; None when there is none yet. One that came too late, and was not taken since, is old.

        Args:
            patience: Seconds to wait for it, unless the question is known to take longer.

        Raises:
            Exception: What the question raised.
        """
        if self._pending is None or (self._pending.done() and self._clock.monotonic() - self._answered > OLD):
            self._pending, self._late = Future(), False
            self._wanted.put(self._pending)
        done, _ = wait([self._pending], 0 if self._late else patience)
        if not done:
            self._late = True
            return None
        answered, self._pending = self._pending, None
        return answered.result()

    def end(self) -> None:
        """Ask no more."""
        self._wanted.put(None)

    def _work(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            try:
                answer = self._question()
            except BaseException as error:
                self._answered = self._clock.monotonic()
                wanted.set_exception(error)
            else:
                self._answered = self._clock.monotonic()
                wanted.set_result(answer)
