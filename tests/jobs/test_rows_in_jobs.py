"""Rows as they are and late rows, in TOML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from transom.errors import JobFileError
from transom.jobs.building import build_job, check_job
from transom.jobs.jobfile import parse_job
from transom.jobs.kinds import SinkSpec

JOB = """
checkpoint = "ckpt"

[source]
files = "in/*.json"
schema = "zone string, n int, at timestamp"
event_time = "at"
max_files_per_cut = 1

[[query]]
name = "minutes"
windows = ["1 minute"]
aggregates = ["count(*) as n"]

[[query]]
name = "big"
where = "n > 1"
select = ["zone", "n", "at"]
rows = true
partition_by = ["zone"]
sink = {parquet = "out/big"}

[[query]]
name = "late"
late_rows_of = "minutes"
watermark = "1 hour"
group_by = ["zone"]
windows = ["1 minute"]
aggregates = ["sum(n) as n"]
sink = {json = "out/late"}

[[query]]
name = "kept"
late_rows_of = "minutes"
rows = true
sink = {csv = "out/kept"}
"""


def test_what_the_tables_say() -> None:
    minutes, big, late, kept = parse_job(JOB).queries
    assert (minutes.rows, minutes.sinks, minutes.source) == (False, (), "source")
    assert (big.rows, big.partition_by, big.windows, big.source) == (True, ("zone",), (), "source")
    assert big.sinks == (SinkSpec("parquet", "out/big", {}),)
    assert (late.source, late.late_rows_of, late.watermark, late.rows) == (None, "minutes", "1 hour", False)
    assert (kept.late_rows_of, kept.watermark, kept.rows) == ("minutes", "1 hour", True)
    assert parse_job(JOB.replace('["zone"]\nsink', '"zone"\nsink')).queries[1].partition_by == ("zone",)


BIG, LATE, KEPT = 'name = "big"\n', 'name = "late"\n', 'name = "kept"\n'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            BIG,
            BIG + 'windows = ["1 day"]\n',
            "'big': windows: rows = true writes rows as they are.*Leave out windows",
        ),
        (BIG, BIG + 'within = "1 second"\n', "'big': within: rows = true"),
        (BIG, BIG + 'group_by = ["zone"]\n', "'big': group_by: rows = true"),
        ("rows = true\n", "rows = 1\n", "'big': rows = 1 is not true or false"),
        ("rows = true\n", "", "'big': the key 'windows' is missing"),
        ("rows = true\n", 'windows = ["1 day"]\naggregates = ["count(*)"]\n', "'big': partition_by: only rows"),
        ('partition_by = ["zone"]', "partition_by = [1]", "'big': partition_by = .1. is not a list of texts"),
        ('{parquet = "out/big"}', '{sqlite = "big.db"}', "'big': rows: rows are written as files.*sink = {parquet"),
        ('{parquet = "out/big"}', "{console = 5}", "'big': rows: rows are written as files of one kind, parquet, json"),
        ('sink = {parquet = "out/big"}', 'sinks = [{json = "a"}, {csv = "b"}]', "'big': rows: .* into one directory"),
        ('sink = {parquet = "out/big"}', "", "'big': rows: rows are written as files"),
        (
            LATE,
            LATE + 'from = "minutes"\n',
            "'late': it has both from and late_rows_of.*to read what came",
        ),
        (LATE, LATE + 'source = "source"\n', "'late': it has both source and late_rows_of"),
        (LATE, LATE + "own_stream = true\n", "'late': own_stream: its rows come from another query"),
        (
            'late_rows_of = "minutes"',
            'late_rows_of = "minute"',
            "late_rows_of: there is no query 'minute' above",
        ),
        ('late_rows_of = "minutes"', 'late_rows_of = "big"', "'late': late_rows_of: the query 'big' writes rows"),
        ('late_rows_of = "minutes"', 'from = "big"', "'late': from: the query 'big' writes rows"),
        ('late_rows_of = "minutes"\n', "", "'late': watermark is given without late_rows_of"),
        (KEPT, KEPT + 'watermark = "2 hours"\n', "'kept': watermark: the late rows of 'minutes' have '1 hour'.*'late'"),
    ],
)
def test_mistakes(old: str, new: str, message: str) -> None:
    assert old in JOB
    with pytest.raises(JobFileError, match=message):
        parse_job(JOB.replace(old, new, 1))


def test_a_watermark_that_is_none_is_seen_before_spark_starts() -> None:
    with pytest.raises(JobFileError, match="'late': watermark: '1 our'"):
        check_job(parse_job(JOB.replace('"1 hour"', '"1 our"')))


def test_such_a_job_runs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    files = [[("a", 1, "10:00:30"), ("b", 2, "10:05:00")], [("a", 3, "10:00:50"), ("b", 4, "10:05:10")]]
    for number, rows in enumerate(files):
        lines = [json.dumps({"zone": zone, "n": n, "at": f"2026-01-01T{at}Z"}) for zone, n, at in rows]
        Path("in", f"{number}.json").write_text("\n".join(lines))
    build_job(parse_job(JOB), spark).run(once=True, close_all=True)
    out = tmp_path / "out"
    assert sorted(spark.read.parquet(str(out / "big")).select("zone", "n").collect()) == [("a", 3), ("b", 2), ("b", 4)]
    assert [(row.zone, row.n) for row in spark.read.json(str(out / "late")).collect()] == [("a", 3)]
    assert spark.read.option("header", "true").csv(str(out / "kept")).select("zone", "n").collect() == [("a", "3")]
    assert {path.name for path in Path("ckpt/sources").iterdir()} == {"source", "minutes.late"}
