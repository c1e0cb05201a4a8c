"""Files that cannot be read, written or removed: whoever comes across it says which one, and what to do."""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from transom.checkpoint.control import ask
from transom.checkpoint.lock import is_held
from transom.checkpoint.store import Checkpoint
from transom.cli.deadletters import read_dead_letters
from transom.cli.main import cli
from transom.engine.streams.tableversions import TableVersions
from transom.errors import CheckpointCorruptError, CheckpointError, DefinitionError, SinkError, TransomError
from transom.kafka.client import java_settings
from transom.model.time import ManualClock
from transom.sinks.compaction import compact
from transom.sites.coordinating import Coordinating, read_plan
from transom.sites.inbox import Inbox
from transom.sources.filesets.deltalog import READ_NAME, DeltaLog
from transom.sources.filesets.known import FileSet
from transom.sources.filesets.source import FileSource
from transom.sources.generated import STATE_NAME, GeneratorSource
from transom.sources.topics.book import NAME as BOOK_NAME
from transom.sources.topics.book import Book
from transom.widearea.plans import Plan
from transom.widearea.topology import Topology

READING, WRITING, REMOVING = "reading", "writing", "removing"
CALLS = {
    READING: ("open", "listdir", "scandir"),
    WRITING: ("open", "replace", "mkdir", "link", "fsync"),
    REMOVING: ("unlink", "rmdir"),
}
"""What the system refuses, of `os`; a file is opened by name for reading or for writing."""


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Path], OSError]:
    """Return what lets the system refuse one kind of calls from now on, for all that is in a directory."""

    def start(what: str, root: Path) -> OSError:
        code = errno.ENOSPC if what == WRITING else errno.EACCES
        error = OSError(code, os.strerror(code), str(root))

        def within(path: object) -> bool:
            return isinstance(path, int) or str(path).startswith(str(root))

        def refusing(call: Callable[..., Any], judge: Callable[..., bool]) -> Callable[..., Any]:
            def wrapped(path: Any, *args: Any, **options: Any) -> Any:
                if within(path) and judge(*args):
                    raise error
                return call(path, *args, **options)

            return wrapped

        def by_mode(mode: str = "r", *_: object) -> bool:
            return (what == WRITING) == any(letter in mode for letter in "wax+")

        def by_flags(flags: int, *_: object) -> bool:
            return (what == WRITING) == bool(flags & (os.O_WRONLY | os.O_RDWR))

        for name in CALLS[what]:
            judge: Callable[..., bool] = by_flags if name == "open" else lambda *_: True
            monkeypatch.setattr(os, name, refusing(getattr(os, name), judge))
        if what != REMOVING:
            monkeypatch.setattr(builtins, "open", refusing(builtins.open, by_mode))
            monkeypatch.setattr(io, "open", builtins.open)
        return error

    return start


def generator() -> GeneratorSource:
    return GeneratorSource({"n": "id"}, Fraction(1), None, None, 1)


def file_source(root: Path) -> FileSource:
    from pyspark.sql.types import LongType, StructType

    (root / "in").mkdir(exist_ok=True)
    return FileSource(FileSet((f"{root}/in/*.json",), "json"), StructType().add("n", LongType()))


def open_files(root: Path) -> None:
    spark: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda key, default: default))
    source = file_source(root)
    try:
        source.open(spark, root / "state", ManualClock())
    finally:
        source.close()


def checkpoint(root: Path, act: Callable[[Checkpoint], object]) -> None:
    act(Checkpoint.open(root / "state" / "ckpt", ManualClock()))


def delta(root: Path) -> DeltaLog:
    """Return a log as it is before it looks at the table."""
    log = DeltaLog.__new__(DeltaLog)
    log._table, log._directory, log._snapshot_of, log._next, log._id = root / "table", root / "state", 1, 2, "id"
    return log


def inbox(root: Path) -> Inbox:
    return Inbox("fares", root / "state", ["north"])


def marked(root: Path) -> None:
    (root / "state" / ".transom-owner").write_text('{"checkpoint": "c", "query": "q", "path": "p"}')


def versions(root: Path) -> None:
    (root / "state" / "old.tables").touch()
    tables = TableVersions(None, lambda: root / "state")  # type: ignore[arg-type]
    tables.settle(["old.tables"], {}, lambda: None)


def name_file(root: Path, name: str, text: str = "{}") -> Path:
    (root / "state" / name).write_text(text)
    return root / "state" / name


KEYS = {"ssl.certificate.location": "state/a.pem", "ssl.key.location": "state/b.pem"}


def nothing(root: Path) -> None:
    """Prepare nothing."""


