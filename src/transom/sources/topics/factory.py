"""Topics of Kafka as a stream."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

from transom.errors import DefinitionError
from transom.kafka.client import checked_options, java_settings, require_client, require_topic, server_list
from transom.model.arguments import text
from transom.model.formats import Format
from transom.model.signatures import checked
from transom.model.time import LAST_EVENT
from transom.sources.topics.beginnings import Start
from transom.sources.topics.reading import Reading
from transom.sources.topics.source import KafkaSource

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Starting: TypeAlias = "str | int | datetime | Mapping[str, Mapping[int, int]]"


@checked
def kafka(
    servers: str | Sequence[str],
    topics: str | Sequence[str] | None = None,
    format: Format | str | Mapping[str, Any] | None = None,
    *,
    pattern: str | None = None,
    starting: Starting = "earliest",
    metadata: bool = False,
    tombstones: Literal["dead letter", "skip"] = "dead letter",
    on_data_loss: Literal["fail", "skip"] = "fail",
    group: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> KafkaSource:
    """Read topics of Kafka; needs `pip install "transom[kafka]"` and `tm.session_builder(kafka=True)`.

    Each partition has its own watermark. Which offsets a micro-batch reads is in the checkpoint's log, so that a
    restart reads the same. Partitions that are added, and topics that match the pattern later, are read from their
    beginning. Only messages of committed transactions are read, unless the option `isolation.level` says
    `read_uncommitted`.

    Args:
        servers: Brokers to ask first, as "host:port".
        topics: One topic, or several.
        format: What `tm.json`, `tm.csv`, `tm.avro`, `tm.text` and `tm.raw` return; or as TOML has it, "text" or
            {"json": "at timestamp, fare double"}. A payload that cannot be read is a dead letter.
        pattern: A regular expression that whole names of topics match, instead of `topics`; those that begin with two
            underscores are Kafka's own.
        starting: Where the first run begins: "earliest", "latest", a time (ISO 8601 text in UTC, datetime, or
            microseconds since the epoch), or offsets such as {"orders": {0: 17}}, where partitions that are not named
            begin with their earliest.
        metadata: Whether rows have a column `_kafka` with key, headers, topic, partition, offset and timestamp, which
            can also be the event time (`_kafka.timestamp`).
        tombstones: What messages without a value are; in `tm.raw` they are rows.
        on_data_loss: What happens when messages are gone that were not read: "fail" ends the run and names them;
            "skip" goes on, and names them in the dead letters.
        group: A consumer group whose committed offsets follow what is read, for tools that show the lag.
        options: Options of the client by librdkafka's names, such as sasl.username; those that begin with "kafka." are
            for Spark's client only. {"env": "NAME"} is the value of a variable of the environment. They are in no
            checkpoint, log or error.

    Raises:
        DefinitionError: An argument cannot be, or the client is not installed.
    """
    require_client("kafka")
    if (topics is None) == (pattern is None):
        raise DefinitionError(
            "kafka: give either topics or a pattern.", 'Write for example kafka(servers, "orders", ...).'
        )
    names = None if topics is None else (topics,) if isinstance(topics, str) else tuple(topics)
    if names is not None and (not names or not all(isinstance(name, str) and name for name in names)):
        raise DefinitionError(f"kafka: topics={topics!r} names no topics.", "Give one name, or several.")
    for name in names or ():
        require_topic(name, "kafka: topics")
    if group is not None:
        text(group, "kafka: group")
    written = Format.of(format, "kafka")
    written.require_schema("kafka")
    for field, value, known in (
        ("tombstones", tombstones, ("dead letter", "skip")),
        ("on_data_loss", on_data_loss, ("fail", "skip")),
    ):
        if value not in known:
            raise DefinitionError(f"kafka: {field}={value!r} is unknown.", f"It is {known[0]!r} or {known[1]!r}.")
    given = checked_options(options, "kafka")
    level = given.pop("isolation.level", "read_committed")
    if level not in ("read_committed", "read_uncommitted"):
        raise DefinitionError(
            f"kafka: isolation.level={level!r} is unknown.", "It is read_committed or read_uncommitted."
        )
    brokers = server_list(servers, "kafka")
    java_settings(brokers, given)
    reading = Reading(
        brokers,
        names,
        _compiled(pattern),
        written,
        _start(starting),
        metadata,
        tombstones == "dead letter" or written.kind == "raw",
        on_data_loss == "skip",
        group,
        given,
        level == "read_committed",
    )
    return KafkaSource(reading)


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    if pattern is None:
        return None
    text(pattern, "kafka: pattern")
    try:
        return re.compile(rf"(?!__)(?:{pattern})")
    except (re.error, TypeError) as error:
        raise DefinitionError(
            f"kafka: pattern={pattern!r} is no pattern: {error}.", "Give a regular expression."
        ) from None


def _start(starting: Starting) -> Start:
    """Return where to begin; a time that is no whole number of milliseconds is rounded up."""
    if isinstance(starting, Mapping):
        ok = all(
            isinstance(of, Mapping) and all(type(n) is int and 0 <= n < 1 << 63 for n in of.values())
            for of in starting.values()
        )
        if ok:
            return {topic: {int(part): at for part, at in of.items()} for topic, of in starting.items()}
    elif isinstance(starting, str):
        if starting in ("earliest", "latest"):
            return starting
        try:
            return _start(datetime.fromisoformat(starting.replace("Z", "+00:00")))
        except ValueError:
            pass
    elif isinstance(starting, datetime):
        aware = starting if starting.tzinfo is not None else starting.replace(tzinfo=UTC)
        return _start((aware - _EPOCH) // timedelta(microseconds=1))
    elif type(starting) is int and 0 <= starting <= LAST_EVENT:  # brokers take -1 and -2 ms for both ends
        return -(-starting // 1_000)
    raise DefinitionError(
        f"kafka: starting={starting!r} is no place to begin.",
        'It is "earliest", "latest", a time such as "2026-01-01T00:00:00Z", or offsets such as {"orders": {0: 17}}.',
    )
