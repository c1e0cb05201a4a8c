"""JSON lines: each line that is not blank is one row, or one corrupt record.

Spark's reader takes the first value of a line and drops what comes after it, and it makes several rows, or none, of an
array. So lines are read as text and parsed by `from_json`, the same parser, and what it took is compared with the line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from transom.sources.base import CORRUPT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

LINE, ROW = "_source_line", "_source_row"
_BLANK = rf"NOT startswith({LINE}, '{{') AND trim(BOTH ' \t\r\n' FROM {LINE}) = ''"
_BUT_LAST = f"CAST(substr(CAST({LINE} AS BINARY), 1, octet_length({LINE}) - 1) AS STRING)"
_ENDS_AT_FIRST_BRACE = f"endswith({LINE}, '}}') AND NOT contains({_BUT_LAST}, '}}')"
"""Nothing comes after an object whose closing brace is the first one; tells most lines cheaply. By bytes: functions
that find places in texts count characters."""
_CLOSES_ARRAY = rf"rlike({LINE}, '\\}}\\s*+\\]')"


AS_WRITTEN = "spark.sql.json.enableExactStringParsing"
_PLAIN_OPTIONS = frozenset(
    [
        "timestampformat",
        "timestampntzformat",
        "dateformat",
        "timezone",
        "locale",
        "mode",
        "multiline",
        "encoding",
        "charset",
    ]
)
"""Options that change no token of the text."""


def may_read_plainly(spark: SparkSession, options: Mapping[str, str]) -> bool:
    """Tell whether with these options Spark's reader makes the same of a plain file as `read_json` does.

    Of a number or an object in a column of strings `from_json` gives what Jackson would write; so must the reader.
    """
    alike = str(spark.conf.get(AS_WRITTEN, "true")).lower() == "false"
    return alike and all(name.lower() in _PLAIN_OPTIONS for name in options)


def read_json(
    spark: SparkSession, uris: Sequence[str], schema: StructType, options: Mapping[str, str], metadata: Sequence[str]
) -> DataFrame:
    """Return the rows of JSON lines, with _corrupt_record.

    Args:
        spark: The session.
        uris: The files.
        schema: The columns.
        options: Options of Spark's JSON reader.
        metadata: What of Spark's `_metadata` of the files is kept, by its names.
    """
    from pyspark.sql import functions as F

    lines = spark.read.format("text").options(**options).load(list(uris))
    about = [F.col(f"_metadata.{name}").alias(name) for name in metadata]
    lines = lines.select(F.col("value").alias(LINE), *about).where(f"NOT ({_BLANK})")
    return parse_json(lines, schema, options, metadata)


def parse_json(lines: DataFrame, schema: StructType, options: Mapping[str, str], kept: Sequence[str]) -> DataFrame:
    """Return the rows of texts, each of them one row or one corrupt record.

    Args:
        lines: Has the texts in the column `LINE`.
        schema: The columns.
        options: Options of Spark's JSON reader.
        kept: Other columns of `lines` that the rows have, too.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    parsing = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    columns = StructType([*schema.fields, StructField(CORRUPT, StringType(), True)])
    rows = lines.withColumn(ROW, F.from_json(LINE, columns, parsing))
    # An array with the line in it has one element, unless a value or a closing bracket comes after the first value;
    # with a closing bracket there, an object with the line in it is none.
    only = F.size(F.from_json(F.concat(F.lit("["), LINE, F.lit("\n]")), "array<struct<>>", parsing)) == 1
    inside = F.from_json(F.concat(F.lit('{"v":'), LINE, F.lit("\n}")), "v struct<>", parsing).getField("v")
    alone = F.coalesce(only, F.lit(False)) & (~F.expr(_CLOSES_ARRAY) | inside.isNotNull())
    sound = (F.expr(_ENDS_AT_FIRST_BRACE) | alone) & F.expr(f"is_valid_utf8({LINE})")
    row = F.col(ROW)
    corrupt = F.when(row.isNull() | row.getField(CORRUPT).isNotNull() | ~sound, F.expr(f"make_valid_utf8({LINE})"))
    fields = [row.getField(name).alias(name) for name in schema.names]
    return rows.select(*fields, corrupt.alias(CORRUPT), *kept)
