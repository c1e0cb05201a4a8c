"""Kills and new queries under overload: what was left out stays so, and no query that wants all rows lacks any."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from overload_world import NOON, SECOND, World
from pyspark.sql import SparkSession

import transom as tm
from transom.api.app import App
from transom.engine.state.shares import Stretch
from transom.engine.streams.cuts import LoggedCut
from transom.errors import DefinitionError
from transom.sinks.inmemory import MemorySink

pytestmark = pytest.mark.usefixtures("compiled_once")


class Killed(BaseException):
    """Ends a run as a kill does."""


@pytest.mark.parametrize("restarted", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_query_that_comes_later_has_no_window_of_which_something_was_left_out(
    restarted: bool, spark: SparkSession, tmp_path: Path
) -> None:
    """Windows whose panes are there may lack rows; nothing later than the largest event time that is believed does."""
    world, whole = World(tmp_path, {0: 400, 6: 2_000, 16: 400}, 30, ahead="3 seconds"), MemorySink()
    app = world.app(spark, snapshot_bytes=1)

    def add() -> None:
        world.stream.window("4 seconds").agg(n=tm.count()).to(whole, "whole")

    if restarted:
        world.clock.at(NOON + 14 * SECOND, app.stop)
        app.run()
        app = world.app(spark)
        add()
    else:
        world.clock.at(NOON + 14 * SECOND, add)
    world.clock.at(NOON + 38 * SECOND, app.stop)
    world.done.append(app.run())
    assert world.dead.get("overload") or restarted
    assert len(whole.rows("whole")) >= 2
    assert {row["n"] for row in whole.rows("whole")} == {1_600}


def test_without_a_bound_on_event_times_a_query_that_wants_all_rows_comes_too_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(tmp_path, {0: 400, 6: 2_000}, 20, ahead=None)
    app = world.app(spark)
    world.clock.at(NOON + 14 * SECOND, app.stop)
    app.run()
    app = world.app(spark)
    world.stream.window("4 seconds").agg(n=tm.count()).to(MemorySink(), "whole")
    with pytest.raises(DefinitionError, match="'whole': rows of its stream were left out"):
        app.run()


def test_what_an_unfinished_cut_leaves_out_is_in_no_window_of_a_query_that_comes_then(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The first cut that leaves out anything is logged and not committed when the query comes."""
    world, whole = World(tmp_path, {0: 400, 6: 2_000, 14: 400}, 22, ahead="3 seconds"), MemorySink()
    app = world.app(spark)

    def on_step(name: str) -> None:
        if name == "job done" and any(cut.left_out for cut in app._loop.cuts.logged.values()):
            raise Killed

    app._on_step = on_step
    world.clock.at(NOON + 14 * SECOND, app.stop)
    with pytest.raises(Killed):
        app.run()
    app = world.app(spark)
    world.stream.window("1 second").agg(n=tm.count()).to(whole, "whole")
    world.clock.at(NOON + 30 * SECOND, app.stop)
    app.run()
    assert len(whole.rows("whole")) >= 5
    assert {row["n"] for row in whole.rows("whole")} == {2_000, 400}


SOON = ("cut logged", "committed")
LATER = ("windows closed", "job done", "partials written", "delivered", "delivery logged")


@pytest.mark.parametrize("step", [*SOON, *(pytest.param(step, marks=pytest.mark.slow) for step in LATER), "snapshot"])
def test_killed_under_overload_it_goes_on_as_logged(step: str, spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, {0: 400, 6: 2_000}, 16)
    logged: dict[int, LoggedCut] = {}
    killed_at = NOON + (11 if step != "snapshot" else 99) * SECOND

    def watch(app: App, may_kill: bool) -> None:
        def on_step(name: str) -> None:
            for cut in app._loop.cuts.logged.values():
                assert logged.setdefault(cut.number, cut) == cut
            if may_kill and name == step and world.clock.now() > killed_at:
                raise Killed

        app._on_step = on_step

    first, second = world.app(spark, snapshot_bytes=1 if step == "snapshot" else 1 << 30), world.app(spark)
    watch(first, True)
    watch(second, False)
    if step == "snapshot":
        world.clock.at(NOON + 11 * SECOND, first.stop)
        first.run()
    else:
        with pytest.raises(Killed):
            first.run()
    world.clock.at(NOON + 30 * SECOND, second.stop)
    second.run()
    kept = [
        moment // SECOND
        for cut in logged.values()
        for moment in world.source.rows(cut.start, cut.end, cut.left_out)["at"].cast(pa.int64()).to_pylist()
    ]
    assert any(cut.left_out for cut in logged.values())
    for end, row in world.results.items():
        assert row["n"] == kept.count(NOON // SECOND + end - 1)
        shed = any(
            cut.shed is not None and any(each.dropped and _over(each, end) for each in cut.shed.stretches)
            for cut in logged.values()
        )
        assert (row["shed_share"] > 0) == shed == (row["shed_rows"] is None)


def _over(stretch: Stretch, end: int) -> bool:
    """Tell whether a stretch may hold rows of the window that ends at a second, by cells of a quarter of a second."""
    cell, edge = SECOND // 4, NOON + end * SECOND
    return stretch.first // cell * cell < edge and -(-stretch.last // cell) * cell > edge - SECOND