CASES: dict[str, tuple[str, Callable[[Path], object], Callable[[Path], object], type[TransomError]]] = {
    "partitions of topics, read": (
        READING,
        lambda root: name_file(root, BOOK_NAME, "[]"),
        lambda root: Book(root / "state"),
        CheckpointError,
    ),
    "partitions of topics, written": (
        WRITING,
        nothing,
        lambda root: Book(root / "state").add([("t", "1", 0, 0)]),
        CheckpointError,
    ),
    "a generator, read": (
        READING,
        lambda root: name_file(root, STATE_NAME),
        lambda root: generator()._durable_start(root / "state" / STATE_NAME, 0),
        CheckpointError,
    ),
    "a generator, written": (
        WRITING,
        nothing,
        lambda root: generator()._durable_start(root / "state" / STATE_NAME, 0),
        CheckpointError,
    ),
    "files that were found, read": (READING, open_files, open_files, CheckpointError),
    "files that were found, written": (WRITING, file_source, open_files, CheckpointError),
    "a version of a table, read": (
        READING,
        lambda root: delta(root)._note(1, 2),
        lambda root: delta(root)._read(),
        CheckpointError,
    ),
    "a version of a table, written": (WRITING, nothing, lambda root: delta(root)._note(1, 2), CheckpointError),
    "copies of tables, removed": (REMOVING, nothing, versions, CheckpointError),
    "what streams keep, listed": (
        READING,
        nothing,
        lambda root: Checkpoint.names_in(SimpleNamespace(_place=lambda parts: root / "state"), "files"),  # type: ignore[arg-type]
        CheckpointError,
    ),
    "parcels, written": (WRITING, nothing, inbox, CheckpointError),
    "parcels, removed": (
        REMOVING,
        lambda root: name_file(root, "000000000001.parcel"),
        lambda root: inbox(root)._remove([1]),
        CheckpointError,
    ),
    "a plan, read": (
        READING,
        lambda root: name_file(root, "plan.json"),
        lambda root: read_plan(root / "state" / "plan.json"),
        DefinitionError,
    ),
    "results, merged": (READING, marked, lambda root: compact(root / "state"), SinkError),
    "results, locked": (WRITING, marked, lambda root: compact(root / "state"), SinkError),
    "a lock, looked at": (
        READING,
        lambda root: name_file(root, "lock"),
        lambda root: is_held(root / "state" / "lock"),
        CheckpointError,
    ),
    "a checkpoint, asked": (
        READING,
        lambda root: name_file(root, "checkpoint.json", '{"format": 2}'),
        lambda root: ask(root / "state", {}, ManualClock(), 0),
        CheckpointError,
    ),
    "dead letters, read": (
        READING,
        lambda root: (root / "state" / "dead-letters" / "trips").mkdir(parents=True),
        lambda root: read_dead_letters(root / "state", 1),
        CheckpointError,
    ),
    "certificates, read": (
        READING,
        lambda root: [name_file(root, name) for name in ("a.pem", "b.pem")],
        lambda root: java_settings("b:1", {name: f"{root}/{file}" for name, file in KEYS.items()}),
        DefinitionError,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_the_system_refuses_is_an_error_with_a_remedy(
    tmp_path: Path, refuse: Callable[[str, Path], OSError], case: str
) -> None:
    what, prepare, act, kind = CASES[case]
    (tmp_path / "state").mkdir()
    prepare(tmp_path)
    refuse(what, tmp_path / "state")
    with pytest.raises(kind) as refused:
        act(tmp_path)
    assert refused.value.remedy
    assert str(tmp_path / "state") in refused.value.message


def test_a_plan_is_given_out_when_it_can_be_written(
    tmp_path: Path, refuse: Callable[[str, Path], OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    file, topology, clock = tmp_path / "plan.json", Topology(("a",), {}), ManualClock()
    coordinating = Coordinating(topology, "latency", file, "127.0.0.1:0", None, clock, said.append)
    plan = coordinating._machine.plan = Plan(7, 3, "latency", 1.0, 1.0, (), ())
    refuse(WRITING, tmp_path)
    coordinating.look()
    coordinating.look()
    monkeypatch.undo()
    assert coordinating._published is None
    assert len(said) == 1
    assert said[0].startswith("Plan 7 is not given out yet")
    coordinating.look()
    assert coordinating._published is plan
    assert read_plan(file) == plan


def test_a_command_whose_file_cannot_be_used_has_no_stack_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/some/file")

    monkeypatch.setattr("transom.cli.deadletters.show_dead_letters", fail)
    answer = CliRunner().invoke(cli, ["dead-letters", str(tmp_path)])
    assert answer.exit_code == 1
    assert "No space left on device: '/some/file'" in answer.stderr
    assert "Check that the disk has room" in answer.stderr


@pytest.mark.parametrize("text", [b"", b"nonsense", b"[]", b'{"snapshot": 1}', b"{", None])
def test_a_version_that_is_damaged_is_said_to_be(tmp_path: Path, text: bytes | None) -> None:
    """One flipped bit in the number would pass over versions; old files are plain JSON."""
    (tmp_path / "state").mkdir()
    delta(tmp_path)._note(1, 2)
    path = tmp_path / "state" / READ_NAME
    path.write_bytes(path.read_bytes().replace(b'"next":2', b'"next":6') if text is None else text)
    with pytest.raises(CheckpointCorruptError, match="is damaged"):
        delta(tmp_path)._read()
    path.write_text(json.dumps({"snapshot": 3, "next": 4}))
    log = delta(tmp_path)
    log._read()
    assert (log._snapshot_of, log._next) == (3, 4)


def test_a_version_that_is_gone_is_not_the_beginning(tmp_path: Path) -> None:
    """The snapshot of today would bring rows again that were rewritten into other files."""
    log = delta(tmp_path)
    log._snapshot_of = log._next = log._found_up_to = None
    with pytest.raises(CheckpointCorruptError, match="is missing"):
        log.poll({"a.parquet"}, None)
