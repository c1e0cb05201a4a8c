"""The suite that every source passes: the same offsets give the same rows, for ever."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from transom.model.time import ManualClock
from transom.sources.base import ARRIVAL, CORRUPT, ORIGIN, PARTITION, Divisible, Source, Unit, can_leave_out


@dataclass
class SourceCase:
    """A source that the suite tests.

    Args:
        make: Returns a source over the data, as often as wanted. A column `id` numbers its rows 0, 1, 2, ...
        grow: Adds several rows to the data, in two indivisible units or more, or moves the clock so that they come.
        unit: Rows of the largest indivisible unit, such as a file.
        generated: Whether rows come with the time, so that nobody knows whether all were read.
    """

    make: Callable[[], Source]
    grow: Callable[[ManualClock], None]
    unit: int
    generated: bool = False


def collect(source: Source, spark: Any, start: Any, end: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a range, sorted, and check the columns that come with them."""
    frame = source.read(spark, start, end)
    optional = [name for name in frame.columns if name in (CORRUPT, PARTITION, ARRIVAL, ORIGIN)]
    assert frame.columns == [*source.schema.names, *optional]
    fields = [(field.name, field.dataType) for field in frame.schema.fields][: len(source.schema.names)]
    assert fields == [(field.name, field.dataType) for field in source.schema.fields]
    rows = [tuple(row) for row in frame.collect()]
    if PARTITION in optional:
        assert {row[frame.columns.index(PARTITION)] for row in rows} <= set(range(len(source.partitions)))
    else:
        assert len(source.partitions) == 1
    if CORRUPT in optional:
        assert {row[frame.columns.index(CORRUPT)] for row in rows} <= {None}
    if rows:
        newest = max(row[frame.columns.index(ARRIVAL)] for row in rows)
        assert 0 <= source.ingested_at(start, end) - newest < 1_000, "Spark knows a file's time to the millisecond"
    return sorted(rows)


def partitions_of(source: Source, spark: Any, start: Any, end: Any) -> set[int]:
    """Return the source partitions of the rows of a range."""
    frame = source.read(spark, start, end)
    column = PARTITION if PARTITION in frame.columns else "0"
    return {row[0] for row in frame.selectExpr(column).distinct().collect()}


def left(source: Source, spark: Any, span: tuple[Any, Any], units: Sequence[Unit]) -> list[int]:
    """Return the ids of the rows of a range without some units."""
    frame = source.read(spark, *span, [unit.name for unit in units])
    return [id for (id,) in frame.select("id").collect()]


class SourceSuite:
    """Tests that every source passes; a subclass, whose name begins with Test, has the fixtures `case` and `spark`.

    `case` returns a `SourceCase`, `spark` a Spark session.
    """

    def test_the_same_offsets_give_the_same_rows(self, case: SourceCase, tmp_path: Path, spark: Any) -> None:
        """Ranges concatenate, in cuts of any size, and stay what they are when data come and the source is reopened."""
        directory, clock = tmp_path / "source-state", ManualClock(0)
        directory.mkdir()
        source = case.make()
        source.open(spark, directory, clock)
        assert source.describe()
        assert "\n" not in source.describe()

        begin = source.start()
        while source.latest() == begin:
            case.grow(clock)
        middle = source.latest()
        case.grow(clock)
        end = source.latest()
        assert middle != end
        assert source.latest() == end
        assert all(json.loads(json.dumps(offset)) == offset for offset in (begin, middle, end))

        # Ranges of cuts are within the limit, except for one unit, and concatenate to the whole.
        for limit in (1, case.unit, 2 * case.unit + 1, 10**9):
            position, pieces, total = begin, [], 0
            while position != end:
                cut = source.cut(position, limit)
                assert cut.end != position
                assert cut.rows <= max(limit, case.unit)
                total += cut.rows
                pieces.append((position, cut.end))
                position = cut.end
            assert source.cut(position, limit).end == end
            assert source.cut(position, limit).rows == 0
            if limit == 2 * case.unit + 1:
                halves = pieces
        whole = collect(source, spark, begin, end)
        assert total == len(whole) == len(set(whole))
        ids = [row[source.schema.names.index("id")] for row in whole]
        assert ids == list(range(len(whole)))
        parts = [row for first, last in halves[:2] for row in collect(source, spark, first, last)]
        parts += collect(source, spark, halves[1][1], end)
        assert sorted(parts) == whole

        # What can be left out, is: any unit, and together they are all of it.
        if can_leave_out(source):
            divided = cast(Divisible, source)
            units = [unit for first, last in halves for unit in divided.units(first, last)]
            even, odd, none = (left(source, spark, (begin, end), some) for some in (units[1::2], units[::2], units))
            assert none == []
            assert sorted(even + odd) == ids
            assert {unit.partition for unit in units} == partitions_of(source, spark, begin, end)

        # Which partitions have rows is known without reading them.
        for start in (begin, middle, end):
            assert source.waiting(start).partitions == partitions_of(source, spark, start, end)
            assert source.waiting(start).at == clock.monotonic()

        # Nothing is an empty DataFrame of the same columns.
        assert collect(source, spark, middle, middle) == []
        assert source.unreadable(spark, begin, end) == {}
        assert source.same_rows(begin, end)
        assert source.ingested_at(begin, middle) <= source.ingested_at(begin, end)
        assert source.exhausted(end) or case.generated
        assert not source.exhausted(begin) or case.generated
        source.release(middle)
        before = collect(source, spark, middle, end)
        source.close()

        # The same directory gives the same rows for the same offsets.
        again = case.make()
        again.open(spark, directory, clock)
        assert again.latest() == end
        assert collect(again, spark, middle, end) == before
        assert collect(again, spark, begin, end) == whole
        case.grow(clock)
        assert again.latest() != end
        assert collect(again, spark, middle, end) == before
        again.close()
