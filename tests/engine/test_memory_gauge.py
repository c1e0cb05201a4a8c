"""What the gauge measures is what is in use."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark import StorageLevel
from pyspark.sql import SparkSession

from transom.engine.control.memory import COLLECTED_EVERY, MemoryGauge, Shares, default_limit, resident_bytes

MEGABYTE = 1 << 20


def test_resident_bytes_follow_what_is_allocated() -> None:
    before = resident_bytes()
    held = np.ones(128 * MEGABYTE, np.uint8)
    assert resident_bytes() - before > 100 * MEGABYTE
    assert held.sum() == len(held)


def test_what_is_freed_is_given_back_and_the_jvm_is_asked_now_and_then(spark: SparkSession) -> None:
    gauge = MemoryGauge(spark, resident_bytes() + 200 * MEGABYTE, every=2)
    pieces = [bytes(5_000) for _ in range(40_000)]
    full = gauge.measure()
    last = pieces[-1]  # at the end of the heap, so that freeing alone gives nothing back
    del pieces
    asked: list[int] = []
    gauge._heap = lambda: float(asked.append(1) or 0.5)  # type: ignore[method-assign,func-returns-value]
    assert gauge.measure().heap == full.heap
    assert len(asked) == 0
    assert gauge.measure().driver < full.driver - 0.1
    assert len(asked) == 1
    assert len(last) == 5_000


def test_default_limit_is_a_part_of_the_machine() -> None:
    assert 64 * MEGABYTE < default_limit() < 1 << 50


def test_cache_and_heap_are_measured(spark: SparkSession) -> None:
    gauge = MemoryGauge(spark, 8 << 30, every=1)
    cached = spark.range(2_000_000).selectExpr("uuid() AS text").persist(StorageLevel.MEMORY_ONLY)
    before = gauge.measure()
    cached.count()
    after = gauge.measure()
    cached.unpersist(blocking=True)
    assert after.cache > before.cache + 0.01
    assert gauge.measure().cache < after.cache
    spark.sparkContext._jvm.java.lang.System.gc()  # type: ignore[union-attr]
    assert 0 < gauge.measure().heap < 1
    assert after.driver == pytest.approx(resident_bytes() / (8 << 30), rel=0.2)


@pytest.mark.parametrize("counts", [0.3, 0.9])
def test_the_heap_is_short_only_if_collecting_does_not_help(spark: SparkSession, counts: float) -> None:
    gauge = MemoryGauge(spark, 8 << 30, bound=0.8, every=1)
    held, collected = [0.9], [0]

    def collect() -> None:
        collected[0] += 1
        held[0] = counts

    gauge._old = lambda: held[0]  # type: ignore[method-assign]
    gauge._collect = collect  # type: ignore[method-assign]
    assert [gauge.measure().heap for _ in range(COLLECTED_EVERY)] == [counts] * COLLECTED_EVERY
    assert collected == [1]
    held[0] = 0.9
    gauge.measure()
    gauge.measure()
    assert collected == [2], "again after a minute, not with every look"


def test_the_largest_share_decides() -> None:
    assert Shares(0.1, 0.3, 0.2).largest == 0.3
    assert str(Shares(0.1, 0.3, 0.25)) == "driver 10%, cache 30%, heap 25%"
