"""The files that a Delta table gains, version by version, as its log tells of them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from transom.errors import CheckpointCorruptError, SourceError
from transom.model.lines import CORRUPT_REMEDY, START, decode, encode
from transom.model.time import Micros
from transom.sources.filesets.scan import Found
from transom.storage.durable import names_in, replacing
from transom.storage.places import Place
from transom.storage.translated import translated

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

READ_NAME = "delta-version.json"
"""File of the source with the version before which all files are in its own log."""
ANEW = "Restore the table that was read, or begin with a new checkpoint: it reads this one from its beginning."
_LOG = "_delta_log"
_NAME = re.compile(r"(\d{20})\.(json$|checkpoint)")
"""What tells in the directory of the log that there is a version: the version, or a checkpoint of it."""
_KNOWN_FEATURES = frozenset(
    {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors", "columnMapping", "typeWidening"}
    | {"appendOnly", "invariants", "domainMetadata", "inCommitTimestamp"}
)
_IN_PATHS = ("string", "byte", "short", "integer", "long", "boolean", "date")
"""Types that a column may have by which the table is partitioned: their values are read from the paths of files."""


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table, and those that it is partitioned by."""

    text: str
    partition_by: tuple[str, ...]

    @classmethod
    def of(
        cls, table: Place, schema: str, partition_by: Collection[str], properties: Mapping[str, str]
    ) -> TableColumns:
        """Return the columns of a table that can be read.

        Raises:
            SourceError: Its columns have other names in the files, or cannot be found in paths.
        """
        if properties.get("delta.columnMapping.mode", "none") != "none":
            raise SourceError(
                f"delta: the columns of {table} have other names in its files (column mapping).",
                "Write it into a table without (CREATE TABLE ... AS SELECT), and read that.",
            )
        kinds = {field["name"]: field["type"] for field in json.loads(schema)["fields"]}
        for name in partition_by:
            if kinds.get(name) not in _IN_PATHS:
                raise SourceError(
                    f"delta: {table} is partitioned by {name}, a {kinds.get(name)}, which is not read from paths.",
                    f"Partition by a column of one of the types {', '.join(_IN_PATHS)}.",
                )
        return cls(schema, tuple(partition_by))

    def struct(self) -> StructType:
        """Return them as Spark has them; needs no session."""
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self.text))


