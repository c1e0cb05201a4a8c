"""Lookups: rows joined with the rows of a table that have their keys; each cut sees one version of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from transom.engine.spark.columns import TIME, first_line, is_case_sensitive
from transom.errors import DefinitionError
from transom.model.joinkind import ANTI, INNER, LEFT, SEMI, join_kind
from transom.model.time import Micros, format_duration
from transom.sources.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

KINDS = (INNER, LEFT, SEMI, ANTI)


@dataclass(eq=False)
class LookupTable:
    """A table that a stream's rows are looked up in; its columns stay what they are in a run."""

    name: str
    """Names it in the log, the checkpoint and to people; one of each in a stream."""
    table: Table
    refresh: Micros | None
    """How often it is read anew; None for once in a run."""
    _schema: StructType | None = field(default=None, init=False, repr=False)

    def schema(self, session: SparkSession) -> StructType:
        """Return its columns, as they are when this is asked for first.

        Raises:
            DefinitionError: It cannot be read.
        """
        from pyspark.errors import PySparkException

        if self._schema is None:
            try:
                self._schema = _nullable(self.table.read(session).schema)
            except PySparkException as error:
                raise DefinitionError(
                    f"lookup {self.name!r}: {self.table.describe()} cannot be read: {first_line(error)}.",
                    "Correct its name, or make it before the application starts.",
                ) from error
        return self._schema

    def empty(self, session: SparkSession) -> DataFrame:
        """Return no rows of it."""
        return session.createDataFrame([], self.schema(session))


@dataclass(frozen=True)
class Lookup:
    """The transformation that joins rows with those of a table; equal when table, keys and kind are."""

    table: LookupTable
    on: tuple[str, ...]
    how: str = INNER

    def __post_init__(self) -> None:
        if not self.on or not all(isinstance(name, str) for name in self.on):
            raise DefinitionError(f"lookup: on={self.on!r} names no columns.", 'Write for example on="zone_id".')
        object.__setattr__(self, "how", join_kind(self.how, KINDS, "lookup"))

    @property
    def __name__(self) -> str:
        """What `explain` shows."""
        again = "" if self.table.refresh is None else f", read every {format_duration(self.table.refresh)}"
        return f"lookup in {self.table.name} ({self.table.table.describe()}; {self.how} on {', '.join(self.on)}{again})"

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Return the rows joined with none of the table, to be analysed."""
        return self.joined(rows, self.table.empty(rows.sparkSession))

    def joined(self, rows: DataFrame, version: DataFrame) -> DataFrame:
        """Return the rows joined with those of a version of the table, as Spark joins them.

        Raises:
            DefinitionError: A key is missing, or two columns would have one name.
        """
        from pyspark.sql import functions as F

        self._check(rows, version)
        # The plan's text is what the checkpoint knows the rows by: it names the table.
        named = version.alias(f"lookup {self.table.name}: {self.table.table.describe()}")
        return rows.join(F.broadcast(named), list(self.on), self.how)

    def _check(self, rows: DataFrame, version: DataFrame) -> None:
        def folded(names: Iterable[str]) -> dict[str, str]:
            return {name if case_sensitive else name.lower(): name for name in names}

        case_sensitive = is_case_sensitive(rows)
        keys, theirs, ours = folded(self.on), folded(version.columns), folded(rows.columns)
        for key, name in keys.items():
            for columns, side in ((ours, "stream"), (theirs, "table")):
                if key not in columns:
                    names = ", ".join(each for each in columns.values() if each != TIME)
                    raise DefinitionError(
                        f"lookup {self.table.name!r}: the {side} has no column {name!r}.",
                        f"Its columns are {names}. Keys have one name on both sides: rename one of them.",
                    )
        both = [name for key, name in theirs.items() if key in ours and key not in keys]
        if both and self.how not in (SEMI, ANTI):
            raise DefinitionError(
                f"lookup {self.table.name!r}: there would be two columns {both[0]!r}.",
                "Leave it out of the table, or rename it: tm.tables.sql, or a function, can do that.",
            )


def lookup_tables(chains: Iterable[Sequence[Callable[[DataFrame], DataFrame]]]) -> list[LookupTable]:
    """Return the tables that chains of transformations look rows up in."""
    found = (step.table for chain in chains for step in chain if isinstance(step, Lookup))
    return list(dict.fromkeys(found))


def refreshed(frame: DataFrame) -> DataFrame:
    """Return a DataFrame that reads what is there now: one of files keeps a list of those that it found once."""
    if hasattr(frame, "_jdf"):
        frame._jdf.queryExecution().analyzed().refresh()
    return frame.select("*")


def _nullable(schema: StructType) -> StructType:
    """Return columns that may all be null, as another version's may."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(one.name, one.dataType) for one in schema])
