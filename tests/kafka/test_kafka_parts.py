"""Parts of the source and of the client that need no broker."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from concurrent.futures import wait
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.engine.execution.topicparts import _rounds, parts_of_range
from transom.errors import DefinitionError, SourceError
from transom.kafka.client import checked_options, java_settings
from transom.kafka.consuming import TopicRange, consumer_settings
from transom.model.formats import Format
from transom.model.time import ManualClock
from transom.sources.base import Unit
from transom.sources.topics.arrivals import MOST, Arrivals
from transom.sources.topics.beginnings import Start, first_offsets
from transom.sources.topics.book import Book
from transom.sources.topics.brokers import OLD, Asking, Place
from transom.sources.topics.factory import _start
from transom.sources.topics.ranges import shares
from transom.sources.topics.reading import Reading, patience

KEYS = st.sampled_from("abcdef")


@given(st.dictionaries(KEYS, st.integers(0, 50)), st.integers(1, 60))
def test_shares_take_what_there_is_and_no_more(waiting: dict[str, int], most: int) -> None:
    taken = shares(waiting, most)
    assert sum(taken.values()) == min(most, sum(waiting.values()))
    assert all(0 <= taken[key] <= waiting[key] for key in waiting)
    # In proportion, to one.
    total = sum(waiting.values())
    assert all(abs(taken[key] - waiting[key] * min(1, most / max(1, total))) <= 1 for key in waiting)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=30), st.integers(1, 60))
def test_records_arrived_no_later_than_they_were_seen(looks: list[tuple[int, int]], end: int) -> None:
    arrivals, at, time, seen = Arrivals(), 0, 0, []
    for more, later in looks:
        at, time = at + more, time + later
        arrivals.saw(at, time)
        seen.append((at, time))
    known = [when for until, when in seen if until >= end]
    if known:
        assert arrivals.before(end) == min(known)
    assert Arrivals().before(end) == 0


def test_looks_are_not_remembered_for_ever() -> None:
    arrivals = Arrivals()
    for number in range(1, 10 * MOST):
        arrivals.saw(number, number)
    assert len(arrivals._ends) <= MOST
    assert arrivals.before(10 * MOST - 1) == 10 * MOST - 1
    assert all(arrivals.before(end) >= end for end in range(1, 10 * MOST, 97))
    arrivals.forget(10 * MOST - 1)
    assert len(arrivals._ends) == 1


def test_partitions_keep_their_indices_and_topics_their_names(tmp_path: Path) -> None:
    book = Book(tmp_path)
    assert book.is_new
    book.add([("t", "id1", 0, 5)])
    book.add([("t", "id2", 0, 0), ("u", "id3", 1, 0)])
    again = Book(tmp_path)
    assert [part.key for part in again.parts] == ["t/0", "t#2/0", "u/1"]
    assert again.index_of == book.index_of == {"t/0": 0, "t#2/0": 1, "u/1": 2}
    assert (again.latest_id("t"), again.named("t", "id1", 1), again.named("t", "id9", 0)) == ("id2", "t/1", "t#3/0")
    assert again.mark({"t/0": 7}) == book.mark({"t/0": 9}) != book.mark({"t#2/0": 7})


def test_a_question_that_takes_long_holds_up_nobody() -> None:
    go, asked = threading.Event(), []

    def question() -> int:
        asked.append(1)
        go.wait(60)
        if len(asked) == 2:
            raise ValueError("no")
        return len(asked)

    asking = Asking(question, ManualClock(0))
    assert asking.answer(0.001) is None
    assert asking.answer(3_600) is None, "it is known to take long"
    go.set()
    while (found := asking.answer(0)) is None:
        pass
    assert found == 1
    with pytest.raises(ValueError, match="no"):
        asking.answer(60)
    assert asking.answer(60) == 3
    asking.end()


def test_an_answer_that_nobody_took_for_long_is_not_given_any_more() -> None:
    clock, go, asked = ManualClock(0), threading.Event(), []

    def question() -> int:
        asked.append(1)
        go.wait(60)
        return len(asked)

    asking = Asking(question, clock)
    assert asking.answer(0.001) is None
    go.set()
    assert asking._pending is not None
    wait([asking._pending], 60)
    clock.advance(2 * OLD)
    assert asking.answer(60) == 2, "the first one is of the time when it was asked for"
    asking.end()


def test_spark_gets_the_login_under_its_own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSOM_TEST_PASSWORD", 'a"b\\c')
    options = checked_options(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "me",
            "sasl.password": {"env": "TRANSOM_TEST_PASSWORD"},
            "ssl.ca.location": "/ca.pem",
            "kafka.fetch.max.bytes": 5,
            "socket.keepalive.enable": True,
        },
        "kafka",
    )
    assert options["socket.keepalive.enable"] == "true"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert java_settings("b:1", options) == {
        "kafka.bootstrap.servers": "b:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{module} required username="me" password="a\\"b\\\\c";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/ca.pem",
        "kafka.fetch.max.bytes": "5",
    }
    with pytest.raises(DefinitionError, match="is no text"):
        checked_options({"a": None}, "kafka")


@given(st.integers(0, 4_000_000_000_000), st.integers(0, 999))
def test_a_time_to_begin_at_is_exact(millis: int, micros: int) -> None:
    """No message of that millisecond is passed over; times between two begin with the later one."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis, microseconds=micros)
    for said in (moment, moment.isoformat(), moment.replace(tzinfo=None).isoformat(), millis * 1_000 + micros):
        assert _start(said) == millis + (micros > 0)


