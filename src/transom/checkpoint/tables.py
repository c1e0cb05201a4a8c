"""The files of tables that were written since the last snapshot: one per name, replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from transom.checkpoint.container import read_container, write_container
from transom.checkpoint.files import Written
from transom.checkpoint.names import Stamp, quoted, stamped, tables_name
from transom.checkpoint.opening import remove_files
from transom.errors import CheckpointCorruptError
from transom.model.lines import CORRUPT_REMEDY
from transom.storage.durable import sizes_in
from transom.storage.places import Place
from transom.storage.translated import translated


class TableFiles:
    """The files of tables of one writer.

    A file that replaces another gets a new name, so that a fenced writer cannot change what others have read.

    Args:
        directory: Holds the files; exists.
        epoch: The writer.
        files: Those that count already: file names by key.
    """

    def __init__(self, directory: Place, epoch: int, files: Mapping[str, str]) -> None:
        self._directory = directory
        self._epoch = epoch
        self._files = dict(files)
        with translated(directory, "read"):
            sizes = sizes_in(directory, stamped(directory))
        self._sizes = {key: sizes.get(name, 0) for key, name in self._files.items()}
        self.count = 0
        """Files that this writer has begun to write."""
        self.bytes = sum(self._sizes.values())
        """Bytes of the files that count."""

    def write(self, name: str, tables: Mapping[str, pa.Table], *, sync: bool) -> Place:
        """Write a file that does not count yet.

        Raises:
            CheckpointError: It was not written; also as CheckpointFullError.
        """
        self.count += 1
        path = self._directory / tables_name(quoted(name), Stamp(self._epoch, self.count))
        self._written = write_container(path, {"name": name}, tables, sync=sync)
        return path

    def replace(self, name: str, path: Place) -> Written:
        """Let the file that was just written count, and remove the one it replaces."""
        key = quoted(name)
        replaced = self._files.get(key)
        self._files[key] = path.name
        self.bytes += self._written.bytes - self._sizes.get(key, 0)
        self._sizes[key] = self._written.bytes
        if replaced and isinstance(path, Path):  # in a store, whoever took over may have taken note of it
            with suppress(OSError):  # a later snapshot removes it
                (self._directory / replaced).unlink()
        return self._written

    def read(self, name: str, written: Written | None) -> dict[str, pa.Table]:
        """Return the tables under a name.

        Raises:
            CheckpointCorruptError: They are missing, damaged, or not those of `written`.
        """
        file = self._files.get(quoted(name))
        if file is None:
            raise CheckpointCorruptError(f"The tables {name!r} are missing from {self._directory}.", CORRUPT_REMEDY)
        content = read_container(self._directory / file)
        if content.meta != {"name": name} or (written and content.written != written):
            raise CheckpointCorruptError(
                f"The file {self._directory / file} is not the one that the log tells of.", CORRUPT_REMEDY
            )
        return content.tables

    def remove_all(self) -> None:
        """Remove all files of this writer and older ones; a snapshot replaces them."""
        last = Stamp(self._epoch, self.count)
        self._files, self._sizes, self.bytes = {}, {}, 0
        remove_files(self._directory, lambda _, stamp: stamp <= last)
