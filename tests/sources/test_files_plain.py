"""Plain files of JSON lines: Spark's reader makes the same of them as the exact way."""

from __future__ import annotations

import gzip
import io
import json
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.functions import unix_micros
from pyspark.sql.types import StructType

from transom.engine.spark.session import private_session
from transom.sources.base import CORRUPT
from transom.sources.filesets import plain as plain_files
from transom.sources.filesets.jsonlines import may_read_plainly
from transom.sources.filesets.plain import _blocks, is_plain, is_plain_file
from transom.sources.filesets.read import _read, checked_schema

PLAIN = [
    b'{"a":1}',
    b"{}",
    b'{"a":{"b":{}},"c":[{},{}]}',
    b'{"s":"}{"}',
    b'{"s":"it\'s \\" } \\\\"}',
    '{"s":"ü 日本 😀"}'.encode(),
    b'{"a"}',
    b'{"a":{}',  # never closed, so nothing follows
    b"{'a':1}",  # one brace that can close it
]
NOT_PLAIN = [
    b"",
    b" {}",
    b"{} ",
    b'{"a":1}{"a":2}',
    b'{"a":1} {"a":2}',
    b'{"a":1},{"a":2}',
    b'{"a":"{"}}',
    b'{"a":1}}',
    b"{'a':'}'}",
    b"{'\"':1}{'\"':2}",
    b'{"a":"\\\\"}"}',
    b'[{"a":1}]',
    b"5",
    b"\xef\xbb\xbf{}",
    b'{"s":"\xff}"}',
    b'{"s":"\xed\xa0\x80"}',
    b'{"a":1\x00}',
    b'{"a":1}\r{"a":2}',
    b'{"\\ud800":1}',
]


@pytest.mark.parametrize("line", PLAIN)
def test_plain(line: bytes) -> None:
    assert is_plain(b"{}\n" + line + b"\n{}\n")


@pytest.mark.parametrize("line", NOT_PLAIN)
def test_not_plain(line: bytes) -> None:
    assert not is_plain(b"{}\n" + line + b"\n{}\n")
    assert not is_plain(line + b"\n")


PIECES = st.sampled_from(
    [
        *b"{}[]\"'\\:, \tab1/*#u",
        *['{"a":', '"a":1', '"s":"', '{"n":{"b":[{"c":1}]}}', "true", "1.50", "1e400", '\\"'],
        *["ü", "😀", "\u2028", "\ufeff", "\x01", "\\ud800", "\\u007d", "NaN", "2024-01-01", '"t":"', '"d":', '"m":{'],
    ]
).map(lambda piece: (chr(piece) if isinstance(piece, int) else piece).encode())
TEXTS = st.lists(PIECES, max_size=12).map(b"".join)
OBJECTS = st.builds(lambda text: b"{" + text + b"}", TEXTS)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from(["{", "}", '\\"}']),
    lambda some: st.lists(some, max_size=2) | st.dictionaries(st.sampled_from("asnbcdtm{"), some, max_size=4),
    max_leaves=6,
)
RECORDS = st.dictionaries(st.sampled_from("asntdm"), VALUES, max_size=4).map(lambda r: json.dumps(r).encode())
CHANGED = st.builds(
    lambda record, place, piece: record[: place % len(record)] + piece + record[place % len(record) :],
    RECORDS,
    st.integers(0, 200),
    PIECES,
)
LINES = st.one_of(OBJECTS, RECORDS, CHANGED, st.builds(lambda a, b, c: a + b + c, RECORDS, TEXTS, RECORDS))


@settings(max_examples=200)
@given(LINES)
def test_nothing_follows_the_first_value_of_a_plain_line(line: bytes) -> None:
    if is_plain(line + b"\n"):
        text = line.decode()
        with suppress(json.JSONDecodeError):
            value, end = json.JSONDecoder().raw_decode(text)
            assert isinstance(value, dict)
            assert end == len(text)


@given(st.lists(LINES, min_size=1, max_size=5))
def test_lines_are_plain_only_if_each_is(lines: list[bytes]) -> None:
    if is_plain(b"".join(line + b"\n" for line in lines)):
        assert all(is_plain(line + b"\n") for line in lines)


@given(st.lists(st.binary(max_size=8).map(lambda text: text.replace(b"\n", b"")), max_size=8), st.booleans())
def test_blocks_are_whole_lines(lines: list[bytes], ended: bool) -> None:
    data = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_files, "BLOCK", 9)
        blocks = list(_blocks(io.BytesIO(data)))
    assert b"".join(blocks).removesuffix(b"\n") == data.removesuffix(b"\n")
    assert all(block.endswith(b"\n") for block in blocks)


