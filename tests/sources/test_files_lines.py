"""Every line that is not blank is one row or one corrupt record, whatever is on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transom.errors import DefinitionError
from transom.model.time import ManualClock
from transom.sources.base import CORRUPT
from transom.sources.filesets.factory import files
from transom.sources.filesets.source import FileSource

SCHEMA = "a bigint, s string, n struct<b: array<struct<c: int>>>"
GOOD = [
    b'{"a":1}',
    b' {"a": 1, "s": "}] {"} ',
    b'{"s":"{\\"a\\": 1}"}',
    b'{"n":{"b":[{"c":1},{"c":2}]},"a":1}',
    b'{"n":{"b":[{"c":1} ] } }\t',
    b'{"unknown":[[{"x":{}}]],"v":{"v":1}}',
    b'{"a":1,"a":2}',
    b"{'a':1}",
    b"{}",
    b'{"a":null}',
    '{"s":"ü 日本 \\u0000"}'.encode(),
    b'{"s":"' + b"x{" * 50_000 + b'"}',
]
BAD = [
    b'{"a":1} {"a":2}',
    b'{"a":1}{"a":2}',
    b'{"a":1},{"a":2}',
    b'{"a":1},"v":{"a":2}',
    b'{"a":1} junk',
    b'{"a":1}}',
    b'{"a":1}]',
    b'{"a":1}] {}',
    b'{"a":1}]}',
    b'{"a":1}}]',
    b'{"n":{"b":[{"c":1}]}} ] [{}',
    b'{"a":1}\x00',
    b'\x00{"a":1}',
    b'[{"a":1},{"a":2}]',
    b'[{"a":1}]',
    b"[]",
    b"null",
    b"5",
    b'"x"',
    b'{"a":1',
    b'{"a":"x"}',
    b'{"a":1.5}',
    b'{"n":{"b":[{"c":"x"}]}}',
    b'{"s":"\xff\xfe"}',
    b'{"s":"x"} \xc3',
    b"\xef\xbb\xbf{}",
    b"\x0b",
]
BLANK = [b"", b"  ", b"\t "]


def opened(spark: Any, tmp_path: Path, data: bytes, schema: str = SCHEMA, **kwargs: Any) -> FileSource:
    folder = tmp_path / "in"
    folder.mkdir(exist_ok=True)
    kind = kwargs.pop("kind", "json")
    (folder / f"a.{kind}").write_bytes(data)
    (tmp_path / "checkpoint").mkdir(exist_ok=True)
    source = files(folder / f"*.{kind}", schema, **kwargs)
    source.open(spark, tmp_path / "checkpoint", ManualClock(0))
    source.latest()
    return source


def corrupt(source: FileSource, spark: Any) -> list[bool]:
    return [row[CORRUPT] is not None for row in source.read(spark, 0, 1).coalesce(1).collect()]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_line_is_a_row_or_corrupt(spark: Any, tmp_path: Path, end: bytes) -> None:
    lines = [(line, False) for line in GOOD] + [(line, True) for line in BAD]
    source = opened(spark, tmp_path, end.join([line for line, _ in lines] + BLANK) + end)
    found = source.read(spark, 0, 1).coalesce(1).collect()
    assert [(line, row[CORRUPT] is not None) for (line, _), row in zip(lines, found, strict=True)] == lines
    texts = [row[CORRUPT] for row in found if row[CORRUPT] is not None]
    assert texts == [line.decode(errors="replace") for line in BAD]


def test_values_and_a_byte_order_mark(spark: Any, tmp_path: Path) -> None:
    rows = [{"a": i, "s": "}" * i, "n": {"b": [{"c": i}]}} for i in range(3)]
    source = opened(spark, tmp_path, b"\xef\xbb\xbf" + "\n".join(map(json.dumps, rows)).encode())
    found = source.read(spark, 0, 1).collect()
    assert [(row.a, row.s, row.n.b[0].c) for row in found] == [(i, "}" * i, i) for i in range(3)]


def test_a_wrong_type_is_found_in_a_column_that_is_not_used(spark: Any, tmp_path: Path) -> None:
    source = opened(spark, tmp_path, b'{"a":"x","s":"y"}\n')
    assert source.read(spark, 0, 1).where(f"{CORRUPT} IS NULL").select("s").count() == 0


PIECES = st.sampled_from([*GOOD[:-1], *BAD, *BLANK, b",", b"]", b"}", b"[", b"{", b" ", b'"'])


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(PIECES, max_size=3).map(b"".join), min_size=1, max_size=60))
def test_no_json_line_vanishes(spark: Any, tmp_path: Path, lines: list[bytes]) -> None:
    source = opened(spark, tmp_path, b"\n".join(lines))
    expected = [line for line in lines if line.strip(b" \t\r\n")]
    flags = corrupt(source, spark)
    assert len(flags) == len(expected)
    for line, is_corrupt in zip(expected, flags, strict=True):
        if not is_corrupt and b"'" not in line:
            assert isinstance(json.loads(line), dict)


CSV = st.sampled_from([b"1", b",", b'"', b"x", b" ", b"\x00", b"\\", b"#", b"\xff", b'""', b"\xef\xbb\xbf"])


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(CSV, max_size=6).map(b"".join), min_size=1, max_size=60))
def test_no_csv_line_vanishes(spark: Any, tmp_path: Path, lines: list[bytes]) -> None:
    source = opened(spark, tmp_path, b"1,x\n" + b"\n".join(lines), "a bigint, s string", kind="csv")
    expected = [line for line in lines if line.decode(errors="replace").strip("".join(map(chr, range(33))))]
    assert len(corrupt(source, spark)) == len(expected) + 1


def test_csv_that_is_not_utf8_is_corrupt(spark: Any, tmp_path: Path) -> None:
    """Spark puts U+FFFD for such bytes and takes the row."""
    source = opened(spark, tmp_path, "1,ü\n2,\ufffd\n".encode(), "a bigint, s string", kind="csv")
    assert corrupt(source, spark) == [False, False]
    source.close()
    (tmp_path / "other").mkdir()
    source = opened(spark, tmp_path / "other", "1,ü\n2,".encode() + b"x\xff\n3,y\n", "a bigint, s string", kind="csv")
    found = source.read(spark, 0, 1).coalesce(1).collect()
    assert [row[CORRUPT] for row in found] == [None, "2,x\ufffd", None]
    options = {"encoding": "iso-8859-1"}
    (tmp_path / "latin").mkdir()
    source = opened(spark, tmp_path / "latin", b"1,\xff\n", "a bigint, s string", kind="csv", options=options)
    assert [row.s for row in source.read(spark, 0, 1).collect()] == ["ÿ"]


def test_a_header_that_names_other_columns(spark: Any, tmp_path: Path) -> None:
    source = opened(spark, tmp_path, b"s,a\n1,2\n", "a bigint, s string", kind="csv", options={"header": "true"})
    assert list(source.unreadable(spark, 0, 1)) == [str(tmp_path / "in/a.csv")]
    options = {"header": "true", "enforceSchema": "true"}
    source = opened(spark, tmp_path, b"s,a\n1,2\n", "a bigint, s string", kind="csv", options=options)
    assert [(row.a, row.s) for row in source.read(spark, 0, 1).collect()] == [(1, "2")]


@pytest.mark.parametrize("options", [{"multiLine": "true"}, {"encoding": "UTF-16"}, {"charset": "latin1"}])
def test_options_that_do_not_go_with_lines(options: dict[str, str]) -> None:
    with pytest.raises(DefinitionError, match="JSON"):
        files("/x/*.json", "a bigint", options=options)
