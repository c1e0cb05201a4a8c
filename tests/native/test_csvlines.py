"""CSV files read with Arrow: exactly, or not at all."""

from __future__ import annotations

import csv
import io
import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from benchmarks.odd_csv import ALONE, LAYOUTS, Odd, odd_cases
from hypothesis import given
from hypothesis import strategies as st
from tests.interpreting import interpreting

from transom.native.csvlines import LONGEST, CsvReader
from transom.native.dialects import SPARKS, Dialect, dialect_of
from transom.sources.base import CORRUPT
from transom.sources.filesets.read import read_files

SCHEMA = pa.schema([("s", pa.string()), ("a", pa.int64())])


def rows(lines: str, dialect: Dialect = SPARKS, schema: pa.Schema = SCHEMA) -> list[dict[str, Any]] | None:
    """Return what is read of the first lines of a file; None if Spark has to judge."""
    found = CsvReader(schema, dialect).read(lines.encode(), first=True)
    return None if found is None else found.to_pylist()


def test_values_of_lines() -> None:
    """With returns or without, quoted or not; nothing is null, also if it is quoted."""
    assert rows('x,1\ny z\t,-2\r\n"p,q","3"\n') == [
        {"s": "x", "a": 1},
        {"s": "y z\t", "a": -2},
        {"s": "p,q", "a": 3},
    ]
    assert rows(',1\n"",2\né,\n\\,""\n') is None
    assert rows(",1\n\\,\n") == [{"s": None, "a": 1}, {"s": "\\", "a": None}]
    assert rows('"",1\né,""\n') == [{"s": None, "a": 1}, {"s": "é", "a": None}]


@pytest.mark.parametrize(
    "other",
    [
        *(
            "x",
            "x,1,",
            "x,1,2",
            "",
            " ",
            "\t",
            "x,1.0",
            "x,+1",
            "x,01",
            "x, 1",
            "x,1 ",
            "x,true",
            "x,9223372036854775808",
        ),
        *('"x,1', 'x",1', '"x"y,1', '"x" ,1', ' "x",1', '"x""y",1', '"x\\"",1', '"\\x",1', '"x,"1', 'x"y"z,1'),
        *('"x\n",1', "x,1\r\r", "x\ry,1", "x\x00,1", "x\x0b,1", "\ufeffx,1", "x;1"),
    ],
)
def test_any_other_line_is_for_spark_to_judge(other: str) -> None:
    """Wherever it is."""
    good = "x,1\n"
    assert rows(good + good) is not None
    for lines in (other + "\n" + good, good + other + "\n" + good, good + other + "\n"):
        assert rows(lines) is None


def test_quotation_marks_that_are_doubled() -> None:
    """Where the escape is a quotation mark; a backslash is nothing then."""
    doubled = Dialect(doubled=True)
    assert rows('"x""y","1"\n"""",2\n"""a"",",3\n"\\",4\n', doubled) == [
        {"s": 'x"y', "a": 1},
        {"s": '"', "a": 2},
        {"s": '"a",', "a": 3},
        {"s": "\\", "a": 4},
    ]
    assert [rows(line, doubled) for line in ('""",1\n', '"x"""y,1\n', '"x"\n"y",1\n', 'x"",1\n')] == [None] * 4


def test_other_separators_and_nulls() -> None:
    """A text may say null; what is quoted and empty is none then."""
    assert rows("x;1\n,;2\n", Dialect(";")) == [{"s": "x", "a": 1}, {"s": ",", "a": 2}]
    assert rows("x\t1\n\t\n", Dialect("\t")) is None  # the second line is blank to Spark
    assert rows("x,1\nNA,NA\n,\n", Dialect(null="NA")) == [{"s": "x", "a": 1}, *[{"s": None, "a": None}] * 2]
    assert rows('"",1\n', Dialect(null="NA")) is None
    one = pa.schema([("s", pa.string())])
    assert [rows(lines, schema=one) for lines in ("x\n", '""\n', " \n")] == [[{"s": "x"}], None, None]


