"""Programs read from Spark's plans: each function gives what Spark gives, on edges and on random values."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from transom.engine.spark.programs import OnlySparkError, empty_rows, runner_of
from transom.native.evaluate import Runner
from transom.native.program import Judge, Program, Project

SHORT = "timestamp_millis(i)"
VALUES = [
    *("timestamp_seconds(i)", "timestamp_millis(i)", "timestamp_micros(j)"),
    *("unix_seconds(at)", "unix_millis(at)", "unix_micros(at)"),
    *("d + e", "d - e", "d * e", "-d", "abs(d)", "d / 7.0D", "if(e = 0, NULL, d / e)"),
    *("i % 7", "j % -5L", "j div 3", "pmod(i, 7)", "pmod(j, -5L)", "i & 12", "j | 5L", "i ^ -3", "sqrt(d)"),
    *("double(i)", "double(j)", "double(f)", "float(i)", "bigint(i)", "int(b)", "boolean(d)", "boolean(i)"),
    *("greatest(i, 3)", "least(j, bigint(i), 5L)", "greatest(at, timestamp_seconds(i))"),
    *("try_divide(d, e)", "try_add(d, e)", "try_divide(i, j)", "try_cast(j AS int)", "try_cast(i AS tinyint)"),
    *("length(s)", "coalesce(s, t)", "nullif(d, e)", "nvl2(s, i, 4)", "p.x", "p.y"),
    *("CASE WHEN d > e THEN d WHEN s < t THEN e END", "if(i > 0, s, t)", "if(b, NULL, s)"),
    *("d < e", "d <= e", "d = e", "d <=> e", "f > 0", "i >= 7", "j < i", "s < t", "s = t", "s >= t"),
    *("at > timestamp_seconds(i)", "s LIKE 'a%'", "s LIKE '%_b'", "contains(s, 'b')", "startswith(s, 'é')"),
    *("endswith(s, 'a')", "s IN ('a', 'é', '')", "i IN (0, 1, NULL)", "d IN (0.0D, double('NaN'))"),
    *("i NOT IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)", "j BETWEEN -7 AND i", "i > 1.5", "p.x = 7"),
    *("substring(s, 2, 3)", "substring(s, 0, 2)", "substring(s, -2, 1)", "substring(s, -3)", "left(s, 2)"),
    *("right(s, 2)", "substring(s, -5, 4)", "substring(s, 2, -1)", "concat(s, '-', t)", "s || t"),
    *("concat_ws(', ', s, t, 'z')", "trim(s)", "ltrim(s)", "rtrim(s)", "replace(s, 'a', 'bb')", "replace(s, 'b')"),
    *("string(i)", "string(j)", "string(b)", "bigint(at)", "date(at)", "datediff(at, day)", "timestamp(day)"),
    *("year(at)", "month(at)", "day(at)", "hour(at)", "minute(at)", "second(at)", "quarter(day)", "dayofyear(day)"),
    *("dayofweek(at)", "weekday(at)", "weekofyear(at)", "date_trunc('HOUR', at)", "date_trunc('minute', at)"),
    *("date_trunc('WEEK', at)", "date_trunc('DAY', at)", "date_trunc('MONTH', at)", "date_trunc('QUARTER', at)"),
    *("date_trunc('YEAR', at)", "date_trunc('SECOND', at)", "date_trunc('MILLISECOND', at)", "trunc(day, 'MM')"),
    *("trunc(day, 'WEEK')", "at + INTERVAL 5 MINUTES", "at - INTERVAL '1 02:03:04' DAY TO SECOND"),
    *("unix_timestamp(at)", "at < TIMESTAMP'2026-10-25 01:30:00'", "day >= DATE'2026-03-01'"),
    *("hash(i, j)", "hash(s, t, b)", "hash(d, f, at)", "hash(day, 'a', smallint(3))", "hash(w, 7L, n, s)"),
    *("xxhash64(j, 1)", "xxhash64(s, n, w, 'a longer text than thirty-two letters')", "xxhash64(d, f, b, at, day)"),
    *("hash(1, i)", "xxhash64('', j, 2.5D)", "pmod(xxhash64(j, 1), 900)", "abs(hash(i) % 100)"),
    *("element_at(array('x', 'y', NULL), pmod(i, 3) + 1)", "element_at(array(1L, 2L), -1 - pmod(ifnull(i, 0), 2))"),
    *("array(1.5D, d, e)[pmod(i, 3)]", "split('a,b', ',')[ifnull(i & 1, 1)]", "try_element_at(array('a'), 8 + i % 7)"),
    *("get(array(1, 2, i), i % 5)", "elt(1 + pmod(i, 3), 'x', s, t)", "CASE pmod(i, 3) WHEN 0 THEN 'x' END"),
    *("at + make_interval(0, 0, 0, 0, 0, 0, i % 100)", f"{SHORT} - make_interval(0, 0, 1, i % 9, i % 40, -7, 0.25)"),
    *(f"{SHORT} - make_dt_interval(i % 99, 7, i % 5, i % 60)", f"{SHORT} + (i % 77) * INTERVAL 1 MINUTE"),
    *(f"{SHORT} - INTERVAL '0.5' SECOND * i", f"timestampadd(SECOND, i, {SHORT})", "timestamp(i)", "double(at)"),
    *(f"timestampadd(DAY, i % 99, {SHORT})", f"{SHORT} + -(i % 3) * INTERVAL '0.001' SECOND"),
    *("timestamp_seconds(1700000000 + i / 10)", "timestamp_seconds(if(abs(d) < 9e12D, d, 1.5D))"),
    *("if(e = 0, 0, i) % if(i IN (0, -1), 7, i)", "pmod(j, if(j IN (0, -1), 3L, j))", "j div greatest(i, 1)"),
    *("try_mod(i, greatest(i, 0))", "i << 3", "j >> 7", "shiftleft(i, 30)", "~i", "~j", "round(i, 1)", "round(d)"),
    *("i * 0.25", "10.5 - i % 90 * 0.125", "-(i * 0.1)", "abs(i * 1.5)", "double(i * 0.37)", "double(i % 99 * 0.05)"),
    *("round(i * 0.375, 2)", "round(i * 0.375)", "round(i / 2)", "round(e)", "floor(i * 0.3)", "ceil(i * 0.3)"),
    *("floor(j)", "i * 0.3 > 7", "decimal(i % 99)", "CAST(smallint(i % 99) AS decimal(4, 1))"),
    *("lpad(i, 5, '0')", "rpad(s, 2, '_')", "lpad(s, 4, 'é')", "chr(65 + pmod(i, 26))", "chr(i)", "char(j)"),
    *("NOT (d > e AND s IS NULL)", "isnan(d)", "d IS NOT NULL OR i > 0", "b AND i > 0", "b OR NOT (d < 1)"),
]
"""Terms that have a value for every row."""
NEAR = "if(at > TIMESTAMP'1899-12-31' AND at < TIMESTAMP'9999-12-31', at, TIMESTAMP'2026-03-01')"
TRIED: dict[str, str | None] = {
    "i + 7": "try_add(i, 7)",
    "i - j": "try_subtract(i, j)",
    "i * i": "try_multiply(i, i)",
    "j * 3L": "try_multiply(j, 3L)",
    "d / e": "try_divide(d, e)",
    "-j": "try_subtract(0L, j)",
    "smallint(i)": "try_cast(i AS smallint)",
    "int(j)": "try_cast(j AS int)",
    "int(d)": "try_cast(d AS int)",
    "bigint(d)": "try_cast(d AS bigint)",
    "tinyint(f)": "try_cast(f AS tinyint)",
    "i % int(e)": "try_mod(i, try_cast(e AS int))",
    "j div i": "if(i <> 0 AND NOT (i = -1 AND j = -9223372036854775807L - 1), j div i, NULL)",
    "element_at(array('a', 'b'), i)": "try_element_at(array('a', 'b'), nullif(i, 0))",
    "array('a', 'b')[i]": "get(array('a', 'b'), i)",
    "at + make_dt_interval(i)": "timestamp_micros(try_add(unix_micros(at), try_multiply(i, 86400000000L)))",
    "CAST(i AS decimal(4, 1))": "try_cast(i AS decimal(4, 1))",
    "timestamp_micros(j) + i * INTERVAL 1 DAY": "timestamp_micros(try_add(j, try_multiply(i, 86400000000L)))",
    **dict.fromkeys(["floor(if(abs(d) < 9e18D, d, 1))", "ceil(if(abs(d) < 9e18D, d, 1))"]),
    **dict.fromkeys(["instr(n, '1')", "from_unixtime(i)", "upper(n)", "lower(w)"]),
    "int(n)": "try_cast(n AS int)",
    "bigint(n)": "try_cast(n AS bigint)",
    "double(n)": "try_cast(n AS double)",
    "float(n)": "try_cast(n AS float)",
    "boolean(n)": "try_cast(n AS boolean)",
    "date(left(w, 10))": "try_cast(left(w, 10) AS date)",
    "timestamp(w)": "try_cast(w AS timestamp)",
    "to_timestamp(w)": "try_cast(w AS timestamp)",
    "try_to_timestamp(w)": "try_cast(w AS timestamp)",
    "unix_timestamp(timestamp(w))": "unix_timestamp(try_cast(w AS timestamp))",
    **dict.fromkeys([f"date_format({NEAR}, 'yyyy-MM-dd HH:mm')", f"date_format({NEAR}, \"yyyy/MM/dd'T'HHmmss\")"]),
}
"""Terms for which some rows are Spark's to judge, and what has the same values for the others."""


