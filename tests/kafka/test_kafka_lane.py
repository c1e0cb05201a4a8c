"""Topics without Spark SQL: results, dead letters and counts are those of Spark SQL, whatever is in them."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kafka_helpers import NOON, SECOND, fresh, is_killed, letters
from tests.kafka.broker import PASSWORD, USER, running

import transom as tm
from transom.engine.execution import lane
from transom.model.time import ManualClock

pytestmark = pytest.mark.kafka
EVENTS = "zone string, size bigint, at timestamp"


def event(zone: str | None, second: float, size: int = 1) -> str:
    at = datetime.fromtimestamp(NOON // SECOND + second, UTC)
    return json.dumps({"zone": zone, "size": size, "at": at.strftime("%Y-%m-%dT%H:%M:%SZ")}, ensure_ascii=False)


def outcome(spark: Any, directory: Path, source: Any, way: str, **settings: Any) -> tuple[Any, Any]:
    """Return results, dead letters and counts of two streams that read a source, and the run of the first."""
    sink = tm.sinks.memory()
    app = tm.App(spark, directory, clock=ManualClock(NOON + 3_600 * SECOND), lane=way, tier="driver", **settings)
    for name in ("one", "other"):
        stream = app.stream(source, event_time="at", watermark=tm.watermark("2 seconds", idle_after=None), name=name)
        made = {"n": tm.count(), "size": tm.sum("size"), "last": tm.max("at"), "first": tm.first("size")}
        stream.group_by("zone").window("10 seconds").agg(**made).to(sink, f"by zone {name}")
        stream.where("size > 3").window(tm.sliding("7 seconds", every="1 second")).agg(n=tm.count()).to(
            sink, f"large {name}"
        )
    progress = app.run(once=True, close_all=True)
    results = {query.name: sorted(map(repr, sink.rows(query.name))) for query in progress.queries}
    found = sorted(repr(sorted(row.items(), key=str)) for row in letters(directory))
    counts = [(each.rows, each.dead_letters, each.max_event_time) for each in progress.streams]
    late = [(query.name, query.late_rows) for query in progress.queries]
    return (results, found, counts, late), progress.streams[0]


def same_in_both_lanes(spark: Any, directory: Path, make: Any, **settings: Any) -> Any:
    """Run both lanes over a source, and return the run of the one without Spark SQL."""
    wanted, by_spark = outcome(spark, directory / "spark", make(), "spark", **settings)
    found, stream = outcome(spark, directory / "auto", make(), "auto", **settings)
    assert found == wanted
    assert all(found[0].values())
    assert by_spark.native_cuts == 0
    return stream


@pytest.mark.slow
def test_topics_that_are_plain_need_no_spark_sql(
    kafka: Any, interpreted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys and headers or none, texts of any language, times that are missing or too late; large ranges in parts."""
    monkeypatch.setattr(lane, "PART_BYTES", 8 * lane.MESSAGE_BYTES)
    monkeypatch.setattr(lane, "TASK_BYTES", 16 * lane.MESSAGE_BYTES)
    topic = kafka.topic(3)
    for partition in range(3):
        kafka.put(topic, [event("abé"[i % 3], i, i % 7) for i in range(40)], partition, key=b"k", headers=[("a", b"1")])
    kafka.put(topic, ['{"zone": null, "size": 5, "at": null}', event("late", -3_000), event("far", 10**9)], 0)
    stream = same_in_both_lanes(
        interpreted, tmp_path, lambda: tm.sources.kafka(kafka.servers, topic, tm.json(EVENTS)), max_rows_per_cut=60
    )
    assert (stream.native_cuts, stream.judged_files) == (3, 1), "the row without a time has another form"


ODD = [
    None,
    "",
    "{",
    b"\xff",
    event("a", 4) + "\n",
    "\n" + event("b", 4),
    event("a", 5) + "\n" + event("a", 5),
    event("a", 5) + event("b", 6),
    json.dumps({"zone": "a", "size": 3}),
    json.dumps({"size": 2, "zone": "\u00e9", "at": "2023-11-14T22:13:21Z"}),
    json.dumps(json.loads(event("a", 6)), indent=1),
    json.dumps([json.loads(event("a", 6))]),
    event("a", 7).replace("1", "1.5", 1),
]


