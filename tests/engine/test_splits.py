"""Parts of files in tasks without Spark: each line is read once, whatever the parts are."""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.engine.execution.lane import PART_BYTES, divided, parts_of
from transom.engine.execution.splits import Part, check_file, lines_of, rows_of_lines
from transom.native.csvlines import CsvReader
from transom.native.dialects import Dialect
from transom.native.values import UncertainError
from transom.sources.filesets.source import PlainFile
from transom.storage.unpacking import UNPACKING_ERRORS


@given(
    st.lists(st.sampled_from([b"", b"a", b"bcd", b"efghijklm"]), max_size=8),
    st.booleans(),
    st.sets(st.integers(0, 60)),
    st.integers(1, 9),
)
def test_lines_are_read_once_in_any_parts(
    tmp_path_factory, lines: list[bytes], ends: bool, edges: set[int], size: int
) -> None:
    """Also where a part has no line, or begins behind the end; a last line without an end gets one."""
    path = tmp_path_factory.mktemp("parts") / "lines"
    text = b"\n".join(lines) + (b"\n" if ends else b"")
    path.write_bytes(text)
    ranges = itertools.pairwise([0, *sorted(edges - {0}), None])
    blocks = [bytes(block) for begin, end in ranges for block in lines_of(Part(f"{path}", begin or 0, end), size)]
    assert all(block.endswith(b"\n") for block in blocks)
    assert b"".join(blocks) == text + (b"\n" if text and not text.endswith(b"\n") else b"")


def test_the_header_of_a_divided_file_is_no_row(tmp_path: Path) -> None:
    """Wherever the file is divided, also within the header; its rows are read once."""
    path = tmp_path / "lines.csv"
    path.write_bytes(b"a,b\r\n1,x\r\n22,\r\n3,zz")
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    read = CsvReader(schema, Dialect(header=True)).read
    size = path.stat().st_size
    for edges in itertools.combinations(range(1, size + 2), 2):
        ranges = itertools.pairwise([0, *edges, None])
        parts = [Part(f"{path}", begin or 0, end) for begin, end in ranges]
        found = [row for part in parts for rows in rows_of_lines(read, part) for row in rows.to_pylist()]
        assert found == [{"a": 1, "b": "x"}, {"a": 22, "b": None}, {"a": 3, "b": "zz"}]


def zstd(text: bytes) -> bytes:
    return bytes(pa.compress(text, "zstd", asbytes=True))


PACKED = [pytest.param(".gz", gzip.compress, id="gzip"), pytest.param(".zst", zstd, id="zstd")]


@pytest.mark.parametrize(("end", "packed"), PACKED)
def test_packed_files_are_whole(tmp_path: Path, end: str, packed: Callable[[bytes], bytes]) -> None:
    """Nobody can begin in the middle of them."""
    path = tmp_path / f"lines.json{end}"
    path.write_bytes(packed(b"a\nb"))
    ((_, part),) = parts_of(PlainFile(f"{path}", PART_BYTES * 5, 3, 77), measures_delays=False)
    assert part == Part(f"{path}", partition=3)
    assert [bytes(block) for block in lines_of(part)] == [b"a\n", b"b\n"]
    many = b"".join(b"%d\n" % number for number in range(100_000))
    path.write_bytes(packed(many[:77]) + packed(many[77:]))
    blocks = [bytes(block) for block in lines_of(part, 100_000)]
    assert b"".join(blocks) == many
    assert all(block.endswith(b"\n") and len(block) < 300_000 for block in blocks)


@pytest.mark.parametrize(("end", "packed"), PACKED)
@pytest.mark.parametrize("spoiled", [b"\0", b"\0" * 512, b"x", None], ids=["a zero", "zeros", "a letter", "cut off"])
def test_what_follows_a_packed_file_is_not_passed_over(
    tmp_path: Path, spoiled: bytes | None, end: str, packed: Callable[[bytes], bytes]
) -> None:
    """Spark judges such a file, though Python's own reader takes zeros behind gzip."""
    path = tmp_path / f"lines.json{end}"
    path.write_bytes(packed(b"a\nb\n") + (packed(b"a\n")[:-1] if spoiled is None else spoiled))
    with pytest.raises(UNPACKING_ERRORS):
        list(lines_of(Part(f"{path}")))


def test_frames_of_zstd_that_are_no_text_are_passed_over(tmp_path: Path) -> None:
    """As Spark does; and a file without frames is empty."""
    path = tmp_path / "lines.json.zst"
    skipped = (0x184D2A50).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"abc"
    path.write_bytes(skipped + zstd(b"a\n") + skipped)
    assert b"".join(lines_of(Part(f"{path}"))) == b"a\n"
    path.write_bytes(b"")
    assert list(lines_of(Part(f"{path}"))) == []


def test_a_plan_divides_cuts_as_it_says() -> None:
    """Small ones, too: it knows what a task costs."""
    parts = parts_of(PlainFile("a", 1_000, None, 0), measures_delays=False, piece=250)
    assert [part.start for _, part in parts] == [0, 250, 500, 750]
    assert [len(divided(parts, tasks, least=1)) for tasks in (1, 3, 4, 9)] == [1, 3, 4, 4]
    assert len(divided(parts, 4)) == 1


@pytest.mark.parametrize("size", [0, 1, 512, 1_300, 2_100_000])
def test_sums_beside_a_file_are_looked_at(tmp_path: Path, size: int) -> None:
    """As Hadoop writes them and Spark looks at them: the file has them, or is not read."""
    content = bytes(range(256)) * (size // 256) + bytes(size % 256)
    path = tmp_path / "lines.json"
    path.write_bytes(content)
    check_file(Part(f"{path}"))
    sums = b"crc\0" + (512).to_bytes(4, "big")
    sums += b"".join(zlib.crc32(content[at : at + 512]).to_bytes(4, "big") for at in range(0, size, 512))
    (tmp_path / ".lines.json.crc").write_bytes(sums)
    check_file(Part(f"{path}"))
    for wrong in (sums[:-1], sums + bytes(4), b"CRC\0" + sums[4:], b"", sums[:4] + bytes(4) + sums[8:]):
        (tmp_path / ".lines.json.crc").write_bytes(wrong)
        with pytest.raises(UncertainError):
            check_file(Part(f"{path}"))
    check_file(Part(f"{path}", 5, 9))  # the part with the beginning looks at all


@given(st.lists(st.integers(0, 3 * PART_BYTES), min_size=1, max_size=9), st.integers(1, 8))
def test_tasks_have_all_parts_once(sizes: list[int], tasks: int) -> None:
    """And are no more than asked for; small files are read together."""
    files = [PlainFile(f"{number}", size, None, 0) for number, size in enumerate(sizes)]
    parts = [part for file in files for part in parts_of(file, measures_delays=True)]
    work = divided(parts, tasks)
    assert len(work) <= tasks
    assert all(work)
    assert sorted(map(repr, itertools.chain(*work))) == sorted(map(repr, parts))
    if sum(sizes) < 1 << 20:
        assert len(work) == 1
