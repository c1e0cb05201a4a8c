"""The source against a real broker: what is read, and what brokers do meanwhile."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kafka_helpers import NOON, SCHEMA, SECOND, corrupt, fresh, ids, later, opened, read
from tests.kafka.broker import free_ports, running

import transom as tm
from transom.errors import CheckpointCorruptError, DefinitionError, SourceAwayError, SourceError
from transom.failures import FailureKind, classify
from transom.model.time import ManualClock
from transom.sources.topics.ranges import Range

pytestmark = pytest.mark.kafka


# ---- payloads

AVRO = json.dumps({"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]})
FORMATS = {
    "json": (
        tm.json("id bigint, name string"),
        b'{"id": 7, "name": "x"}',
        (7, "x"),
        [b'{"id": 7} 8', b"{", b"", b"\xff"],
    ),
    "csv": (
        tm.csv("id bigint, name string", {"sep": ";"}),
        b"7;x",
        (7, "x"),
        [b"seven;x", b"7", b"7;\xff", b"", b"7;x;y", b"7;x\n8;y"],
    ),
    "csv of one column": (tm.csv("name string"), b"", (None,), [b"x,y"]),
    "text": (tm.text(), "ü".encode(), ("ü",), [b"\xff"]),
    "avro": (tm.avro(AVRO), b"\x0e", (7,), [b"", b"\xff", b"\x0e\0", b"\x0e\x0e"]),
    "avro with a header": (tm.avro(AVRO, skip=5), b"\0\0\0\0\1\x0e", (7,), [b"\0\0", b"\0\0\0\0\1\xff"]),
}


@pytest.mark.parametrize("kind", FORMATS)
def test_what_cannot_be_read_is_known_by_its_place(kind: str, kafka: Any, spark: Any, tmp_path: Path) -> None:
    format, good, row, bad = FORMATS[kind]
    topic = kafka.topic()
    kafka.put(topic, [good, *bad, None, good])
    with opened(kafka, spark, tmp_path, topic, format) as source:
        end = source.latest()
        assert [found[1:] for found in read(source, spark, {}, end)] == [row, row]
        found = corrupt(source, spark, {}, end)
        assert [place[:3] for place in found] == [(topic, 0, i + 1) for i in range(len(bad) + 1)]
        assert found[-1][3].startswith("null")
    with opened(kafka, spark, tmp_path / "other", topic, format, tombstones="skip") as source:
        assert len(corrupt(source, spark, {}, end)) == len(bad)


def test_raw_messages_with_all_that_is_known_of_them(kafka: Any, spark: Any, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.put(topic, [b"\xff"], key=b"k", headers=[("a", b"1"), ("a", None)], timestamp=NOON // 1_000 + 5)
    kafka.put(topic, [None])
    with opened(kafka, spark, tmp_path, topic, tm.raw(), metadata=True) as source:
        second, first = (row[1:] for row in read(source, spark, {}, source.latest()))
        assert source.schema.names == ["key", "value", "_kafka"]
    assert (first[0], first[1], second[1]) == (b"k", b"\xff", None)
    about = first[2].asDict(recursive=True)
    assert about.pop("timestamp").timestamp() == (NOON // 1_000 + 5) / 1_000
    headers = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert about == {"key": b"k", "headers": headers, "topic": topic, "partition": 0, "offset": 0}


# ---- where it begins


def test_where_the_first_run_begins(kafka: Any, spark: Any, tmp_path: Path) -> None:
    topic = kafka.topic(2)
    for number in range(4):
        for partition in range(2):
            kafka.put(topic, ids(number, number + 1), partition, timestamp=NOON // 1_000 + 1_000 * number)
    kafka.forget(topic, 0, 1)
    at = datetime.fromtimestamp(NOON // SECOND + 2, UTC)
    cases = {
        "earliest": ([1, 2, 3], [0, 1, 2, 3]),
        "latest": ([], []),
        at: ([2, 3], [2, 3]),
        at.isoformat(): ([2, 3], [2, 3]),
        NOON + 99 * SECOND: ([], []),
    }
    offsets = {topic: {1: 3}}
    for number, (starting, expected) in enumerate([*cases.items(), (offsets, ([1, 2, 3], [3]))]):
        with opened(kafka, spark, tmp_path / str(number), topic, starting=starting) as source:
            kafka_end, firsts = source.latest(), [part.first for part in source._book.parts]
            assert firsts == [4 - len(part) for part in expected], starting
            assert (source.start(), bool(kafka_end)) == ({}, expected != ([], []))
        # A restart does not decide again.
        with opened(kafka, spark, tmp_path / str(number), topic, starting="earliest") as source:
            assert [part.first for part in source._book.parts] == firsts
    with (
        pytest.raises(SourceError, match=f"{topic}/0 cannot begin at 0: it has 1 to 4"),
        opened(kafka, spark, tmp_path / "gone", topic, starting={topic: {0: 0}}),
    ):
        pass
    with pytest.raises(SourceError, match="'no-such' does not exist"), opened(kafka, spark, tmp_path / "no", "no-such"):
        pass


def test_offsets_belong_to_what_the_checkpoint_lists(kafka: Any, spark: Any, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.put(topic, ids(0, 3))
    with opened(kafka, spark, tmp_path, topic) as source:
        assert source.mark({f"{topic}/0": 2}) == source.mark({f"{topic}/0": 3}) != source.mark({})
        with pytest.raises(CheckpointCorruptError, match="does not list the partition other/0"):
            source.mark({"other/0": 1})
    (tmp_path / "partitions.json").write_text("[{")
    with (
        pytest.raises(CheckpointCorruptError, match=r"partitions\.json is damaged"),
        opened(kafka, spark, tmp_path, topic),
    ):
        pass


# ---- what brokers do meanwhile


def test_partitions_that_are_added_are_read_from_their_beginning(kafka: Any, spark: Any, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.put(topic, ids(0, 2))
    with opened(kafka, spark, tmp_path, topic, starting="latest") as source:
        begin = source.latest()
        kafka.add_partitions(topic, 3)
        kafka.put(topic, ids(2, 4), 2)
        end = later(source, lambda end: end == {f"{topic}/2": 2})
        assert source.partitions == (f"{topic}/0", f"{topic}/1", f"{topic}/2")
        assert source.waiting(begin).partitions == {2}
        assert [row[:2] for row in read(source, spark, begin, end)] == [(f"{topic}/2", 2), (f"{topic}/2", 3)]
    with opened(kafka, spark, tmp_path, topic) as again:
        assert again.latest() == end
        assert [row[1] for row in read(again, spark, begin, end)] == [2, 3]


def test_topics_that_match_later(kafka: Any, spark: Any, tmp_path: Path) -> None:
    prefix = fresh("orders")
    with opened(kafka, spark, tmp_path, pattern=f"{prefix}-.*") as source:
        assert source.describe() == f"Kafka /{prefix}-.*/ at {kafka.servers}, json"
        assert (source.latest(), source.partitions) == ({}, ("",))
        kafka.topic(2, f"{prefix}-b")
        kafka.put(f"{prefix}-b", ids(0, 1), 1)
        first = later(source, lambda end: len(end) == 1)
        kafka.topic(1, f"{prefix}-a")
        kafka.topic(1, f"x{prefix}-a")
        kafka.put(f"{prefix}-a", ids(1, 2))
        end = later(source, lambda end: len(end) == 2)
        assert source.partitions == (f"{prefix}-b/0", f"{prefix}-b/1", f"{prefix}-a/0")
        assert [row[:2] for row in read(source, spark, {}, end)] == [(f"{prefix}-a/0", 1), (f"{prefix}-b/1", 0)]
        assert [row[1] for row in read(source, spark, first, end)] == [1]


def test_a_topic_that_is_made_again_is_another_one(kafka: Any, spark: Any, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.put(topic, ids(0, 3))
    with (
        opened(kafka, spark, tmp_path, topic) as source,
        opened(kafka, spark, tmp_path / "skips", topic, on_data_loss="skip") as skips,
    ):
        old = source.latest()
        assert skips.latest() == old
        kafka.delete(topic)
        # What is known to wait is gone; there may have been more.
        later(source, lambda end: bool(source._gone))
        with pytest.raises(SourceError, match=rf"the topic was deleted: {topic}/0 offsets 1 to 2\."):
            source.cut({f"{topic}/0": 1}, 10)
        assert source.cut(old, 10).rows == 0
        kafka.topic(1, topic)
        kafka.put(topic, ids(5, 7))
        with pytest.raises(SourceError, match="deleted and made again"):
            later(source, lambda end: False)
        end = later(skips, lambda end: end == {f"{topic}/0": 3, f"{topic}#2/0": 2})
        assert skips.cut({f"{topic}/0": 1}, 10).end == end
        lost = Range(f"{topic}/0", 1, 3)
        assert skips.unfit({f"{topic}/0": 1}, end) == {str(lost): "the topic was deleted"}
        assert [row[:2] for row in read(skips, spark, {f"{topic}/0": 1}, end)] == [
            (f"{topic}#2/0", 5),
            (f"{topic}#2/0", 6),
        ]
        assert source.same_rows({}, old) is skips.same_rows({}, end) is False
        assert skips.same_rows({}, end, [str(Range(f"{topic}/0", 0, 3))])
    # The next run finds the same.
    with pytest.raises(SourceError, match="deleted and made again"), opened(kafka, spark, tmp_path, topic):
        pass
    with opened(kafka, spark, tmp_path / "skips", topic, on_data_loss="skip") as skips:
        assert skips.cut(end, 10).rows == 0
        assert later(skips) == end, "else there seems to be more for ever"


def test_retention_that_overtakes_the_reader(kafka: Any, spark: Any, tmp_path: Path) -> None:
    topic = kafka.topic(2)
    for partition in range(2):
        kafka.put(topic, ids(0, 10), partition)
    with (
        opened(kafka, spark, tmp_path, topic) as source,
        opened(kafka, spark, tmp_path / "skips", topic, on_data_loss="skip") as skips,
    ):
        end, at = source.latest(), {f"{topic}/0": 3}
        skips.latest()
        assert source.cut(at, 100).rows == 17
        kafka.forget(topic, 0, 7)
        message = rf"retention removed them: {topic}/0 offsets 3 to 6\."
        for look in (source.unfit, lambda *range: source.unreadable(spark, *range)):
            with pytest.raises(SourceError, match=message):
                look(at, end)
        # Whoever does not look first is told by Spark.
        with pytest.raises(Exception, match=r"Some data may have been lost|OffsetOutOfRange|out of range|are gone"):
            source.read(spark, at, end).collect()
        later(source)
        with pytest.raises(SourceError, match=message):
            source.cut(at, 100)
        later(skips)
        assert skips.cut(at, 100).rows == 13
        assert skips.cut(at, 1).end == {f"{topic}/0": 8}
        assert list(skips.unfit(at, end)) == [f"{topic}/0 offsets 3 to 6"]
        assert [row[1] for row in read(skips, spark, at, {f"{topic}/0": 10})] == [7, 8, 9]


def test_only_committed_transactions_are_read(kafka: Any, spark: Any, tmp_path: Path) -> None:
    topic, empty = kafka.topic(), kafka.topic()
    producer = kafka.producer(transactional_id=fresh())
    producer.init_transactions(30)

    def transaction(values: list[str], where: str = topic) -> None:
        producer.begin_transaction()
        for value in values:
            producer.produce(where, value, partition=0)
        assert producer.flush(30) == 0

    transaction(ids(0, 2))
    producer.commit_transaction(30)
    transaction(ids(2, 4))
    producer.abort_transaction(30)
    transaction(ids(4, 5), empty)
    producer.abort_transaction(30)
    transaction(ids(5, 6))
    with (
        opened(kafka, spark, tmp_path, topic) as source,
        opened(kafka, spark, tmp_path / "all", topic, options={"isolation.level": "read_uncommitted"}) as everything,
    ):
        open_end, whole = source.latest(), everything.latest()
        assert (open_end, whole) == ({f"{topic}/0": 6}, {f"{topic}/0": 7})
        assert [row[1] for row in read(source, spark, {}, open_end)] == [0, 1]
        assert [row[1] for row in read(everything, spark, {}, whole)] == [0, 1, 2, 3, 5]
        producer.commit_transaction(30)
        end = later(source, lambda end: end == {f"{topic}/0": 8})  # the marker comes after the commit
        assert [row[1] for row in read(source, spark, {}, end)] == [0, 1, 5]
        # Ranges of nothing but markers and what was taken back are no rows, and end at once.
        begun = time.monotonic()
        for first, last in ((2, 3), (3, 6), (5, 6), (7, 8)):
            assert read(source, spark, {f"{topic}/0": first}, {f"{topic}/0": last}) == []
        assert time.monotonic() - begun < 100
    with opened(kafka, spark, tmp_path / "empty", empty) as source:
        later(source, lambda end: end == {f"{empty}/0": 2})
        assert read(source, spark, {}, source.latest()) == []


def test_gaps_that_compaction_leaves(kafka: Any, spark: Any, tmp_path: Path) -> None:
    topic = kafka.topic(
        1, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01", max_compaction_lag_ms="100"
    )
    for number in range(20):
        kafka.put(topic, ids(number, number + 1), key=b"even" if number % 2 == 0 else str(number).encode())
    for _ in range(3_000):  # the cleaner works by itself, in less than a second, segment by segment
        kafka.put(topic, ids(99, 100), key=b"last")
        if sum(message.key() == b"even" for message in kafka.read(topic)) == 1:
            break
    with opened(kafka, spark, tmp_path, topic) as source:
        found = [row[1] for row in read(source, spark, {}, {f"{topic}/0": 20})]
        assert found == [1, 3, 5, 7, 9, 11, 13, 15, 17, 18, 19]
        assert [row[1] for row in read(source, spark, {f"{topic}/0": 4}, {f"{topic}/0": 9})] == [5, 7]


# ---- others


def test_cuts_take_offsets_in_proportion(kafka: Any, spark: Any, tmp_path: Path) -> None:
    topic = kafka.topic(3)
    for partition, count in enumerate((90, 10, 0)):
        kafka.put(topic, ids(0, count), partition)
    with opened(kafka, spark, tmp_path, topic) as source:
        end, at, cuts = source.latest(), source.start(), 0
        cut = source.cut(at, 10)
        assert cut.end == {f"{topic}/0": 9, f"{topic}/1": 1}
        while at != end:
            cut = source.cut(at, 30)
            assert cut.rows <= 30
            at, cuts = cut.end, cuts + 1
        assert cuts == 4
        assert source.cut(end, 10).end == end


def test_the_lag_is_seen_by_the_usual_tools(kafka: Any, spark: Any, tmp_path: Path) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions

    topic, group = kafka.topic(2), fresh("group")
    kafka.put(topic, ids(0, 5))
    with opened(kafka, spark, tmp_path, topic, group=group) as source:
        source.latest()
        source.release({f"{topic}/0": 3})
        for _ in range(100):
            asked = kafka.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
            known = {place.partition: place.offset for place in asked[group].result(30).topic_partitions}
            if known:
                break
    assert known == {0: 3}


def test_brokers_that_are_away(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transom.sources.topics.brokers.ANSWER", 0.3)
    source = tm.sources.kafka(f"127.0.0.1:{free_ports(1)[0]}", "t", tm.json(SCHEMA))
    with pytest.raises(SourceAwayError, match="do not answer"):
        source.open(spark, tmp_path, ManualClock(NOON))


@pytest.mark.slow
def test_a_broker_that_goes_and_comes_back(
    spark: Any, kafka: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that meets it is told from one that a query makes fail, so that the micro-batch waits."""
    monkeypatch.setattr("transom.sources.topics.brokers.ANSWER", 2.0)
    with running(tmp_path / "broker") as own:
        topic = own.topic()
        own.put(topic, ids(0, 10))
        with opened(own, spark, tmp_path / "source", topic) as source:
            end = source.latest()
            frame = source.read(spark, {}, end)
            own.stop()
            with pytest.raises(SourceAwayError, match="do not answer"):
                later(source, lambda end: False)
            with pytest.raises(SourceAwayError, match="do not answer"):
                source.unfit({}, end)
            with pytest.raises(Exception) as error:
                frame.collect()
            assert classify(error.value).kind is FailureKind.SOURCE_AWAY
            own.start()
            for _ in range(100):
                try:
                    assert later(source) == end
                except SourceAwayError:
                    continue
                break
            assert len(read(source, spark, {}, end)) == 10


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"servers": ""}, "names no brokers"),
        ({"topics": None}, "either topics or a pattern"),
        ({"topics": None, "pattern": "("}, "is no pattern"),
        ({"topics": []}, "names no topics"),
        ({"format": "xml"}, "is no format"),
        ({"format": "json"}, "has no schema"),
        ({"format": tm.json()}, "has no schema"),
        ({"starting": "soon"}, "no place to begin"),
        ({"starting": {"t": {0: -1}}}, "no place to begin"),
        ({"tombstones": "keep"}, "tombstones='keep' is unknown"),
        ({"on_data_loss": "ignore"}, "on_data_loss='ignore' is unknown"),
        ({"options": {"group.id": "x"}}, "'group.id' cannot be set"),
        ({"options": {"isolation.level": "x"}}, "isolation.level='x' is unknown"),
        ({"options": {"sasl.mechanism": "OAUTHBEARER"}}, "does not take the login"),
    ],
)
def test_what_cannot_be(arguments: dict[str, Any], message: str) -> None:
    given = {"servers": "b:9092", "topics": "t", "format": tm.json(SCHEMA), **arguments}
    with pytest.raises(DefinitionError, match=re.escape(message)):
        tm.sources.kafka(**given)
