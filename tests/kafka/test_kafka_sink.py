"""The sink against a real broker: each result once, whatever ends the writer, for readers of committed messages."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pyarrow as pa
import pytest
import sink_writer
from kafka_helpers import KilledError, fresh
from sink_writer import OWNER, ROWS, results
from tests.kafka.broker import PASSWORD, USER, free_ports

import transom as tm
from transom.errors import CheckpointFencedError, DefinitionError, SinkError
from transom.sinks.base import WindowResults
from transom.sinks.owner import Claim, Owner

pytestmark = pytest.mark.kafka


@contextmanager
def started(broker: Any, topic: str, claim: Claim | None = None, **options: Any) -> Iterator[Any]:
    sink = tm.sinks.kafka(broker.servers, topic, **options)
    sink.open("q")
    with closing(sink):
        sink.claim(claim or Claim(OWNER))
        yield sink


def seen(broker: Any, topic: str) -> list[int]:
    return sorted(json.loads(message.value())["n"] for message in broker.read(topic))


def expected(*cuts: int) -> list[int]:
    return [row["n"] for cut in cuts for row in results(cut).table.to_pylist()]


# ---- what is sent


def test_rows_and_keys(kafka: Any) -> None:
    moment = pa.array([1_700_000_000_000_000, None], pa.timestamp("us", "UTC"))
    columns = {"window_start": moment, "s": ['a"b\n', None], "n": pa.array([1, None], pa.int32()), "x": [0.5, 2.0]}
    row = {"window_start": "2023-11-14T22:13:20Z", "s": 'a"b\n', "n": 1, "x": 0.5}
    cases: list[tuple[Any, Any, list[Any]]] = [
        ((), None, [None, None]),
        ("s", None, [b'a"b\n', None]),
        (["n"], None, [b"1", None]),
        (["window_start"], None, [b"2023-11-14T22:13:20Z", None]),
        (["s", "n"], tm.json(), [b'["a\\"b\\n",1]', b"[null,null]"]),
    ]
    for key, format, keys in cases:
        topic = kafka.topic()
        with started(kafka, topic, key=key, format=format) as sink:
            sink.write(WindowResults("q", 0, pa.table(columns)))
        messages = kafka.read(topic)
        assert [message.key() for message in messages] == keys
        assert json.loads(messages[0].value()) == row
        assert json.loads(messages[1].value()) == {"window_start": None, "s": None, "n": None, "x": 2.0}
    topic = kafka.topic()
    with started(kafka, topic, format=tm.csv()) as sink:
        sink.write(WindowResults("q", 0, pa.table(columns)))
        assert [message.value() for message in kafka.read(topic)] == [
            b'2023-11-14T22:13:20Z,"a""b\n",1,0.5',
            b",,,2",
        ]
        with started(kafka, kafka.topic(), key=["y"]) as other, pytest.raises(SinkError, match="'y' is no column"):
            other.write(WindowResults("q", 0, pa.table(columns)))


def test_equal_keys_are_in_one_partition(kafka: Any) -> None:
    topic = kafka.topic(3)
    with started(kafka, topic, key=["zone"]) as sink:
        for cut in range(3):
            sink.write(results(cut))
    places: dict[bytes, set[int]] = {}
    for message in kafka.read(topic):
        places.setdefault(message.key(), set()).add(message.partition())
    assert all(len(partitions) == 1 for partitions in places.values())
    assert len(places) == 3


# ---- exactly once


class Dying:
    """A producer that is killed before or after one of its calls."""

    def __init__(self, producer: Any, at: str, number: int, after: bool) -> None:
        self._producer, self._at, self._left, self._after = producer, at, number, after

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._producer, name)
        if name != self._at:
            return call

        def dying(*args: Any, **options: Any) -> Any:
            self._left -= 1
            if not self._left and not self._after:
                raise KilledError
            done = call(*args, **options)
            if not self._left:
                raise KilledError
            return done

        return dying


STEPS = [("begin_transaction", 1), ("produce", 1), ("produce", ROWS), ("produce", ROWS + 1), ("commit_transaction", 1)]


@pytest.mark.slow
def test_killed_at_any_step(kafka: Any) -> None:
    """The killed writer is never closed: what it began is ended by the next one."""
    topic, cut, ends = kafka.topic(2), 0, []
    for step, number in STEPS:
        for after in (False, True):
            sink = tm.sinks.kafka(kafka.servers, topic)
            sink.open("q")
            sink.claim(Claim(OWNER))
            sink.write(results(cut))  # perhaps it is there already
            sink._producer = Dying(sink._producer, step, number, after)
            sink._drop = lambda: None
            with pytest.raises(KilledError):
                sink.write(results(cut + 1))
            ends.append(sink)
            cut += 1
    with started(kafka, topic) as sink:
        sink.recover("q", cut + 1)
        sink.write(results(cut))
        assert seen(kafka, topic) == expected(*range(cut + 1))
        with pytest.raises(SinkError, match=f"holds results up to cut {cut}, but the checkpoint continues with cut 3"):
            sink.recover("q", 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_process_that_is_killed_again_and_again(kafka: Any, seed: int) -> None:
    topic, cuts, numbers = kafka.topic(2), 60, random.Random(seed)
    command = [sys.executable, sink_writer.__file__, kafka.servers, topic, str(cuts)]
    for left in reversed(range(3)):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"ready\n", process.stderr.read().decode()
            if left:
                for _ in range(numbers.randrange(cuts)):  # it is amid the next one, or begins it
                    process.stdout.readline()
                process.send_signal(signal.SIGKILL)
            process.communicate(timeout=600)
            assert process.returncode == (-signal.SIGKILL if left else 0)
    assert seen(kafka, topic) == expected(*range(cuts))


def test_the_former_run_can_write_no_more(kafka: Any) -> None:
    topic = kafka.topic()
    with started(kafka, topic) as old:
        old.write(results(0))
        with started(kafka, topic) as new:
            new.recover("q", 1)
            assert new._last == 0
            for _ in range(2):  # it does not end the new one in turn
                with pytest.raises(SinkError, match="Another run of this application has begun"):
                    old.write(results(1))
            new.write(results(1))
            new.write(results(1))
    assert seen(kafka, topic) == expected(0, 1)


def test_the_former_run_is_told_so_while_it_sends(kafka: Any) -> None:
    """A producer that finds out between two messages only says that something came before."""
    from confluent_kafka import KafkaException

    topic = kafka.topic()
    with started(kafka, topic) as old, started(kafka, topic) as new:
        real = old._producer

        class Late:
            def __getattr__(self, name: str) -> Any:
                return getattr(real, name)

            def produce(self, *arguments: Any, **more: Any) -> None:
                real.produce(*arguments, **more)
                with suppress(KafkaException):
                    while True:
                        real.poll(0.05)
                real.produce(*arguments, **more)

        old._producer = Late()
        with pytest.raises(SinkError, match="Another run of this application has begun"):
            old.write(results(0))
        new.write(results(0))
    assert seen(kafka, topic) == expected(0)


def test_the_former_run_does_not_end_one_that_has_not_come_here_yet(kafka: Any) -> None:
    """A newer run of the checkpoint has begun: this one may not begin to write again, though none else does so here."""
    newer: list[str] = []

    def check() -> None:
        if newer:
            raise CheckpointFencedError("A newer run has begun.", "")

    topic = kafka.topic()
    with started(kafka, topic, Claim(OWNER, check=check)) as old:
        old.write(results(0))
        old._drop()
        old.write(results(1))
        old._drop()
        newer.append("run")
        producer = old._book.producer(old._transactional)  # as the newer one does first
        with pytest.raises(CheckpointFencedError):
            old.write(results(2))
        old._book.enter(producer)
    assert seen(kafka, topic) == expected(0, 1)


def test_what_failed_is_tried_again(kafka: Any) -> None:
    """A commit of which nobody knows whether it came about is looked up in the ledger."""
    from confluent_kafka import KafkaError, KafkaException

    topic = kafka.topic()
    with started(kafka, topic) as sink:
        for cut, after in ((0, False), (1, True)):
            real = sink._producer

            class Unclear:
                def __getattr__(self, name: str, real: Any = real) -> Any:
                    return getattr(real, name)

                def commit_transaction(self, timeout: float, real: Any = real, after: bool = after) -> None:
                    if after:
                        real.commit_transaction(timeout)
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

            sink._producer = Unclear()
            with pytest.raises(SinkError, match="cannot be written"):
                sink.write(results(cut))
            sink.write(results(cut))
            sink.write(results(cut))
    assert seen(kafka, topic) == expected(0, 1)


def test_transactions_of_others_hide_nothing(kafka: Any) -> None:
    """While another transaction is open in the ledger, what is behind it cannot be read; then one waits for it."""
    import threading

    ledger, topic = fresh("ledger"), kafka.topic()
    with started(kafka, topic, ledger=ledger) as sink:
        sink.recover("q", 0)
        other = kafka.producer(transactional_id=fresh())
        other.init_transactions(30)
        other.begin_transaction()
        other.produce(ledger, "1", json.dumps(["elsewhere", "cut"]), partition=0)
        assert other.flush(30) == 0
        sink.write(results(0))
        ends = threading.Timer(1, lambda: other.commit_transaction(30))
        ends.start()
        assert sink._ledger.read().cut == 0
        ends.join()


def test_a_topic_that_others_write_to_as_well(kafka: Any) -> None:
    topic = kafka.topic()
    kafka.put(topic, [b'{"n": -1}'])
    with pytest.raises(SinkError, match="holds results already"), started(kafka, topic, Claim(OWNER, is_new=True)):
        pass
    with started(kafka, topic, Claim(OWNER, is_new=True), shared=True) as sink:
        sink.write(results(0))
    with (
        pytest.raises(SinkError, match="belongs to the query 'q'"),
        started(kafka, topic, Claim(Owner("d", "q", "/d")), shared=True),
    ):
        pass
    assert seen(kafka, topic) == [-1, *expected(0)]
    # A topic that is made again is another place.
    kafka.delete(topic)
    kafka.topic(1, topic)
    while topic not in kafka.admin.list_topics(timeout=300).topics:
        pass
    with started(kafka, topic, Claim(Owner("d", "r", "/d"), is_new=True)) as sink:
        sink.write(results(0, "r"))


# ---- what cannot be, and what must not be told


def test_what_cannot_be(kafka: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transom.sinks.topics.ANSWER", 0.5)
    for arguments, message in (
        ({"topic": ""}, "no name of a topic"),
        ({"servers": []}, "names no brokers"),
        ({"format": tm.text()}, "cannot be written as"),
        ({"options": {"transactional.id": "x"}}, "cannot be set"),
    ):
        with pytest.raises(DefinitionError, match=message):
            tm.sinks.kafka(**{"servers": "b:1", "topic": "t", **arguments})
    with pytest.raises(SinkError, match="'no-such' does not exist"):
        tm.sinks.kafka(kafka.servers, "no-such").open("q")
    away = tm.sinks.kafka(f"127.0.0.1:{free_ports(1)[0]}", "t", options={"socket.timeout.ms": 500})
    with pytest.raises(SinkError, match="cannot be written"):
        away.open("q")
    with pytest.raises(DefinitionError, match="does not take the options"):
        tm.sinks.kafka(kafka.servers, "t", options={"sasl.pasword": PASSWORD}).open("q")


def test_login_and_secrets(kafka: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    topic = kafka.topic()
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": USER}
    sink = tm.sinks.kafka(kafka.with_login, topic, options={**login, "sasl.password": PASSWORD})
    with closing(sink):
        sink.open("q")
        sink.claim(Claim(OWNER))
        sink.write(results(0))
    assert seen(kafka, topic) == expected(0)
    wrong = tm.sinks.kafka(kafka.with_login, topic, options={**login, "sasl.password": PASSWORD + "x"})
    monkeypatch.setattr("transom.sinks.topics.ANSWER", 0.5)
    with pytest.raises(SinkError) as error:
        wrong.open("q")
    said = [sink.describe(), repr(sink), repr(sink._ledger), sink.key, str(error.value), *capfd.readouterr()]
    assert not [text for text in said if PASSWORD in text]
