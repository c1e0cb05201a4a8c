"""Ranges of offsets read by librdkafka, with one consumer that is kept, as in a Python worker."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from kafka_helpers import fresh
from tests.kafka.broker import PASSWORD, USER, free_ports

from transom.errors import DefinitionError, SourceAwayError
from transom.kafka import consuming
from transom.kafka.consuming import RangeReader, Taken, TopicRange, Unread, consumer_settings, reader

pytestmark = pytest.mark.kafka


@pytest.fixture
def ranges(kafka: Any) -> Iterator[RangeReader]:
    """A reader of the broker."""
    yield reader(consumer_settings(kafka.servers, {}, committed=True))
    reader.cache_clear()


def taken(of: RangeReader, asked: Sequence[TopicRange]) -> list[list[bytes | None] | str]:
    """Return the values of each range, or why it cannot be read."""
    found: list[Any] = [[] for _ in asked]
    for each in of.read(asked):
        if isinstance(each, Unread):
            found[each.number] = each.why
        else:
            found[each.number] += each.values
    return found


@pytest.mark.parametrize(("rounds", "rows"), [(15, 500), pytest.param(300, 3_000, marks=pytest.mark.slow)])
def test_every_range_comes_whole_whatever_was_read_before(
    kafka: Any, ranges: RangeReader, monkeypatch: pytest.MonkeyPatch, rounds: int, rows: int
) -> None:
    """Nothing of what the consumer has fetched for a former range comes in the place of another."""
    topics = [kafka.topic(3) for _ in range(2)]
    for topic in topics:
        for partition in range(3):
            kafka.put(topic, [f"{topic} {partition} {i}" + "x" * (i % 50) for i in range(rows)], partition)
    draw = random.Random(3)
    for number in range(rounds):
        monkeypatch.setattr(consuming, "BLOCK", draw.choice([100, 5_000, 4 << 20]))
        monkeypatch.setattr(consuming, "HELD", draw.choice([500, 16 << 20]))
        monkeypatch.setattr(consuming, "MOST", draw.choice([1, 70, 2_000]))
        places = draw.sample([(topic, partition) for topic in topics for partition in range(3)], draw.randrange(1, 7))
        asked = []
        for topic, partition in places:
            begin = draw.randrange(rows)
            asked.append(TopicRange(topic, partition, begin, draw.randrange(begin + 1, rows + 1)))
        if number % 7 == 0:  # who stops in the middle leaves nothing behind
            next(ranges.read(asked))
        for found, each in zip(taken(ranges, asked), asked, strict=True):
            wanted = [f"{each.topic} {each.partition} {i}" + "x" * (i % 50) for i in range(each.begin, each.end)]
            assert found == [text.encode() for text in wanted]


def test_blocks_are_bounded_and_what_is_left_is_not_read_on(
    kafka: Any, ranges: RangeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic(2)
    for partition in range(2):
        kafka.put(topic, ["x" * 100] * 3_000, partition, timestamp=1_700_000_000_123)
    monkeypatch.setattr(consuming, "BLOCK", 10_000)
    monkeypatch.setattr(consuming, "HELD", 10_000)
    monkeypatch.setattr(consuming, "MOST", 50)
    asked = [TopicRange(topic, partition, 0, 3_000) for partition in range(2)]
    blocks = []
    for each in ranges.read(asked, stamps=True):
        assert isinstance(each, Taken)
        assert set(each.stamps) == {1_700_000_000_123}
        assert len(each.stamps) == len(each.values)
        blocks.append((each.number, len(each.values)))
        if each.number == 0:
            ranges.leave(0)
    assert sum(number == 0 for number, _ in blocks) == 1
    assert sum(rows for number, rows in blocks if number == 1) == 3_000
    assert max(rows for _, rows in blocks) <= 150


def test_offsets_without_messages_and_messages_that_are_gone(kafka: Any, ranges: RangeReader) -> None:
    topic, gone = kafka.topic(), kafka.topic(2)
    producer = kafka.producer(transactional_id=fresh())
    producer.init_transactions(30)
    for number, ends in enumerate(
        (producer.commit_transaction, producer.abort_transaction, producer.abort_transaction)
    ):
        producer.begin_transaction()
        for value in range(2):
            producer.produce(topic, f"{number} {value}", partition=0)
        assert producer.flush(30) == 0
        ends(30)
    # 0, 1, marker; 3, 4 aborted, marker; 6, 7 aborted, marker
    for partition in range(2):
        kafka.put(gone, ["a", None, "b", "c"], partition)
    kafka.forget(gone, 0, 3)

    def of(begin: int, end: int) -> Any:
        (found,) = taken(ranges, [TopicRange(topic, 0, begin, end)])
        return found

    assert of(0, 9) == of(0, 3) == of(0, 2) == [b"0 0", b"0 1"]
    assert of(1, 4) == [b"0 1"]
    assert of(2, 9) == of(3, 4) == of(8, 9) == []
    everything = reader(consumer_settings(kafka.servers, {"isolation.level": "x"}, committed=False))
    assert len(taken(everything, [TopicRange(topic, 0, 0, 9)])[0]) == 6
    lost, there, tail = taken(
        ranges, [TopicRange(gone, 0, 1, 4), TopicRange(gone, 1, 1, 4), TopicRange(topic, 0, 0, 1)]
    )
    assert "out of range" in str(lost)
    assert (there, tail) == ([None, b"b", b"c"], [b"0 0"])
    assert taken(ranges, [TopicRange(gone, 0, 3, 4)]) == [[b"c"]]


def test_brokers_that_do_not_answer(monkeypatch: pytest.MonkeyPatch, kafka: Any) -> None:
    """They are told from what cannot be, without what is secret; a consumer that failed is not used again."""
    monkeypatch.setattr(consuming, "LOOK", 0.3)
    monkeypatch.setattr(consuming, "LOOKS", 3)
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": USER}
    wrong = {**login, "sasl.password": PASSWORD + "wrong"}
    for servers, options in ((f"127.0.0.1:{free_ports(1)[0]}", {}), (kafka.with_login, wrong)):
        settings = consumer_settings(servers, options, committed=True)
        one = reader(settings)
        with pytest.raises(SourceAwayError, match="gave no message of t/3 from offset 5 on") as error:
            list(one.read([TopicRange("t", 3, 5, 6)]))
        assert PASSWORD not in str(error.value) + repr(error.value)
        assert reader(settings) is not one
    for options in (
        {**wrong, "ssl.ca.location": "/no/such", "security.protocol": "SASL_SSL"},
        {**wrong, "no.such": "x"},
    ):
        settings = consumer_settings(kafka.servers, options, committed=True)
        with pytest.raises(DefinitionError, match="does not take the options") as refused:
            reader(settings)
        assert PASSWORD not in str(refused.value)
