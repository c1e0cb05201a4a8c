"""Overload comes and goes in virtual time: results stay in time, and what was left out is told to the row."""

from __future__ import annotations

from pathlib import Path

import pytest
from overload_world import EVERY, LIMIT, NOON, SECOND, World
from pyspark.sql import SparkSession

import transom as tm
from transom.sinks.inmemory import MemorySink

pytestmark = pytest.mark.usefixtures("compiled_once")


def test_overload_comes_and_goes(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, {0: 400, 8: 2_000, 24: 400}, 34).run(spark)
    assert world.read + world.dead["overload"] == world.offered
    assert len(world.notes) == 2
    assert "pieces are left out" in world.notes[0]
    assert "reads everything again" in world.notes[1]
    assert max(world.took_from(0)) <= LIMIT + EVERY / SECOND
    offered = {end: 2_000 if 8 < end <= 24 else 400 for end in world.results}
    for end, row in world.results.items():
        near = 0.1 if end == 25 else 0.05  # pieces with rows from before and after the change are taken to be even
        assert row["shed_share"] == pytest.approx(1 - row["n"] / offered[end], abs=near)
        assert row["shed_rows"] == (None if row["shed_share"] else 0)
    before, during, after = (
        [row for end, row in world.results.items() if first < end <= last]
        for first, last in ((0, 8), (12, 23), (29, 33))
    )
    for row in (*before, *after):
        assert (row["n"], row["shed_share"]) == (400, 0.0)
    least = min(row["n"] for row in during) / 2_000
    assert least >= 0.8 / 2
    assert sum(row["n"] for row in during) >= 0.8 / 2 * 2_000 * len(during)


@pytest.mark.parametrize(
    "rate, noise, most", [(700, 0.1, 0), (2_000, 0.1, 1), pytest.param(1_100, 0.3, 1, marks=pytest.mark.slow)]
)
def test_noise_makes_nothing_flap(rate: int, noise: float, most: int, spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, {0: 400, 8: rate}, 40, noise=noise).run(spark)
    assert len(world.notes) <= 2 * most
    assert bool(world.dead.get("overload")) == bool(most)
    assert max(world.took_from(9)) <= LIMIT


@pytest.mark.parametrize("other, window", [(300, "1 second"), pytest.param(300, "10 seconds", marks=pytest.mark.slow)])
def test_results_are_in_time_beside_another_stream(
    other: int, window: str, spark: SparkSession, tmp_path: Path
) -> None:
    """It has the one slot for a part of the time, and its runs are waited for."""
    world = World(tmp_path, {0: 400, 8: 2_000}, 40, noise=0.1, window=window, other=other).run(spark)
    late = [took for took in world.took_from(12) if took > LIMIT]
    assert len(late) <= 1
    assert world.read + world.dead["overload"] == world.offered


def test_nothing_is_left_out_where_that_would_not_help(spark: SparkSession, tmp_path: Path) -> None:
    """A job without rows takes as long as the limit."""
    world = World(tmp_path, {0: 400, 8: 2_000}, 14, limit="100 ms").run(spark)
    assert "overload" not in world.dead
    (note,) = world.notes
    assert "it would not help. State a longer limit" in note


def test_late_and_bad_rows_are_counted_apart(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, {0: 400, 6: 2_000, 14: 0}, 16, odd=True).run(spark)
    world.app(spark).run(once=True, close_all=True)
    in_windows = sum(row["n"] for row in world.results.values())
    assert world.read + world.dead["overload"] == world.offered
    assert in_windows + world.dead["late"] + world.dead["null event time"] == world.read
    # A job does about 900 rows a second; the last ten seconds have some with 400.
    assert world.shares[0] == 0
    assert 0.3 < max(world.shares) < 0.7


@pytest.mark.parametrize("jump", [-3_600, 3_600])
def test_a_wall_clock_that_is_set_leaves_nothing_out(jump: int, spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, {0: 400}, 20)
    world.clock.at(NOON + 12 * SECOND, lambda: world.clock.step(jump * SECOND))
    assert "overload" not in world.run(spark).dead


def test_nothing_is_left_out_of_what_came_before_the_start(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, {0: 0}, 30)
    world.clock.wait(NOON + 2 * SECOND, lambda now: False)
    for _ in range(20):
        world._arrive(world._rows(world.clock.now() - SECOND, 400))
    assert "overload" not in world.run(spark, max_rows_per_cut=500).dead
    assert world.read == world.offered


def test_all_input_at_once_is_read_whole(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, {0: 0}, 1)
    for _ in range(20):
        world._arrive(world._rows(NOON, 400))
    world.done.append(world.app(spark, max_rows_per_cut=400).run(once=True))
    assert world.read == world.offered == 8_000


def test_a_query_that_wants_all_rows_gets_them(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, {0: 400, 6: 1_500}, 14)
    app = world.app(spark)
    app._streams["clicks"].window("2 seconds").agg(n=tm.count()).to(MemorySink(), "all")
    world.clock.at(NOON + 20 * SECOND, app.stop)
    world.done.append(app.run(on_progress=lambda progress: world.notes.extend(progress.notes)))
    assert "overload" not in world.dead
    assert sum("since all wants all rows" in note for note in world.notes) == 1


def test_what_may_not_be_left_out_is_logged_and_planned_as_ever(spark: SparkSession, tmp_path: Path) -> None:
    cuts = {}
    for name, within in (("shed", {"on_overload": "shed"}), ("delay", {"on_overload": "delay"}), ("plain", {})):
        world = World(tmp_path / name, {0: 400}, 5, within=within)
        app = world.app(spark)
        logged = cuts.setdefault(name, [])
        app._on_step = lambda step, app=app, logged=logged: logged.extend(
            cut.to_json() for cut in app._loop.cuts.logged.values() if step == "cut logged"
        )
        world.clock.at(NOON + 8 * SECOND, app.stop)
        world.done.append(app.run())
    assert cuts["plain"] == cuts["delay"]
    assert not any("shed" in cut for cut in cuts["delay"])
    assert all(cut["shed"]["units"] == () for cut in cuts["shed"] if cut["start"] != cut["end"])