def mixed(draw: np.random.Generator, edges: list[Any], random: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return an array of edges, random values and nulls."""
    chosen = draw.integers(0, 10, len(random))
    values = [
        None if which == 0 else edges[draw.integers(len(edges))] if which < 4 else value
        for which, value in zip(chosen, random.tolist(), strict=True)
    ]
    return pa.array(values, kind)


def table_of(rows: int) -> pa.Table:
    """Return so many rows, always the same."""
    draw = np.random.default_rng(20)
    letters = np.array(["", "a", "b", "A", "é", "\U0001f600", "\uffff", "ab", " ", "\n"])

    def texts() -> npt.NDArray[Any]:
        return np.array(["".join(draw.choice(letters, 3)) for _ in range(rows)], object)

    whole = [0, 1, -1, 7, -7]
    real = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 5e-324, 1.7976931348623157e308, 0.1]
    near = [2.0**31, -(2.0**31), 2147483647.5, -2147483648.9, 127.9, -128.9, 9.007199254740993e15, 2.0**63, -(2.0**63)]
    doubles = [draw.standard_normal(rows) * 10.0 ** draw.integers(-300, 300, rows) for _ in range(2)]
    moments = draw.integers(-(10**17), 10**17, rows)
    i = mixed(draw, [*whole, 2**31 - 1, -(2**31)], draw.integers(-(2**31), 2**31, rows), pa.int32())
    s = mixed(draw, ["", "a", "é"], texts(), pa.string())
    numbers, times = written(draw, rows)
    days = mixed(draw, [0, -1, 20_000], draw.integers(-(10**6), 10**6, rows), pa.int32()).cast(pa.date32())
    return pa.table(
        {
            "n": numbers,
            "w": times,
            "day": days,
            "i": i,
            "j": mixed(draw, [*whole, 2**63 - 1, -(2**63)], draw.integers(-(2**63), 2**63 - 1, rows), pa.int64()),
            "d": mixed(draw, [*real, *near], doubles[0], pa.float64()),
            "e": mixed(draw, real, doubles[1], pa.float64()),
            "f": mixed(draw, real[:5], draw.standard_normal(rows).astype(np.float32) * 100, pa.float32()),
            "s": s,
            "t": mixed(draw, ["", "a", "é"], texts(), pa.string()),
            "b": mixed(draw, [True, False], draw.integers(0, 2, rows).astype(bool), pa.bool_()),
            "at": mixed(draw, [0, -1, 1, -999, -1000, -1001], moments, pa.int64()).cast(pa.timestamp("us", "UTC")),
            "p": pa.StructArray.from_arrays([i, s], ["x", "y"], mask=pa.array(draw.integers(0, 9, rows) == 0)),
        }
    )


def written(draw: np.random.Generator, rows: int) -> tuple[pa.Array, ...]:
    """Return texts of numbers and of times, some odd ones first."""
    odd = ["", " 1", "1 ", "+1", "1.", ".5", "1e400", "--1", "NaN", "Infinity", "0x1", "1f", "1d", "1_0", "١", "on"]
    numbers = [*(str(n) for n in draw.integers(-(2**31), 2**31, rows // 3)), *map(str, range(-50, rows // 3 - 50))]
    numbers += [repr(n) for n in (draw.standard_normal(rows - len(numbers)) * 10.0 ** draw.integers(-9, 9)).tolist()]
    known = [*odd, "-0", "007", "2147483648", "9223372036854775807", "true", "f", "yes", "TRUE", "-0.0", "1E5", "1e-40"]
    moments = pa.array(draw.integers(-(10**15), 4 * 10**15, rows)).cast(pa.timestamp("us"))
    texts = [
        time.isoformat(sep=" T"[place % 2]) + "Z" * (place % 3 == 0) for place, time in enumerate(moments.to_pylist())
    ]
    times = ["2026-02-30", "2026-3-1", "2026-03-01", "2026", "2026-03", "2026-03-01 24:00:00", "2026-03-01 23:59:60"]
    times += ["2026-03-01T10:00", "2026-03-01 10:00:00.1234567", "2026-03-01 10:00:00+01:00", " 2026-03-01", "T10:00"]
    times += ["2026-03-01 10:00:00.", "2026-03-01Z", "0001-01-01", "+12026-03-01", "2026-03-01 10:00:00 Z", "now", ""]
    times += ["2026-03-01 10:00:00.5Z", "2024-02-29", "2026-02-29 00:00:00", "2026-13-01", "9999-12-31 23:59:59.999999"]
    return tuple(pa.array([None, *odd, *random[len(odd) + 1 :]]) for odd, random in ((known, numbers), (times, texts)))


def comparable(values: pa.Array) -> list[str]:
    """Return values as texts, which tell zeros apart and take all NaN for one."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    return [repr(value) for value in values.to_pylist()]


def certain(runner: Runner, rows: pa.RecordBatch, begin: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the values of the rows that Spark does not have to judge, with their places."""
    found = runner(rows)
    if not isinstance(found, Judge):
        yield from enumerate(comparable(found.column(0)), begin)
    elif len(rows) > 1:
        half = len(rows) // 2
        yield from certain(runner, rows.slice(0, half), begin)
        yield from certain(runner, rows.slice(half), begin + half)


@pytest.mark.parametrize("rows", [300, pytest.param(100_000, marks=pytest.mark.slow)])
def test_each_function_gives_what_spark_gives(interpreted: Any, tmp_path: Path, rows: int) -> None:
    """Spark plans and computes all of them at once."""
    table = table_of(rows)
    leaf = empty_rows(interpreted, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))
    runner = runner_of(leaf.selectExpr(*(f"{text} AS `{text}`" for text in (*VALUES, *TRIED))), leaf)
    runner = pickle.loads(pickle.dumps(runner))
    made = runner.program.steps[0]
    assert isinstance(made, Project)
    assert len(made.columns) >= len(VALUES) + len(TRIED), "each is a term of one step"
    asked = [*VALUES, *(tried or text for text, tried in TRIED.items())]
    pq.write_table(table, tmp_path / "rows.parquet")  # local rows of Spark are a list: it walks to the last for each
    frame = interpreted.read.parquet(str(tmp_path / "rows.parquet"))
    wanted = frame.selectExpr(*(f"{text} AS c{place}" for place, text in enumerate(asked))).toArrow().combine_chunks()
    (batch,) = table.combine_chunks().to_batches()
    whole = runner_of(leaf.selectExpr(*(f"{text} AS `{text}`" for text in VALUES)), leaf)(batch)
    assert isinstance(whole, pa.RecordBatch)
    terms = {name.split(": ", 1)[1]: term for name, term in made.columns if ": " in name}
    for text, right in zip([*VALUES, *TRIED], wanted.columns, strict=True):
        expected = comparable(right.combine_chunks())
        if text in VALUES:
            assert whole.schema.field(text).type == right.type, text
            assert comparable(whole[text]) == expected, text
        else:
            alone = Runner(Program(runner.program.columns, (Project(((text, terms[text]),)),)))
            check_tried(alone, batch, expected, text)


def check_tried(alone: Runner, batch: pa.RecordBatch, expected: list[str], text: str) -> None:
    """Where a program has values, they are those of Spark; it has them for some."""
    has = np.array([value != "None" for value in expected])
    found = 0
    for places in (np.flatnonzero(has), np.flatnonzero(~has)[:300]):
        for place, value in certain(alone, batch.take(pa.array(places))):
            assert value == expected[places[place]], (text, batch.slice(places[place], 1).to_pydict())
            found += 1
    assert found >= 5, text


def test_filters_and_columns_of_several_steps(interpreted: Any) -> None:
    table = pa.table({"i": pa.array([1, 2, None, 2**31 - 1], pa.int32()), "s": ["a", "b", "c", "a"]})
    leaf = empty_rows(interpreted, "i int, s string")  # type: ignore[arg-type]

    def made(rows: Any) -> Any:
        steps = rows.where("s <> 'c'").withColumn("i", F.expr("i - 1")).withColumn("k", F.col("i") * F.col("i"))
        return steps.where("i < 100").selectExpr("k AS `k.1`", "s", "i AS was")

    runner = runner_of(made(leaf), leaf)
    (batch,) = table.to_batches()
    assert runner(batch).to_pydict() == {"k.1": [0, 1], "s": ["a", "b"], "was": [0, 1]}
    assert runner.program.schema == pa.schema([("k.1", pa.int32()), ("s", pa.string()), ("was", pa.int32())])
    assert runner.program.kept == {"s"}
    overflow = runner_of(made(leaf).selectExpr("was + 2147483647"), leaf)(batch)
    assert isinstance(overflow, Judge)
    assert "overflow" in overflow.why


def table(columns: str, *rows: tuple[Any, ...]) -> Any:
    """Return a static table."""
    session = SparkSession.getActiveSession()
    assert session is not None
    return session.createDataFrame(rows, columns)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda rows: rows.union(rows), "only Spark does a union"),
        (lambda rows: rows.select(F.explode(F.array("i"))), "only Spark does explode"),
        (lambda rows: rows.select(F.udf(lambda i: i, "int")("i")), "only Spark does a Python function"),
        (lambda rows: rows.select(F.rand()), "not deterministic"),
        (lambda rows: rows.select(F.current_timestamp()), "the time at which it runs"),
        (lambda rows: rows.where("levenshtein(s, 'b') > 1"), r"only Spark computes levenshtein\(s, 'b'\)"),
        (
            lambda rows: rows.selectExpr("date_format(timestamp_seconds(i), 'dd MMMM')"),
            "only Spark computes date_format",
        ),
        (lambda rows: rows.selectExpr("date_format(timestamp_seconds(i), \"HH'T''T'\")"), "only Spark computes date_f"),
        (lambda rows: rows.selectExpr("pmod(tinyint(i), tinyint(-128))"), "only Spark computes pmod"),
        (lambda rows: rows.where("to_json(struct(s)) = '{}'"), "only Spark computes"),
        (lambda rows: rows.selectExpr("if(i > 0, timestamp_seconds(-99999999999), NULL)"), "only Spark computes TIMES"),
        (lambda rows: rows.where("date_from_unix_date(-999999) < date(s)"), "only Spark computes DATE"),
        (lambda rows: rows.selectExpr("i", "s AS i"), "several columns have one name"),
        (lambda rows: rows.selectExpr("s COLLATE UNICODE_CI"), "only Spark computes"),
        (lambda rows: rows.join(table("i int"), "i", "left"), "only Spark joins with a table without rows"),
        (lambda rows: rows.join(table("k int", (1,), (2,)), F.expr("k < i")), r"only Spark joins by \(k < i\)"),
        (lambda rows: rows.join(table("k double", (1.0,), (2.0,)), F.expr("k = i")), "only Spark joins by"),
        (lambda rows: rows.join(table("k int", (1,), (2,)), F.expr("k = i"), "full"), r"this join \(full outer\)"),
    ],
)
def test_what_only_spark_does_is_said(interpreted: Any, made: Any, reason: str) -> None:
    leaf = empty_rows(interpreted, "i int, s string")  # type: ignore[arg-type]
    with pytest.raises(OnlySparkError, match=reason):
        runner_of(made(leaf), leaf)


def test_rows_are_joined_with_static_tables(interpreted: Any) -> None:
    """Each join gives what Spark gives, whose optimizer moves conditions into the table."""
    rows = pa.table({"i": pa.array([1, 2, 3, None, 2], pa.int32()), "s": ["a", "b", None, "a", "z"]})
    leaf = empty_rows(interpreted, "i int, s string")  # type: ignore[arg-type]
    ads = interpreted.createDataFrame(
        [(1, "x", 0.5), (2, "y", 1.5), (2, "z", 2.5), (None, "n", 3.5)], "i int, name string, fee double"
    )
    names = interpreted.createDataFrame(
        [(None, 2, "none"), ("a", 0, "first"), ("a", 9, "more")], "s string, number int, what string"
    )
    pairs = interpreted.createDataFrame([(2, "b", "both"), (2, "z", "too")], "i bigint, s string, what string")

    def joins(of: Any) -> list[Any]:
        return [
            *(of.join(F.broadcast(ads), "i", how) for how in ("inner", "left", "left_semi", "left_anti")),
            ads.join(of, "i", "right").select("i", "s", "name"),
            ads.where("fee > 1").join(of, "i").selectExpr("upper(name) AS name", "i + 1", "s", "fee * 2"),
            of.join(pairs.withColumn("i", F.col("i").cast("int")), ["i", "s"], "left").where("what IS NULL OR s = 'b'"),
            *(
                of.join(ads, (of.i == ads.i) & (F.length(of.s) + F.length("name") > 4), how).drop(ads.i)
                for how in ("inner", "left", "left_semi", "left_anti")
            ),
            of.join(names, of.s.eqNullSafe(names.s), "left").select("i", "what"),
            of.join(names, of.s.eqNullSafe(names.s) & (names.number > of.i), "left_anti"),
            of.join(ads.groupBy("i").agg(F.sum("fee").alias("fees")), "i").join(pairs.drop("i"), "s", "left"),
        ]

    (batch,) = rows.to_batches()
    wanted = [frame.toArrow() for frame in joins(interpreted.createDataFrame(rows))]
    for frame, right in zip(joins(leaf), wanted, strict=True):
        found = pickle.loads(pickle.dumps(runner_of(frame, leaf)))(batch)
        assert not isinstance(found, Judge)
        assert found.schema.names == right.schema.names
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, right.to_pylist())), frame


@pytest.mark.parametrize("how", ["inner", "left", "left_semi", "left_anti"])
def test_rows_of_a_table_are_given_later(interpreted: Any, how: str) -> None:
    """What Spark's optimizer wants of them is done when they are there."""
    stream, rates = "i int, s string", "i int, name string, fee double"
    leaf, later = empty_rows(interpreted, stream), empty_rows(interpreted, rates)  # type: ignore[arg-type]

    def joined(of: Any, table: Any) -> Any:
        return of.join(F.broadcast(table.alias("rates")), "i", how).where("i > 1")

    rows = [(1, "a"), (2, "b"), (3, None), (None, "c")]
    (batch,) = interpreted.createDataFrame(rows, stream).toArrow().combine_chunks().to_batches()
    awaiting = runner_of(joined(leaf, later), leaf, {"t": later})
    assert [of for of, _ in awaiting.awaited.values()] == ["t"]
    for version in ([(2, "two", 0.5), (2, "again", 1.5), (1, "one", 2.5)], []):
        table = interpreted.createDataFrame(version, rates)
        given = awaiting.given({"t": table.toArrow()})
        assert not isinstance(given, Judge)
        found = given(batch)
        assert not isinstance(found, Judge)
        right = joined(interpreted.createDataFrame(rows, stream), table).toArrow()
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, right.to_pylist()))
