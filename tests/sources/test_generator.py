from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from transom.errors import DefinitionError, SourceError
from transom.model.time import ManualClock
from transom.sources.base import PARTITION
from transom.sources.generated import GeneratorSource, generator

SECOND = 1_000_000
COLUMNS = {"at": "event_time", "id": "id", "key": "id % 3"}


def opened(source: GeneratorSource, spark: Any, directory: Path, now: int) -> tuple[GeneratorSource, ManualClock]:
    clock = ManualClock(now)
    source.open(spark, directory, clock)
    return source, clock


@pytest.mark.parametrize("rate", [1, 3, 0.5, 7.25, 1 / 3, 999_983, 5_000_000])
def test_a_row_is_readable_exactly_when_it_is_scheduled(rate: float, spark: Any, tmp_path: Path) -> None:
    source, clock = opened(generator(COLUMNS, rate, start=1000), spark, tmp_path, 999)
    assert source.latest() == 0
    clock.advance(1)
    assert source.latest() >= 1
    clock.advance(20 * SECOND)
    end = source.latest()
    assert end == pytest.approx(20 * rate + 1, abs=rate / 1e6 + 1)
    assert source.ingested_at(0, end) <= clock.now() < source.ingested_at(0, end + 1)
    last = source.read(spark, end - 3, end).selectExpr("unix_micros(at) t", "id").collect()
    assert [(row.t, row.id) for row in last] == [(source.ingested_at(0, i + 1), i) for i in range(end - 3, end)]


def test_the_start_is_kept_in_the_directory(spark: Any, tmp_path: Path) -> None:
    source, _ = opened(generator(COLUMNS, 10), spark, tmp_path, 5 * SECOND)
    assert source.latest() == 1
    source, _ = opened(generator(COLUMNS, 10), spark, tmp_path, 7 * SECOND)
    assert source.latest() == 21
    assert source.ingested_at(0, 1) == 5 * SECOND
    for changed in (generator(COLUMNS, 20), generator(COLUMNS, 10, start=0)):
        with pytest.raises(SourceError, match="Use a new checkpoint"):
            opened(changed, spark, tmp_path, 7 * SECOND)
    text = generator(COLUMNS, 10, start="1970-01-01T00:00:05Z")
    assert opened(text, spark, tmp_path, 7 * SECOND)[0].latest() == 21


def test_far_rows_do_not_overflow(spark: Any, tmp_path: Path) -> None:
    source, _ = opened(generator(COLUMNS, 1_000_000, start=0), spark, tmp_path, 0)
    far = 10**15
    rows = source.read(spark, far, far + 2).selectExpr("unix_micros(at) t").collect()
    assert [row.t for row in rows] == [far, far + 1]


def test_it_ends_for_run_once(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    limited, clock = opened(generator(COLUMNS, 1, rows=5, start=0), spark, tmp_path / "a", 0)
    assert not limited.exhausted(1)
    clock.advance(100 * SECOND)
    assert limited.latest() == 5
    assert limited.exhausted(5)
    endless, clock = opened(generator(COLUMNS, 1, start=0), spark, tmp_path / "b", 9 * SECOND)
    clock.advance(100 * SECOND)
    assert endless.latest() == 110
    assert not endless.exhausted(9)
    assert endless.exhausted(10)


def test_partitions_and_exact_cuts(spark: Any, tmp_path: Path) -> None:
    source, _ = opened(generator(COLUMNS, 10, start=0, partitions=4), spark, tmp_path, 10 * SECOND)
    assert source.cut(0, 7).end == 7
    assert list(source.partitions) == ["0", "1", "2", "3"]
    rows = source.read(spark, 3, 9).collect()
    assert sorted((row.id, row[PARTITION]) for row in rows) == [(i, i % 4) for i in range(3, 9)]


def test_definitions_that_cannot_work(spark: Any, tmp_path: Path) -> None:
    for expression in (
        "rand()",
        "1 + UUID()",
        "current_timestamp()",
        "Current_Date",
        "unix_timestamp( )",
        "sum(id) OVER (ORDER BY id)",
    ):
        with pytest.raises(DefinitionError, match="differs each time"):
            generator({"x": expression}, 1)
    for rate in (0, -1, float("nan"), float("inf"), 1e-9):
        with pytest.raises(DefinitionError):
            generator(COLUMNS, rate)
    for kwargs in ({"rows": -1}, {"partitions": 0}, {"start": "soon"}, {"start": 1.5}):
        with pytest.raises(DefinitionError):
            generator(COLUMNS, 1, **kwargs)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="reserved"):
        generator({PARTITION: "id"}, 1)
    with pytest.raises(SourceError, match="may use id and event_time"):
        opened(generator({"x": "nothing + 1"}, 1), spark, tmp_path, 0)