@pytest.mark.parametrize("tombstones", ["dead letter", pytest.param("skip", marks=pytest.mark.slow)])
def test_messages_in_doubt_are_judged_by_spark(
    kafka: Any, interpreted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tombstones: Any
) -> None:
    """Range by range, in the same cut; a message without a value is none where they are left out."""
    monkeypatch.setattr(lane, "PART_BYTES", 8 * lane.MESSAGE_BYTES)
    draw, topics = random.Random(4), [kafka.topic(3), kafka.topic(3)]
    for topic in topics:
        for partition in range(3):
            values: list[Any] = [event(draw.choice("abc"), draw.randrange(60), draw.randrange(9)) for _ in range(30)]
            if partition == 1:
                for odd in ODD:
                    values.insert(draw.randrange(len(values)), odd)
            if partition == 2:
                values.insert(draw.randrange(len(values)), None)
            kafka.put(topic, values, partition)

    def make() -> Any:
        return tm.sources.kafka(kafka.servers, topics, tm.json(EVENTS), tombstones=tombstones)

    stream = same_in_both_lanes(interpreted, tmp_path, make, max_rows_per_cut=100)
    assert stream.native_cuts > 0
    assert stream.judged_files > 0
    left_out = 2 if tombstones == "dead letter" else 0  # of each topic, one among the odd and one alone
    assert stream.dead_letters["corrupt"] == 2 * (7 + left_out)


@pytest.mark.slow
def test_offsets_without_messages(kafka: Any, interpreted: Any, tmp_path: Path) -> None:
    """Of transactions, committed, taken back, and none but markers; and those that compaction left."""
    plain = kafka.topic()
    compacted = kafka.topic(
        1, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01", max_compaction_lag_ms="100"
    )
    producer = kafka.producer(transactional_id=fresh())
    producer.init_transactions(30)
    for number in range(12):
        producer.begin_transaction()
        for second in range(number % 4):
            producer.produce(plain, event("ab"[number % 2], second + number, number), partition=0)
        producer.flush(30)
        (producer.abort_transaction if number % 3 == 1 else producer.commit_transaction)(30)
    for number in range(20):
        kafka.put(compacted, [event("c", number)], key=b"even" if number % 2 == 0 else str(number).encode())
    for _ in range(3_000):  # the cleaner works by itself
        kafka.put(compacted, [event("d", 30)], key=b"last")
        if sum(message.key() == b"even" for message in kafka.read(compacted)) == 1:
            break
    for level in ("read_committed", "read_uncommitted"):
        stream = same_in_both_lanes(
            interpreted,
            tmp_path / level,
            lambda level=level: tm.sources.kafka(
                kafka.servers, [plain, compacted], tm.json(EVENTS), options={"isolation.level": level}
            ),
            max_rows_per_cut=7,
        )
        assert stream.native_cuts > 3
        assert stream.judged_files == 0


