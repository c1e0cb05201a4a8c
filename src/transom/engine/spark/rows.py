"""Rows of a stream kept as files, and the join of two such sets of rows within windows."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transom.engine.spark.columns import TIME, is_case_sensitive, to_condition
from transom.engine.spark.eventtimes import good_rows
from transom.engine.spark.plan import StreamPlan
from transom.engine.spark.rowfiles import KeptRows, files_in
from transom.errors import DefinitionError
from transom.model.calendar import CalendarSpec
from transom.model.joinkind import INNER, LEFT, join_kind
from transom.model.time import Micros
from transom.model.window import SessionSpec, WindowKind
from transom.sources.filesets.read import escape_glob
from transom.storage.durable import make_directory, names_in, remove_tree, sync_directory, sync_file
from transom.storage.places import Place, spark_uri
from transom.windows.calendars import calendar_start_sql
from transom.windows.query import WindowedQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

IN_FORCE = "_in_force"
"""Column of kept rows with the watermark in force at their cut: the row is in time for windows that end later."""
WINDOW_START, WINDOW_END = "window_start", "window_end"


def rows_of(raw: DataFrame, stream: StreamPlan, query: WindowedQuery, ahead: Micros | None) -> DataFrame:
    """Return the rows that a query sees, with TIME."""
    timed = raw.withColumn(TIME, stream.time)
    seen = stream.branches[query.branch](good_rows(timed, ahead, raw.columns))
    return seen if query.condition is None else seen.where(to_condition(query.condition))


def _numbered(seen: DataFrame) -> DataFrame:
    """Return the columns but TIME as c0, c1, ..., which any file can hold, and TIME."""
    names = [f"c{i}" for i in range(len(seen.columns))]
    at = seen.columns.index(TIME)
    names[at:] = [TIME, *names[at:-1]]
    return seen.toDF(*names)


def columns_of(seen: DataFrame) -> StructType:
    """Return the columns of a query's rows without TIME."""
    from pyspark.sql.types import StructType

    return StructType([field for field in seen.schema if field.name != TIME])


def write_rows(seen: DataFrame, condition: str, watermark: Micros, piece: Place) -> KeptRows | None:
    """Keep rows of a cut as Parquet files, durably.

    Args:
        seen: What `rows_of` returned.
        condition: Which ones, as SQL over TIME.
        watermark: In force for the cut; microseconds.
        piece: Where; each try has a directory of its own there, since what was killed or overtaken may still write.

    Returns:
        What tells of them; None when no row is left, and nothing is kept.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    attempt = uuid.uuid4().hex
    make_directory(piece)
    directory, observation = piece / attempt, Observation()
    counts = F.max(TIME).alias("newest"), F.count(F.lit(1)).alias("rows")
    numbered = _numbered(seen).where(condition)
    kept = numbered.withColumn(IN_FORCE, F.lit(watermark).cast("bigint")).observe(observation, *counts)
    kept.write.parquet(spark_uri(directory))
    newest: Micros | None = observation.get["newest"]
    if newest is None:
        remove_tree(piece)
        return None
    for hidden in [name for name in names_in(directory) if name.startswith((".", "_"))]:
        (directory / hidden).unlink()  # checksums of Hadoop's and the like
    files = files_in(directory)
    for name in files:
        sync_file(directory / name)
    sync_directory(directory)
    sync_directory(piece)
    named = {f"{attempt}/{name}": written for name, written in files.items()}
    return KeptRows(newest, named, rows=observation.get["rows"])


def write_files(seen: DataFrame, kind: str, partition_by: Sequence[str], directory: Place) -> bool:
    """Write the rows of a cut as they are; return whether there are any.

    Args:
        seen: What `rows_of` returned.
        kind: `parquet`, `json` or `csv`.
        partition_by: Columns whose values become directories.
        directory: Where; not there yet, and nobody else has the name.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    observation = Observation()
    rows = seen.drop(TIME).observe(observation, F.count(F.lit(1)).alias("rows"))
    options = {"json": {"ignoreNullFields": "false"}, "csv": {"header": "true", "escape": '"', "emptyValue": '""'}}
    writer = rows.write.partitionBy(*partition_by)
    writer.format(kind).options(**options.get(kind, {})).save(spark_uri(directory))
    return bool(observation.get["rows"])


def read_rows(spark: SparkSession, paths: Sequence[Place], columns: StructType) -> DataFrame:
    """Return the kept rows of some files: their columns, TIME and IN_FORCE."""
    from pyspark.sql.types import LongType, StructField, StructType

    stored = StructType([StructField(f"c{i}", field.dataType) for i, field in enumerate(columns)])
    stored = StructType([*stored, StructField(TIME, LongType()), StructField(IN_FORCE, LongType())])
    rows = (
        spark.read.schema(stored).parquet(*[escape_glob(spark_uri(path)) for path in paths])
        if paths
        else spark.createDataFrame([], stored)
    )
    return rows.toDF(*columns.names, TIME, IN_FORCE)


