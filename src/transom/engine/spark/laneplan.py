"""The job of a cut without Spark SQL, as a value that travels to tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from transom.native.evaluate import Runner
from transom.native.partials import Grouping
from transom.native.program import Judge


@dataclass(frozen=True)
class LanePlan:
    """What becomes of rows that are in memory.

    Args:
        columns: Of the rows that are read.
        time: Makes their event time.
        branches: What makes the columns that components need of rows with their event time, with these components by
            their place among all.
        components: Their number.
        utc: Whether times without an offset are those of UTC; else they are Spark's.
        made: Makes those columns of which something is made, of the numbers and times of a generator's rows; None where
            rows are read.
    """

    columns: pa.Schema
    time: Runner
    branches: tuple[tuple[Runner, tuple[tuple[int, Grouping], ...]], ...]
    components: int
    utc: bool = False
    made: Runner | None = None

    @property
    def lookups(self) -> frozenset[str]:
        """Names of the tables whose rows have to be given first."""
        return frozenset(name for runner, _ in self.branches for name, _ in runner.awaited.values())

    @property
    def wanted(self) -> frozenset[str]:
        """Columns that are read of which something is made."""
        runners = [self.time, *(runner for runner, _ in self.branches)]
        return frozenset[str]().union(*(runner.program.needed[0] for runner in runners))

    def given(self, rows: Mapping[str, pa.Table]) -> LanePlan | None:
        """Return the same with the rows of tables by name; None where only Spark makes something of them."""
        made = [(runner.given(rows), groupings) for runner, groupings in self.branches]
        known = tuple((runner, groupings) for runner, groupings in made if not isinstance(runner, Judge))
        return replace(self, branches=known) if len(known) == len(made) else None
