"""Conditions of views: on Arrow tables they give what they give in Spark, for every row."""

from __future__ import annotations

import pickle
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

import transom as tm
from transom.engine.placed.placed import arrow_schema
from transom.engine.spark.sparkterms import arrow_condition, spark_term
from transom.errors import DefinitionError
from transom.native.computing import Computation, NotKnownError, Rows
from transom.native.functions import FUNCTIONS, arrow_expression
from transom.native.terms import Term

COLUMNS = (
    "i int, j bigint, k tinyint, d double, e double, f float, s string, t string, b boolean, c boolean, day date, "
    "at timestamp, wall timestamp_ntz, n decimal(10,2), m decimal(6,3), p struct<x: int>, raw binary"
)
NAN, INFINITY = float("nan"), float("inf")
WHOLE = [None, 0, 1, -1, 2, 7, 100, -100, 127, -128]
NUMBERS = [None, 0.0, -0.0, 0.1, -1.5, 2.0, 1e300, -1e300, INFINITY, -INFINITY, NAN]
TEXTS = [None, "", "a", "A", "ab", "b", "é", "\U0001f600", "\uffff", "a%", "a_b", "a\nb", "\\"]
PATTERNS = ["a%", "%b", "%a%", "a%b", "a", "%", "", "_", "a_", "%_a%", "a__"]
ROUNDED = re.compile(r"only Spark computes CAST\(.* AS (DOUBLE|FLOAT)\)")
"""Decimals against floats are left to Spark, which rounds in its own way."""
DAYS = [None, date(1, 1, 1), date(1969, 12, 31), date(2026, 3, 1), date(9999, 12, 31)]
AWARE = [
    None,
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2026, 3, 1, tzinfo=UTC),
    datetime(2026, 10, 25, 1, 30, tzinfo=UTC),
]
TIMES = [None if time is None else time.replace(tzinfo=None) for time in AWARE]
FLOATS = [None, 0.0, -0.0, 0.1, -1.5, 2.0, 3e38, INFINITY, -INFINITY, NAN]
VALUES = {
    "i": [*WHOLE, 2**31 - 1, -(2**31)],
    "j": [*WHOLE, 2**53 + 1, 2**63 - 1, -(2**63)],
    "k": WHOLE,
    "d": NUMBERS,
    "e": NUMBERS,
    "f": [
        None if value is None else max(min(value, 3e38), -3e38) if abs(value) < INFINITY else value for value in NUMBERS
    ],
    "s": TEXTS,
    "t": TEXTS,
    "b": [None, True, False],
    "c": [None, True, False],
    "day": DAYS,
    "at": AWARE,
    "wall": TIMES,
    "n": [None, Decimal("0.00"), Decimal("2.50"), Decimal("-99999999.99")],
    "m": [None, Decimal("0.000"), Decimal("2.500"), Decimal("999.999")],
    "p": [None, (None,), (0,), (7,)],
    "raw": [None, b"", b"\x00", b"\xff", b"a"],
}
"""What is drawn from, by column."""

numbers = st.sampled_from(
    ["i", "j", "k", "d", "e", "f", "n", "m", "p.x", "0", "-1", "2", "7", "2.5", "0.1D", "-0.0D", "double('NaN')",
     "float('inf')", "128", "9223372036854775807", "NULL", "coalesce(i, 1)", "coalesce(d, e, 2.0D)", "length(s)",
     "d + e", "d * f", "-e", "abs(f)", "d - i", "i % 3", "j % 7", "i div 2", "d / 2", "f / 0.5",
     "CASE WHEN b THEN i WHEN c THEN k END", "if(d > 0, d, e)", "nullif(i, 7)", "1 + 2", "unix_micros(at)",
     "unix_millis(at)", "unix_seconds(at)"]
)  # fmt: skip
texts = st.sampled_from(
    ["s", "t", "'a'", "''", "'é'", "'\U0001f600'", "NULL", "coalesce(s, t)", "nullif(s, t)", "CASE WHEN b THEN s END"]
)
days = st.sampled_from(["day", "DATE'2026-03-01'", "DATE'1969-12-31'"])
times = st.sampled_from(
    [
        "at",
        "TIMESTAMP'2026-03-01 00:00:00'",
        "TIMESTAMP'2026-10-25 02:30:00'",
        "'2026-03-01'",
        "timestamp_seconds(i)",
        "timestamp_millis(k)",
        "timestamp_micros(j)",
    ]
)
walls = st.sampled_from(["wall", "TIMESTAMP_NTZ'2026-03-01 00:00:00'", "NULL"])
raws = st.sampled_from(["raw", "X'ff'", "X'00'"])
truths = st.sampled_from(["b", "c", "true", "false", "b", "c"])
alike = st.one_of(*(st.tuples(kind, kind, kind) for kind in (numbers, texts, days, times, walls, raws, truths)))
signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])
atoms = st.one_of(
    st.builds(lambda sides, sign: f"{sides[0]} {sign} {sides[1]}", alike, signs),
    st.builds(lambda of, no: f"{of[0]} {no} BETWEEN {of[1]} AND {of[2]}", alike, st.sampled_from(["", "NOT"])),
    st.builds(lambda of, no: f"{of[0]} IS {no} NULL", alike, st.sampled_from(["", "NOT"])),
    st.builds(lambda part: f"s LIKE '{part}'", st.sampled_from(PATTERNS)),
    st.sampled_from(
        ["i IN (1, 2, NULL)", "i NOT IN (0, 7)", "d IN (0.0D, double('NaN'), 2.0D)", "s IN ('a', 'é')",
         "j IN (0,1,2,3,4,5,6,7,8,9,10,11)", "day IN (DATE'2026-03-01')", "n IN (2.5, 0)", "isnan(d)",
         "f IN (0.1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)", "b", "c", "boolean(NULL)", "cast(at AS date) = '2026-03-01'"]
    ),
)  # fmt: skip
conditions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds(lambda left, word, right: f"({left}) {word} ({right})", inner, st.sampled_from(["AND", "OR"]), inner),
        st.builds(lambda of: f"NOT ({of})", inner),
        st.builds(lambda when, then: f"CASE WHEN {when} THEN {then} END", inner, inner),
    ),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def frame(spark):
    """Rows of all these values, mixed."""
    draw = random.Random(7).choice
    rows = [tuple(draw(values) for values in VALUES.values()) for _ in range(150)]
    found = spark.createDataFrame(rows, COLUMNS).coalesce(1).cache()
    found.count()
    yield found
    found.unpersist()


