"""Lines of text that a regular expression takes apart."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime

import pytest

import transom as tm
from transom.errors import DefinitionError
from transom.model.time import ManualClock
from transom.sources.base import CORRUPT
from transom.sources.filesets.matching import groups_of, java_pattern

REQUEST = r'"(?P<method>[A-Z]+) (?P<path>\S+)[^"]*"'
ACCESS = rf"(?P<ip>\S+) \S+ \S+ \[(?P<at>[^]]+)\] {REQUEST} (?P<status>\d+) (?:(?P<bytes>\d+)|-)"
LINES = [
    '1.2.3.4 - - [01/Mar/2026:12:00:00 +0100] "GET /a HTTP/1.1" 200 512',
    '1.2.3.5 - me [01/Mar/2026:12:00:01 +0000] "POST /b(1) HTTP/1.1" 404 -',
    "",
    "   ",
    "not a line of an access log",
    '1.2.3.6 - - [31/Foo/2026:12:00:00 +0000] "GET /c HTTP/1.1" 200 1',
    '1.2.3.7 - - [01/Mar/2026:12:00:02 +0000] "GET /d HTTP/1.1" 99999999999 1',
    'x 1.2.3.8 - - [01/Mar/2026:12:00:02 +0000] "GET /d HTTP/1.1" 200 1 and more',
    '1.2.3.9 - - [01/Mar/2026:12:00:03 +0000] "GET /straße HTTP/1.1" 200 0',
]
SCHEMA = "ip string, at timestamp, method string, path string, status int, bytes bigint"
OPTIONS = {"timestampFormat": "dd/MMM/yyyy:HH:mm:ss Z"}


@pytest.mark.parametrize("packed", [False, True])
def test_an_access_log(spark, tmp_path, packed):
    text = "\n".join(LINES).encode() + b"\n\xff\xfe broken\n"
    path = tmp_path / ("access.log.gz" if packed else "access.log")
    path.write_bytes(gzip.compress(text) if packed else text)
    source = tm.sources.text(str(path), ACCESS, SCHEMA, options=OPTIONS)
    (tmp_path / "state").mkdir()
    source.open(spark, tmp_path / "state", ManualClock(0))
    frame = source.read(spark, source.start(), source.latest())
    rows = frame.collect()
    good = [row for row in rows if row[CORRUPT] is None]
    at = [datetime(2026, 3, 1, 11, tzinfo=UTC), datetime(2026, 3, 1, 12, 0, 1, tzinfo=UTC)]
    assert [(row.ip, row.path, row.status, row.bytes) for row in good] == [
        ("1.2.3.4", "/a", 200, 512),
        ("1.2.3.5", "/b(1)", 404, None),
        ("1.2.3.9", "/straße", 200, 0),
    ]
    seconds = frame.where(f"{CORRUPT} IS NULL").selectExpr("unix_seconds(at)").collect()
    assert [row[0] for row in seconds][:2] == [int(moment.timestamp()) for moment in at]
    bad = [row[CORRUPT] for row in rows if row[CORRUPT] is not None]
    assert bad == [*LINES[4:8], "\ufffd\ufffd broken"]
    assert all(row[name] is None for row in rows if row[CORRUPT] is not None for name in source.schema.names)


def test_lines_that_do_not_match_are_dead_letters_whatever_the_query(spark, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.log").write_text("\n".join(LINES) + "\n")
    app = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(0))
    source = tm.sources.text(tmp_path / "in" / "*.log", ACCESS, SCHEMA, options=OPTIONS)
    stream = app.stream(source, event_time="at", watermark=tm.watermark("1 day", max_ahead=None))
    sink = tm.sinks.memory()
    stream.where("status = 404").window("1 day").agg(n=tm.count()).to(sink, "missing")
    progress = app.run(once=True, close_all=True)
    assert [row["n"] for row in sink.rows("missing")] == [1]
    assert progress.streams[0].dead_letters == {"corrupt": 4}


def test_columns_are_strings_without_a_schema(spark):
    assert tm.sources.text("/x/*.log", r"(?<a>\d+) (?P<b_c>.*)").schema.simpleString() == "struct<a:string,b_c:string>"


@pytest.mark.parametrize(
    ("regex", "schema", "options", "message"),
    [
        ("(?P<a>x", None, {}, "is no regular expression"),
        ("(a)", None, {}, "has no named group"),
        ("(?P<a>x)", "b int", {}, "the columns are b, and the groups of the regex a"),
        ("(?P<a>x)", "a array<int>", {}, "the column a has type array<int>"),
        ("(?P<_corrupt_record>x)", None, {}, "_corrupt_record"),
        ("(?P<a>x)", None, {"sep": ","}, "the option 'sep' is unknown"),
    ],
)
def test_what_cannot_work(spark, regex, schema, options, message):
    with pytest.raises(DefinitionError, match=message):
        tm.sources.text("/x/*.log", regex, schema, options=options)


def test_groups_are_numbered_as_java_does():
    regex = r"\((?P<a>x)(?:y)(z)(?<b_1>\d+)\\(?P<c>)"
    assert groups_of(regex) == {"a": 1, "b_1": 3, "c": 4}
    assert java_pattern(regex) == r"\A(?:\((x)(?:y)(z)(\d+)\\())\z"
