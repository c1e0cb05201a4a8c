"""What a source of Kafka reads, and how: as its user said it, and as options of Spark's reader."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from transom.kafka.client import JAVA, java_settings
from transom.kafka.consuming import Settings, consumer_settings
from transom.model.formats import Format
from transom.sources.topics.beginnings import Start

NO_ANSWER_AFTER = "2000"
"""Milliseconds in which Spark's consumer has to get the next records; its own default of 120 s would hold up a cut."""
_GONE_AFTER = "10000"
_GONE_BY = ("kafka.default.api.timeout.ms", "kafka.request.timeout.ms")
NO_WAIT = "5"
"""Milliseconds that a broker waits for more than there is. A range is there when it is read, so that waiting is of no
use; and with the 500 ms that are usual, each consumer, of which a cut has one per partition, takes so long to close."""
AT_ONCE = "5000"
"""Records that Spark's consumer takes at a time of those that have come; with the usual 500 a tenth of a job's
processor time goes into asking."""

_HOW_IT_ASKS = re.compile(
    r"client\.id|client\.rack|connections\.max\.idle\.ms|default\.api\.timeout\.ms|fetch\..*|max\.partition\.fetch\.bytes"
    r"|max\.poll\..*|metadata\.max\.age\.ms|(receive|send)\.buffer\.bytes|reconnect\.backoff\..*|request\.timeout\.ms"
    r"|retry\.backoff\..*|socket\.connection\.setup\..*"
)
"""Options of Java's client that say how it asks brokers, not for what or as whom."""


@dataclass(frozen=True)
class Reading:
    """What is read, and how."""

    servers: str
    topics: tuple[str, ...] | None
    pattern: re.Pattern[str] | None
    format: Format
    starting: Start
    about: bool
    """Whether rows have a column with what is known of each message."""
    keep_tombstones: bool
    skips: bool
    """Whether messages that are gone are left out; else they end the run."""
    group: str | None
    options: Mapping[str, str] = field(repr=False)
    committed: bool = True

    @property
    def what(self) -> str:
        """The topics, for people."""
        return ", ".join(self.topics) if self.topics is not None else f"/{self.pattern and self.pattern.pattern[9:-1]}/"

    @property
    def settings(self) -> dict[str, str]:
        """Options of Spark's reader."""
        given = java_settings(self.servers, self.options)
        return {
            "kafkaConsumer.pollTimeoutMs": NO_ANSWER_AFTER,
            "kafka.fetch.max.wait.ms": NO_WAIT,
            "kafka.max.poll.records": AT_ONCE,
            **patience(given),
            **given,
            "kafka.isolation.level": "read_committed" if self.committed else "read_uncommitted",
        }

    @property
    def consumer(self) -> Settings:
        """Settings of consumers that read without Spark."""
        return consumer_settings(self.servers, self.options, self.committed)

    @property
    def why_spark(self) -> str | None:
        """Why only Spark reads it, in words; None where it need not."""
        if self.format.kind != "json":
            return f"only Spark reads payloads of the format {self.format.kind}"
        if self.format.options:
            return f"only Spark knows the option {next(iter(self.format.options))} of the format json"
        if self.about:
            return "only Spark gives the column _kafka"
        for name in sorted(self.options):
            if name.startswith(JAVA) and not _HOW_IT_ASKS.fullmatch(name.removeprefix(JAVA)):
                return f"only Spark's client knows the option {name}"
        return None


def patience(given: Mapping[str, str]) -> dict[str, str]:
    """Return how long Spark's consumer waits for brokers to tell where a partition begins and ends, unless it is given.

    It asks up to four times. With the usual minute a job went on for four after the brokers had vanished, and nothing
    was said meanwhile. The client refuses a call shorter than a request.
    """
    return {} if any(name in given for name in _GONE_BY) else dict.fromkeys(_GONE_BY, _GONE_AFTER)
