from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from transom.model.time import ManualClock
from transom.sources.filesets import scan as files_scan
from transom.sources.filesets.scan import FULL_SCAN, PAUSE_PER_NAME, Pattern, Scanner

HOUR = 3_600 * 1_000_000


def touch(path: Path, mtime: int | None = None) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    if mtime is not None:
        os.utime(path, ns=(mtime * 1_000, mtime * 1_000))
    return str(path)


def poll(pattern: str | Path, known: set[str] | None = None, young: int | None = None) -> list[str]:
    found = Scanner(Pattern.parse(str(pattern))).poll(known or set(), young)
    return sorted(os.path.relpath(path, "/") for path, _, _ in found)


def tree(tmp_path: Path) -> None:
    for name in (
        "1.json",
        "2.csv",
        ".hidden.json",
        "_SUCCESS",
        "3.json.tmp",
        "4.json._COPYING_",
        "5.json.crdownload",
        "a/6.json",
        "a/b/7.json",
        "_tmp/8.json",
        ".git/9.json",
        "[x] {y}/10 ü.json",
    ):
        touch(tmp_path / name)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", ["1.json", "2.csv"]),
        ("*.json", ["1.json"]),
        ("?.json", ["1.json"]),
        ("[12].*", ["1.json", "2.csv"]),
        ("{1,2}.{json,csv}", ["1.json", "2.csv"]),
        ("*/*.json", ["[x] {y}/10 ü.json", "a/6.json"]),
        ("a/6.json", ["a/6.json"]),
        ("**/*.json", ["1.json", "[x] {y}/10 ü.json", "a/6.json", "a/b/7.json"]),
        ("**", ["1.json", "2.csv", "[x] {y}/10 ü.json", "a/6.json", "a/b/7.json"]),
        ("a/**/*.json", ["a/6.json", "a/b/7.json"]),
        ("**/b/*.json", ["a/b/7.json"]),
        ("[x] {y}", ["[x] {y}/10 ü.json"]),
        ("[x] {y}/10 ü.json", ["[x] {y}/10 ü.json"]),
        ("_tmp/*.json", ["_tmp/8.json"]),
        ("missing.json", []),
    ],
)
def test_patterns(pattern: str, expected: list[str], tmp_path: Path) -> None:
    tree(tmp_path)
    inside = [os.path.relpath(tmp_path / name, "/") for name in expected]
    assert poll(tmp_path / pattern) == sorted(inside)


def test_known_files_and_directories_are_left_out(tmp_path: Path) -> None:
    known = touch(tmp_path / "1.json")
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "dangling.json").symlink_to(tmp_path / "nowhere")
    target = touch(tmp_path / "2.json")
    (tmp_path / "3.json").symlink_to(target)
    assert [os.path.basename(path) for path in poll(tmp_path / "*.json", {known})] == ["2.json", "3.json"]


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    touch(tmp_path / "a" / "1.json")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    assert len(poll(tmp_path / "**" / "*.json")) == 1


