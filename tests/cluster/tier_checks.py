"""What is looked at of partials on the executors of a cluster; see `cluster_checks.py`."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from unittest import mock

from executors import await_executors, kill
from pyspark.sql import SparkSession

import transom as tm
from transom.engine.control.tiers import Tiers, migrate
from transom.engine.placed import placed
from transom.engine.placed.files import here
from transom.engine.placed.outlasting import outlasting
from transom.model.time import MICROS_PER_SECOND, SystemClock
from transom.placement.balance import Move
from transom.placement.migration import Strategy

WAIT = 600 * MICROS_PER_SECOND
"""For executors to come and go."""


def windows(
    spark: SparkSession,
    kind: str,
    at_commit: Callable[[int], None] = lambda commits: None,
    with_app: Callable[[tm.App], None] = lambda app: None,
    **settings: Any,
) -> tuple[list[dict[str, Any]], Any]:
    """Run an application over 4,000 rows of 500 keys in 8 cuts, with the partials of windows and sessions in a tier.

    Args:
        spark: The session.
        kind: The tier.
        at_commit: Called with the number of commits at each.
        with_app: Called with the application before it runs.
        settings: More of its settings.

    Returns:
        The results, and the progress of the stream at the end.
    """
    source = tm.sources.memory("key bigint, value bigint, at timestamp")
    source.add([((i * 7919) % 500, i % 13, datetime.fromtimestamp(i / 100, UTC)) for i in range(4_000)])
    sink = tm.sinks.memory()
    with tempfile.TemporaryDirectory() as directory:
        settings = {"max_rows_per_cut": 500, **settings}
        app = tm.App(spark, directory, tier=kind, key_groups=6, **settings)
        stream = app.stream(source, event_time="at")
        query = stream.group_by("key").window(tm.sliding("10 seconds", "5 seconds"))
        query.agg(n=tm.count(), total=tm.sum("value")).to(sink, "q")
        sessions = stream.group_by(ten="key div 10").window(tm.session_window("700 milliseconds"))
        sessions.agg(n=tm.count(), total=tm.sum("value")).to(sink, "sessions")
        commits = 0

        def step(name: str) -> None:
            nonlocal commits
            if name == "committed":
                commits += 1
                at_commit(commits)

        app._on_step = step
        with_app(app)
        progress = app.run(once=True, close_all=True)
    found = []
    for name, key in (("q", "key"), ("sessions", "ten")):
        found += sink.to_table(name).sort_by([("window_start", "ascending"), (key, "ascending")]).to_pylist()
    return found, progress.streams[0]


def elastic(spark: SparkSession) -> dict[str, Any]:
    """An application begins on two executors; a third comes, and then one of the first is to go."""
    context: Any = spark.sparkContext._jsc.sc()
    first = placed.executors(spark)[0].id
    context.killExecutors(spark.sparkContext._jvm.PythonUtils.toSeq([first]))
    began = await_executors(spark, first, 2)
    gone: list[str] = []

    def change(commits: int) -> None:
        if commits == 2:
            nowhere = spark.sparkContext._jvm.PythonUtils.toScalaMap({})
            context.requestTotalExecutors(3, 0, nowhere)
            await_executors(spark, first, 3)
        if commits == 4:
            gone.append(began[0])
            decommission(spark, began[0])

    found, stream = windows(spark, "cluster", change)
    return {
        "same": found == plain_windows(spark),
        "began": began,
        "gone": gone,
        "groups": stream.key_groups,
        "moved": stream.moved_groups,
        "lost": list(stream.lost_executors),
    }


def growing(spark: SparkSession) -> dict[str, Any]:
    """An application begins on one executor of three, as two are ended; see `grows`."""
    _, other, third = outlasting(lambda: _as_many(spark, 3), WAIT, SystemClock())
    end = spark.sparkContext._jvm.PythonUtils.toSeq([other, third])
    spark.sparkContext._jsc.sc().killExecutors(end)
    outlasting(lambda: _as_many(spark, 1), WAIT, SystemClock())
    found = grows(spark, 3)
    nowhere = spark.sparkContext._jvm.PythonUtils.toScalaMap({})
    spark.sparkContext._jsc.sc().requestTotalExecutors(3, 0, nowhere)
    return found


def grows(spark: SparkSession, most: int, strike: bool = False) -> dict[str, Any]:
    """An application begins on one executor, asks for more while it runs, and gives them back: one on the way.

    Args:
        spark: The session.
        most: As many as it asks for.
        strike: Whether one that should stay is killed as another one goes.
    """
    apps: list[tm.App] = []
    seen: dict[str, Any] = {}

    def loop() -> Any:
        return apps[0]._loop

    def as_many(count: int) -> list[str]:
        loop().tuner.executors.look()
        return _as_many(spark, count)

    def change(commits: int) -> None:
        if commits == 2:
            outlasting(lambda: _counted(loop().tuner.executors), WAIT, SystemClock())
            (seen["began"],) = outlasting(lambda: as_many(1), WAIT, SystemClock())
            loop().tuner.change(replace(loop().tuner.tuning, executors=most), "a test", planned=True)
        if commits == 4:
            seen["grown"] = outlasting(lambda: as_many(most), WAIT, SystemClock())
        if 4 < commits <= 8 or 10 < commits < 14:
            stream().state.executors.arrive()
        if commits == 8:
            seen["groups"] = dict(stream().state.executors.standing.groups)
            loop().tuner.change(replace(loop().tuner.tuning, executors=most - 1), "a test", planned=True)
        if commits == 9:
            going = outlasting(lambda: _leaving(loop().tuner.executors), WAIT, SystemClock())
            if strike:
                seen["killed"] = next(id for id in reversed(seen["grown"]) if id not in going)
                kill(placed.Tasks(spark, [seen["killed"]]).run(lambda _: here().encode())[0].decode())
        if commits == 14:
            seen["left"] = outlasting(lambda: as_many(most - 1), WAIT, SystemClock())
            seen["emptied"] = set(stream().state.executors.standing.groups) <= set(seen["left"])

    def stream() -> Any:
        return next(iter(loop().streams.values()))

    settings = {"plan": "auto", "max_executors": most, "max_rows_per_cut": 250}
    found, progress = windows(spark, "cluster", change, apps.append, **settings)
    at_the_end = outlasting(lambda: _as_many(spark, 1), WAIT, SystemClock())
    return {
        **seen,
        "same": found == plain_windows(spark),
        "ended": at_the_end,
        "moved": progress.moved_groups,
        "lost": list(progress.lost_executors),
    }


def _as_many(spark: SparkSession, count: int) -> list[str]:
    found = [each.id for each in placed.executors(spark)]
    if len(found) != count:
        raise placed.NoExecutorError(f"There are to be {count} executors: {found}.", "Wait.")
    return found


def _counted(executors: Any) -> int:
    executors.look()
    if executors.fleet is None:
        raise placed.NoExecutorError("No executor was counted.", "Wait.")
    return int(executors.fleet.asked)


def _leaving(executors: Any) -> list[str]:
    executors.look()
    if not executors._leaving:
        raise placed.NoExecutorError("One executor is to go.", "Wait.")
    return list(executors._leaving)


@functools.cache
def plain_windows(spark: SparkSession) -> list[dict[str, Any]]:
    """Return the windows as the driver makes them."""
    return windows(spark, "driver")[0]


def migrating(spark: SparkSession) -> dict[str, Any]:
    """A group moves by each of the strategies while windows are open; what is read again when it was disruptive."""
    steps: dict[str, Any] = {}

    def balance(_: Tiers, stream: Any) -> None:
        strategy = {2: Strategy.INSTANT, 4: Strategy.DISRUPTIVE, 6: Strategy.SMOOTH}.get(stream.state.cut)
        if strategy is None:
            return
        executors, store = stream.state.executors, stream.state.stores[0].store
        executors.run([store.in_files()])  # so that all is in memory
        group = len(steps)
        source = executors.key_groups.home(group)
        target = next(each.id for each in placed.executors(spark) if each.id != source)
        migrate(stream, [Move(group, source, target, 1.0)], strategy)
        executors.arrive()
        again = sum(done.read for done in executors.run([store.in_files()])[0])
        steps[strategy.value] = {"moved": executors.key_groups.home(group) == target, "again": again}

    with mock.patch.object(Tiers, "balance", balance):
        found, stream = windows(spark, "cluster")
    return {"same": found == plain_windows(spark), "steps": steps, "moved": stream.moved_groups}


def decommission(spark: SparkSession, executor: str) -> None:
    """Tell Spark that an executor will go; it runs on until somebody ends it."""
    jvm: Any = spark.sparkContext._jvm
    backend = spark.sparkContext._jsc.sc().schedulerBackend()
    why = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("test", jvm.scala.Option.empty())
    one = spark.sparkContext._gateway.new_array(jvm.scala.Tuple2, 1)
    one[0] = jvm.scala.Tuple2(executor, why)
    backend.decommissionExecutors(one, False, False)


def tier(spark: SparkSession) -> dict[str, Any]:
    """Windows whose partials are at the executors, one of which is killed while they are open; and the same without."""
    victims: list[str] = []

    def strike(commits: int) -> None:
        if commits == 4:
            victims.append(placed.executors(spark)[0].id)
            kill(placed.Tasks(spark, victims).run(lambda _: here().encode())[0].decode())
            await_executors(spark, victims[0], 2)

    found, stream = windows(spark, "cluster", strike)
    return {
        "same": found == plain_windows(spark),
        "rows": len(found),
        "victim": victims[0],
        "lost": list(stream.lost_executors) == victims,
        "recovery_s": (stream.recovery_micros or 0) / 1e6,
        "estimate_s": stream.recovery_estimate_micros / 1e6,
        "groups": stream.key_groups,
    }