class DeltaLog:
    """Follows the log of a table; what it finds goes to the log of the source, in the order of versions.

    Args:
        table: Where the table is.
        directory: Of the source; None to look at the table only.
        ignore_changes: Pass over versions that remove or rewrite rows.
    """

    def __init__(self, table: Place, directory: Place | None, ignore_changes: bool) -> None:
        self._table = table
        self._directory = directory
        self._ignore_changes = ignore_changes
        self.looked = True
        self.pending: frozenset[str] = frozenset()
        self._found_up_to: int | None = None
        """The version after the last one whose files were returned, and are in the source's log by the next poll."""
        self._snapshot_of: int | None = None
        """The version whose files were returned first."""
        self._next: int | None = None
        self._id = ""
        """Identity of the table; empty where an older version of Transom has not noted it."""
        self._listed_at = 0
        """When the directory of the log last changed, as of its last listing; nanoseconds."""
        self._read_at: int | None = None
        """When the last version that was read was written; nanoseconds, None while unknown."""
        self._read()
        self._newest = 0
        """The version of the table when it was opened."""
        self.columns = self._current()

    def poll(self, known: Collection[str], young: Micros | None) -> list[Found]:
        """Return the files that the table gained and that are not known, by version.

        Raises:
            SourceError: Rows were removed or rewritten, the log lacks a version, or it is that of another table.
            CheckpointCorruptError: Which version was read is not known any more.
            CheckpointFullError: The disk of the source's directory is full.
        """
        if self._found_up_to is not None and self._found_up_to != self._next:
            self._note(self._snapshot_of, self._found_up_to)
        if self._next is None:
            if self._snapshot_of is None and known:
                raise CheckpointCorruptError(
                    f"The file {self._directory}/{READ_NAME} is missing, but files of {self._table} were read.",
                    CORRUPT_REMEDY,
                )
            if self._snapshot_of is None:
                self._note(self._newest, None)
            assert self._snapshot_of is not None
            files = sorted(self._snapshot(self._snapshot_of), key=lambda file: (file[2], file[0]))
            self._found_up_to = self._snapshot_of + 1
            self._read_at = self._time_of(self._snapshot_of)
            return [file for file in files if file[0] not in known]
        found: list[Found] = []
        version = self._next
        while (actions := self._version(version)) is not None:
            if version == self._next and self._is_another(version - 1):
                raise self._made_anew()
            found += [file for file in self._added(version, actions) if file[0] not in known]
            version += 1
        if version > self._next:
            self._read_at = self._time_of(version - 1)
        self._found_up_to = version
        return found

    def _version(self, number: int) -> list[dict[str, Any]] | None:
        """Return the actions of a version; None when it is not there yet.

        Raises:
            SourceError: It is there no more.
        """
        text = self._text(number)
        if text is None and self._is_listed_beyond(number):
            text = self._text(number)  # again: it may have come before the later ones did
            if text is None:
                raise self._lacks(number)
        return None if text is None else [json.loads(line) for line in text.splitlines() if line.strip()]

    def _is_another(self, number: int) -> bool:
        """Tell whether the last version that was read, which has this number, is not the one that is there now."""
        now = self._time_of(number)
        return now is not None and self._read_at not in (None, now)

    def _time_of(self, number: int) -> int | None:
        """Return when a version was written; None if it is not there."""
        try:
            return (self._table / _LOG / f"{number:020d}.json").stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def _made_anew(self) -> SourceError:
        return SourceError(f"delta: {self._table} is another table than was read: it was made anew.", ANEW)

    def _text(self, number: int) -> bytes | None:
        try:
            return (self._table / _LOG / f"{number:020d}.json").read_bytes()
        except FileNotFoundError:
            return None

    def _is_listed_beyond(self, number: int) -> bool:
        """Tell whether there are later versions than one; nothing is listed where nothing has changed.

        Raises:
            SourceError: The log is gone, or ends before what was read of it.
        """
        directory = self._table / _LOG
        try:
            changed = directory.stat().st_mtime_ns
            if changed == self._listed_at:
                return False
            newest = max((int(found[1]) for name in names_in(directory) if (found := _NAME.match(name))), default=-1)
        except FileNotFoundError:
            newest, changed = -1, 0
        if newest < number - 1:
            raise SourceError(
                f"delta: the log of {self._table} ends before version {number - 1}, which was read: the table was "
                "removed, or made anew.",
                ANEW,
            )
        if newest < number:
            self._listed_at = changed
        return newest >= number

    def _lacks(self, number: int) -> SourceError:
        return SourceError(
            f"delta: the log of {self._table} has version {number} no more.",
            "Keep the log for longer than the application rests (delta.logRetentionDuration), or begin with a new "
            "checkpoint.",
        )

    def _added(self, version: int, actions: list[dict[str, Any]]) -> Iterator[Found]:
        for action in actions:
            if "metaData" in action:
                self._check_same(version, action["metaData"])
            if "protocol" in action:
                self._check_features(action["protocol"].get("readerFeatures") or ())
        removes = [remove for action in actions if (remove := action.get("remove")) and remove.get("dataChange", True)]
        if removes and self._ignore_changes:
            return
        if removes:
            raise SourceError(
                f"delta: version {version} of {self._table} removes or rewrites rows that may have been read.",
                "Let rows only be appended to a table that is a stream; or pass over such versions with "
                "ignore_changes=True.",
            )
        for action in actions:
            add = action.get("add")
            if add and add.get("dataChange", True):
                if add.get("deletionVector"):
                    raise self._has_vectors()
                yield self._found(unquote(add["path"]))

    def _found(self, path: str) -> Found:
        place = self._table / path if "://" not in path and not path.startswith("/") else None
        if place is None:
            raise SourceError(
                f"delta: {self._table} has files elsewhere ({path}), as a shallow clone has.", "Read the table itself."
            )
        try:
            about = place.stat()
        except OSError as error:
            raise SourceError(
                f"delta: the file {place} is gone, which the log of the table names: VACUUM has removed it.",
                "Let VACUUM keep files for longer than the application rests, or begin with a new checkpoint.",
            ) from error
        return str(place), about.st_size, about.st_mtime_ns // 1_000

    def _snapshot(self, version: int) -> list[Found]:
        """Return the files that the table had at a version."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            table = DeltaTable(str(self._table), version=version)
        except DeltaError as error:
            raise self._lacks(version) from error
        if pa.table(table.deletion_vectors()).num_rows:
            raise self._has_vectors()
        paths = pa.table(table.get_add_actions()).column("path").to_pylist()
        return [self._found(path if (self._table / path).exists() else unquote(path)) for path in paths]

    def _current(self) -> TableColumns:
        """Return the columns that the table has now.

        Raises:
            SourceError: There is no table, or it cannot be read.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            table = DeltaTable(str(self._table))
        except (DeltaError, OSError) as error:
            raise SourceError(f"delta: there is no Delta table {self._table}: {error}.", "Correct the path.") from error
        self._newest = table.version()
        self._check_features(table.protocol().reader_features or ())
        about = table.metadata()
        identity = str(about.id)
        if self._id not in ("", identity) and not self._became(identity):
            raise self._made_anew()
        self._id = identity
        return TableColumns.of(self._table, table.schema().to_json(), about.partition_columns, about.configuration)

    def _became(self, identity: str) -> bool:
        """Tell whether the table that was read got another identity in a version since, as one that is replaced does.

        Raises:
            SourceError: The log lacks a version since.
        """
        since = self._snapshot_of if self._next is None else self._next
        return any(
            action.get("metaData", {}).get("id") == identity
            for version in range(since or 0, self._newest + 1)
            for action in self._version(version) or ()
        )

    def _check_features(self, features: Collection[str]) -> None:
        unknown = sorted(set(features) - _KNOWN_FEATURES)
        if unknown:
            raise SourceError(
                f"delta: {self._table} needs a reader that knows {', '.join(unknown)}.",
                "Write it into a table without, and read that.",
            )

    def _check_same(self, version: int, about: Mapping[str, Any]) -> None:
        self._id = about["id"]
        now = TableColumns.of(
            self._table, about["schemaString"], about["partitionColumns"], about.get("configuration") or {}
        )
        if now.struct() != self.columns.struct() or now.partition_by != self.columns.partition_by:
            raise SourceError(
                f"delta: the columns of {self._table} changed with version {version}.",
                "Start the application again: it then reads the table with the columns that it has now.",
            )

    def _has_vectors(self) -> SourceError:
        return SourceError(
            f"delta: rows of {self._table} are marked as deleted in its files (deletion vectors).",
            "Set the table's property delta.enableDeletionVectors to false and run REORG TABLE ... APPLY (PURGE).",
        )

    def _read(self) -> None:
        if self._directory is not None:
            path = self._directory / READ_NAME
            try:
                with translated(path, "read"):
                    text = path.read_bytes() if path.exists() else None
                if text is not None:
                    kept = _kept(text)
                    self._snapshot_of, self._next = kept["snapshot"], kept["next"]
                    self._id = kept.get("table", "")
            except (ValueError, KeyError, TypeError, AttributeError):
                raise CheckpointCorruptError(f"The file {path} is damaged.", CORRUPT_REMEDY) from None

    def _note(self, snapshot: int | None, following: int | None) -> None:
        """Note the version whose files were returned first, and the next one; nothing if that cannot be written."""
        if self._directory is not None:
            kept = {"snapshot": snapshot, "next": following, "table": self._id}
            with translated(self._directory, "write in"), replacing(self._directory / READ_NAME) as file:
                file.write(encode(kept, START)[0])
        self._snapshot_of, self._next = snapshot, following


def _kept(text: bytes) -> dict[str, Any]:
    """Return what is in the file: a line with a checksum, or plain JSON of an older version."""
    line = decode(text)
    found: dict[str, Any] = json.loads(text) if line is None else line.value
    return found
