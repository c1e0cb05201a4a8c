"""The command line on a standalone cluster with all that it can be connected to, while machines fail.

Kafka in, Kafka and PostgreSQL out, the checkpoint on S3 or HDFS; a worker and the driver are killed, and another
directory goes on. What is in both sinks is compared with what PostgreSQL makes of the same rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.drivers import run_through_losses
from tests.fetching import MissingError
from tests.kafka import broker
from tests.storage import s3a
from tests.storage.moto_server import SECRET

from transom.checkpoint.files import checkpoint_at
from transom.cli.deadletters import read_dead_letters

psycopg = pytest.importorskip("psycopg")
pytestmark = [pytest.mark.slow, pytest.mark.kafka]

ROWS, PARTITIONS, CUT = 9_000, 3, 900
EACH = 100
"""After so many rows comes a message that cannot be read."""
CORRUPT = ROWS // EACH
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)

JOB = """
checkpoint = "{checkpoint}"

[settings]
max_rows_per_cut = {cut}
tier = "cluster"
key_groups = 8

[source]
kafka = "{servers}"
topics = "{topic}"
format = {{json = "zone string, fare bigint, pickup_at timestamp"}}
event_time = "pickup_at"
watermark = "2 seconds"
idle_after = "none"

[source.options]
{login}

[[query]]
name = "fares"
group_by = ["zone"]
windows = ["10 seconds", "1 minute"]
aggregates = ["count(*) as trips", "sum(fare) as fare", "max(fare) as most"]
within = "1 second"

[[query.sinks]]
kafka = "{servers}"
topic = "{out}"
key = ["zone"]

[query.sinks.options]
{login}

[[query.sinks]]
postgres = "{database}"
table = "{table}"
create = true
"""

LOGIN = f"""
"security.protocol" = "SASL_PLAINTEXT"
"sasl.mechanism" = "PLAIN"
"sasl.username" = "{broker.USER}"
"sasl.password" = {{env = "BROKERS_PASSWORD"}}
"""

BATCH = """
    SELECT to_timestamp(begin), to_timestamp(begin + size), zone, count(*), sum(fare)::bigint, max(fare)
    FROM (SELECT *, floor(extract(epoch FROM at) / size) * size AS begin
          FROM {} CROSS JOIN (VALUES (10), (60)) AS sizes(size)) AS each
    GROUP BY begin, size, zone
"""


def events() -> Iterator[tuple[str, int, datetime]]:
    for row in range(ROWS):
        yield f"z{row % 7}", row * 31 % 1_009, BEGIN + timedelta(milliseconds=20 * row)


def write_events(kafka: Any, topic: str) -> None:
    """Put the events into a topic, in order in each partition, and some messages that cannot be read."""
    values: list[list[str]] = [[] for _ in range(PARTITIONS)]
    for row, (zone, fare, at) in enumerate(events()):
        values[row % PARTITIONS].append(json.dumps({"zone": zone, "fare": fare, "pickup_at": at.isoformat()}))
        if row % EACH == 0:
            values[row % PARTITIONS].append("{")
    for partition, each in enumerate(values):
        kafka.put(topic, each, partition)


@pytest.fixture(params=["s3", "hdfs"])
def place(request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    """A place for the checkpoint, and what Spark must be told to get at it; the environment has the keys."""
    try:
        kafka_jars = f"{broker.jars('spark')}/*"
        s3_jars = f"{s3a.jars()}/*" if request.param == "s3" else ""
    except MissingError as missing:
        pytest.skip(str(missing))
    if request.param == "s3":
        jars, settings = f"{s3_jars}:{kafka_jars}", s3a.settings(request.getfixturevalue("s3"))
        uri = str(request.getfixturevalue("s3_place")())
    else:
        jars, settings, uri = kafka_jars, {}, str(request.getfixturevalue("hdfs_place")())
    return uri, {**settings, "spark.driver.extraClassPath": jars, "spark.executor.extraClassPath": jars}


def test_killed_workers_and_drivers_lose_nothing_and_repeat_nothing(
    kafka: Any, postgres: Any, place: tuple[str, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, out = kafka.topic(PARTITIONS), kafka.topic(2)
    table = out.replace("-", "_")
    write_events(kafka, topic)
    checkpoint, conf = place
    monkeypatch.setenv("PGPASSWORD", postgres.password)
    monkeypatch.setenv("BROKERS_PASSWORD", broker.PASSWORD)
    job = tmp_path / "job.toml"
    job.write_text(
        JOB.format(
            checkpoint=f"{checkpoint}/checkpoint",
            cut=CUT,
            servers=kafka.with_login,
            login=LOGIN,
            topic=topic,
            out=out,
            database=postgres.dsn_without_password,
            table=table,
        )
    )
    run_through_losses(job, tmp_path, conf, worker_after=2 * CUT, driver_after=5 * CUT)
    logs = [path for path in tmp_path.rglob("*") if path.name in ("stderr", "stdout") or path.suffix == ".log"]
    assert len(logs) >= 9, "of each executor two, of drivers and daemons one"
    said = [path.read_text(errors="replace") for path in logs]
    assert not any(secret in text for text in said for secret in (broker.PASSWORD, postgres.password, SECRET))
    letters = read_dead_letters(checkpoint_at(f"{checkpoint}/checkpoint"), 0)
    assert [each.counts for each in letters] == [{"corrupt": CORRUPT}]
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute(f"CREATE TABLE {table}_rows (zone text, fare bigint, at timestamptz)")
        with connection.cursor().copy(f"COPY {table}_rows FROM STDIN") as copy:
            for event in events():
                copy.write_row(event)
        expected = Counter(connection.execute(BATCH.format(f"{table}_rows")).fetchall())
        rows = f"SELECT window_start, window_end, zone, trips, fare, most FROM {table}"
        in_table = Counter(connection.execute(rows).fetchall())
    columns = ("zone", "trips", "fare", "most")
    messages = [json.loads(message.value()) for message in kafka.read(out)]
    in_topic = Counter(
        (*(datetime.fromisoformat(row[name]) for name in ("window_start", "window_end")), *(row[n] for n in columns))
        for row in messages
    )
    assert set(expected.values()) == {1}
    assert in_table == expected
    assert in_topic == expected