def test_a_quiet_directory_is_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {touch(tmp_path / f"{i}.json") for i in range(3)}
    listings = 0

    def counting(function: Callable[[str], object]) -> Callable[[str], object]:
        def wrapper(path: str) -> object:
            nonlocal listings
            listings += 1
            return function(path)

        return wrapper

    monkeypatch.setattr(files_scan.os, "scandir", counting(os.scandir))
    monkeypatch.setattr(files_scan.os, "listdir", counting(os.listdir))
    wall = ManualClock(int(os.stat(tmp_path).st_mtime_ns // 1_000))
    scanner = Scanner(Pattern.parse(f"{tmp_path}/*.json"), wall)
    for _ in range(3):
        assert scanner.poll(known, None) == []
    assert listings == 3, "too soon after a change, a time stamp is no proof"
    wall.advance(2_000_000)
    for _ in range(5):
        assert scanner.poll(known, None) == []
    assert listings == 4
    new = touch(tmp_path / "new.json")
    os.utime(tmp_path, ns=(wall.now() * 1_000, wall.now() * 1_000))
    assert [path for path, _, _ in scanner.poll(known, None)] == [new]
    assert listings == 5
    known.add(new)
    wall.advance(2_000_000)
    scanner.poll(known, None)
    before = listings
    wall.advance(FULL_SCAN)
    scanner.poll(known, None)
    assert listings == before + 1


def test_a_found_file_is_found_until_it_is_known(tmp_path: Path) -> None:
    path = touch(tmp_path / "1.json")
    wall = ManualClock(int(os.stat(tmp_path).st_mtime_ns // 1_000) + HOUR)
    scanner = Scanner(Pattern.parse(str(tmp_path)), wall)
    for _ in range(2):
        assert [found[0] for found in scanner.poll(set(), None)] == [path]
    assert scanner.poll({path}, None) == []


def test_young_files_wait(tmp_path: Path) -> None:
    old, young = touch(tmp_path / "old.json", mtime=5 * HOUR), touch(tmp_path / "young.json", mtime=7 * HOUR)
    scanner = Scanner(Pattern.parse(str(tmp_path)))
    assert [found[0] for found in scanner.poll(set(), 6 * HOUR)] == [old]
    assert scanner.pending
    assert [found[0] for found in scanner.poll({old}, 7 * HOUR)] == [young]
    assert not scanner.pending


def test_a_large_directory_is_polled_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_scan, "LARGE", 3)
    known = {touch(tmp_path / f"{i}.json") for i in range(5)}
    wall = ManualClock(int(os.stat(tmp_path).st_mtime_ns // 1_000))
    scanner = Scanner(Pattern.parse(str(tmp_path)), wall)
    scanner.poll(known, None)
    touch(tmp_path / "new.json")
    assert scanner.poll(known, None) == []
    wall.advance(5 * PAUSE_PER_NAME)
    assert len(scanner.poll(known, None)) == 1


def test_a_file_written_again_is_noted_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = touch(tmp_path / "1.json")
    wall = ManualClock(int(os.stat(tmp_path).st_mtime_ns // 1_000))
    scanner = Scanner(Pattern.parse(str(tmp_path)), wall)
    scanner.poll(set(), None)
    with caplog.at_level(logging.WARNING):
        scanner.poll({path}, None)
        assert not caplog.records
        os.replace(touch(tmp_path / ".new"), path)
        for _ in range(2):
            wall.advance(FULL_SCAN)
            assert scanner.poll({path}, None) == []
        assert len(caplog.records) == 1
        assert "1.json was written again" in caplog.text
        os.unlink(path)
        scanner.poll({path}, None)
        touch(tmp_path / "1.json")
        for _ in range(2):
            assert scanner.poll({path}, None) == []
        assert len(caplog.records) == 2


def test_folders_and_files_that_come_and_go_are_noticed_between_full_scans(tmp_path: Path) -> None:
    first = touch(tmp_path / "a" / "1.json")
    wall = ManualClock(int(os.stat(tmp_path).st_mtime_ns // 1_000))
    scanner = Scanner(Pattern.parse(f"{tmp_path}/*/*.json"), wall)
    assert [found[0] for found in scanner.poll(set(), None)] == [first]
    second, third = touch(tmp_path / "a" / "2.json"), touch(tmp_path / "b" / "3.json")
    touch(tmp_path / "b" / ".4.json")
    assert sorted(found[0] for found in scanner.poll({first}, None)) == [second, third]
    os.unlink(second)
    assert [found[0] for found in scanner.poll({first}, None)] == [third]
    os.rename(tmp_path / "b" / ".4.json", tmp_path / "b" / "4.json")
    assert [found[0] for found in scanner.poll({first, third}, None)] == [str(tmp_path / "b" / "4.json")]


def test_directories_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    """As those of hours, which are removed after some days."""
    scanner = Scanner(Pattern.parse(str(tmp_path / "*" / "*.json")), clock := ManualClock(HOUR))
    for hour in range(5):
        file = Path(touch(tmp_path / str(hour) / "a.json"))
        clock.advance(HOUR)
        assert [path for path, _, _ in scanner.poll((), None)] == [str(file)]
        file.unlink()
        file.parent.rmdir()
    assert scanner._directories.keys() == {str(tmp_path), str(file.parent)}
    assert scanner.poll((), None) == []
    assert scanner._directories.keys() == {str(tmp_path)}


def test_a_directory_that_vanished_may_come_back(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    first = touch(folder / "1.json")
    scanner = Scanner(Pattern.parse(f"{folder}/*.json"))
    assert len(scanner.poll(set(), None)) == 1
    os.unlink(first)
    folder.rmdir()
    assert scanner.poll(set(), None) == []
    touch(folder / "2.json")
    assert len(scanner.poll(set(), None)) == 1