def test_the_header_names_the_columns() -> None:
    """It is the first line of a file, and no row; without names that count any line is one."""
    named, any_names = Dialect(header=True), Dialect(header=True, named=False)
    good = [{"s": "x", "a": 1}]
    assert rows('s,"a"\r\nx,1\n', named) == rows("p,q,r\nx,1\n", any_names) == good
    assert rows("s,a\n", named) == []
    assert [rows(f"{header}\nx,1\n", named) for header in ("s,A", "a,s", "s", "s,a,", "s, a", "")] == [None] * 6
    assert rows("\nx,1\n", any_names) is None
    later = CsvReader(SCHEMA, named).read(b"x,1\n")
    assert later is not None
    assert later.to_pylist() == good


def test_what_is_too_long_is_not_read() -> None:
    """Spark's parser reads it in another way."""
    assert rows("x" * (LONGEST - 1) + ",1\n") is not None
    assert rows("x" * (LONGEST + 1) + ",1\n") is None


def test_types_that_only_spark_reads_are_refused() -> None:
    """So that nobody expects them to be read."""
    with pytest.raises(ValueError, match="t: timestamp"):
        CsvReader(pa.schema([("t", pa.timestamp("us"))]))


@pytest.mark.parametrize(
    ("options", "dialect"),
    [
        ({}, SPARKS),
        ({"HEADER": "TRUE", "delimiter": "\\t", "inferSchema": "true"}, Dialect("\t", header=True)),
        ({"header": True, "enforceSchema": "true", "multiLine": "false"}, Dialect(header=True, named=False)),
        ({"escape": '"', "quote": '"', "nullValue": "n/a", "charset": "UTF-8"}, Dialect(doubled=True, null="n/a")),
        *(({name: value}, name) for name, value in {"sep": "::", "escape": "^", "quote": "'", "header": "yes"}.items()),
        *(({name: "x"}, name) for name in ("comment", "emptyValue", "dateFormat", "lineSep", "mode", "timeZone")),
        *(({"nullValue": value}, "nullValue") for value in ("a,b", '"', " ", "\\N")),
        ({"sep": ";", "delimiter": ";"}, "delimiter"),
        ({"header": "true", "Header": "true"}, "Header"),
        ({"multiLine": "true"}, "multiLine"),
        ({"encoding": "latin1"}, "encoding"),
    ],
)
def test_options_of_spark(options: dict[str, Any], dialect: Dialect | str) -> None:
    """Those of which it is known what they change; the first other one is named."""
    assert dialect_of(options) == dialect


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), st.integers(-9, 99)), min_size=1))
def test_what_is_read_is_what_was_written(values: list[tuple[str, int]]) -> None:
    """Of what Python's module writes, which doubles quotation marks."""
    file = io.StringIO()
    csv.writer(file).writerows(values)
    found = rows(file.getvalue(), Dialect(doubled=True))
    if found is not None:
        assert found == [{"s": s or None, "a": a} for s, a in values]
    else:
        assert any(letter < " " or letter == "\ufeff" for s, _ in values for letter in s)


def judgements(spark: Any, cases: list[Odd], directory: Path) -> list[list[tuple[Any, ...] | None]]:
    """Return the rows that Spark makes of each case; None for a corrupt one.

    Cases with the same options and types are one file, each behind a line with its number.
    """
    from pyspark.sql.types import StructType

    files: dict[tuple[int, str], list[int]] = {}
    for number, case in enumerate(cases):
        files.setdefault((case.layout, case.kind), []).append(number)
    found: list[list[tuple[Any, ...] | None]] = [[] for _ in cases]
    for (layout, _), numbers in files.items():
        first = cases[numbers[0]]
        path = directory / "cases.csv"
        path.write_bytes(b"".join(first.usual(f"case {number}") + cases[number].lines for number in numbers))
        declared = StructType.fromDDL(", ".join(f"{name} {kind}" for name, kind in first.columns.items()))
        read = read_files(spark, [str(path)], declared, "csv", LAYOUTS[layout])
        columns = [as_number(name, kind).alias(name) for name, kind in first.columns.items()]
        number = -1
        for row in read.select(*columns, CORRUPT).toArrow().to_pylist():  # of one partition, thus in order
            *values, corrupt = row.values()
            if corrupt is None and str(values[0]).startswith("case "):
                number = int(values[0][5:])
            else:
                found[number].append(tuple(values) if corrupt is None else None)
    return found


