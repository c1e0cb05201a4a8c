"""Files as a stream: JSON lines, CSV or Parquet, found as they appear, each read whole and once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from transom.errors import DefinitionError, SourceError
from transom.model.signatures import checked
from transom.model.time import Duration, parse_duration
from transom.sources.filesets.known import FileSet
from transom.sources.filesets.matching import OPTIONS, REGEX, check_columns, groups_of
from transom.sources.filesets.read import Format, checked_schema
from transom.sources.filesets.source import FileSource
from transom.sources.schemas import as_struct, has_session
from transom.storage.places import place
from transom.storage.unpacking import packing

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_EXTENSIONS: Mapping[str, Format] = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".parquet": "parquet",
}


@checked
def files(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    schema: StructType | str,
    format: Literal["json", "csv", "parquet"] | None = None,
    *,
    order: Literal["name", "modified"] = "name",
    settle: Duration | None = None,
    options: Mapping[str, str] | None = None,
    partition_by: Literal["directory"] | None = None,
    max_files_per_cut: int | None = None,
) -> FileSource:
    """Read files as they appear in a directory; files are expected to appear whole (renamed into place).

    Args:
        path: A glob ("trips/*.json"; `**` is any number of directories), a directory, a file, or several of
            them; local paths, or URIs: file://, s3://, gs://, abfs://, hdfs://. Names that start with "." or "_" or end
            in ".tmp", ".crdownload" or "._COPYING_" are left alone.
        schema: The columns, as a StructType or as text ("at timestamp, fare double"). Columns that a Parquet
            file lacks are null; columns that the schema lacks are ignored. A Parquet file with a column of another
            type is a dead letter as a whole, unless Spark widens it without loss (int to bigint); of times in
            nanoseconds whole microseconds are taken. All columns are read and checked, whatever the queries use:
            whoever wants speed declares what is used.
        format: "json" (one object per line), "csv" or "parquet"; by default what the extension says. Text may
            be packed (".gz", ".zst"). A line is one row or, when it is anything else, one dead letter; blank lines are
            nothing. A damaged file is a dead letter as a whole; but of a ".zst" file of several frames, of which a
            later one is cut off, Spark reads what comes before: write such files under another name, then rename them.
        order: Order among files found together: by path, or by modification time.
        settle: Leave a file alone until it has not been modified for this long; for writers that do not
            rename.
        options: Options of Spark's reader, for example {"header": "true"}. With a header, a CSV file whose header
            does not name the columns is a dead letter as a whole, unless enforceSchema is "true".
        partition_by: "directory" makes each directory a source partition with its own watermark. New
            directories become new partitions when their first file is found.
        max_files_per_cut: Most files in one micro-batch.

    Returns:
        The source. Its offset is a position in its own log of discovered files, so a late file with a small
        name is still read once; a file that is written again under the same name is not read again.

    Raises:
        DefinitionError: The arguments cannot work, for example a reserved column name.
        SourceError: A kind of path that is not supported, or a URI with credentials.
    """
    paths = _paths(path, "files")
    kind = format if format is not None else _format_of(paths)
    if kind not in ("json", "csv", "parquet"):
        raise DefinitionError(f"files: the format {kind!r} is unknown.", 'Choose "json", "csv" or "parquet".')
    _check_options(kind, options or {})
    if not isinstance(schema, str) or has_session():
        checked_schema(as_struct(schema))
    return _source("files", paths, schema, kind, options or {}, order, settle, partition_by, max_files_per_cut)


@checked
def text(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    regex: str,
    schema: StructType | str | None = None,
    *,
    order: Literal["name", "modified"] = "name",
    settle: Duration | None = None,
    options: Mapping[str, str] | None = None,
    partition_by: Literal["directory"] | None = None,
    max_files_per_cut: int | None = None,
) -> FileSource:
    r"""Read lines of text files, such as access logs, taken apart by a regular expression.

    A line that does not match as a whole, or in which a group does not say a value of its type, is a dead letter;
    blank lines are nothing. An empty group is null, or "" in a column of strings.

    Args:
        path: As in `files`. Text may be packed (".gz", ".zst").
        regex: Java's, as in `regexp_extract`; each named group, `(?P<name>...)` or `(?<name>...)`, is a column.
        schema: Types of the columns, as a StructType or as text ("status int, at timestamp"); by default strings.
        order: As in `files`.
        settle: As in `files`.
        options: `timestampFormat` and `dateFormat`, as "dd/MMM/yyyy:HH:mm:ss Z"; by default what a cast takes.
        partition_by: As in `files`.
        max_files_per_cut: As in `files`.

    Raises:
        DefinitionError: The expression is none, or its groups are not the columns.
        SourceError: A kind of path that is not supported, or a URI with credentials.
    """
    groups = groups_of(regex)
    schema = ", ".join(f"{name} string" for name in groups) if schema is None else schema
    if unknown := [name for name in options or {} if name not in OPTIONS]:
        raise DefinitionError(f"text: the option {unknown[0]!r} is unknown.", f"There are {' and '.join(OPTIONS)}.")
    if not isinstance(schema, str) or has_session():
        check_columns(checked_schema(as_struct(schema)), regex)
    given = {**(options or {}), REGEX: regex}
    paths = _paths(path, "text")
    return _source("text", paths, schema, "text", given, order, settle, partition_by, max_files_per_cut)


def _paths(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], what: str) -> tuple[str, ...]:
    """Return paths as the source takes them.

    Raises:
        DefinitionError: There is none.
        SourceError: One is of a kind that is not supported.
    """
    given = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    paths = tuple(str(place(one, what, SourceError)) for one in given)
    if not paths:
        raise DefinitionError(f"{what}: no path was given.", "Name a directory, a glob or a file.")
    return paths


def _source(
    what: str,
    paths: tuple[str, ...],
    schema: StructType | str,
    kind: Format,
    options: Mapping[str, str],
    order: str,
    settle: Duration | None,
    partition_by: str | None,
    max_files_per_cut: int | None,
) -> FileSource:
    """Return the source, when its arguments make sense.

    Raises:
        DefinitionError: They do not.
    """
    if order not in ("name", "modified"):
        raise DefinitionError(f"{what}: the order {order!r} is unknown.", 'Choose "name" or "modified".')
    if partition_by not in (None, "directory"):
        raise DefinitionError(
            f"{what}: partition_by={partition_by!r} is unknown.", 'Choose "directory", or leave it out.'
        )
    if max_files_per_cut is not None and max_files_per_cut < 1:
        raise DefinitionError(f"{what}: max_files_per_cut must be at least 1.", "Leave it out for no limit.")
    wait = 0 if settle is None else parse_duration(settle, "settle")
    if wait < 0:
        raise DefinitionError(f"{what}: settle must not be negative.", 'Write for example "2 seconds".')
    found = FileSet(
        paths,
        kind,
        dict(options),
        by_time=order == "modified",
        by_directory=partition_by is not None,
        settle=wait,
        max_files=max_files_per_cut,
    )
    return FileSource(found, schema)


def _check_options(kind: str, options: Mapping[str, str]) -> None:
    """Refuse options with which it could not be told that each line is a row.

    Raises:
        DefinitionError: The option does not go with the format.
    """
    for name, value in options.items():
        if kind == "json" and name.lower() == "multiline" and str(value).lower() == "true":
            raise DefinitionError(
                f"files: the option {name} does not go with JSON, which is read line by line.",
                "Write one value per line, for example with jq -c '.[]' or jq -c .",
            )
        if kind == "json" and name.lower() in ("encoding", "charset") and value.lower() not in ("utf-8", "utf8"):
            raise DefinitionError(f"files: JSON in {value} is not read.", "Write it as UTF-8, for example with iconv.")


def _format_of(paths: Sequence[str]) -> Format:
    """Return the one format that the extensions of all paths name.

    Raises:
        DefinitionError: They name none, or several.
    """
    kinds = set()
    for path in paths:
        name = os.path.basename(path).lower()
        name = os.path.splitext(name)[0] if packing(name) else name
        kinds.add(_EXTENSIONS.get(os.path.splitext(name)[1]))
    kind = kinds.pop()
    if kinds or kind is None:
        raise DefinitionError(
            f"files: the format of {', '.join(paths)} cannot be told from the name.",
            'Add format="json", "csv" or "parquet", or a glob such as "trips/*.json".',
        )
    return kind
