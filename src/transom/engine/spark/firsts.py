"""The first row of each key within a time, whatever the cuts were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from transom.engine.spark.columns import TIME, is_case_sensitive, quoted
from transom.errors import DefinitionError
from transom.model.time import Micros

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LAST, _FOUND = "_last", "_found"


def keys_in(names: Sequence[str], rows: DataFrame) -> tuple[str, ...]:
    """Return keys as the columns of some rows are called.

    Raises:
        DefinitionError: There is no such column.
    """
    case_sensitive = is_case_sensitive(rows)
    found = []
    for name in names:
        same = [c for c in rows.columns if c == name or (not case_sensitive and c.lower() == name.lower())]
        if not same or same[0] == TIME:
            columns = ", ".join(column for column in rows.columns if column != TIME)
            raise DefinitionError(f"deduplicate: there is no column {name!r}.", f"The columns are {columns}.")
        found.append(same[0])
    return tuple(found)


def first_rows(rows: DataFrame, kept: DataFrame, keys: Sequence[str], within: Micros) -> DataFrame:
    """Return the rows that are the first of their keys for a time.

    In the order of event times, and of the values of the other columns where these are equal, a row stays unless one
    of its keys that stayed is less than `within` older. Null is a value like any other.

    Args:
        rows: All rows of a span of event time, with TIME.
        kept: Keys and TIME of rows before it that stayed.
        keys: Columns of both.
        within: The time.
    """
    from pyspark.sql import functions as F

    groups = [F.col(quoted(key)).alias(f"k{i}") for i, key in enumerate(keys)]
    others = [name for name in rows.columns if name not in (*keys, TIME)]
    row = F.struct(F.col(TIME).alias("t"), *(F.col(quoted(name)).alias(f"c{i}") for i, name in enumerate(others)))
    new = rows.select(*groups, row.alias("row"), F.lit(None).cast("bigint").alias(_LAST))
    old = kept.select(*groups, F.lit(None).cast(new.schema["row"].dataType).alias("row"), F.col(TIME).alias(_LAST))
    by_key = new.union(old).groupBy(*(f"k{i}" for i in range(len(keys))))
    grouped = by_key.agg(F.max(_LAST).alias(_LAST), F.array_sort(F.collect_list("row")).alias("rows"))
    stays = f"s.last IS NULL OR r.t - s.last >= {within}L"
    after = f"IF({stays}, named_struct('last', r.t, 'found', concat(s.found, array(r))), s)"
    start = f"named_struct('last', {_LAST}, 'found', slice(rows, 1, 0))"
    found = grouped.withColumn(_FOUND, F.expr(f"aggregate(rows, {start}, (s, r) -> {after}, s -> s.found)"))
    one = found.select("*", F.explode(_FOUND).alias("one"))
    columns = {key: F.col(f"k{i}") for i, key in enumerate(keys)}
    columns |= {name: F.col(f"one.c{i}") for i, name in enumerate(others)} | {TIME: F.col("one.t")}
    return one.select(*(columns[name].alias(name) for name in rows.columns))
