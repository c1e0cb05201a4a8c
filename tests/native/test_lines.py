"""JSON lines read with Arrow: exactly, or not at all."""

from __future__ import annotations

import json
import math
import random
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.odd_json import KINDS, Odd, odd_lines, usual
from hypothesis import given
from hypothesis import strategies as st
from tests.interpreting import interpreting

from transom.native.lines import MOST_BYTES, LineReader
from transom.native.pieces import pieces
from transom.native.shapes import COMMA, QUOTE, shape_of
from transom.native.values import UncertainError
from transom.sources.base import CORRUPT

SCHEMA = pa.schema([("s", pa.string()), ("a", pa.int64())])


def rows(lines: str, schema: pa.Schema = SCHEMA) -> list[dict[str, Any]] | None:
    """Return what is read of some lines; None if Spark has to judge."""
    found = LineReader(schema, {CORRUPT}).read(lines.encode())
    return None if found is None else found.to_pylist()


def test_values_of_declared_columns() -> None:
    """Others are left out; what no line has is null."""
    assert rows('{"x":"p","a":12,"s":"q"}\n{"x":"","a":-3,"s":""}\n') == [{"s": "q", "a": 12}, {"s": "", "a": -3}]
    assert rows('{"a": 0 , "y": 1.5e3}\n{"a": null , "y": true}\n') == [{"s": None, "a": 0}, {"s": None, "a": None}]
    assert rows('{"s":null,"a":1}\n') == [{"s": None, "a": 1}]


def test_texts_that_nobody_wants_are_null() -> None:
    """They are checked as the others; what is no text is read, too."""
    schema = pa.schema([("s", pa.string()), ("t", pa.string()), ("a", pa.int64())])
    reader = LineReader(schema, wanted=["t"])
    found = reader.read(b'{"s":"p","t":"q","a":1}\n{"s":"","t":"","a":2}\n')
    assert found is not None
    assert found.to_pylist() == [{"s": None, "t": "q", "a": 1}, {"s": None, "t": "", "a": 2}]
    for other in ('{"s":"\\u0041","t":"q","a":1}', '{"s":1,"t":"q","a":1}', '{"s":"p","t":"q","a":01}'):
        assert reader.read(b'{"s":"p","t":"q","a":1}\n' + other.encode() + b"\n") is None
    assert reader.read(b'{"s":1,"t":"q","a":1}\n') is None


def test_texts_with_commas_are_split_at_quotation_marks() -> None:
    """Also where only some lines have any, and where what looks like a field is inside a text."""
    assert rows('{"s":"p,q","a":1}\n{"s":"é{,}:","a":22}\n') == [{"s": "p,q", "a": 1}, {"s": "é{,}:", "a": 22}]
    assert rows('{"s":"p","a":1}\n{"s":"p,q","a":22}\n') == [{"s": "p", "a": 1}, {"s": "p,q", "a": 22}]


@pytest.mark.parametrize(
    "other",
    [
        *('{"s":"p","a":1.0}', '{"s":"p","a":"1"}', '{"s":"p","a":01}', '{"s":"p","a":0x1}', '{"s":"p","a":true}'),
        *('{"s":"p","a":9223372036854775808}', '{"s":"p","a":+1}', '{"s":"p","a":1,"a":2}', '{"s":"p","A":1}'),
        *('{"s":"p", "a":1}', '{"a":1,"s":"p"}', '{"s":"p"}', '{"s":"\\u0041","a":1}', '{"s":"p\t","a":1}', ""),
        *('{"s":5,"a":1}', '{"s":"p","a":1}{"a":2}', '{"s":"p""q","a":1}', '{"s":"p" "q","a":1}', "[]", '{"s":"p"'),
        *('{"s":"p","a":1}\r', '{"s":"p","a":1} ', '{"s":"p","a":}', '{"s":"p","a":1}x', '{"s":"p\x00","a":1}'),
    ],
)
def test_any_other_line_is_for_spark_to_judge(other: str) -> None:
    """Wherever it is."""
    good = '{"s":"p","a":1}\n'
    assert rows(good + good) is not None
    assert rows(good + other + "\n" + good) is None


@pytest.mark.parametrize(
    "line",
    ['{"a":1,"A":2}', '{"a":1,"b":{}}', '{"a":1,"_corrupt_record":"x"}', '{"a":1,"b":01}', "{}", '{"a":1,"b":nan}'],
)
def test_shapes_that_are_not_certain(line: str) -> None:
    """Keys that Spark could take for declared ones, nested values, literals that are none."""
    assert rows(line + "\n") is None


