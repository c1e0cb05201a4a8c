"""Rows of a stream as files in a user's directory: written by the executors, visible once their cut is committed.

The job of a cut writes them into a hidden directory beside. When the commit is in the log, they get their names, which
say the cut; after a kill in between, the next run does that first, and removes what was not committed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transom.engine.spark.rowfiles import KeptRows
from transom.engine.spark.rows import write_files
from transom.engine.streams.cuts import LoggedCut
from transom.errors import SinkError
from transom.model.time import MIN_TIME, Micros
from transom.sinks.base import WindowResults
from transom.sinks.directories import FileSink
from transom.sinks.outlets import Outlets
from transom.sinks.owner import Claim, take_directory
from transom.storage.durable import make_directory, remove_tree, replacing_tree, sync_directory, sync_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from transom.engine.streams.stream import RunningStream

_FILE = re.compile(r"rows-(\d{12,})-.*")
_WAITING = re.compile(r"\.+rows-\d{12,}\.tmp(\.\w+\.tmp)?")


class RowFiles:
    """The rows that a query sees as files; it is that query's sink, and a buffer of its stream.

    Args:
        files: Where they go, and in which format.
        partition_by: Columns whose values are directories, as with Spark's `partitionBy`.
        late_of: Returns the name of the query whose late rows they are; None for all rows.
    """

    def __init__(
        self, files: FileSink, partition_by: Sequence[str] = (), late_of: Callable[[], str | None] | None = None
    ) -> None:
        if not isinstance(files.directory, Path):
            raise SinkError(
                f"rows: {files.directory} is in a store of objects, where files cannot be renamed.",
                "Give a directory of a file system that the executors share.",
            )
        self.directory = files.directory
        """Where the files are; no two queries may share it."""
        self.key = f"rows:{files.key}"
        """The place that it writes to, for checkpoints."""
        self.query = ""
        self._kind = files.kind
        self._partition_by = tuple(partition_by)
        self._late_of = late_of
        self._claimed = False
        self._committed: list[int] = []
        """Cuts that were committed before the directory was taken in this run."""

    # ---- as a sink

    def describe(self) -> str:
        """Return what it is and writes, in one line for people."""
        by = f" by {', '.join(self._partition_by)}" if self._partition_by else ""
        return f"rows as {self._kind} files in {self.directory}{by}"

    def open(self, query: str) -> None:
        """Create the directory."""
        self.query, self._claimed, self._committed = query, False, []
        make_directory(self.directory)

    def claim(self, claim: Claim) -> None:
        """Make the directory the query's, or raise SinkError because it is not; see `take_directory`."""
        take_directory(self.directory, claim, any(True for _ in self._files()))

    def recover(self, query: str, next_cut: int) -> None:
        """Give the files of committed cuts their names, and remove those of others.

        Raises:
            SinkError: There are files of cuts that the checkpoint does not know.
        """
        newest = max((int(_cut_of(path)) for path in self._files()), default=-1)
        if newest >= next_cut:
            raise SinkError(
                f"{query}: {self.directory} holds rows of cut {newest}, but the checkpoint continues with cut "
                f"{next_cut}.",
                "Use the checkpoint that they were written with, or another directory.",
            )
        self._claimed = True
        for cut in self._committed:
            self._publish(cut)
        for path in self.directory.iterdir():
            if _WAITING.fullmatch(path.name):
                shutil.rmtree(path)

    def write(self, results: WindowResults) -> None:
        """Do nothing: the query's windows only count the rows."""

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    # ---- as a buffer

    def piece(self, cut: int) -> Path:
        """Return where the rows of a cut wait for its commit."""
        return self.directory / f".rows-{cut:012d}.tmp"

    def store(self, seen: DataFrame, cut: LoggedCut, late_before: Mapping[str, Micros]) -> KeptRows | None:
        """Write the rows of a cut, durably; None when there are none."""
        before: Micros | None = None
        if self._late_of is not None:
            before = late_before.get(self._late_of() or "", MIN_TIME)
        staged = self.piece(cut.number)
        with replacing_tree(staged) as hidden:
            found = write_files(seen, before, self._kind, self._partition_by, cut.rows, hidden)
            for folder, _, names in os.walk(hidden):
                for name in names:
                    sync_file(Path(folder, name))
                sync_directory(Path(folder))
        if not found:
            remove_tree(staged)
            return None
        return KeptRows(MIN_TIME, {})

    def keep(self, cut: int, rows: KeptRows) -> None:
        """Let the rows of a committed cut be seen."""
        if self._claimed:
            self._publish(cut)
        else:
            self._committed.append(cut)

    def _publish(self, cut: int) -> None:
        """Give the files of a cut their names; may be repeated after a crash inside it."""
        staged = self.piece(cut)
        if not staged.exists():
            return
        folders = set()
        for path in sorted(path for path in staged.rglob("*") if path.is_file() and path.name[0] not in "._"):
            folder = self.directory / path.parent.relative_to(staged)
            make_directory(folder)
            os.replace(path, folder / f"rows-{cut:012d}-{path.name}")
            folders.add(folder)
        for folder in folders:
            sync_directory(folder)
        shutil.rmtree(staged)
        sync_directory(self.directory)

    def _files(self) -> list[Path]:
        return [path for path in self.directory.rglob("rows-*") if path.is_file() and _FILE.fullmatch(path.name)]


def _cut_of(path: Path) -> str:
    found = _FILE.fullmatch(path.name)
    assert found is not None
    return found[1]


def tap(stream: RunningStream, query: str, outlets: Outlets) -> None:
    """Let a stream write rows for those of a query's sinks that take them, and for no former query of that name."""
    others = [each for each in stream.buffers if not (isinstance(each, RowFiles) and each.query == query)]
    stream.buffers = others + [sink for sink in outlets.sinks.values() if isinstance(sink, RowFiles)]
