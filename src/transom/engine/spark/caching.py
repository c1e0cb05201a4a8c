"""Rows that several jobs read are kept in Spark's cache, those of each user of them apart."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def cached(rows: DataFrame) -> DataFrame:
    """Return rows that are computed once for all jobs that read them, until `unpersist` of what this returns.

    Spark takes frames with the same plan for one, also those of two streams that read the same files. Whoever lets go
    first then takes the rows from the other, and the other's next job puts them into the cache once more, where nobody
    lets go of them. A condition that is always true, another one each time, keeps them apart; it costs nothing, since
    the optimizer removes it.
    """
    mark = uuid.uuid4().hex
    return rows.where(f"'{mark}' = '{mark}'").persist()  # as SQL: Spark warns of such conditions as Columns
