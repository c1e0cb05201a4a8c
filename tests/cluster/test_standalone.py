"""The command line on a standalone cluster: a worker and the driver are killed, and another directory goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cluster.drivers import run_through_losses

pytestmark = pytest.mark.slow

FILES, ROWS = 40, 500

JOB = """
checkpoint = "{shared}/ckpt"

[settings]
max_rows_per_cut = {rows}

[source]
name = "trips"
files = "{shared}/trips/*.json"
schema = "zone string, fare bigint, pickup_at timestamp"
event_time = "pickup_at"
watermark = "2 seconds"

[[query]]
name = "fares"
group_by = ["zone"]
windows = ["10 seconds", "1 minute"]
aggregates = ["count(*) as trips", "sum(fare) as fare", "max(fare) as most"]
within = "1 second"
sink = {{parquet = "{shared}/out/fares"}}
"""


def write_trips(directory: Path) -> None:
    directory.mkdir(parents=True)
    for file in range(FILES):
        with open(directory / f"{file:03}.json", "w", encoding="utf-8") as lines:
            for row in range(ROWS):
                second = (file * ROWS + row) // 50
                at = f"2026-01-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"
                lines.write(json.dumps({"zone": f"z{row % 7}", "fare": row * file, "pickup_at": at}) + "\n")


def test_killed_workers_and_drivers_lose_nothing(tmp_path):
    shared = tmp_path / "shared"
    write_trips(shared / "trips")
    job = shared / "job.toml"
    job.write_text(JOB.format(shared=shared, rows=ROWS))
    run_through_losses(job, tmp_path, {}, worker_after=4 * ROWS, driver_after=10 * ROWS)
    duckdb = pytest.importorskip("duckdb")
    query = """
        SELECT window_start, window_end, zone, trips, fare, most FROM '{}/out/fares/*.parquet' ORDER BY ALL
    """
    batch = """
        WITH sizes AS (SELECT unnest([10, 60]) AS size),
        rows AS (SELECT size, zone, fare, epoch(pickup_at::TIMESTAMP)::BIGINT // size * size AS begin_s
                 FROM read_json('{}/trips/*.json') CROSS JOIN sizes)
        SELECT to_timestamp(begin_s), to_timestamp(begin_s + size), zone, count(*), sum(fare)::BIGINT, max(fare)
        FROM rows GROUP BY size, begin_s, zone ORDER BY ALL
    """
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        got = database.execute(query.format(shared)).fetchall()
        expected = database.execute(batch.format(shared)).fetchall()
    assert got == expected