@contextmanager
def session_with(spark: Any, **settings: str) -> Iterator[None]:
    """Set settings of the session, by the end of their names."""
    names = {"zone": "spark.sql.session.timeZone", "ansi": "spark.sql.ansi.enabled"}
    before = {names[name]: spark.conf.get(names[name]) for name in settings}
    for name, value in settings.items():
        spark.conf.set(names[name], value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


def translated(spark: Any, frame: Any, condition: Any) -> pc.Expression:
    """Return a condition over a DataFrame's columns as an Arrow expression."""
    return arrow_condition(spark, arrow_schema(frame), condition)


def kept(frame: Any, condition: pc.Expression) -> list[bool]:
    """Return for each row whether an Arrow expression, sent as to a task, keeps it."""
    table = frame.toArrow().cast(arrow_schema(frame))
    numbered = table.append_column("row", pa.array(range(len(table)), pa.int64()))
    found = set(numbered.filter(pickle.loads(pickle.dumps(condition)))["row"].to_pylist())
    return [row in found for row in range(len(table))]


@given(written=st.lists(conditions, min_size=10, max_size=10), zone=st.sampled_from(["UTC", "Europe/Berlin"]))
@settings(max_examples=2)
def test_rows_are_kept_that_spark_keeps(spark, frame, written, zone):
    found = {}
    with session_with(spark, zone=zone):
        (batch,) = frame.toArrow().cast(arrow_schema(frame)).combine_chunks().to_batches()
        rows = Rows(dict(zip(batch.schema.names, batch.columns, strict=True)))
        for each in written:
            term = spark_term(spark, batch.schema, each)
            try:
                found[each] = kept(frame, arrow_expression(term, batch.schema))
            except NotKnownError as error:
                if not ROUNDED.search(str(error)):
                    raise
                continue
            holds = Computation(rows, FUNCTIONS).value(term, None)
            holds = holds.to_pylist() if isinstance(holds, pa.Array) else [holds.as_py()] * len(batch)
            assert [held is True for held in holds] == found[each], f"{each}, computed of rows"
        wanted = frame.select(*(F.expr(each).eqNullSafe(True) for each in found)).toArrow().columns
        for condition, expected in zip(found, wanted, strict=True):
            assert found[condition] == expected.to_pylist(), condition


def test_a_choice_between_texts_and_nulls_of_a_slice():
    """Arrow reads long tables in slices; its `if_else` gave other texts for them, before version 24."""
    s, null, a = (
        Term(kind, pa.string(), "", value=value)
        for kind, value in (("Column", "s"), ("Literal", pa.scalar(None, pa.string())), ("Literal", pa.scalar("a")))
    )
    table = pa.table({"s": ["a", "b", None, "cc"] * 5}).slice(3)
    is_a = Term("EqualTo", pa.bool_(), "", (s, a))
    chosen = Term("CaseWhen", pa.string(), "", (is_a, null, s))
    for text in ("a", "b", "cc"):
        condition = Term("EqualTo", pa.bool_(), "", (chosen, replace(a, value=pa.scalar(text))))
        found = table.filter(arrow_expression(condition, table.schema))["s"].to_pylist()
        assert found == [value for value in table["s"].to_pylist() if value == text != "a"]


@pytest.mark.parametrize(
    ("condition", "ansi", "expected"),
    [
        ("i + 1 > 0", "true", "overflow"),
        ("i < 100 AND i + 1 > 0", "true", [False, True, False, False]),
        ("i > 100 OR -i > 0", "true", [True, False, True, False]),
        ("CASE WHEN i > 100 THEN true WHEN i * 2 > 0 THEN d > 0 END", "true", [True, False, False, False]),
        ("coalesce(nullif(d, 0.0D) > 0, i + 1 > 0)", "true", [True, True, False, False]),
        ("1 / d > 0", "true", "zero"),
        ("d <> 0 AND 1 / d > 0", "true", [True, False, False, False]),
        ("if(d = 0, false, 1 / d > 0)", "true", [True, False, False, False]),
        ("i + 1 > 0", "false", [False, True, False, False]),
        ("1 / d > 0 OR d = 0", "false", [True, True, False, False]),
        ("1 / d IS NULL", "false", [False, True, False, True]),
        ("timestamp_seconds(i * 10000000000) > '2026-03-01'", "true", "overflow"),
        ("timestamp_seconds(i * 10000000000) > '2026-03-01'", "false", "overflow"),
        ("i < 9 AND timestamp_seconds(i * 10000000000) > '2026-03-01'", "true", [False, True, False, False]),
        ("unix_seconds(timestamp_millis(i)) = -1", "true", [False, False, True, False]),
    ],
)
def test_what_may_fail_fails_where_spark_comes_to_it(spark, condition, ansi, expected):
    rows = spark.createDataFrame([(2**31 - 1, 2.0), (1, 0.0), (-1, -4.0), (None, None)], "i int, d double")
    with session_with(spark, ansi=ansi):
        expression = translated(spark, rows, condition)
        if isinstance(expected, str):
            with pytest.raises(pa.ArrowInvalid, match=expected):
                kept(rows, expression)
        else:
            assert kept(rows, expression) == expected


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("upper(s) = 'A'", r"only Spark computes upper\(s\).*df\(\)\.where"),
        ("s = 1", "only Spark computes CAST"),
        ("n + m > 1", r"only Spark computes \(n \+ m\)"),
        ("n > 1.5D", "only Spark computes CAST"),
        ("s LIKE 'a\\\\_b'", "only Spark computes s LIKE"),
        ("p = named_struct('x', 1)", "only Spark computes"),
        ("s COLLATE UNICODE_CI = 'a'", "only Spark computes"),
        ("try_add(i, 1) > 1", "only Spark computes"),
        ("rand() > 0.5", "only Spark computes rand"),
        ("i IN (SELECT 1)", "a subquery or a Python function"),
        ("sum(i) > 1", "where: sum"),
        ("explode(array(true))", "where: explode"),
        ("far > 1", "far.*Columns are i, j"),
        ("i", "where: i: .*Columns"),
        ("i >", "where: i >"),
        ("", "where: the expression is empty"),
        (7, r"where: 7 \(int\) is not a column"),
        (lambda: F.udf(lambda i: True, "boolean")("i"), "where: .*a subquery or a Python function"),
    ],
)
def test_what_only_spark_computes_is_refused(spark, frame, condition, message):
    with pytest.raises(DefinitionError, match=message):
        translated(spark, frame, condition() if callable(condition) else condition)


