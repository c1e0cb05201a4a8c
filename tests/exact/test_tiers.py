"""The standing property with partials on the executors: in files and merged there, or moved to and fro."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource, examples, few_examples, plain_rows
from hypothesis import given
from hypothesis import strategies as st
from oracle import differences, expected
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from test_random import CLOSE, EXAMPLES, SCHEMA, Example, counted, run_example
from test_session_windows import SCHEMA as KJX
from test_session_windows import random_rows, simulated

import transom as tm
from transom.engine.control import tiers

pytestmark = pytest.mark.usefixtures("compiled_once")


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


@few_examples(1)
@given(EXAMPLES)
def test_partials_in_files_give_what_plain_spark_gives(interpreted: SparkSession, example: Example) -> None:
    check(interpreted, example, lambda run: {"tier": "cluster", "key_groups": 3})


@pytest.mark.slow
@examples(30)
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


@few_examples(2)
@given(EXAMPLES, TURNS)
@pytest.mark.slow
def test_partials_that_change_their_tier(interpreted: SparkSession, example: Example, turns: list[Any]) -> None:
    check_turns(interpreted, example, turns)


@pytest.mark.slow
@examples(20)
@given(EXAMPLES, TURNS)
def test_partials_that_change_their_tier_at_length(
    interpreted: SparkSession, example: Example, turns: list[Any]
) -> None:
    check_turns(interpreted, example, turns)


def check_sessions(spark: SparkSession, directory: Any, seed: int, turns: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """Compare sessions, some beside other windows and keys, with rows late and in time, with a simulation of each row.

    Args:
        spark: The session.
        directory: Where the checkpoint is made.
        seed: Of rows, cuts, gaps and crashes.
        turns: Settings of the lives of the application, but for the last one.

    Returns:
        How many rows were late, which with an odd seed may be none, and how often stores had partials of sessions in
        files. If that is all that they are to have, nothing but times was on the driver.
    """
    draw = random.Random(seed)
    gaps = draw.sample(range(2, 20 if seed % 2 else 10), 2)
    source = PiecewiseSource(KJX, tuple(draw.randrange(5, 30) for _ in range(4)))
    rows = random_rows(draw, 150, (draw.choice([3, 14]) if seed % 2 else 14) * SECOND)
    delay = draw.choice(["2 seconds", "10 seconds"]) if seed % 2 else "2 seconds"

    def define(app: tm.App, sink: Any) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark(delay, max_ahead=None))
        values = {"n": tm.count(), "xs": tm.collect_list("x"), "twice": tm.sum(F.col("x") * 2)}
        both = stream.group_by("k", "j").window(
            tm.session_window(gaps[0] * SECOND), tm.session_window(gaps[1] * SECOND), "7 seconds"
        )
        both.agg(**values).to(sink, "both")
        stream.group_by("k").window(tm.session_window(gaps[1] * SECOND)).agg(n=tm.count()).to(sink, "coarse")
        cut = tm.session_window(gaps[0] * SECOND, at_most=(2 * gaps[0] + 1) * SECOND)
        stream.group_by("k").window(cut).agg(n=tm.count()).to(sink, "cut")
        ended = tm.session_window(gaps[0] * SECOND, at_most=(2 * gaps[0] + 1) * SECOND, ends_when="x >= 80")
        stream.group_by("k").window(ended).agg(n=tm.count(), xs=tm.sum("x")).to(sink, "ended")
        stream.where("x < 50").window(tm.session_window(gaps[0] * SECOND)).agg(n=tm.count()).to(sink, "few")
        early = stream.group_by("k").window("5 seconds", early="2 seconds", lateness="2 seconds")
        early.agg(n=tm.count()).to(sink, "early")

    bench = Bench(spark, directory, define)
    found = 0
    app: tm.App

    def look(step: str) -> None:
        nonlocal found
        if step == "committed":
            bench.clock.advance(SECOND)
        if step == "windows closed" and app._loop is not None:
            stores = [entry.store for entry in app._loop.streams["stream1"].state.stores]
            stores = [store for store in stores if store.sessions.stores]
            found += sum(any(part.feed.sessions is not None for part in store.parts) for store in stores)
            if all(one == CLUSTER for one in turns):
                assert not any(store.holds_states for store in stores)

    for number, life in enumerate([*turns, turns[0]]):
        bench.settings.update(life)
        source.add(rows[number * 150 // len(turns) : (number + 1) * 150 // len(turns)])
        app = bench.app()
        last = number == len(turns)
        crash = None if last else draw.choice([None, (draw.choice(CRASHES), draw.randrange(4))])
        bench.run(last, crash, look, app)
    cuts = bench.cuts_of()
    late = 0
    for query, gap, some, key in (
        ("both", gaps[0], rows, lambda row: row[:2]),
        ("coarse", gaps[1], rows, lambda row: row[:1]),
        ("few", gaps[0], None, lambda row: ()),
        ("cut", gaps[0], rows, lambda row: row[:1]),
        ("ended", gaps[0], rows, lambda row: row[:1]),
    ):
        pieces = [rows[cut.start : cut.end] for cut in cuts]
        if some is None:
            pieces = [[row for row in piece if row[2] < 50] for piece in pieces]
        flat = [row for piece in pieces for row in piece]
        ends = list(itertools.accumulate(map(len, pieces)))
        own = [replace(cut, start=end - len(p), end=end) for cut, end, p in zip(cuts, ends, pieces, strict=True)]
        most = (2 * gap + 1) * SECOND if query in ("cut", "ended") else math.inf
        ends = (lambda row: row[2] >= 80) if query == "ended" else None
        sessions, out = simulated(flat, own, gap * SECOND, key, most, ends)
        late += len(out)
        if query == "ended":
            found_rows = bench.rows(query)
            assert [row[:-1] for row in found_rows] == sorted(((a, b, *k, n) for a, b, k, n in sessions), key=repr)
            assert sum(row[-1] for row in found_rows) == sum(row[2] for row in flat) - sum(row[2] for row in out)
            continue
        if query != "both":
            assert bench.rows(query) == sorted(((a, b, *name, n) for a, b, name, n in sessions), key=repr)
            continue
        wanted = {(a, b, *name, n) for a, b, name, n in [*sessions, *simulated(rows, cuts, gaps[1] * SECOND, key)[0]]}
        actual = {row[:-2] for row in bench.rows("both")}
        assert all((n, twice) == (len(xs), 2 * sum(xs)) for *_, n, xs, twice in bench.rows("both"))
        assert wanted <= actual
        assert all(end - start == 7 * SECOND for start, end, *_ in actual - wanted)
    corrected: Counter[tuple[Any, ...]] = Counter()
    for cut in cuts:
        for k, _, _, at in rows[cut.start : cut.end]:
            end = at // (5 * SECOND) * 5 * SECOND + 5 * SECOND
            corrected[end - 5 * SECOND, end, k] += end + 2 * SECOND > cut.watermark
    latest = plain_rows(bench.sink.latest("early").drop_columns(["revision"]))
    assert {row[:3]: row[3] for row in latest} == {window: n for window, n in corrected.items() if n}
    return late, found


CRASHES = ["cut logged", "windows closed", "job done", "committed", "delivered", "before snapshot", "after snapshot"]
CLUSTER = {"tier": "cluster", "key_groups": 3, "driver_bytes": 1 << 30, "snapshot_bytes": 1 << 20}


def turn(draw: random.Random) -> dict[str, Any]:
    """Return the settings of one life."""
    return {
        "tier": draw.choice(["cluster", "auto", "driver"]),
        "key_groups": draw.randrange(1, 5),
        "driver_bytes": draw.choice([1, 4_000, 1 << 30]),
        "snapshot_bytes": draw.choice([1, 1 << 20]),
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_sessions_are_on_the_executors(interpreted: SparkSession, tmp_path: Any, seed: int) -> None:
    late, found = check_sessions(interpreted, tmp_path, seed, [CLUSTER] * 2)
    assert found > 5
    assert late or seed % 2


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.slow) for seed in range(12)])
def test_sessions_that_change_their_tier(
    interpreted: SparkSession, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(tiers, "REVIEW_EVERY", 1)
    monkeypatch.setattr(tiers, "MOST_FILES", 2)
    draw = random.Random(100 + seed)
    late, found = check_sessions(interpreted, tmp_path, seed, [CLUSTER, *(turn(draw) for _ in range(4))])
    assert found
    assert late or seed % 2


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
            store = app._loop.streams["stream1"].state.stores[0].store
            held.append((len(store.here), len(store.here.keys)))

    bench.run(on_step=look, app=app)
    wanted = Counter(
        (start * SECOND, (start + 5) * SECOND, key)
        for key, at in rows
        for start in range(at // SECOND - 4, at // SECOND + 1)
    )
    assert Counter({row[:3]: row[3] for row in bench.rows("q")}) == wanted
    assert max(rows for rows, _ in held) == 0
    assert len(list(bench.checkpoint.glob("files/*/*"))) <= 12


@pytest.mark.slow
def test_another_number_of_key_groups_at_a_restart(spark: SparkSession, tmp_path: Any) -> None:
    """As on another cluster: keys lie in other groups then, while their windows are open."""
    source = PiecewiseSource("key bigint, at timestamp", (40,))
    rows = [(i % 7, i * SECOND // 8) for i in range(240)]

    def define(app: tm.App, sink: Any) -> None:
        grouped = app.stream(source, event_time="at").group_by("key")
        grouped.window("20 seconds").agg(n=tm.count(), keys=tm.collect_set("key", 2)).to(sink, "q")
        grouped.window(tm.session_window("10 seconds")).agg(n=tm.count()).to(sink, "s")

    bench = Bench(spark, tmp_path, define, tier="cluster")
    for number, groups in enumerate((2, 5, 1)):
        source.add(rows[number * 80 : number * 80 + 80])
        bench.settings["key_groups"] = groups
        bench.run(close_all=groups == 1)
    wanted = Counter((at // SECOND // 20 * 20 * SECOND, key) for key, at in rows)
    assert Counter({(row[0], row[2]): row[3] for row in bench.rows("q")}) == wanted
    assert all(row[4] == [row[2]] for row in bench.rows("q"))
    assert Counter({row[2]: row[3] for row in bench.rows("s")}) == Counter(key for key, _ in rows)


def test_a_tier_that_is_none_is_refused(spark: SparkSession, tmp_path: Any) -> None:
    with pytest.raises(tm.TransomError, match="tier is 'executors'"):
        tm.App(spark, tmp_path, tier="executors")
