"""The standing property with partials on the executors: in files and merged there, or moved to and fro."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource, examples, few_examples
from hypothesis import given
from hypothesis import strategies as st
from oracle import differences, expected
from pyspark.sql import SparkSession
from test_random import CLOSE, EXAMPLES, SCHEMA, Example, counted, run_example

import transom as tm
from transom.engine import tiers


def check(spark: SparkSession, example: Example, change: Callable[[int], dict[str, Any]]) -> int:
    """Compare with plain Spark batch; return the largest number of files that stores had."""
    batches = {f"q{i}": query.batch() for i, query in enumerate(example.queries)}
    most = 0

    def look(bench: Bench, step: str) -> None:
        nonlocal most
        most = max(most, sum(1 for _ in bench.checkpoint.glob("files/*/*.*")))

    bench, read = run_example(spark, example, True, change, look)
    wanted = expected(spark, PiecewiseSource(SCHEMA).schema, read, "at", batches)
    for i, query in enumerate(example.queries):
        actual = bench.sink.latest(f"q{i}")
        if actual is not None and query.updates:
            actual = actual.drop_columns(["revision"])
        assert differences(actual, wanted[f"q{i}"], len(query.keys), CLOSE) == [], query
    if example.chained:
        assert Counter(bench.rows("chained")) == counted(wanted["q0"])
    return most


@few_examples(3)
@given(EXAMPLES)
def test_partials_in_files_give_what_plain_spark_gives(interpreted: SparkSession, example: Example) -> None:
    check(interpreted, example, lambda run: {"tier": "cluster", "key_groups": 3})


@pytest.mark.slow
@examples(100)
@given(EXAMPLES)
def test_partials_in_files_give_what_plain_spark_gives_at_length(interpreted: SparkSession, example: Example) -> None:
    check(interpreted, example, lambda run: {"tier": "cluster", "key_groups": 3})


TURNS = st.lists(
    st.fixed_dictionaries(
        {
            "tier": st.sampled_from(["cluster", "auto", "driver"]),
            "key_groups": st.integers(1, 4),
            "driver_bytes": st.sampled_from([1, 4_000, 1 << 30]),
            "snapshot_bytes": st.sampled_from([1, 1 << 20]),
        }
    ),
    min_size=4,
    max_size=4,
)


def check_turns(spark: SparkSession, example: Example, turns: list[dict[str, Any]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiers, "REVIEW_EVERY", 1)
        patch.setattr(tiers, "MOST_FILES", 2)
        check(spark, example, lambda run: turns[run])


@few_examples(3)
@given(EXAMPLES, TURNS)
def test_partials_that_change_their_tier(interpreted: SparkSession, example: Example, turns: list[Any]) -> None:
    check_turns(interpreted, example, turns)


@pytest.mark.slow
@examples(60)
@given(EXAMPLES, TURNS)
def test_partials_that_change_their_tier_at_length(
    interpreted: SparkSession, example: Example, turns: list[Any]
) -> None:
    check_turns(interpreted, example, turns)


def test_what_no_window_needs_goes(spark: SparkSession, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred windows one after the other: the driver holds no pane, and few files are left."""
    monkeypatch.setattr(tiers, "MOST_FILES", 4)
    source = PiecewiseSource("key bigint, at timestamp", (40,))
    rows = [(i % 7, i * SECOND // 4) for i in range(400)]
    source.add(rows)

    def define(app: tm.App, sink: Any) -> None:
        grouped = app.stream(source, event_time="at").group_by("key")
        grouped.window(tm.sliding("5 seconds", "1 second")).agg(n=tm.count()).to(sink, "q")

    bench = Bench(spark, tmp_path, define, tier="cluster", key_groups=2)
    app = bench.app()
    held: list[tuple[int, int]] = []

    def look(step: str) -> None:
        if step == "windows closed" and app._loop is not None:
            store = app._loop._streams["stream1"].state.stores[0].store
            held.append((len(store), len(store.keys)))

    bench.run(on_step=look, app=app)
    wanted = Counter(
        (start * SECOND, (start + 5) * SECOND, key)
        for key, at in rows
        for start in range(at // SECOND - 4, at // SECOND + 1)
    )
    assert Counter({row[:3]: row[3] for row in bench.rows("q")}) == wanted
    assert max(rows for rows, _ in held) == 0
    assert len(list(bench.checkpoint.glob("files/*/*"))) <= 12


def test_a_tier_that_is_none_is_refused(spark: SparkSession, tmp_path: Any) -> None:
    with pytest.raises(tm.TransomError, match="tier is 'executors'"):
        tm.App(spark, tmp_path, tier="executors")
