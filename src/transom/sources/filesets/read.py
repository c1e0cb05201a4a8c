"""DataFrames for lists of files."""

from __future__ import annotations

import functools
import os
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import quote

from transom.failures import classify, require_blame
from transom.sources.base import ARRIVAL, CORRUPT, PARTITION
from transom.sources.filesets.fit import Remades, read_first, remake
from transom.sources.filesets.jsonlines import may_read_plainly, read_json
from transom.sources.filesets.matching import read_text
from transom.sources.filesets.plain import is_plain_file, is_utf8_file
from transom.sources.filesets.rows import why_unreadable
from transom.sources.schemas import check_reserved
from transom.storage.places import is_local, located, spark_uri

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

Format: TypeAlias = Literal["json", "csv", "parquet", "text"]

_GLOB = re.compile(r"([{}\[\]*?\\])")
_MODIFIED, _PATH = "file_modification_time", "file_path"
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"


def checked_schema(schema: StructType) -> StructType:
    """Return the schema with every column nullable, as Spark's file readers return it.

    Raises:
        DefinitionError: A column name is reserved or occurs twice.
    """
    check_reserved(schema.names, "files")
    nullable = _nullable(schema)
    assert isinstance(nullable, type(schema))
    return nullable


def _nullable(kind: DataType) -> DataType:
    from pyspark.sql.types import ArrayType, CharType, MapType, StringType, StructField, StructType, VarcharType

    if isinstance(kind, StructType):
        return StructType([StructField(f.name, _nullable(f.dataType), True, f.metadata) for f in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType), True)
    if isinstance(kind, (CharType, VarcharType)):  # Spark's readers take them for texts
        return StringType()
    return kind


def escape_glob(path: str) -> str:
    r"""Return a path that Spark's readers, which take globs, understand as this one file.

    >>> print(escape_glob("/a [1]/b.json"))
    /a \[1\]/b.json
    """
    return _GLOB.sub(r"\\\1", path)


def file_uri_path(path: str) -> str:
    """Return a path as Spark shows it in `_metadata.file_path`: quoted as by java.net.URI, without `file:`.

    >>> file_uri_path("/a b/100%/c+d")
    '/a%20b/100%25/c+d'
    """
    safe = "/;:@&=+$,-_.!~*'()"
    return "".join(quote(c, safe=safe) if c.isascii() or _is_quoted(c) else c for c in path)


def _is_quoted(character: str) -> bool:
    """Tell whether Java quotes a character that is not ASCII: spaces and control characters."""
    return unicodedata.category(character) in ("Cc", "Zs", "Zl", "Zp")


def read_files(
    spark: SparkSession,
    paths: Sequence[str],
    schema: StructType,
    kind: Format,
    options: Mapping[str, str],
    partition: Callable[[str], int] | None = None,
    remade: Callable[[str], Remades] = lambda path: (),
) -> DataFrame:
    """Return the rows of files: _corrupt_record (none of Parquet), _source_partition (with `partition`), arrival.

    Runs no job: Spark lists more than 32 paths in a job by default (1 s for 200 files, 0.07 s without), so
    the threshold of this session is raised.

    Args:
        spark: The session.
        paths: Absolute paths; at least one.
        schema: The columns.
        kind: "json", "csv", "parquet" or "text".
        options: Options of the reader; of text, those of `read_text`.
        partition: Gives the index of the source partition of a path; the same for all files of a directory.
        remade: Gives the columns of a Parquet file that are read as another type first.
    """
    if int(spark.conf.get(_LISTING, "32") or 32) < len(paths):
        spark.conf.set(_LISTING, str(max(len(paths), 1 << 20)))
    is_plain = _is_plain(spark, kind, options)
    alike: dict[tuple[Remades, bool], list[str]] = {}
    for path in paths:
        alike.setdefault((remade(path), is_plain(path)), []).append(path)
    frames = [
        _read(spark, some, schema, kind, options, partition, first, plain) for (first, plain), some in alike.items()
    ]
    return functools.reduce(lambda a, b: a.unionAll(b), frames)


def _is_plain(spark: SparkSession, kind: Format, options: Mapping[str, str]) -> Callable[[str], bool]:
    """Return what tells of a file that Spark's reader leaves nothing out and changes nothing silently."""
    if kind == "json":
        return is_plain_file if may_read_plainly(spark, options) else lambda path: False
    encodings = {str(value).lower() for name, value in options.items() if name.lower() in ("encoding", "charset")}
    return is_utf8_file if kind == "csv" and encodings <= {"utf-8", "utf8"} else lambda path: True


