"""A Kafka broker for a run of the tests: from Maven once, on free loopback ports, ended by its process id."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import fetching
from tests.fetching import MissingError, artifact

VERSION = "4.3.1"
_GUARDED = 'exec 3<&0; "$@" </dev/null 3<&- & p=$!; { cat <&3 >/dev/null; kill -KILL $p; } & wait $p'
"""Runs a command, and kills it when standard input ends, as it does when the tests are killed."""
USER, PASSWORD = "transom", "s3cret-of-the-tests"
BROKER = [
    artifact(f"org.apache.kafka:kafka_2.13:{VERSION}"),
    artifact("org.apache.logging.log4j:log4j-core:2.25.1"),
    artifact("org.apache.logging.log4j:log4j-slf4j-impl:2.25.1"),
]
SPARK = [
    artifact("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0", alone=True),
    artifact("org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0", alone=True),
    artifact("org.apache.spark:spark-avro_2.13:4.2.0", alone=True),
    artifact("org.apache.kafka:kafka-clients:3.9.2", alone=True),
    artifact("org.apache.commons:commons-pool2:2.13.1", alone=True),
]


def jars(what: str) -> Path:
    """Return the directory of the jars of the "broker" or of "spark".

    Raises:
        MissingError: They cannot be fetched.
    """
    return fetching.jars(f"kafka-{VERSION}/{what}", BROKER if what == "broker" else SPARK)


def why_not() -> str | None:
    """Return why no broker can be had; None if one can."""
    try:
        jars("broker")
    except MissingError as missing:
        return f"no broker: {missing}"
    return None if importlib.util.find_spec("confluent_kafka") else "confluent-kafka is not installed"


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@dataclass
class Broker:
    """A broker that runs; topics of tests have names of their own."""

    directory: Path
    ports: list[int] = field(default_factory=lambda: free_ports(3))
    process: subprocess.Popen[bytes] | None = None
    _topics: int = 0

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"

    @property
    def with_login(self) -> str:
        """Brokers that ask for name and password."""
        return f"127.0.0.1:{self.ports[2]}"

    def begin(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = self.directory / "server.properties"
        path = str(jars("broker")) + "/*"
        if not settings.exists():
            settings.write_text(_settings(self.ports, self.directory))
            (self.directory / "log4j2.properties").write_text(_LOGGING)
            tool = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", path, "kafka.tools.StorageTool", "format"]
            subprocess.run(
                [*tool, "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(settings)], capture_output=True, check=True
            )
        self.start()

    def start(self) -> None:
        """Start it, also again, with the data that it has."""
        java = ["java", "-Xms192m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        logging = f"-Dlog4j2.configurationFile={self.directory}/log4j2.properties"
        command = [*java, "-cp", str(jars("broker")) + "/*", logging, "kafka.Kafka"]
        with (self.directory / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", _GUARDED, "sh", *command, str(self.directory / "server.properties")],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
            )
        (self.directory / "pid").write_text(str(self.process.pid))
        deadline = time.monotonic() + 120
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                said = (self.directory / "broker.log").read_text(errors="replace")[-2000:]
                raise MissingError(f"the broker does not start:\n{said}")

    def answers(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            self.admin.list_topics(timeout=1)
        except KafkaException:
            return False
        return True

    def stop(self) -> None:
        """Kill it."""
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait(60)
            self.process = None

    @property
    def admin(self) -> Any:
        from transom.kafka.client import admin

        if not hasattr(self, "_admin"):
            self._admin = admin(self.servers, {})
        return self._admin

    def topic(self, partitions: int = 1, name: str | None = None, **config: str) -> str:
        from confluent_kafka.admin import NewTopic

        self._topics += 1
        name = name or f"t{os.getpid()}-{self._topics}"
        config = {key.replace("_", "."): value for key, value in config.items()}
        for future in self.admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
            future.result(30)
        return name

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(30)

    def add_partitions(self, name: str, count: int) -> None:
        from confluent_kafka.admin import NewPartitions

        self.admin.create_partitions([NewPartitions(name, count)])[name].result(30)

    def forget(self, name: str, partition: int, before: int) -> None:
        """Remove records, as retention does."""
        from confluent_kafka import TopicPartition

        for future in self.admin.delete_records([TopicPartition(name, partition, before)]).values():
            future.result(30)

    def producer(self, **options: Any) -> Any:
        from confluent_kafka import Producer

        named = {key.replace("_", "."): value for key, value in options.items()}
        return Producer({"bootstrap.servers": self.servers, "linger.ms": 2, "log_level": "0", **named})

    def put(self, topic: str, values: Any, partition: int = 0, **about: Any) -> None:
        """Add records to a partition; values are bytes, texts or None."""
        producer = self.producer()  # one that is kept does not know of partitions that were added
        for value in values:
            producer.produce(topic, value, partition=partition, **about)
        assert producer.flush(60) == 0

    def read(self, topic: str, committed: bool = True) -> list[Any]:
        """Return all messages of a topic."""
        from confluent_kafka import Consumer, TopicPartition

        level = "read_committed" if committed else "read_uncommitted"
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "tests",
                "isolation.level": level,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": "0",
            }
        )
        count = len(consumer.list_topics(topic, timeout=300).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(count)])
        found: list[Any] = []
        ended: set[int] = set()
        while len(ended) < count:
            message = consumer.poll(30)
            assert message is not None, "the broker does not answer"
            if message.error() is None:
                found.append(message)
            else:
                ended.add(message.partition())
        consumer.close()
        return found


def _settings(ports: list[int], directory: Path) -> str:
    plain, controller, login = ports
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    one = ["offsets.topic", "transaction.state.log", "share.coordinator.state.topic"]
    lines = [
        "process.roles=broker,controller",
        "node.id=1",
        f"controller.quorum.voters=1@127.0.0.1:{controller}",
        f"listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},LOGIN://127.0.0.1:{login}",
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{plain},LOGIN://127.0.0.1:{login}",
        "controller.listener.names=CONTROLLER",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "inter.broker.listener.name=PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN",
        f'listener.name.login.plain.sasl.jaas.config={module} required user_{USER}="{PASSWORD}";',
        f"log.dirs={directory}/data",
        "auto.create.topics.enable=false",
        "group.initial.rebalance.delay.ms=0",
        "log.cleaner.backoff.ms=200",
        "log.initial.task.delay.ms=500",
        "log.retention.ms=-1",  # the messages of tests are years old
        "transaction.state.log.min.isr=1",
        "share.coordinator.state.topic.min.isr=1",
        *(f"{name}.replication.factor=1" for name in one),
        *(f"{name}.num.partitions=1" for name in one),
    ]
    return "\n".join(lines) + "\n"


_LOGGING = """rootLogger.level=ERROR
rootLogger.appenderRef.c.ref=C
appender.c.type=Console
appender.c.name=C
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%d %p %c{1} %m%n
"""


@contextmanager
def running(directory: Path) -> Any:
    """Run a broker for as long as the block lasts."""
    broker = Broker(directory)
    try:
        broker.begin()
        yield broker
    finally:
        broker.stop()


if __name__ == "__main__":  # a broker by hand: python -m tests.kafka.broker DIRECTORY
    with running(Path(sys.argv[1])) as one:
        print(one.servers, flush=True)
        signal.pause()
