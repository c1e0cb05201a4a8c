"""The ledger of results in topics: whose a topic is, who writes there now, and up to which micro-batch.

It is a compacted topic of one partition. Its records are in the transactions of the results, so that both are there or
neither is.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transom.errors import SinkError
from transom.kafka.client import client_settings, told
from transom.sinks.owner import Claim, Owner

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

ANSWER = 30.0
"""Seconds in which brokers have to answer. Whoever waits for a request that is given up then waits twice as long: a
client that goes while one of its requests is under way may take the process with it."""
TRIES = 50
_COMING = ("_NOENT", "LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PART", "NOT_LEADER_OR_FOLLOWER")
_SMALL = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.1"}
"""The topic stays some megabytes, so that it is read in no time."""


@dataclass(frozen=True)
class Entry:
    """What the ledger says of a place."""

    owner: Owner | None = None
    writer: str | None = None
    """The run that writes there, the last that began."""
    cut: int = -1
    """The last micro-batch whose results are there."""


@dataclass
class Ledger:
    """The ledger as one place needs it.

    Args:
        servers: The brokers.
        topic: Its own topic.
        place: The key of the place.
        options: Options of the client.
        client: Asks the brokers.
    """

    servers: str
    topic: str
    place: str
    options: Mapping[str, str] = field(repr=False)
    client: AdminClient = field(repr=False)

    def create(self) -> None:
        """Make its topic, if there is none."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic

        asked = self.client.create_topics([NewTopic(self.topic, 1, config=dict(_SMALL))], request_timeout=ANSWER)
        try:
            asked[self.topic].result(2 * ANSWER)
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise

    def read(self, whole: bool = True) -> Entry:
        """Return what it says now.

        Args:
            whole: All that was committed before it is asked, also what is behind open transactions of others, for
                whose ends one has to wait then; else what is before them.
        """
        values = self._values(whole)
        owner = values.get("owner")
        return Entry(
            None if owner is None else Owner(owner["checkpoint"], owner["query"], owner["path"]),
            values.get("writer"),
            -1 if values.get("cut") is None else values["cut"],
        )

    def take(self, claim: Claim, has_results: bool, what: str) -> None:
        """Note the owner of a place that has none; of several that try at once, one succeeds.

        Whoever begins such a transaction ends those that others have begun, and reads what they have committed.

        Raises:
            SinkError: Another one was faster.
        """
        from confluent_kafka import KafkaException

        for _ in range(TRIES):
            producer = self.producer(f"transom-claim {self.place}")
            try:
                if not claim.allowed(self.read().owner, has_results, what, "topic"):
                    return
                producer.begin_transaction()
                self.note(producer, owner=claim.owner.__dict__)
                producer.commit_transaction(ANSWER)
            except KafkaException as error:
                if not is_fenced(error, producer):
                    raise
            else:
                return
        raise SinkError(f"{claim.query}: {what} is claimed by many at once.", "Start the application again.")

    def enter(self, producer: Any) -> str:
        """Note that a producer is the one that writes now, and return the name of its run."""
        run = uuid.uuid4().hex
        producer.begin_transaction()
        self.note(producer, writer=run)
        producer.commit_transaction(ANSWER)
        return run

    def note(self, producer: Any, **values: Any) -> None:
        """Write records in the transaction of a producer."""
        for name, value in values.items():
            producer.produce(self.topic, json.dumps(value), json.dumps([self.place, name]), partition=0)

    def producer(self, transactional: str) -> Any:
        """Return a producer that has ended the transactions of earlier ones of the same name."""
        from confluent_kafka import Producer

        queue = {"queue.buffering.max.messages": "1000000", "linger.ms": "5", "partitioner": "murmur2_random"}
        more = {"compression.type": "lz4", **queue, **self.options, "transactional.id": transactional}
        producer = Producer(client_settings(self.servers, more))
        producer.init_transactions(ANSWER)
        return producer

    def _values(self, whole: bool) -> dict[str, Any]:
        from confluent_kafka import Consumer, TopicPartition

        reading = {
            "group.id": "transom-ledger",
            "isolation.level": "read_committed",
            "enable.partition.eof": "true",
            "enable.auto.commit": "false",
            "fetch.wait.max.ms": "10",  # so long the end is waited for
        }
        more = {**self.options, **reading}
        consumer = Consumer(client_settings(self.servers, more))
        found: dict[str, Any] = {}
        try:
            end = self._end() if whole else 0
            consumer.assign([TopicPartition(self.topic, 0, 0)])
            while True:
                message = consumer.poll(2 * ANSWER)
                if message is None:
                    raise SinkError(
                        f"The ledger {self.topic} cannot be read in time.", "A transaction may be open there."
                    )
                if message.error() is None:
                    place, name = json.loads(message.key())
                    if place == self.place:
                        found[name] = json.loads(message.value() or b"null")
                elif message.error().name() != "_PARTITION_EOF":
                    raise SinkError(
                        f"The ledger {self.topic} cannot be read: {told_of(message.error(), self.options)}.",
                        "Check the brokers.",
                    )
                elif message.offset() >= end:
                    return found
        finally:
            consumer.close()

    def _end(self) -> int:
        """Return the offset after the newest record, committed or not."""
        from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        place, level = TopicPartition(self.topic, 0), IsolationLevel.READ_UNCOMMITTED
        for left in reversed(range(TRIES)):
            asked = self.client.list_offsets(
                {place: OffsetSpec.latest()}, isolation_level=level, request_timeout=ANSWER
            )
            try:
                return int(asked[place].result(2 * ANSWER).offset)
            except KafkaException as error:  # a topic that was just made has no leader yet
                if error.args[0].name() not in _COMING or not left:
                    raise
                threading.Event().wait(0.1)
        raise AssertionError


def is_fenced(error: BaseException, producer: Any) -> bool:
    """Tell whether a producer, if there is one, failed because another one of the same transactions has begun."""
    from confluent_kafka import KafkaException

    if _name(error) == "_FATAL" and producer is not None:
        # It says that something came before, not what; whatever is asked next says that.
        try:
            producer.begin_transaction()
        except KafkaException as reason:
            error = reason
    return _name(error) in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


def _name(error: BaseException) -> str:
    return str(error.args[0].name()) if error.args and hasattr(error.args[0], "name") else ""


def told_of(error: Any, options: Mapping[str, str]) -> str:
    """Return what an error of the client says."""
    from confluent_kafka import KafkaException

    return told(KafkaException(error), options)