@pytest.mark.slow
@pytest.mark.parametrize("step", ["cut logged", "job done", "committed"])
def test_a_cut_is_done_again_in_the_other_lane(kafka: Any, interpreted: Any, tmp_path: Path, step: str) -> None:
    """Killed in every cut, and gone on with in the other lane."""
    topic = kafka.topic(2)
    for partition in range(2):
        kafka.put(topic, [event("ab"[i % 2], i, i % 5) for i in range(40)], partition)
    sink = tm.sinks.memory()

    def run(way: str) -> bool:
        app = tm.App(
            interpreted, tmp_path / "c", clock=ManualClock(NOON + 3_600 * SECOND), lane=way, max_rows_per_cut=16
        )
        source = tm.sources.kafka(kafka.servers, topic, tm.json(EVENTS))
        stream = app.stream(source, event_time="at", watermark=tm.watermark("0 seconds", idle_after=None))
        stream.group_by("zone").window("10 seconds").agg(n=tm.count(), size=tm.sum("size")).to(sink, "sizes")
        return is_killed(app, step, 2)

    kills = 0
    while run(("auto", "spark")[kills % 2]):
        kills += 1
        assert kills < 20
    assert kills >= 2
    found = {(row["window_start"].timestamp() - NOON // SECOND, row["zone"]): row for row in sink.rows("sizes")}
    assert len(found) == 8
    for (start, zone), row in found.items():
        mine = [i for i in range(40) if start <= i < start + 10 and "ab"[i % 2] == zone]
        assert (row["n"], row["size"]) == (2 * len(mine), 2 * sum(i % 5 for i in mine))


@pytest.mark.slow
def test_a_broker_that_is_away_while_tasks_read(interpreted: Any, kafka: Any, tmp_path: Path) -> None:
    """The micro-batch waits, and its results are the same."""
    said: list[str] = []
    with running(tmp_path / "broker") as own:
        topic = own.topic(2)
        for partition in range(2):
            own.put(topic, [event("ab"[i % 2], i) for i in range(20)], partition)
        source = tm.sources.kafka(own.servers, topic, tm.json(EVENTS))
        ranges, unfit = source.topic_ranges, source.unfit

        def without_broker(*given: Any) -> Any:
            found = ranges(*given)
            if not said:
                said.append("away")
                own.stop()
            return found

        def with_broker(*given: Any) -> Any:
            if own.process is None:
                own.start()
            return unfit(*given)

        source.topic_ranges, source.unfit = without_broker, with_broker
        sink = tm.sinks.memory()
        app = tm.App(interpreted, tmp_path / "c", max_rows_per_cut=20)
        stream = app.stream(source, event_time="at", watermark=tm.watermark("0 seconds", idle_after=None))
        stream.group_by("zone").window("10 seconds").agg(n=tm.count()).to(sink, "sizes")
        progress = app.run(once=True, close_all=True)
    assert said
    assert progress.streams[0].native_cuts == 1, "Spark's client is asked first when the cut is tried again"
    found = sorted(
        (row["window_start"].timestamp() - NOON // SECOND, row["zone"], row["n"]) for row in sink.rows("sizes")
    )
    assert found == [(0, "a", 10), (0, "b", 10), (10, "a", 10), (10, "b", 10)]


@pytest.mark.slow
def test_executors_without_the_client_leave_topics_to_spark(
    kafka: Any, interpreted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a warning says so."""
    topic = kafka.topic()
    kafka.put(topic, [event("a", i, i % 7) for i in range(20)])

    def run(*given: Any) -> Any:
        raise ModuleNotFoundError("No module named 'confluent_kafka'")

    monkeypatch.setattr(lane, "run_in_workers", run)
    stream = same_in_both_lanes(
        interpreted, tmp_path, lambda: tm.sources.kafka(kafka.servers, topic, tm.json(EVENTS)), max_rows_per_cut=10
    )
    assert stream.native_cuts == 0


@pytest.mark.slow
def test_who_asks_is_told_to_brokers_by_tasks_too(kafka: Any, interpreted: Any, tmp_path: Path) -> None:
    """With name and password; and why a stream is Spark's is explained."""
    topic = kafka.topic()
    kafka.put(topic, [event("a", i, i % 7) for i in range(20)])
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": USER}
    options = {**login, "sasl.password": PASSWORD}

    def make(**more: str) -> Any:
        return tm.sources.kafka(kafka.with_login, topic, tm.json(EVENTS), options={**options, **more})

    assert same_in_both_lanes(interpreted, tmp_path, make).native_cuts == 1
    app = tm.App(interpreted, tmp_path / "other")
    for name, more in (("plain", {}), ("other", {"kafka.ssl.truststore.location": "/etc/brokers.jks"})):
        stream = app.stream(make(**more), event_time="at", watermark="1 second", name=name)
        stream.window("1 minute").agg(n=tm.count()).to(tm.sinks.memory(), f"q {name}")
    plain, other = app.explain().streams
    assert (plain["lane"], other["lane"]) == ("native", "spark")
    assert other["lane_why"] == "only Spark's client knows the option kafka.ssl.truststore.location"
    assert PASSWORD not in str(app.explain())