def test_files(tmp_path: Path) -> None:
    for name, data, plain in [
        ("a.json", b'{"a":1}\n{"a":2}', True),
        ("empty.json", b"", True),
        ("b.json", b'{"a":1}\n{"a":2}{}\n', False),
        ("c.json.gz", gzip.compress(b'{"a":1}\n'), True),
        ("d.json.gz", gzip.compress(b'{"a":1}\n')[:-3], False),
        ("c.json.zst", pa.compress(b'{"a":1}\n', "zstd", asbytes=True), True),
        ("d.json.zst", pa.compress(b'{"a":1}\n', "zstd", asbytes=True)[:-3], False),
        ("e.json.bz2", b'{"a":1}\n', False),
        ("long.json", b'{"s":"' + b"x" * (3 * plain_files.BLOCK) + b'"}\n', False),
    ]:
        (tmp_path / name).write_bytes(data)
        assert is_plain_file(str(tmp_path / name)) == plain, name
    assert not is_plain_file(str(tmp_path / "gone.json"))


@pytest.fixture(scope="module")
def private(spark: Any) -> Any:
    return private_session(spark)


def test_only_where_both_ways_are_the_same(spark: Any, private: Any) -> None:
    assert may_read_plainly(private, {"timeZone": "UTC"})
    assert not may_read_plainly(private, {"lineSep": ";"})
    assert not may_read_plainly(private, {"allowComments": "true"})
    assert not may_read_plainly(spark, {})  # it gives numbers in columns of strings as they were written


SCHEMA = "a bigint, s string, n struct<b: array<struct<c: int>>>, t timestamp, d decimal(20, 3), m map<string, double>"


PARTS = [
    *"{}[]\"',: \t1/\\",
    *['{"a":', '"a":1', '"s":"', '{"n":{"b":[{"c":1}]}}', '"n":{"b":[{"c":', "true", "null", "1.50", "1e400", '\\"'],
    *["ü", "😀", "\u2028", "\x01", "\\u007d", "NaN", "-0", "2024-01-01", '"t":"', '"d":', '"m":{', '"s":{"x" : 1.0}'],
]


def record(random: Random) -> str:
    """Return a record of the schema, some of it of another type."""
    values = [1, 2.50, 10**25, None, True, "x", "}{", "ü😀", {"b": [{"c": 7}]}, {"b": [{"c": "}"}]}, "2024-01-01"]
    names = random.sample("asntdmx", random.randrange(7))
    return json.dumps({name: random.choice(values) for name in names}, ensure_ascii=False)


def changed(random: Random) -> str:
    """Return a line that may be a record, something like it, or two of them."""
    text = record(random)
    for _ in range(random.randrange(3)):
        at = random.randrange(len(text))
        text = text[:at] + random.choice(PARTS) + text[at + random.randrange(3) :]
    return text + random.choice(["", "", record(random)])


def test_both_ways_give_the_same(private: Any, tmp_path: Path) -> None:
    random = Random(1)
    drawn = [changed(random).encode() for _ in range(2_500)]
    drawn += [("{" + "".join(random.choices(PARTS, k=random.randrange(6))) + "}").encode() for _ in range(2_500)]
    fixed = [b'{"s":1.50}', b'{"s":{"x" : [1.0, 12345678901234567.89]}}', b'{"s":["\\u007d"]}', *PLAIN]
    paths, plain = [], []
    for name, several in (("a.json", False), ("b.json", True)):  # told by counting braces, and by their depths
        chosen = [line for line in [*fixed, *drawn] if (line.count(b"}") > 1) == several and is_plain(line + b"\n")]
        paths.append(str(tmp_path / name))
        Path(paths[-1]).write_bytes(b"\n".join(chosen))
        assert is_plain_file(paths[-1])
        plain += chosen
    schema = checked_schema(StructType.fromDDL(SCHEMA))
    fast, exact = (
        [
            row
            for path in paths
            for row in _read(private, [path], schema, "json", {}, None, (), way)
            .withColumn("t", unix_micros("t"))
            .coalesce(1)
            .toArrow()
            .to_pylist()
        ]
        for way in (True, False)
    )
    sound = [row[CORRUPT] is None for row in exact]
    assert len(plain) == len(fast) == len(sound) > 600
    assert 60 < sum(sound) < len(sound) - 60
    for line, one, other, is_row in zip(plain, fast, exact, sound, strict=True):
        if is_row:
            assert repr(one) == repr(other), line
        else:  # of what is corrupt, nobody sees more than the text
            assert one[CORRUPT] == other[CORRUPT] == line.decode()
