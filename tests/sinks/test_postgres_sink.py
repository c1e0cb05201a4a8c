"""What the PostgreSQL sink does beyond the suite that all sinks pass."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from tests.small_jobs import small_job

import transom as tm
from transom.errors import DefinitionError, JobFileError, SinkError
from transom.jobs.jobfile import parse_job
from transom.model.time import ManualClock
from transom.sinks.base import WindowResults
from transom.sinks.copytext import copied
from transom.sinks.owner import Claim
from transom.sinks.postgresql import PostgresSink
from transom.testing.sinks import OWNER, opened, results

psycopg = pytest.importorskip("psycopg")
SECRET = "hunter2-secret"
MICROS = 1_000_000


@pytest.fixture
def sink(postgres, postgres_table):
    made = tm.sinks.postgres(postgres.dsn, postgres_table, create=True)
    yield made
    made.close()


def ask(postgres, text: str):
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        found = connection.execute(text)
        return found.fetchall() if found.description else None


def with_column(values: list[object], kind: pa.DataType) -> WindowResults:
    plain = results(1, {f"z{n}": n for n in range(len(values))})
    column = pa.array(values, kind, from_pandas=False)
    return WindowResults(plain.query, plain.cut, plain.table.append_column("x", column), plain.keys)


@pytest.mark.parametrize(
    ("kind", "values", "name", "expected"),
    [
        (pa.int64(), [-(2**63), 2**63 - 1, None], "bigint", None),
        (pa.int8(), [-128, None], "smallint", None),
        (pa.uint64(), [2**64 - 1], "numeric", [Decimal(2**64 - 1)]),
        (pa.bool_(), [True, False, None], "boolean", None),
        (pa.float64(), [0.1, 5e-324, math.inf, None], "double precision", None),
        (pa.decimal128(38, 9), [Decimal("12345678901234567890123456789.123456789"), None], "numeric", None),
        (pa.string(), ["", "x,y", '"', "\\.", None], "text", None),
        (pa.dictionary(pa.int8(), pa.string()), ["x", None], "text", None),
        (pa.binary(), [b"\x00\xff", b"", None], "bytea", None),
        (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None], "date", None),
        (pa.time64("us"), [time(1, 2, 3, 4)], "time without time zone", None),
        (
            pa.timestamp("us"),
            [datetime.fromisoformat("2026-01-02T03:04:05.000006")],
            "timestamp without time zone",
            None,
        ),
        (pa.duration("us"), [timedelta(seconds=1)], "bigint", [1_000_000]),
        (pa.list_(pa.int64()), [[1, 2], [], None], "jsonb", None),
        (pa.list_(pa.string()), [["\\u0000", '"']], "jsonb", None),
        (pa.struct([("a", pa.string())]), [{"a": "it's"}, None], "jsonb", None),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
def test_types_and_values(postgres, sink, postgres_table, kind, values, name, expected):
    opened(sink, 1).write(with_column(values, kind))
    types = f"SELECT data_type FROM information_schema.columns WHERE table_name = '{postgres_table}'"
    assert ask(postgres, f"{types} AND column_name = 'x'") == [(name,)]
    rows = ask(postgres, f"SELECT x FROM {postgres_table} ORDER BY n")
    assert [row[0] for row in rows] == (values if expected is None else expected)


def test_nan_is_a_number_and_a_key(postgres, sink, postgres_table):
    def found(revision: int, n: int) -> WindowResults:
        plain = results(revision + 1, {None: n}, revision=revision)
        table = plain.table.append_column("key", pa.array([math.nan], pa.float64(), from_pandas=False))
        return WindowResults(plain.query, plain.cut, table, (*plain.keys, "key"))

    opened(sink, 1)
    sink.write(found(0, 1))
    sink.write(found(1, 2))
    assert ask(postgres, f"SELECT n, key = 'NaN' FROM {postgres_table}") == [(2, True)]


@pytest.mark.parametrize(
    ("micros", "expected"),
    [
        (253_402_300_800 * MICROS, "10000-01-01 00:00:00"),
        (9_223_372_036_854_775_807, "294247-01-10 04:00:54.775807"),
        (-62_135_596_801 * MICROS, "0001-12-31 23:59:59 BC"),
        (-62_167_219_201 * MICROS, "0002-12-31 23:59:59 BC"),
        (-210_866_803_200 * MICROS, "4714-11-24 00:00:00 BC"),
    ],
)
def test_times_beyond_the_years_of_python(postgres, sink, postgres_table, micros, expected):
    opened(sink, 1).write(with_column([micros, 0], pa.timestamp("us", "UTC")))
    with psycopg.connect(postgres.dsn, options="-c TimeZone=UTC") as connection:
        found = connection.execute(f"SELECT x::timestamp::text FROM {postgres_table} ORDER BY n").fetchall()
    assert found == [(expected,), ("1970-01-01 00:00:00",)]


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (
            pa.timestamp("us", "UTC"),
            [-210_866_803_200 * MICROS - 1],
            "fares: x has a time in the year -4713, .*4714 BC",
        ),
        (pa.timestamp("us"), [-(2**63)], "fares: x has a time in the year -290308"),
        (pa.date32(), [2_145_042_906], "fares: x has a date in the year 5874898"),
        (pa.string(), ["a\x00b"], "fares: x has a text with the character NUL"),
        (pa.list_(pa.string()), [["\\u0000", "a\x00b"]], "fares: x has a text with the character NUL"),
    ],
)
def test_values_that_postgresql_does_not_have(kind, values, message):
    with pytest.raises(SinkError, match=message):
        copied(with_column(values, kind).table, "fares")


def test_an_older_run_is_fenced(postgres, sink, postgres_table):
    opened(sink, 1, Claim(OWNER, is_new=True, epoch=1)).write(results(1, {"Soho": 1}))
    newer = opened(tm.sinks.postgres(postgres.dsn, postgres_table), 2, Claim(OWNER, epoch=2))
    with pytest.raises(SinkError, match="is that of run 2 now; this run may not write"):
        sink.write(results(2, {"Soho": 2}, window=1))
    newer.write(results(2, {"Soho": 3}, window=1))
    with pytest.raises(SinkError, match="run 2 now"):
        sink.claim(Claim(OWNER, epoch=1))
    newer.close()
    assert ask(postgres, f"SELECT n FROM {postgres_table} ORDER BY n") == [(1,), (3,)]


def test_a_lost_connection_is_made_anew(postgres, sink, postgres_table):
    opened(sink, 1).write(results(1, {"Soho": 1}))
    ask(postgres, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'transom'")
    with pytest.raises(psycopg.OperationalError):
        sink.write(results(2, {"Soho": 2}, window=1))
    for _ in range(2):
        sink.write(results(2, {"Soho": 2}, window=1))
    assert ask(postgres, f"SELECT n FROM {postgres_table} ORDER BY n") == [(1,), (2,)]


def test_a_failed_write_leaves_nothing(postgres, sink, postgres_table):
    opened(sink, 1).write(results(1, {"Soho": 1}))
    with pytest.raises(psycopg.Error):
        sink.write(results(2, {"Soho": 2}))  # the same window and key again, and no revision
    sink.write(results(2, {"Soho": 2}, window=1))
    assert ask(postgres, f"SELECT n FROM {postgres_table} ORDER BY n") == [(1,), (2,)]
    assert ask(postgres, f"SELECT cut, epoch FROM transom_results WHERE result_table = '{postgres_table}'") == [(2, 1)]


def test_a_table_of_the_users_own(postgres, postgres_table):
    made = tm.sinks.postgres(postgres.dsn, f"public.{postgres_table}")
    with pytest.raises(SinkError, match=r"there is no table public\.\w+ .*create=True"):
        made.open("fares")
    columns = "window_start timestamptz, window_end timestamptz, zone text, n bigint, mean real, revision int, more int"
    ask(postgres, f"CREATE TABLE {postgres_table} ({columns})")
    opened(made, 1)
    with pytest.raises(SinkError, match='Create it: CREATE UNIQUE INDEX ON "public"') as refused:
        made.write(results(1, {"Soho": 1}, revision=0))
    statement = str(refused.value).partition("Create it: ")[2].rstrip(".")
    ask(postgres, statement)
    made.write(results(1, {"Soho": 1}, revision=0))
    made.close()
    assert ask(postgres, f"SELECT n, more FROM {postgres_table}") == [(1, None)]


def test_a_table_is_of_one_query_whatever_it_is_called(postgres, sink, postgres_table):
    opened(sink, 1, Claim(OWNER, is_new=True, epoch=1))
    whole = tm.sinks.postgres(postgres.dsn, f"public.{postgres_table}", create=True)
    with pytest.raises(SinkError, match="belongs to the query 'fares'"):
        opened(whole, 1, Claim(replace(OWNER, query="other"), is_new=True, epoch=1))
    sink.write(results(1, {"Soho": 1}))
    opened(whole, 2, Claim(OWNER, epoch=2)).write(results(1, {"Soho": 1}))
    whole.write(results(2, {"Soho": 2}, window=1))
    whole.close()
    assert ask(postgres, f"SELECT n FROM {postgres_table} ORDER BY n") == [(1,), (2,)]


def test_rows_of_unknown_origin_are_left_alone(postgres, postgres_table):
    ask(postgres, f"CREATE TABLE {postgres_table} (n bigint); INSERT INTO {postgres_table} VALUES (1)")
    made = tm.sinks.postgres(postgres.dsn, postgres_table)
    with pytest.raises(SinkError, match="holds results already"):
        opened(made, 1)
    made.close()


def test_no_password_is_shown(postgres):
    made = tm.sinks.postgres(f"postgresql://me:{SECRET}@127.0.0.1:1/db", "t")
    shown = [made.describe(), made.key, repr(made)]
    with pytest.raises(SinkError, match="cannot be used") as unreachable:
        made.open("q")
    other = tm.sinks.postgres(postgres.dsn.replace("/postgres", "/nothing"), "t")
    with pytest.raises(SinkError, match="nothing") as no_database:
        other.open("q")
    for wrong in (f"password={SECRET} {SECRET}", f"host='x password={SECRET}"):
        with pytest.raises(DefinitionError) as unread:
            tm.sinks.postgres(wrong, "t")
        shown.append(str(unread.value))
        assert unread.value.__cause__ is None
    shown += [str(unreachable.value), str(no_database.value)]
    assert not any(SECRET in text for text in shown), shown
    assert made.describe() == "PostgreSQL table t at 127.0.0.1:1/db"
    echoing = PostgresSink(f"host=h password={SECRET}", "t", create=False)
    with pytest.raises(SinkError, match=r"x \*\*\* y"), echoing._without_secrets("q"):
        raise psycopg.Error(f"x {SECRET} y")


def test_no_password_is_in_the_errors_of_a_job_file():
    job = small_job('name = "q"\nwindows = ["1 minute"]\naggregates = ["count(*) as n"]')
    address = f"postgresql://me:{SECRET}@host/db"
    job_of = parse_job(job + f'sink = {{postgres = "{address}", table = "t"}}')
    assert job_of.queries[0].sinks[0].options == {"table": "t"}
    for line in (
        f'sink = "{address}"',
        f'sinks = ["{address}"]',
        f'sink = {{postgres = "{address}"}}',
        f'sink = {{postgres = "{address}", tabel = "t"}}',
        f'sink = {{postgres = {{dsn = "{address}"}}, table = "t"}}',
        f'where = ["host=h password={SECRET}"]',
    ):
        with pytest.raises(JobFileError) as refused:
            parse_job(job + line)
        assert SECRET not in str(refused.value)


def test_an_application_writes_once_and_keeps_the_password_to_itself(spark, tmp_path, postgres, postgres_table, caplog):
    def run(**options):
        source = tm.sources.memory("zone string, at long")
        source.add([("ab"[at % 2], at) for at in range(30)])
        app = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(0), max_rows_per_cut=10)
        stream = app.stream(source, event_time="timestamp_seconds(at)", watermark=tm.watermark(0, max_ahead=None))
        stream.group_by("zone").window("10 seconds", lateness="1 hour").agg(n=tm.count()).to(
            [tm.sinks.postgres(postgres.dsn, postgres_table, create=True), tm.sinks.memory()], "q"
        )
        assert SECRET not in str(app.explain())
        app._on_step = options.get("on_step", app._on_step)
        return app.run(once=True, close_all=True)

    class Killed(BaseException):
        pass

    def kill(step: str) -> None:
        if step == "delivered":
            raise Killed

    with pytest.raises(Killed):
        run(on_step=kill)
    progress = run()
    assert SECRET not in repr(progress)
    rows = ask(postgres, f"SELECT extract(second FROM window_start)::int, zone, n FROM {postgres_table} ORDER BY 1, 2")
    assert rows == [(start, zone, 5) for start in (0, 10, 20) for zone in "ab"]
    kept = [path for path in Path(tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if SECRET.encode() in path.read_bytes()]
    assert SECRET not in caplog.text


def test_a_connection_that_does_not_speak_of_utc_is_not_used(monkeypatch):
    """Nor left open."""
    import psycopg

    class Half:
        closed = False

        def execute(self, statement):
            raise psycopg.OperationalError("the server went away")

        def close(self):
            self.closed = True

    made = []

    def connect(*_, **__):
        made.append(Half())
        return made[-1]

    monkeypatch.setattr(psycopg, "connect", connect)
    sink = tm.sinks.postgres("host=nowhere", "t")
    for _ in range(2):
        with pytest.raises(SinkError, match="went away"):
            sink.open("q")
    assert [each.closed for each in made] == [True, True]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("sales.reports.fares", r"neither a name nor a schema and a name.*reports.fares.*dsn"),
        ("", "neither a name"),
        (".fares", "neither a name"),
        ("reports.", "neither a name"),
        ("é" * 32, "more than 63 bytes"),
        ("reports." + "x" * 64, "more than 63 bytes"),
        ("reports.transom_results", "Transom's own"),
    ],
)
def test_names_that_no_table_can_have(table, message):
    with pytest.raises(DefinitionError, match=message):
        tm.sinks.postgres("host=nowhere", table)
    assert tm.sinks.postgres("host=nowhere", "x" * 63 + ".fares").key.endswith(".fares")
