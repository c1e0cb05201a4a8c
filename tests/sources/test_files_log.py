from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.errors import CheckpointCorruptError
from transom.sources.filesets.log import LOG_NAME, FileLog


def paths(log: FileLog) -> list[tuple[int, str]]:
    return [(entry.position, entry.path) for entry in log.between(0, log.next)]


def test_positions_survive_a_restart(tmp_path: Path) -> None:
    log = FileLog(tmp_path)
    assert (log.start, log.next) == (0, 0)
    log.append([("/a/1", 10, 5), ("/b/2", 11, 6)])
    log.append([("/a/0 ü\n", 12, 4)])
    log.close()
    log = FileLog(tmp_path)
    assert paths(log) == [(0, "/a/1"), (1, "/b/2"), (2, "/a/0 ü\n")]
    assert log.between(1, 2)[0].mtime == 6
    assert list(log.directories) == ["/a", "/b"]
    assert log.directory_index("/b/2") == 1
    assert "/a/1" in log
    assert "/a/2" not in log


@settings(deadline=None, max_examples=50)
@given(cut=st.integers(min_value=0, max_value=400))
def test_a_torn_last_line_is_dropped(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("log")
    log = FileLog(directory)
    log.append([(f"/a/{i}", i, i) for i in range(3)])
    log.close()
    path = directory / LOG_NAME
    data = path.read_bytes()
    path.write_bytes(data[: max(len(data) - cut, 0)])
    if len(data) - cut <= data.index(b"\n"):  # the header is written as a whole
        with pytest.raises(CheckpointCorruptError, match="Line 1 of"):
            FileLog(directory)
        return
    log = FileLog(directory)
    whole = max(data[: max(len(data) - cut, 0)].count(b"\n") - 1, 0)
    assert [position for position, _ in paths(log)] == list(range(whole))
    log.append([("/a/new", 1, 1)])
    log.close()
    assert paths(FileLog(directory))[-1] == (whole, "/a/new")


def test_damage_before_the_end_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    log = FileLog(tmp_path)
    log.append([("/a/1", 1, 1), ("/a/2", 1, 1)])
    log.close()
    path = tmp_path / LOG_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"{broken\n" + lines[2])
    with pytest.raises(CheckpointCorruptError, match=r"Line 2 of"):
        FileLog(tmp_path)


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = FileLog(tmp_path)
    log.append([("/a/1", 1, 1)])
    write, calls = os.write, 0

    def half(file: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, bytes(data)[:7])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space"):
            log.append([("/a/2", 1, 1)])
    assert log.next == 1
    log.append([("/a/3", 1, 1)])
    log.close()
    assert paths(FileLog(tmp_path)) == [(0, "/a/1"), (1, "/a/3")]


@pytest.mark.parametrize("why", ["damaged", "full"])
def test_a_log_that_cannot_be_begun_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    text = "nonsense\n" if why == "damaged" else '{"format": 1, "next": 0, "start": 0, "directories": []}\n'
    (tmp_path / LOG_NAME).write_text(text)

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises((CheckpointCorruptError, OSError), match="damaged" if why == "damaged" else "No space"):
        FileLog(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_forgetting_keeps_files_that_exist_and_never_reuses_positions(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    names = [str(data / str(i)) for i in range(6)]
    for name in names:
        Path(name).write_text("x")
    log = FileLog(tmp_path)
    log.append([(name, 1, 1) for name in names])
    for i in (0, 2, 5):
        os.unlink(names[i])
    assert log.forget(4) == 2
    assert [position for position, _ in paths(log)] == [1, 3, 4, 5]
    assert (log.start, log.next) == (3, 6)
    assert names[0] not in log
    log.append([(names[0], 1, 1)])
    log.close()
    log = FileLog(tmp_path)
    assert [position for position, _ in paths(log)] == [1, 3, 4, 5, 6]
    for name in names[1:]:
        Path(name).unlink(missing_ok=True)
    assert log.forget(7) == 5
    assert (len(log), log.start, log.next) == (0, 7, 7)
    log.close()
    log = FileLog(tmp_path)
    assert (len(log), log.start, log.next) == (0, 7, 7)
    assert list(log.directories) == [str(data)]


def five(directory: Path) -> list[bytes]:
    """Return the lines of a log with five files, of which the first and third are forgotten."""
    data = directory / "data"
    data.mkdir()
    names = [data / str(i) for i in range(7)]
    for name in names:
        name.write_text("x")
    log = FileLog(directory)
    log.append([(str(name), 1, 1) for name in names[:5]])
    names[0].unlink()
    names[2].unlink()
    assert log.forget(4) == 2
    log.append([(str(name), 1, 1) for name in names[5:]])
    log.close()
    return (directory / LOG_NAME).read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("damage", ["flip", "remove", "double", "swap", "move"])
def test_lines_that_are_not_those_that_were_written(tmp_path: Path, place: int, damage: str) -> None:
    lines = five(tmp_path)
    assert len(lines) == 6
    whole = list(lines)
    if damage == "flip":
        lines[place] = lines[place].replace(b"data", b"dataa", 1).replace(b'start":', b'Start":')
    elif damage == "remove":
        del lines[place]
    elif damage == "double":
        lines.insert(place, lines[place])
    elif damage == "swap":
        lines[place], lines[place - 1] = lines[place - 1], lines[place]
    else:
        lines.append(lines.pop(place))
    (tmp_path / LOG_NAME).write_bytes(b"".join(lines))
    if lines == whole:
        return
    if damage in ("remove", "flip") and place == 5:  # like the end that a crash leaves: an offset beyond it tells
        assert FileLog(tmp_path).crc_at(7) is None
        return
    with pytest.raises(CheckpointCorruptError, match=r"Line \d of|The end of"):
        FileLog(tmp_path)


def test_what_stands_for_all_files_before_a_position(tmp_path: Path) -> None:
    five(tmp_path)
    log = FileLog(tmp_path)
    assert [log.crc_at(position) is None for position in range(9)] == [True] * 3 + [False] * 5 + [True]
    before = [log.crc_at(position) for position in range(4, 8)]
    for i in (1, 3, 4):
        (tmp_path / "data" / str(i)).unlink()
    assert log.forget(5) == 3
    assert [log.crc_at(position) for position in range(4, 8)] == [None, *before[1:]]
    log.append([("/a/new", 1, 1)])
    log.close()
    log = FileLog(tmp_path)
    assert [log.crc_at(position) for position in range(4, 8)] == [None, *before[1:]]
    other = tmp_path / "other"
    other.mkdir()
    another = FileLog(other)
    another.append([(f"/b/{i}", 1, 1) for i in range(8)])
    assert [another.crc_at(position) for position in range(5, 8)] != before[1:]


def test_a_log_of_the_first_format_is_written_anew(tmp_path: Path) -> None:
    lines = [
        '{"format": 1, "next": 3, "start": 2, "directories": ["/a"]}',
        '{"position": 1, "path": "/a/1", "size": 4, "mtime": 5}',
        '{"position": 3, "path": "/b/3", "size": 6, "mtime": 7}',
    ]
    (tmp_path / LOG_NAME).write_text("".join(line + "\n" for line in [*lines[:2], lines[2].replace("3", "2", 1)]))
    for _ in range(2):
        log = FileLog(tmp_path)
        assert paths(log) == [(1, "/a/1"), (2, "/b/3")]
        assert (log.start, log.next, list(log.directories)) == (2, 3, ["/a", "/b"])
        assert log.crc_at(3)
        log.close()
    assert b"format" in (tmp_path / LOG_NAME).read_bytes()[20:40]
