"""The job of a cut without Spark SQL, as a value that travels to tasks."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from transom.native.evaluate import Runner
from transom.native.partials import Grouping


@dataclass(frozen=True)
class LanePlan:
    """What becomes of rows that are in memory.

    Args:
        columns: Of the rows that are read.
        time: Makes their event time.
        branches: What makes the columns that components need of rows with their event time, with these components by
            their place among all.
        components: Their number.
    """

    columns: pa.Schema
    time: Runner
    branches: tuple[tuple[Runner, tuple[tuple[int, Grouping], ...]], ...]
    components: int
