"""Results in a topic of Kafka, each micro-batch of a query in one transaction."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from transom.errors import DefinitionError, SinkError
from transom.kafka.client import admin, checked_options, require_client, require_topic, server_list, told, wrong_options
from transom.model.arguments import column_names
from transom.model.formats import Format
from transom.model.formats import json as json_format
from transom.model.signatures import checked
from transom.sinks.base import WindowResults
from transom.sinks.csv_lines import fields
from transom.sinks.json_lines import encoded, write_json_lines
from transom.sinks.ledger import ANSWER, Ledger, is_fenced
from transom.sinks.owner import Claim, refuse_results_ahead

COMMIT = 120.0
"""Seconds in which a transaction has to be committed."""


@checked
def kafka(
    servers: str | Sequence[str],
    topic: str,
    key: str | Sequence[str] = (),
    format: Format | str | Mapping[str, Any] | None = None,
    *,
    ledger: str = "transom-ledger",
    shared: bool = False,
    options: Mapping[str, Any] | None = None,
) -> KafkaSink:
    """Send results to a topic of Kafka, each window once; needs `pip install "transom[kafka]"`.

    The results of a micro-batch are one transaction, and with them a record that says so: readers that read committed
    messages only (`isolation.level=read_committed`) see each result once, also after a kill at any moment. An earlier
    run that still writes is ended by Kafka.

    Args:
        servers: Brokers to ask first, as "host:port".
        topic: The topic; it must exist.
        key: Columns that make the message's key, such as ["zone"]: of one column its text, of several a JSON array.
            Messages with equal keys are in one partition, and in order.
        format: `tm.json()`, which is the default, or `tm.csv()`, without a header.
        ledger: The topic with those records, made if there is none; one for all queries.
        shared: Whether others write to the topic, too; else it belongs to one query, as a directory does.
        options: Options of the client by librdkafka's names, such as sasl.username; those that begin with "kafka." are
            for Spark's client, and have no effect here. {"env": "NAME"} is the value of a variable of the environment.

    Raises:
        DefinitionError: An argument cannot be, or the client is not installed.
    """
    require_client("kafka")
    brokers, given = server_list(servers, "kafka"), checked_options(options, "kafka")
    for name, value in (("topic", topic), ("ledger", ledger)):
        require_topic(value, f"kafka: {name}")
    columns = column_names([key] if isinstance(key, str) else key, "kafka: key")
    written = json_format() if format is None else Format.of(format, "kafka")
    if written.kind not in ("json", "csv"):
        raise DefinitionError(f"kafka: results cannot be written as {written!r}.", "Give tm.json() or tm.csv().")
    return KafkaSink(brokers, topic, columns, written, ledger, shared, given)


class KafkaSink:
    """See `kafka`, which makes it."""

    def __init__(
        self,
        servers: str,
        topic: str,
        columns: tuple[str, ...],
        format: Format,
        ledger: str,
        shared: bool,
        options: Mapping[str, str],
    ) -> None:
        self.key = f"kafka:{topic}"
        """The place that it writes to, for checkpoints."""
        self._servers, self._topic, self._columns, self._format = servers, topic, columns, format
        self._ledger_topic, self._shared, self._options = ledger, shared, options
        self._ledger: Ledger | None = None
        self._client: Any = None
        self._transactional = ""
        self._producer: Any = None
        self._run: str | None = None
        self._check: Callable[[], None] = lambda: None
        """See `Claim.check`: a newer run may have begun, and not have come to this topic yet."""
        self._last: int | None = None
        """The last micro-batch whose results are there; None if that is to be looked up."""

    def describe(self) -> str:
        """Return what it is and writes, in one line for people."""
        return f"Kafka topic {self._topic} at {self._servers}"

    def open(self, query: str) -> None:
        """Look whether the topic is there, and make the ledger.

        Raises:
            SinkError: The brokers do not answer, or there is no such topic.
        """
        from confluent_kafka import KafkaException, TopicCollection

        try:
            client = self._client = admin(self._servers, self._options)
            asked = client.describe_topics(TopicCollection([self._topic]), request_timeout=ANSWER)
            id = str(asked[self._topic].result(2 * ANSWER).topic_id)
            place = f"{self._topic}/{id}" + (f"/{query}" if self._shared else "")
            ledger = Ledger(self._servers, self._ledger_topic, place, self._options, client)
            ledger.create()
        except (KafkaException, TimeoutError) as error:
            if isinstance(error, KafkaException) and error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
                raise SinkError(
                    f"{query}: the topic {self._topic!r} does not exist at {self._servers}.", "Create it."
                ) from None
            raise self._unusable(query, error) from None
        except (TypeError, ValueError) as error:
            raise wrong_options(error, self._options) from None
        self._ledger = ledger

    def claim(self, claim: Claim) -> None:
        """Note that the topic is the query's, and end what an earlier run still writes.

        What the ledger says behind the open transactions of other queries is left to `recover`: those of this
        application are ended when all have claimed.

        Raises:
            SinkError: It belongs to another query or checkpoint, or holds messages of unknown origin.
        """
        from confluent_kafka import KafkaException

        what = f"the topic {self._topic!r}"
        try:
            self._drop()
            self._transactional = f"transom {claim.owner.checkpoint} {claim.query} {self._topic}"
            producer = self._book.producer(self._transactional)
            entry = self._book.read(whole=False)
            has_results = entry.cut >= 0 if entry.owner is not None or self._shared else self._has_messages()
            if claim.allowed(entry.owner, has_results, what, "topic"):
                self._book.take(claim, has_results, what)
            self._run, self._producer, self._last = self._book.enter(producer), producer, None
            self._check = claim.check
        except (KafkaException, TimeoutError) as error:
            raise self._unusable(claim.query, error) from None

    def recover(self, query: str, next_cut: int) -> None:
        """Check that topic and checkpoint belong together; transactions leave nothing to clean up.

        Raises:
            SinkError: There are results of cuts that the checkpoint has not made.
        """
        self._last = self._book.read().cut
        refuse_results_ahead(query, f"the topic {self._topic!r}", "topic", self._last, next_cut)

    def write(self, results: WindowResults) -> None:
        """Send the rows and the note that they are there in one transaction; nothing if they are there already.

        Raises:
            SinkError: The brokers do not take them, or another run has begun.
        """
        from confluent_kafka import KafkaException

        try:
            if self._producer is None:
                self._begin_again()
            if self._last is None:
                self._last = self._book.read().cut
            if results.cut <= self._last:
                return
            producer = self._producer
            producer.begin_transaction()
            for key, value in zip(self._keys(results), self._values(results), strict=True):
                self._send(producer, key, value)
            self._book.note(producer, cut=results.cut)
            producer.commit_transaction(COMMIT)
        except BaseException as error:
            # Whether it was committed is not known in each case: the next try finds out, as a restart does.
            fenced = isinstance(error, KafkaException) and is_fenced(error, self._producer)
            self._drop()
            if not isinstance(error, (KafkaException, TimeoutError)):
                raise
            if fenced:
                raise self._ended() from None
            raise self._unusable(results.query, error) from None
        self._last = results.cut

    def close(self) -> None:
        """Let go of the clients."""
        self._drop()
        self._client = self._ledger = None

    # ---- the producer

    def _begin_again(self) -> None:
        """Begin as at a start, unless another run has begun meanwhile, which would be ended by that."""
        if self._book.read().writer != self._run:
            raise self._ended()
        self._check()
        self._producer, self._last = self._book.producer(self._transactional), None
        self._run = self._book.enter(self._producer)

    def _drop(self) -> None:
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def _send(self, producer: Any, key: bytes | str | None, value: bytes | str) -> None:
        while True:
            try:
                producer.produce(self._topic, value, key)
            except BufferError:  # the queue is full; what is sent makes room
                producer.poll(0.1)
            else:
                return

    # ---- what is sent

    def _keys(self, results: WindowResults) -> list[Any]:
        table = results.table
        if not self._columns:
            return [None] * table.num_rows
        for name in self._columns:
            if name not in table.column_names:
                raise SinkError(
                    f"{results.query}: the key {name!r} is no column of the results.",
                    f"The columns are {', '.join(table.column_names)}.",
                )
        columns = [_whole(table.column(name)) for name in self._columns]
        if len(columns) > 1:
            texts = [pc.fill_null(encoded(column), "null") for column in columns]
            inside = pc.binary_join_element_wise(*texts, ",")
            return pc.binary_join_element_wise("[", inside, "]", "").to_pylist()  # type: ignore[no-any-return]
        (column,) = columns
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or pa.types.is_binary(column.type):
            return column.to_pylist()  # type: ignore[no-any-return]
        return pc.utf8_trim(encoded(column), characters='"').to_pylist()  # type: ignore[no-any-return]

    def _values(self, results: WindowResults) -> list[Any]:
        table = results.table
        if self._format.kind == "json":
            file = io.BytesIO()
            write_json_lines(table, file)
            return file.getvalue().split(b"\n")[:-1]
        columns = [pc.fill_null(fields(_whole(column)), "") for column in table.columns]
        return pc.binary_join_element_wise(*columns, ",").to_pylist()  # type: ignore[no-any-return]

    # ---- others

    @property
    def _book(self) -> Ledger:
        assert self._ledger is not None, "open() comes first"
        return self._ledger

    def _has_messages(self) -> bool:
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        client = self._client
        partitions = client.list_topics(self._topic, timeout=ANSWER).topics[self._topic].partitions
        places = [TopicPartition(self._topic, number) for number in partitions]
        firsts, ends = (
            client.list_offsets(dict.fromkeys(places, which), request_timeout=ANSWER)
            for which in (OffsetSpec.earliest(), OffsetSpec.latest())
        )
        return any(ends[place].result(2 * ANSWER).offset > firsts[place].result(2 * ANSWER).offset for place in places)

    def _unusable(self, query: str, error: BaseException) -> SinkError:
        return SinkError(
            f"{query}: the topic {self._topic!r} at {self._servers} cannot be written: "
            f"{told(error, self._options) or 'they do not answer'}.",
            "Check the brokers, and what they allow; the results are kept until they are written.",
        )

    def _ended(self) -> SinkError:
        return SinkError(
            f"Another run of this application has begun, and writes to the topic {self._topic!r} now.",
            "Stop this one: the other has taken over.",
        )


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