def test_lines_have_ends_and_are_utf8() -> None:
    """Half a line, no line, and bytes that are no text are not read."""
    reader = LineReader(SCHEMA)
    assert [reader.read(lines) for lines in (b"", b"\n", b'{"a":1}', b'{"s":"\xff","a":1}\n')] == [None] * 4


def test_texts_that_are_too_long_for_spark_are_not_read() -> None:
    assert rows('{"s":"p","a":1}\n{"s":"' + "p" * MOST_BYTES + '","a":1}\n') is None


def test_types_that_only_spark_reads_are_refused() -> None:
    """So that nobody expects them to be read."""
    with pytest.raises(ValueError, match="t: timestamp"):
        LineReader(pa.schema([("t", pa.timestamp("us"))]))


def test_times_without_an_offset_are_those_of_a_session_in_utc() -> None:
    """Else they are Spark's; times of both kinds are, too."""
    schema = pa.schema([("t", pa.timestamp("us", "UTC"))])
    local = b'{"t":"2026-03-01T12:00:00"}\n{"t":"2026-03-01 12:00:00.5"}\n{"t":"2026-03-01"}\n'
    found = LineReader(schema, utc=True).read(local)
    assert found is not None
    assert [time.isoformat()[11:] for time in found["t"].to_pylist()] == [
        "12:00:00+00:00",
        "12:00:00.500000+00:00",
        "00:00:00+00:00",
    ]
    assert LineReader(schema).read(local) is None
    assert LineReader(schema, utc=True).read(local + b'{"t":"2026-03-01T12:00:00Z"}\n') is None


@pytest.mark.parametrize(
    "other",
    [
        *('{"a,b":"p","c":1}', '{"a,b":"","c":-12}'),
        *('{"a,b":"p","c":1 }', '{"a,b" :"p","c":1}', '{"a,b":"p","d":1}', '{"a.b":"p","c":1}', '{"a,b":"p","c",:1}'),
        *('{"a,b":"p","c":}', '{"a,b":,"c":1}', '{"a,b":"p" "c":1}', '{"a,b":"p","c":1', '"a,b":"p","c":1}', "{,,}"),
        *('{"a,b":"p,"c":1}', '{"a,b":"p","c":1,}', '{"a,b":"p","c":1,"d":2}', '{"a,b":"","c":"}', '{"a,b":"c":1,,}'),
    ],
)
@pytest.mark.parametrize("separator", [COMMA, QUOTE])
def test_pieces_lie_where_the_constants_of_the_first_line_are(other: str, separator: str) -> None:
    """Whatever else a line is made of, at the beginning, in the middle and at the end of a block."""
    form, good = rf'\{{"a,b":"([^{separator}]*)","c":([^{separator}]*)\}}', '{"a,b":"x","c":7}'
    shape = shape_of(good)
    assert shape is not None
    lines = [good, other, good, other]
    letters = np.frombuffer("".join(line + "\n" for line in lines).encode(), np.uint8)
    every = [re.fullmatch(form, line) for line in lines]
    if not all(every):
        with pytest.raises(UncertainError):
            pieces(letters, shape, separator)
        return
    first, second = pieces(letters, shape, separator)
    assert first.texts().to_pylist() == [found[1] for found in every if found]
    assert second.texts().to_pylist() == [found[2] for found in every if found]


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=5)
numbers = st.integers(-(1 << 63), (1 << 63) - 1) | st.none()
doubles = st.floats(allow_nan=False, allow_infinity=False) | st.none()


@given(st.lists(st.tuples(texts, numbers, doubles, st.booleans()), min_size=1, max_size=6), st.booleans())
def test_what_is_read_is_what_was_written(values: list[tuple[Any, ...]], spaced: bool) -> None:
    """Of what Python writes; only escapes and marks of byte order are left to Spark."""
    schema = pa.schema([("s", pa.string()), ("a", pa.int64()), ("d", pa.float64()), ("b", pa.bool_())])
    separators = (", ", ": ") if spaced else (",", ":")
    given_rows = [dict(zip(schema.names, value, strict=True)) for value in values]
    lines = "".join(json.dumps(row, separators=separators, ensure_ascii=False) + "\n" for row in given_rows)
    found = rows(lines, schema)
    if found is not None:
        assert found == given_rows
        assert all(
            math.copysign(1, a["d"] or 1) == math.copysign(1, b["d"] or 1)
            for a, b in zip(found, given_rows, strict=True)
        )
    else:
        assert any(letter in lines for letter in "\\\ufeff\x00\x7f")


