"""Applications that read Kafka: windows, watermarks of partitions, dead letters, and what must stay secret."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from kafka_helpers import NOON, SECOND, is_killed, letters
from tests.kafka.broker import PASSWORD, USER

import transom as tm
from transom.model.time import ManualClock

pytestmark = pytest.mark.kafka
EVENTS = "zone string, size bigint, at timestamp"
SLOW = [("fail", "spark"), ("skip", "auto"), ("skip", "spark")]


def event(zone: str, second: float, size: int = 1) -> str:
    at = f"2023-11-14T22:{13 + int(20 + second) // 60:02}:{(20 + second) % 60:06.3f}Z"  # NOON and so many seconds
    return json.dumps({"zone": zone, "size": size, "at": at})


def make_app(spark: Any, checkpoint: Path, source: Any, **settings: Any) -> tuple[tm.App, Any]:
    app = tm.App(spark, checkpoint, clock=ManualClock(NOON + 3_600 * SECOND), **settings)
    sink = tm.sinks.memory()
    stream = app.stream(source, event_time="at", watermark=tm.watermark("0 seconds", idle_after=None))
    stream.group_by("zone").window("10 seconds").agg(n=tm.count(), size=tm.sum("size")).to(sink, "sizes")
    return app, sink


def results(sink: Any) -> list[tuple[int, str, int]]:
    rows = sink.rows("sizes")
    return sorted((int(row["window_start"].timestamp()) - NOON // SECOND, row["zone"], row["n"]) for row in rows)


def test_windows_of_several_streams_and_dead_letters_with_their_places(kafka: Any, spark: Any, tmp_path: Path) -> None:
    topic = kafka.topic(2)
    for partition in range(2):
        kafka.put(topic, [event("ab"[i % 2], 5 * i) for i in range(6)], partition)
    kafka.put(topic, ["{", json.dumps({"zone": "c"}), None], 0)
    # The slower partition holds back the watermark.
    kafka.put(topic, [event("a", 100)], 0)
    source = tm.sources.kafka(kafka.servers, topic, tm.json(EVENTS))
    app, sink = make_app(spark, tmp_path / "c", source, max_rows_per_cut=12)
    apart = tm.sinks.memory()
    stream = app.stream(source, event_time="at", watermark=tm.watermark("0 seconds"), name="apart")
    stream.window("20 seconds").agg(n=tm.count()).to(apart, "all")
    app.run(once=True)
    assert results(sink) == [(0, "a", 2), (0, "b", 2), (10, "a", 2), (10, "b", 2)]
    found = {(row["reason"], json.loads(row["origin"])["offset"]) for row in letters(tmp_path / "c")}
    assert found == {("corrupt", 6), ("null event time", 7), ("corrupt", 8)}
    origins = {row["origin"] for row in letters(tmp_path / "c")}
    assert json.dumps({"topic": topic, "partition": 0, "offset": 6}, separators=(",", ":")) in origins
    # A late row tells where it is, too.
    kafka.put(topic, [event("b", 1), event("a", 120)], 1)
    app, sink = make_app(spark, tmp_path / "c", source)
    stream = app.stream(source, event_time="at", watermark=tm.watermark("0 seconds"), name="apart")
    stream.window("20 seconds").agg(n=tm.count()).to(apart, "all")
    app.run(once=True, close_all=True)
    late = [row for row in letters(tmp_path / "c") if row["reason"] == "late"]
    assert {json.loads(row["origin"])["offset"] for row in late} == {6}
    assert (100, "a", 1) in results(sink)


def test_skipped_messages_are_named(kafka: Any, spark: Any, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.put(topic, [event("a", i) for i in range(10)])
    source = tm.sources.kafka(kafka.servers, topic, tm.json(EVENTS), on_data_loss="skip")
    app, _ = make_app(spark, tmp_path / "c", source, max_rows_per_cut=4)
    gone: list[str] = []

    def on_step(step: str) -> None:
        if step == "committed" and not gone:
            gone.append(step)
            kafka.forget(topic, 0, 6)

    app._on_step = on_step
    app.run(once=True, close_all=True)
    named = [(row["reason"], row["record"]) for row in letters(tmp_path / "c")]
    assert named == [("unreadable: removed by retention before it was read", f"{topic}/0 offsets 4 to 5")]


@pytest.mark.parametrize(
    ("loss", "lane"),
    [("fail", "auto"), *(pytest.param(*some, marks=pytest.mark.slow) for some in SLOW)],
)
def test_a_topic_that_is_made_again_while_it_is_read(
    kafka: Any, spark: Any, tmp_path: Path, loss: Any, lane: str
) -> None:
    """Topics are read by their name, and the new one has messages at the same offsets."""
    topic = kafka.topic()
    kafka.put(topic, [event("old", i) for i in range(4)])
    source = tm.sources.kafka(kafka.servers, topic, tm.json(EVENTS), on_data_loss=loss)
    name = "read" if lane == "spark" else "topic_ranges"
    reading, read, begun = [True], getattr(source, name), time.monotonic()

    def late(*given: Any) -> Any:
        if reading and reading.pop():
            kafka.delete(topic)
            while topic in kafka.admin.list_topics(timeout=300).topics:
                assert time.monotonic() < begun + 60
            kafka.topic(1, topic)
            kafka.put(topic, [event("new", i) for i in range(6)])
            source._clock.advance(2 * SECOND)  # in which nobody looks for topics
        return read(*given)

    setattr(source, name, late)
    app, sink = make_app(spark, tmp_path / "c", source, lane=lane)
    if loss == "fail":
        with pytest.raises(tm.SourceError, match=f"the topic was deleted: {topic}/0 offsets 0 to 3"):
            app.run(once=True, close_all=True)
        assert results(sink) == []
        return
    app.run(once=True, close_all=True)
    assert results(sink) == [(0, "new", 6)]
    assert [row["record"] for row in letters(tmp_path / "c")] == [f"{topic}/0 offsets 0 to 3"]


@pytest.mark.slow
def test_what_is_secret_stays_so(
    kafka: Any, spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = kafka.topic()
    kafka.put(topic, [event("a", i) for i in range(10)] + ["{"])
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": USER}
    caplog.set_level(logging.DEBUG, "transom")
    source = tm.sources.kafka(kafka.with_login, topic, tm.json(EVENTS), options={**login, "sasl.password": PASSWORD})
    app, sink = make_app(spark, tmp_path / "c", source)
    said = [
        str(app.explain()),
        repr(source),
        source.describe(),
    ]
    app.run(once=True, close_all=True)
    assert results(sink) == [(0, "a", 10)]
    wrong = tm.sources.kafka(
        kafka.with_login, topic, tm.json(EVENTS), options={**login, "sasl.password": PASSWORD + "wrong"}
    )
    app, _ = make_app(spark, tmp_path / "d", wrong)
    with pytest.raises(tm.SourceError, match="do not answer") as error:
        app.run(once=True)
    source.open(spark, tmp_path, ManualClock(NOON))
    source.read(spark, {}, source.latest()).explain(True)
    source.close()
    said += [str(error.value), repr(error.value), caplog.text, *capfd.readouterr()]
    said += [path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert not [text for text in said if PASSWORD in text]


STEPS = ["cut logged", "job done", "committed", "delivered", "delivery logged"]


@pytest.mark.parametrize("step", ["windows closed", *(pytest.param(step, marks=pytest.mark.slow) for step in STEPS)])
def test_from_topic_to_topic_killed_again_and_again(kafka: Any, spark: Any, tmp_path: Path, step: str) -> None:
    """Killed at the second occurrence of a step in each run; a reader of committed messages sees each window once."""
    topic, out = kafka.topic(2), kafka.topic(2)
    for partition in range(2):
        kafka.put(topic, [event("ab"[i % 2], 5 * i) for i in range(8)], partition)

    def run(number: int) -> bool:
        source = tm.sources.kafka(kafka.servers, topic, tm.json(EVENTS))
        app = tm.App(spark, tmp_path / "c", clock=ManualClock(NOON + 3_600 * SECOND), max_rows_per_cut=8)
        stream = app.stream(source, event_time="at", watermark=tm.watermark("0 seconds", idle_after=None))
        windows = stream.group_by("zone").window("10 seconds").agg(n=tm.count())
        windows.to(tm.sinks.kafka(kafka.servers, out, key=["zone"]), "sizes")
        return is_killed(app, step, number)

    kills = 0
    while run(2):
        kills += 1
        assert kills < 20
    assert kills >= 1
    assert run(0) is False
    rows = [json.loads(message.value()) for message in kafka.read(out)]
    found = sorted((row["window_start"], row["zone"], row["n"]) for row in rows)
    assert len(found) == len(set(found)) == 8
    assert {n for *_, n in found} == {2}