PLACES: list[Place] = [("t", 0), ("t", 1)]


@pytest.mark.parametrize(
    "starting, begins",
    [
        ("earliest", [3, 0]),
        ("latest", [10, 7]),
        (1_700, [5, 7]),
        ({"t": {1: 7}}, [3, 7]),
        ({"t": {0: 3, 1: 0}}, [3, 0]),
        ({"t": {0: 2}}, "t/0 cannot begin at 2: it has 3 to 10"),
        ({"t": {1: 8}}, "t/1 cannot begin at 8: it has 0 to 7"),
        ({"u": {0: 1}}, "u/0 cannot begin at 1: there is no such partition"),
    ],
)
def test_where_partitions_begin(starting: Start, begins: list[int] | str) -> None:
    earliest, ends = dict(zip(PLACES, (3, 0), strict=True)), dict(zip(PLACES, (10, 7), strict=True))
    asked = {"1700": dict(zip(PLACES, ((5, 1_800), (-1, -1)), strict=True))}
    if isinstance(begins, str):
        with pytest.raises(SourceError, match=begins):
            first_offsets(starting, earliest, ends, lambda places, at: asked[at])
    else:
        found = first_offsets(starting, earliest, ends, lambda places, at: asked[at])
        assert [found[place] for place in PLACES] == begins


def test_a_job_does_not_wait_long_for_brokers_that_are_gone_unless_that_is_asked_for() -> None:
    assert set(patience({"kafka.client.rack": "a"}).values()) == {"10000"}
    assert patience({"kafka.request.timeout.ms": "30000"}) == {}, "Java's client takes no call shorter than a request"


LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "me"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"options": {**LOGIN, "ssl.ca.location": "/ca.pem", "client.rack": "a", "fetch.wait.max.ms": "50"}}, None),
        ({"options": {"kafka.request.timeout.ms": "30000", "kafka.fetch.max.bytes": "9"}}, None),
        ({"options": {"kafka.sasl.jaas.config": "x"}}, "only Spark's client knows the option kafka.sasl.jaas.config"),
        ({"options": {"a": "b", "kafka.ssl.keystore.location": "x"}}, "kafka.ssl.keystore.location"),
        ({"options": {"kafka.interceptor.classes": "x"}}, "kafka.interceptor.classes"),
        ({"options": {"kafka.security.protocol": "SSL"}}, "kafka.security.protocol"),
        ({"options": {"kafka.key.of.tomorrow": "x"}}, "kafka.key.of.tomorrow"),
        ({"format": Format("avro", "{}")}, "payloads of the format avro"),
        ({"format": Format("csv", "a int")}, "payloads of the format csv"),
        ({"format": Format("json", "a int", {"locale": "de"})}, "the option locale of the format json"),
        ({"about": True}, "the column _kafka"),
    ],
)
def test_what_only_spark_reads_is_said(changes: dict[str, object], why: str | None) -> None:
    given = {"format": Format("json", "a int"), "about": False, "options": {}, **changes}
    reading = Reading("b:1", ("t",), None, starting="earliest", keep_tombstones=True, skips=False, group=None, **given)  # type: ignore[arg-type]
    assert reading.why_spark is None if why is None else why in str(reading.why_spark)


def test_consumers_read_what_spark_would_whatever_users_set() -> None:
    """Which messages, and that they are whole, is not for options to say; how they are asked for is."""
    changed = {"check.crcs": "false", "enable.partition.eof": "false", "isolation.level": "x", "fetch.wait.max.ms": "9"}
    found = dict(consumer_settings("b:1", {**LOGIN, **changed, "kafka.fetch.max.bytes": "5"}, committed=True))
    assert found.items() >= {**LOGIN, "bootstrap.servers": "b:1", "fetch.wait.max.ms": "9"}.items()
    fixed = {"check.crcs": "true", "enable.partition.eof": "true", "auto.offset.reset": "error"}
    assert found.items() >= {**fixed, "enable.auto.commit": "false", "isolation.level": "read_committed"}.items()
    assert not any(name.startswith("kafka.") for name in found)
    assert dict(consumer_settings("b:1", {}, committed=False))["isolation.level"] == "read_uncommitted"


@given(st.lists(st.tuples(KEYS, st.integers(0, 9), st.integers(1, 400)), max_size=9), st.integers(1, 99))
def test_tasks_read_all_offsets_once(ranges: list[tuple[str, int, int]], piece: int) -> None:
    """A consumer reads one range of a partition at a time."""
    asked = [TopicRange(topic, 0, begin, begin + length) for topic, begin, length in ranges]
    parts = [part for number, each in enumerate(asked) for part in parts_of_range(Unit(f"{number}"), each, piece)]
    rounds = _rounds(parts)
    assert sorted(map(repr, itertools.chain(*rounds))) == sorted(map(repr, parts))
    assert all(len({part.range.topic for part in some}) == len(some) for some in rounds)
    offsets = [(part.range.topic, at) for part in parts for at in range(part.range.begin, part.range.end)]
    assert sorted(offsets) == sorted((each.topic, at) for each in asked for at in range(each.begin, each.end))
    units = Counter(part.unit for part in parts)
    assert all(part.whole == (units[part.unit] == 1) for part in parts)
    assert all(part.range.end - part.range.begin <= piece for part in parts)