def judgements(spark: Any, cases: list[Odd]) -> list[tuple[Any, Any] | None]:
    """Return what Spark makes of each line with the reader of lines: the fields `s` and `a`, or None if corrupt."""
    from functools import reduce

    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    from transom.sources.filesets.jsonlines import LINE, parse_json

    table = pa.table(
        {
            "number": pa.array(range(len(cases))),
            "kind": pa.array([case.kind for case in cases]),
            "given": pa.array([case.line for case in cases], pa.binary()),
        }
    )
    given_lines = spark.createDataFrame(table).withColumn(LINE, F.expr("CAST(given AS STRING)"))
    parsed = []
    for kind in KINDS:
        of_kind = given_lines.where(F.col("kind") == kind)
        read = parse_json(of_kind, StructType.fromDDL(f"s string, a {kind}"), {}, ["number"])
        whole = {"timestamp": F.unix_micros, "date": F.unix_date}.get(kind, F.col)  # Python has not all years
        parsed.append(read.select("number", "s", F.struct(whole("a").alias(kind)).alias(f"of_{kind}"), CORRUPT))
    every = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), parsed).toArrow().to_pylist()
    found: list[tuple[Any, Any] | None] = [None] * len(cases)
    for row in every:
        if row[CORRUPT] is None:
            kind = cases[row["number"]].kind
            found[row["number"]] = (row["s"], row[f"of_{kind}"][kind])
    return found


@pytest.mark.parametrize("step", [20, pytest.param(1, marks=pytest.mark.slow)])
def test_odd_values_are_read_as_spark_does_or_left_to_it(interpreted: Any, step: int) -> None:
    """Never otherwise: by themselves, and between lines as programs write them."""
    cases = odd_lines(10_000)[::step]
    session, read = interpreting(interpreted, {"spark.sql.session.timeZone": "UTC"}), 0
    for case, right in zip(cases, judgements(session, cases), strict=True):
        reader, around = LineReader(case.schema, {CORRUPT}, utc=True), usual(case.kind) + b"\n"
        alone, between = reader.read(case.line + b"\n"), reader.read(around + case.line + b"\n" + around)
        for found in [alone] * (alone is not None) + [between and between.slice(1, 1)] * (between is not None):
            whole = {"timestamp": pa.int64(), "date": pa.int32()}.get(case.kind)
            values = found.column("a").cast(whole) if whole else found.column("a")
            assert repr((found.column("s").to_pylist(), values.to_pylist())) == repr(tuple([each] for each in right)), (
                case
            )
            read += 1
    assert read > len(cases) // 50


def test_numbers_with_exponents_are_rounded_as_spark_does(interpreted: Any) -> None:
    """Python, Java and Arrow round to the nearest double; many of these lie between two, or are the least ones."""
    drawn, written = random.Random(3), ["1e-05", "1E22", "-0e7"]
    while len(written) < 2_000:
        whole = drawn.choice([drawn.randrange(1, 10 ** drawn.randrange(1, 25)), (1 << 53) + drawn.randrange(9)])
        fraction = drawn.choice(["", "", f".{drawn.randrange(10 ** drawn.randrange(1, 20))}"])
        exponent = f"{drawn.choice('eE')}{drawn.choice(['', '+', '-', '-0'])}{drawn.randrange(0, 99)}"
        tiny = f"e-{330 - len(str(whole)) + drawn.randrange(-20, 20)}"
        written.append(drawn.choice(["", "-"]) + str(whole) + fraction + drawn.choice([exponent, exponent, tiny]))
    cases = [Odd("double", b'{"s":"x","a":%s}' % number.encode()) for number in written]
    read = 0
    for number, case, right in zip(written, cases, judgements(interpreted, cases), strict=True):
        found = LineReader(case.schema).read(case.line + b"\n")
        if found is not None:
            (value,) = found.column("a").to_pylist()
            assert right is not None, number
            assert repr(value) == repr(float(number)) == repr(right[1]), number
            read += 1
    assert read > 1_500
