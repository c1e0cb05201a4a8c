"""Whatever runs next, results are the same; what a policy needs of the session is asked for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from exact_helpers import NOON, SECOND, Bench, PiecewiseSource
from pyspark.sql import SparkSession

import transom as tm
from transom.api.app import App
from transom.engine.spark.session import require_pools
from transom.sinks.inmemory import MemorySink

STREAMS = 3


def results(spark: SparkSession, place: Path, **settings: Any) -> list[Any]:
    sources = [PiecewiseSource("k int, at timestamp", (25,)) for _ in range(STREAMS)]
    for number, source in enumerate(sources):
        source.add([(i % (number + 2), NOON + i * SECOND) for i in range(100)])

    def define(app: App, sink: MemorySink) -> None:
        for number, source in enumerate(sources):
            stream = app.stream(source, event_time="at", watermark=tm.watermark("3 seconds", max_ahead=None))
            stream.group_by("k").window(f"{5 * number + 5} seconds").agg(n=tm.count()).to(sink, f"q{number}")

    bench = Bench(spark, place, define, **settings)
    progress = bench.run()
    assert progress is not None
    assert [stream.rows for stream in progress.streams] == [100] * STREAMS
    return [bench.rows(f"q{number}") for number in range(STREAMS)]


@pytest.mark.slow
def test_results_do_not_depend_on_the_policy(spark: SparkSession, tmp_path: Path) -> None:
    expected = results(spark, tmp_path / "default")
    assert all(len(rows) >= 14 for rows in expected)
    for policy in ("fair", "streambox"):  # the others in virtual time, in test_virtual_loop.py
        assert results(spark, tmp_path / policy, policy=policy) == expected


def test_an_unknown_policy_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(tm.DefinitionError, match="there is no 'klinker'"):
        tm.App(spark, tmp_path, policy="klinker")
    with pytest.raises(tm.DefinitionError, match="memory_bound"):
        tm.App(spark, tmp_path, memory_bound=1.2)
    with pytest.raises(tm.DefinitionError, match="cycle"):
        tm.App(spark, tmp_path, cycle="-1 second")


@pytest.mark.parametrize("session", [object(), SimpleNamespace(_jsparkSession=1, sparkContext=None)])
def test_fair_needs_pools(session: Any) -> None:
    if hasattr(session, "sparkContext"):
        session.sparkContext = SimpleNamespace(getConf=dict)
    with pytest.raises(tm.SessionError, match="FAIR"):
        require_pools(session)