def as_number(name: str, kind: str) -> Any:
    """Return a column of Spark, with numbers for dates and times: Python has not all years."""
    from pyspark.sql import functions as F

    return {"timestamp": F.unix_micros, "date": F.unix_date}.get(kind, F.col)(name)


def as_numbers(found: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Return rows, with numbers for dates and times."""
    whole = {"timestamp[us, tz=UTC]": pa.int64(), "date32[day]": pa.int32()}
    columns = [column.cast(whole.get(str(column.type), column.type)) for column in found.columns]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


@pytest.mark.parametrize("step", [20, pytest.param(1, marks=pytest.mark.slow)])
def test_odd_lines_are_read_as_spark_does_or_left_to_it(interpreted: Any, tmp_path: Path, step: int) -> None:
    """Never otherwise: by themselves, and between lines as programs write them."""
    cases = list(itertools.islice(odd_cases(), 0, 10_000, step))
    if step > 1:  # each pair of options and type is a file of its own
        cases = [case for case in cases if not case.layout or case.kind in (ALONE, "string", "int")]
    session, read = interpreting(interpreted, {"spark.sql.session.timeZone": "UTC"}), 0
    for case, right in zip(cases, judgements(session, cases, tmp_path), strict=True):
        dialect = dialect_of(LAYOUTS[case.layout])
        assert isinstance(dialect, Dialect)
        reader = CsvReader(case.schema, dialect, utc=True)
        alone, between = reader.read(case.lines), reader.read(case.usual() + case.lines + case.usual())
        for found in [alone] * (alone is not None) + [between and between[1:-1]] * (between is not None):
            assert repr(as_numbers(found)) == repr(right), case
            read += 1
    assert read > len(cases) // 10


def test_headers_are_taken_as_spark_takes_them(interpreted: Any, tmp_path: Path) -> None:
    """Or left to it: with names that are the declared ones, or that nobody looks at."""
    headers = [*("s,a", '"s","a"', 's,"a"\r', "S,A", "a,s", "s", "s,a,", " s,a", "s,a ", "\ufeffs,a", "", " ", "#s,a")]
    headers += [*("p,q", "p", "p,q,r", '"p', '"p""",q', "p\\,q", "s;a", ",", "'s','a'", "s,\x00a", "é,\t", '"",""')]
    from pyspark.sql.types import StructType

    accepted: dict[bool, int] = {}
    for options in ({"header": "true"}, {"header": "true", "enforceSchema": "true", "escape": '"'}):
        dialect = dialect_of(options)
        assert isinstance(dialect, Dialect)
        good = []
        for number, header in enumerate(headers):
            path = tmp_path / f"{len(accepted)}-{number}.csv"
            path.write_text(f"{header}\nx,{number}\n", newline="")
            if CsvReader(SCHEMA, dialect).read(path.read_bytes(), first=True) is not None:
                good.append(number)
        paths = [str(tmp_path / f"{len(accepted)}-{number}.csv") for number in good]
        found = read_files(interpreted, paths, StructType.fromDDL("s string, a bigint"), "csv", options)
        assert sorted(found.select("s", "a", CORRUPT).collect()) == [("x", number, None) for number in good]
        accepted[dialect.named] = len(good)
    assert accepted == {True: 3, False: 20}
