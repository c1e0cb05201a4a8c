"""Events in topics of a broker that the benchmark starts.

`python -m benchmarks.topics SERVERS TOPIC SOURCE NOTES SECONDS` sends the lines of the files of SOURCE, those of one
file every SECONDS, and notes when they were acknowledged, as `benchmarks.feed` does for files.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 3
SCHEME = "kafka://"
"""A source that is a topic is written kafka://SERVERS/TOPIC."""


def address(servers: str, topic: str) -> str:
    """Return a topic as a source."""
    return f"{SCHEME}{servers}/{topic}"


def parsed(source: str) -> tuple[str, str] | None:
    """Return servers and topic of a source; None for a directory.

    >>> parsed("kafka://127.0.0.1:9092/events"), parsed("/events")
    (('127.0.0.1:9092', 'events'), None)
    """
    if not source.startswith(SCHEME):
        return None
    servers, _, topic = source.removeprefix(SCHEME).rpartition("/")
    return servers, topic


def producer(servers: str) -> Any:
    """Return a producer."""
    from confluent_kafka import Producer

    more = {"linger.ms": 5, "queue.buffering.max.messages": 2_000_000, "queue.buffering.max.kbytes": 1_000_000}
    return Producer({"bootstrap.servers": servers, **more})


def send(sender: Any, topic: str, path: Path) -> None:
    """Send the lines of a file to the partitions in turn, and wait until all are acknowledged."""
    send_lines(sender, topic, path.read_bytes().splitlines())


def send_lines(sender: Any, topic: str, lines: Sequence[bytes]) -> None:
    """Send lines to the partitions in turn, and wait until all are acknowledged."""
    for number, line in enumerate(lines):
        sender.produce(topic, line, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            sender.poll(0)
    if sender.flush(120):
        raise RuntimeError(f"The broker does not take the events of {topic}.")


def fill(servers: str, topic: str, source: Path) -> None:
    """Send all files of a directory, in order of name."""
    sender = producer(servers)
    for path in sorted(source.glob("*.json")):
        send(sender, topic, path)


def feed(servers: str, topic: str, source: Path, notes: Path, seconds: float) -> None:
    """Send the files on a schedule; the first is due at once."""
    sender = producer(servers)
    began = time.time_ns()
    with notes.open("w") as log:
        for number, path in enumerate(sorted(source.glob("*.json"))):
            due = began + round(number * seconds * 1e9)
            time.sleep(max(0.0, (due - time.time_ns()) / 1e9))
            send(sender, topic, path)
            log.write(json.dumps({"number": number, "due": due, "visible": time.time_ns()}) + "\n")
            log.flush()


def start(servers: str, topic: str, source: Path, notes: Path, seconds: float) -> subprocess.Popen[bytes]:
    """Start feeding in a process of its own."""
    arguments = [servers, topic, str(source), str(notes), str(seconds)]
    return subprocess.Popen([sys.executable, "-m", "benchmarks.topics", *arguments])


def stream(spark: SparkSession, servers: str, topic: str, schema: str, most: int) -> DataFrame:
    """Return a topic as a stream of stock Spark.

    Args:
        spark: The session.
        servers: The brokers.
        topic: The topic.
        schema: The columns of the JSON payload.
        most: Offsets per micro-batch.
    """
    from pyspark.sql import functions as F

    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    options["kafka.fetch.max.wait.ms"] = "5"  # as Transom sets it: the 500 ms of the default are for busy networks
    records = spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger=most).load()
    return records.select(F.from_json(F.col("value").cast("string"), schema).alias("event")).select("event.*")


if __name__ == "__main__":
    feed(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]), float(sys.argv[5]))