@dataclass(frozen=True)
class WindowJoin:
    """A join of two streams: on equal keys, within the same window.

    Raises:
        DefinitionError: No keys, or a kind that is unknown or cannot be had.
    """

    on: tuple[str, ...]
    window: WindowKind
    how: str = INNER
    """INNER or LEFT."""

    def __post_init__(self) -> None:
        if not self.on or not all(isinstance(name, str) for name in self.on):
            raise DefinitionError(f"join: on={self.on!r} names no columns.", 'Write for example on=["ad_id"].')
        object.__setattr__(self, "how", join_kind(self.how, (INNER, LEFT)))
        if isinstance(self.window, SessionSpec):
            raise DefinitionError(
                f"join: {self.window} depends on the rows.", "Join within tumbling, sliding or calendar windows."
            )

    def start_of(self, end: Micros) -> Micros:
        """Return the start of the window with this end."""
        assert not isinstance(self.window, SessionSpec)
        return self.window.late_before(end - 1) if isinstance(self.window, CalendarSpec) else end - self.window.length

    def _starts_sql(self) -> str:
        """Return the starts of the windows that hold TIME, as a SQL array."""
        if isinstance(self.window, CalendarSpec):
            return f"array({calendar_start_sql(self.window, TIME)})"
        assert not isinstance(self.window, SessionSpec)
        length, slide, offset = self.window.length, self.window.slide, self.window.offset
        last = f"({TIME} - pmod({TIME} - {offset}L, {slide}L))"
        if self.window.tumbling:
            return f"array({last})"
        return f"filter(sequence({last}, {last} - {length}L, -{slide}L), s -> s + {length}L > {TIME})"

    def apply(self, left: DataFrame, right: DataFrame, windows: DataFrame) -> DataFrame:
        """Return the joined rows: window_start, window_end, keys, the other columns of the left side, of the right.

        The same as a Spark batch join of the rows of each window: null keys match nothing; with `left` each row of
        the left side appears at least once in each of its windows.

        Args:
            left: Columns, TIME and IN_FORCE.
            right: The same of the other side.
            windows: Columns `start` and `end` (bigint, microseconds) of the windows to join.

        Raises:
            DefinitionError: A key is missing, or two columns would have one name.
        """
        from pyspark.sql import functions as F

        sides = [self._in_windows(left, "l", windows), self._in_windows(right, "r", windows)]
        case_sensitive = is_case_sensitive(left)
        keys = [
            [_index(name, df.columns, side, case_sensitive) for name in self.on]
            for df, side in ((left, "left"), (right, "right"))
        ]
        matches = [f"l{i} = r{k}" for i, k in zip(*keys, strict=True)]
        joined = sides[0].join(sides[1], F.expr(" AND ".join(["l_start = r_start", *matches])), self.how)
        columns = [F.timestamp_micros("l_start").alias(WINDOW_START), F.timestamp_micros("l_end").alias(WINDOW_END)]
        columns += [F.col(f"l{i}").alias(name) for i, name in zip(keys[0], self.on, strict=True)]
        for df, prefix, own in ((left, "l", keys[0]), (right, "r", keys[1])):
            names = [name for name in df.columns if name not in (TIME, IN_FORCE)]
            columns += [F.col(f"{prefix}{i}").alias(name) for i, name in enumerate(names) if i not in own]
        result = joined.select(*columns)
        folded = [name if case_sensitive else name.lower() for name in result.columns]
        for name in result.columns:
            if folded.count(name if case_sensitive else name.lower()) > 1:
                raise DefinitionError(
                    f"join: there would be two columns {name!r}.", "Rename one of them with map() before the join."
                )
        return result

    def _in_windows(self, rows: DataFrame, prefix: str, windows: DataFrame) -> DataFrame:
        """Return the rows once per window that they are in time for; columns l0, l1, ..., l_start, l_end (or r)."""
        from pyspark.sql import functions as F

        count = len(rows.columns) - 2
        named = rows.toDF(*[f"{prefix}{i}" for i in range(count)], TIME, IN_FORCE)
        start, end = f"{prefix}_start", f"{prefix}_end"
        exploded = named.withColumn(start, F.explode(F.expr(self._starts_sql())))
        due = windows.toDF(start, end)
        return exploded.join(F.broadcast(due), start).where(f"{IN_FORCE} < {end}").drop(TIME, IN_FORCE)


def _index(name: str, columns: Sequence[str], side: str, case_sensitive: bool) -> int:
    for i, column in enumerate(columns):
        if column == name or (not case_sensitive and column.lower() == name.lower()):
            return i
    raise DefinitionError(
        f"join: the {side} side has no column {name!r}.",
        f"Its columns are {', '.join(c for c in columns if c not in (TIME, IN_FORCE))}.",
    )
