"""The files of a source as it is defined, and what is known of those that wait without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from transom.model.time import Micros
from transom.sources.filesets.fit import Fit, fit
from transom.sources.filesets.log import FileEntry
from transom.sources.filesets.read import Format
from transom.sources.filesets.rows import estimate_rows, parquet_footer
from transom.storage.places import is_local

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class FileSet:
    """The files of a source, by their patterns, and the way in which they are found, read and cut."""

    paths: tuple[str, ...]
    """Patterns of paths, here or in a store."""
    kind: Format
    options: Mapping[str, str] = field(default_factory=dict)
    """Of Spark's reader."""
    by_time: bool = False
    """Whether files found together are in the order of their modification, not of their names."""
    by_directory: bool = False
    """Whether each directory is a source partition."""
    settle: Micros = 0
    """For how long a file must not have been modified before it is taken."""
    max_files: int | None = None
    """Most files in one micro-batch."""

    @property
    def header(self) -> bool:
        """Whether the first line of a file is no row."""
        return str(self.options.get("header", "")).lower() == "true"

    @property
    def local(self) -> bool:
        """Whether all files are on this machine."""
        return all(map(is_local, self.paths))


class KnownFiles:
    """The facts of files that are learnt without Spark; the footer of each is read once.

    Args:
        files: Which they are, and how they are read.
        schema: The columns that are wanted.
        case_sensitive: Whether names that differ in case are different.
    """

    def __init__(self, files: FileSet, schema: StructType, case_sensitive: bool) -> None:
        self._files = files
        self._schema = schema
        self._case_sensitive = case_sensitive
        self._fits: dict[int, Fit] = {}
        """Of files that wait, by position."""
        self._last: tuple[pa.Schema, Fit] | None = None

    def __contains__(self, entry: FileEntry) -> bool:
        """Tell whether nothing of a file must be read to know it."""
        return entry.position in self._fits

    def fit(self, entry: FileEntry) -> Fit:
        """Return how many rows a file has, and whether it fits the schema."""
        known = self._fits.get(entry.position)
        if known is not None:
            return known
        if self._files.kind == "parquet":
            footer = parquet_footer(entry.path)
            if footer is None:
                return Fit(1)  # the job will find out
            found = self._compared(*footer)
        else:
            found = Fit(estimate_rows(entry.path, entry.size, self._files.header))
        self._fits[entry.position] = found
        return found

    def _compared(self, rows: int, columns: pa.Schema) -> Fit:
        """Return how a file fits; most files have the columns of the one before."""
        known = self._last
        if known is None or not known[0].equals(columns):
            known = self._last = columns, fit(rows, self._schema, columns, self._case_sensitive)
        return replace(known[1], rows=rows)

    def forget(self, oldest: int) -> None:
        """Forget the files before a position."""
        self._fits = {place: fit for place, fit in self._fits.items() if place >= oldest}
