"""The text of an analysed plan, without what differs from run to run: equal texts stand for equal rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def plan_text(df: DataFrame) -> str:
    """Return the analysed plan of a DataFrame as text without the numbers that differ from run to run."""
    if hasattr(df, "_jdf"):
        text = df._jdf.queryExecution().analyzed().toString()
    else:
        explained = df._explain_string(extended=True)  # type: ignore[operator]
        analysed = explained.split("== Analyzed Logical Plan ==\n")[1].split("\n== Optimized")[0]
        text = analysed.partition("\n")[2]  # below the names and types
    return without_numbers(str(text))


def without_numbers(text: str) -> str:
    """Return the text of a plan without the numbers that differ from run to run, and without the paths of tables.

    PySpark gives each DataFrame in `sql("... {df}", df=...)` a name by chance. A table of files is at one path here and
    at another at another site; most readers of Spark do not show it, those of its version 2 do.

    >>> without_numbers("SubqueryAlias _pyspark_0123456789abcdef0123456789abcdef, a#12L")
    'SubqueryAlias _pyspark, a'
    >>> without_numbers("+- RelationV2[id#0L, name#1] parquet file:/data/north/zones,file:/data/my more")
    '+- RelationV2[id, name] parquet'
    """
    text = re.sub(r"(RelationV2\[.*\] \w+) \w+:/.*", r"\1", text)
    text = re.sub(r"\b_pyspark_[0-9a-f]{32}\b", "_pyspark", text)
    return re.sub(r"#\d+L?|plan_id=\d+|\[id=[^\]]*\]|@[0-9a-f]+", "", text).strip()
