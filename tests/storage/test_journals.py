"""Files that grow at their end, on this machine and in stores of objects."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from tests.storage.memory_objects import Faults, memory_place

from transom.storage.journals import (
    TakenOver,
    clear_directory,
    journal_exists,
    open_journal,
    read_journal,
    remove_journals,
    seal_journal,
)
from transom.storage.places import Place


@pytest.fixture(params=["local", "memory", "s3", pytest.param("hdfs", marks=pytest.mark.slow)])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return tmp_path / "log"
    return (
        memory_place()[1] if request.param == "memory" else request.getfixturevalue(f"{request.param}_place")()
    ) / "log"


def test_what_was_synced_is_read(path: Place) -> None:
    with pytest.raises(FileNotFoundError):
        read_journal(path)
    journal = open_journal(path, b"header\n")
    assert read_journal(path) == b"header\n"
    for line in (b"a\n", b"b\n", b"c\n"):
        journal.append(line)
    journal.sync()
    journal.append(b"d\n")
    journal.sync()
    assert read_journal(path) == b"header\na\nb\nc\nd\n"
    journal.close()
    other = open_journal(path)
    other.append(b"e\n")
    other.sync()
    other.close()
    assert read_journal(path) == b"header\na\nb\nc\nd\ne\n"
    open_journal(path, b"anew\n").close()
    assert read_journal(path) == b"anew\n"
    remove_journals(path.parent, {path.name})
    with pytest.raises(FileNotFoundError):
        read_journal(path)


@pytest.mark.parametrize("lag", [0, 3, 1000])
def test_whoever_was_overtaken_is_shut_out(lag: int) -> None:
    path = memory_place(Faults(lag=lag))[1] / "log"
    first = open_journal(path, b"1")
    first.append(b"2")
    first.sync()
    second = open_journal(path)
    first.append(b"lost")
    with pytest.raises(TakenOver):
        first.sync()
    second.append(b"3")
    second.sync()
    assert read_journal(path) == b"123"
    seal_journal(path)
    second.append(b"4")
    with pytest.raises(TakenOver):
        second.sync()
    with pytest.raises(TakenOver):
        second.append(b"5")
    assert read_journal(path) == b"123"


def test_whoever_was_overtaken_stays_out_when_the_journal_is_removed() -> None:
    store, folder = memory_place()
    first = open_journal(folder / "log", b"1")
    seal_journal(folder / "log")
    seal_journal(folder / "log")
    own = open_journal(folder / "own", b"1")
    own.close()
    for _ in range(2):
        remove_journals(folder, {"log", "own"})
        assert [key for key in store.content if "own" in key] == []
        with pytest.raises(FileNotFoundError):
            read_journal(folder / "log")
    first.append(b"2")
    with pytest.raises(TakenOver):
        first.sync()
    store.operations.clear()
    remove_journals(folder, {"log"})
    assert [what for what, _ in store.operations] == ["walk"]


def test_whoever_was_overtaken_stays_out_when_the_directory_is_removed() -> None:
    """The next journal of that name goes on behind the seal, however often it was looked for what is left."""
    store, folder = memory_place()
    source, log = folder / "source", folder / "source" / "log"
    first = open_journal(log, b"a header that is longer than a seal")
    (source / "state.json").put(b"{}")
    (source / "left" / "000000000012" / "part").put(b"rows")
    clear_directory(source)
    left = sorted(store.content)
    assert [key.rpartition("/")[0].endswith("source/log") for key in left] == [True], "the seal"
    assert not journal_exists(log)
    clear_directory(source)
    clear_directory(folder / "nothing")
    assert sorted(store.content) == left
    first.append(b"2")
    with pytest.raises(TakenOver):
        first.sync()
    second = open_journal(log, b"another header that is long")
    assert journal_exists(log)
    second.append(b"3")
    second.sync()
    assert read_journal(log) == b"another header that is long3"


@pytest.mark.parametrize("replaced", [0, 1, 5])
def test_whoever_was_overtaken_replaces_nothing(replaced: int) -> None:
    """What the second one removed leaves places free in which the first one may write; nothing there counts."""
    path = memory_place()[1] / "log"
    first = open_journal(path, b"1")
    second = open_journal(path)
    for n in range(replaced):
        second.append(b"+")
        second.sync()
        second.replace(b"%d" % n)
    second.append(b"last")
    second.sync()
    held = read_journal(path)
    with suppress(TakenOver):
        for _ in range(50):
            first.append(b"x")
            first.sync()
            first.replace(b"y")
    assert read_journal(path) == held
    second.append(b"!")
    second.sync()
    open_journal(path).close()
    assert read_journal(path) == held + b"!"


def test_a_first_piece_that_is_gone_is_noticed() -> None:
    store, folder = memory_place()
    journal = open_journal(folder / "log", b"1")
    journal.append(b"2")
    journal.sync()
    store.remove("some/folder/log/000000000001")
    with pytest.raises(FileNotFoundError):
        read_journal(folder / "log")


def test_a_piece_that_is_gone_is_noticed() -> None:
    store, folder = memory_place()
    journal = open_journal(folder / "log", b"1")
    for _ in range(2):
        journal.append(b"2")
        journal.sync()
    store.remove("some/folder/log/000000000002")
    with pytest.raises(FileNotFoundError):
        read_journal(folder / "log")


@pytest.mark.parametrize("seed", range(30))
def test_what_was_called_durable_is_there(seed: int) -> None:
    """Puts fail, happen without an answer, and listings lag; writers take over from one another."""
    store, folder = memory_place(Faults(seed, refused=0.05, lost=0.15, lag=seed % 7))
    path, safe, maybe, number = folder / "log", b"", b"", 0
    while not safe:
        with suppress(OSError):
            open_journal(path, b"0")
            safe = b"0"
    for _ in range(20):
        with suppress(OSError):
            journal = open_journal(path)
            safe += maybe if maybe and read_journal(path) == safe + maybe else b""
            maybe = b""
            for _ in range(5):
                number += 1
                maybe = b"%d," % number
                journal.append(maybe)
                journal.sync()
                safe, maybe = safe + maybe, b""
    store.faults = Faults()
    assert read_journal(path) in (safe, safe + maybe)