def test_columns_of_pyspark_are_taken(spark, frame):
    for column in (F.col("i") > 3, F.col("s").isin("a", "b") & ~F.col("b"), F.col("at") > AWARE[2]):
        wanted = frame.select(column.eqNullSafe(True)).toArrow().column(0).to_pylist()
        assert kept(frame, translated(spark, frame, column)) == wanted


def test_views_take_sql_and_columns(spark):
    with tm.Collection(spark, "times", keys=["i"], partitions=2) as times:
        times.add(1, spark.sql("SELECT int(id) AS i, TIMESTAMP_NTZ'2026-03-01 00:00:00' AS wall FROM range(9)"))
        view = times[1].where("i > 3 AND wall <= '2026-03-01'").where(F.col("i") < 8)
        assert sorted(view.table()["i"].to_pylist()) == [4, 5, 6, 7]
        assert view.df().dtypes == [("i", "int"), ("wall", "timestamp_ntz")]
        assert view.df().where("wall = TIMESTAMP_NTZ'2026-03-01 00:00:00'").count() == 4


def test_other_types_of_arrow_are_compared_as_sparks():
    schema = pa.schema({"when": pa.timestamp("ms"), "text": pa.large_string(), "at": pa.timestamp("us", "UTC")})
    table = pa.table({"when": [None, 1], "text": ["a", "b"], "at": [0, 1]}, schema=schema)
    wall = Term("Column", pa.timestamp("us"), "when", value="when")
    one = Term("Literal", pa.timestamp("us"), "", value=pa.scalar(1000, pa.timestamp("us")))
    text, b = Term("Column", pa.string(), "text", value="text"), Term("Literal", pa.string(), "b", value=pa.scalar("b"))
    berlin = pa.timestamp("us", "Europe/Berlin")
    at = Term("Column", berlin, "at", value="at")
    instant = Term("Literal", berlin, "", value=pa.scalar(1, pa.int64()).cast(berlin))
    for left, right in ((wall, one), (text, b), (at, instant)):
        condition = arrow_expression(Term("EqualTo", pa.bool_(), "", (left, right)), schema)
        assert len(table.filter(condition)) == 1
