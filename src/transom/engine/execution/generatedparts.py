"""Parts of generators in a task of a cut: ranges of rows, which are made where they are aggregated."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from transom.engine.execution.splits import Asked, Gathering, plan_of
from transom.engine.spark.laneplan import LanePlan
from transom.native.evaluate import Runner
from transom.native.program import Judge
from transom.native.schedules import EVENT_TIME, Schedule
from transom.native.values import UncertainError
from transom.sources.ranges import range_name

BLOCK_ROWS = 65_536
"""Rows that are made together."""
PART_ROWS = 262_144
"""A part has at most so many rows; Spark judges it whole."""


@dataclass(frozen=True)
class GeneratedPart:
    """Rows `first` to `last` - 1, which are a unit of the source."""

    first: int
    last: int
    whole: bool = True

    @property
    def unit(self) -> str:
        """Its name as one of the source."""
        return range_name(self.first, self.last)


@dataclass(frozen=True)
class Generating:
    """What tasks need to know of a generator besides their parts."""

    schedule: Schedule
    partitions: int
    arrivals: bool
    """Whether somebody asks when rows arrived."""


def parts_between(first: int, last: int, tasks: int) -> list[GeneratedPart]:
    """Return the parts in which rows are made: as many for each task, of about the same size.

    >>> [(part.first, part.last) for part in parts_between(10, 15, 2)]
    [(10, 12), (12, 15)]
    >>> len(parts_between(0, 750_000, 2)), len(parts_between(0, 1, 2))
    (4, 1)
    """
    rows = last - first
    count = min(rows, tasks * -(-rows // (tasks * PART_ROWS)))
    edges = [first + rows * place // count for place in range(count + 1)]
    return [GeneratedPart(begin, end) for begin, end in itertools.pairwise(edges)]


def of_generated(
    made: Generating, asked: Asked, parts: Sequence[GeneratedPart]
) -> Iterator[tuple[GeneratedPart, Gathering | None]]:
    """Yield what is made of the rows of parts; None where Spark has to judge."""
    plan = plan_of(asked.plan)
    for part in parts:
        mine = asked.gathering()
        try:
            gather(mine, plan, made, part.first, part.last)
        except UncertainError:
            yield part, None
        else:
            yield part, mine


def gather(mine: Gathering, plan: LanePlan, made: Generating, first: int, last: int) -> None:
    """Make rows `first` to `last` - 1, and take them.

    Raises:
        UncertainError: Spark has to judge.
    """
    for begin in range(first, last, BLOCK_ROWS):
        numbers = made.schedule.between(begin, min(begin + BLOCK_ROWS, last))
        row, time = numbers.column(0).to_numpy(), numbers.column(EVENT_TIME).cast(pa.int64()).to_numpy()
        of = row % made.partitions if made.partitions > 1 else None
        mine.take(_rows(plan, numbers), of, time if made.arrivals else None)


def _rows(plan: LanePlan, numbers: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns of rows; those that nobody needs are null.

    Raises:
        UncertainError: Spark has to make them.
    """
    assert isinstance(plan.made, Runner)
    found = plan.made(numbers)
    if isinstance(found, Judge):
        raise UncertainError(found.why)
    columns = [
        found.column(field.name) if field.name in found.schema.names else pa.nulls(len(numbers), field.type)
        for field in plan.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=plan.columns.names)