def _read(
    spark: SparkSession,
    paths: Sequence[str],
    schema: StructType,
    kind: Format,
    options: Mapping[str, str],
    partition: Callable[[str], int] | None,
    remade: Remades,
    plain: bool,
) -> DataFrame:
    from pyspark.sql import functions as F

    uris = [_for_spark(path) for path in paths]
    fixed = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
    exact = kind == "text" or (kind == "json" and not plain)
    if exact:
        read = read_text if kind == "text" else read_json
        frame = read(spark, uris, schema, {**options, **fixed}, [_MODIFIED, *([_PATH] if partition else [])])
    elif kind != "parquet":
        fixed |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        given = {**({"enforceSchema": "false"} if kind == "csv" else {}), **options, **fixed}
        frame = spark.read.format(kind).options(**given).schema(_with_corrupt(schema)).load(uris)
        frame = frame.withColumn(CORRUPT, _corrupt(schema.names, mended=not plain))
    else:
        frame = (
            spark.read.format(kind).options(**options).options(**fixed).schema(read_first(schema, remade)).load(uris)
        )
        # What is damaged in a column is found whatever columns the queries use.
        frame = frame.where(f"NOT (spark_partition_id() < 0 AND to_json(struct({_listed(schema.names)})) IS NULL)")
    about = "" if exact else "_metadata."
    columns = [remake(field, remade) for field in schema.fields]
    if kind != "parquet":
        columns.append(F.col(CORRUPT))
    if partition is not None:
        columns.append(_partition(paths, partition, about + _PATH).alias(PARTITION))
    return frame.select(*columns, F.expr(f"unix_micros({about}{_MODIFIED})").alias(ARRIVAL))


def _for_spark(path: str) -> str:
    """Return a file as Spark's readers take it."""
    if is_local(path):
        return "file://" + escape_glob(path)
    scheme, mark, rest = spark_uri(located(path)).partition("://")
    store, slash, key = rest.partition("/")
    return f"{scheme}{mark}{store}{slash}{escape_glob(key)}"


def _shown_folders(folder: str) -> list[str]:
    """Return how `_metadata.file_path` of a file in a folder may begin."""
    if is_local(folder):
        uri = file_uri_path(folder.rstrip("/")) + "/"
        return ["file:" + uri, "file://" + uri]
    scheme, mark, rest = spark_uri(located(folder)).partition("://")
    store, slash, key = rest.partition("/")
    return [f"{scheme}{mark}{store}{file_uri_path(slash + key)}/"]


def empty_frame(spark: SparkSession, schema: StructType, kind: Format, partitioned: bool) -> DataFrame:
    """Return a DataFrame without rows and with the columns of `read_files`."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import IntegerType, LongType

    columns = _with_corrupt(schema) if kind != "parquet" else schema
    names = [F.lit(None).cast(field.dataType).alias(field.name) for field in columns.fields]
    if partitioned:
        names.append(F.lit(0).cast(IntegerType()).alias(PARTITION))
    names.append(F.lit(0).cast(LongType()).alias(ARRIVAL))
    return spark.range(0, 0, 1, 1).select(*names)


def unreadable_files(
    spark: SparkSession,
    paths: Sequence[str],
    schema: StructType,
    kind: Format,
    options: Mapping[str, str],
    remade: Callable[[str], Remades] = lambda path: (),
) -> dict[str, str]:
    """Return the files that cannot be read at all, each with the reason.

    Spark decides, by a job for each half of those that fail together: what else reads files may refuse what Spark
    takes, so that it would depend on its neighbours whether a file counts. What else reads files says why.
    """

    def fails(some: Sequence[str]) -> str | None:
        try:
            read_files(spark, some, schema, kind, options, remade=remade).write.format("noop").mode("overwrite").save()
        except Exception as error:
            require_blame(error, "Looking for unreadable files")  # else all of them would be dead letters
            return classify(error).reason
        return None

    def among(some: Sequence[str]) -> dict[str, str]:
        why = fails(some) if some else None
        if why is None or len(some) == 1:
            return {} if why is None else {some[0]: why_unreadable(some[0], kind) or why}
        middle = len(some) // 2
        return among(some[:middle]) | among(some[middle:])

    return among(paths)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(_quoted, names))


def _with_corrupt(schema: StructType) -> StructType:
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([*schema.fields, StructField(CORRUPT, StringType(), True)])


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _corrupt(names: Sequence[str], mended: bool) -> Column:
    """Return _corrupt_record, in a way that depends on all columns.

    Spark parses only the columns that a plan uses, and drops rows by pushed-down filters before it parses the
    rest; so it would depend on the queries at hand whether a row is corrupt. The added branch is never taken,
    but the optimizer cannot know that, and it does not push filters below a non-deterministic column.

    Args:
        names: Of all columns.
        mended: Whether Spark's reader may have put U+FFFD for bytes that are no text; a row with one is corrupt then.
    """
    from pyspark.sql import functions as F

    nulls = " OR ".join(f"{_quoted(name)} IS NULL" for name in names)
    corrupt = f"coalesce({CORRUPT}, if(spark_partition_id() < 0 AND ({nulls}), '', NULL))"
    if not mended:
        return F.expr(corrupt)
    text = f"to_csv(struct({_listed(names)}))"
    return F.expr(f"coalesce({corrupt}, if(instr({text}, decode(X'EFBFBD', 'UTF-8')) > 0, {text}, NULL))")


def _partition(paths: Sequence[str], partition: Callable[[str], int], where: str) -> Column:
    """Return the source partition of a row's file, found by its directory; `where` is the column of its path."""
    from pyspark.sql import functions as F

    folders = {os.path.dirname(path): partition(path) for path in paths}
    if len(folders) == 1:
        return F.lit(next(iter(folders.values())))
    location = F.col(where)
    column: Column | None = None
    for folder in sorted(folders, key=len, reverse=True):
        inside = functools.reduce(lambda a, b: a | b, map(location.startswith, _shown_folders(folder)))
        column = F.when(inside, folders[folder]) if column is None else column.when(inside, folders[folder])
    assert column is not None
    return column
