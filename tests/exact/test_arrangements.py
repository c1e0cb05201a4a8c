"""Where and how key sets are computed may change with every cut, and no result with it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource
from oracle import BatchQuery, differences, expected, logged_rows
from pyspark.sql import functions as F

import transom as tm
from transom.api.app import App
from transom.engine.control import adapting
from transom.model.window import WindowSpec
from transom.sinks.inmemory import MemorySink
from transom.windows.components import Arrangement, key_sets_of
from transom.windows.splitting import UnitCosts

pytestmark = pytest.mark.usefixtures("compiled_once")

SCHEMA = "area string, user string, x bigint, at timestamp"
SLIDING = WindowSpec(20 * SECOND, 5 * SECOND, SECOND)
TEN = WindowSpec(10 * SECOND, 10 * SECOND, 0)
MINUTE = WindowSpec(60 * SECOND, 20 * SECOND, 0)
UNEVEN = WindowSpec(10 * SECOND, 4 * SECOND, 0)
AGGREGATES = {
    "n": (tm.count(), "count(*)"),
    "total": (tm.sum("x"), "sum(x)"),
    "last": (tm.last("x"), "max(struct(at, x)).x"),
    "median": (tm.quantile("x", 0.5), "double(percentile_approx(x, 0.5))"),
}
# Keys, windows, condition, aggregates.
QUERIES: dict[str, tuple[list[str], list[WindowSpec], str | None, list[str]]] = {
    "users": (["area", "user"], [SLIDING, TEN], None, ["n", "total", "median"]),
    "areas": (["area"], [MINUTE], None, ["n", "last"]),
    "areas too": (["area"], [SLIDING, MINUTE], None, ["total"]),
    "large": (["area"], [TEN], "x > 3", ["n", "median"]),
    "large users": (["user"], [SLIDING], "x > 3", ["n", "total"]),
    "everything": ([], [TEN, MINUTE], None, ["n", "total"]),
    "uneven": ([], [UNEVEN], "x < 9", ["n"]),
}


def rows(r: random.Random, count: int) -> list[tuple[Any, ...]]:
    """Times go up with jumps back, so that some rows are late for some windows or for all."""
    return [
        (r.choice("pq"), r.choice("abcde"), r.choice([None, *range(12)]), (i + r.randrange(-25, 5)) * SECOND)
        for i in range(count)
    ]


def arrangements(app: App, r: random.Random) -> Arrangement:
    loop = app._loop
    assert loop is not None
    names = [key_set.name for key_set in key_sets_of(loop.streams["stream1"].state.running())]
    hosts = frozenset((name, r.choice(names)) for name in names if r.random() < 0.7)
    return Arrangement(hosts, frozenset(name for name in names if r.random() < 0.4))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
def test_migrations_change_no_result(interpreted, tmp_path, seed: int):
    r = random.Random(seed)
    source = PiecewiseSource(SCHEMA, (23, 40, 31))
    current: list[App] = []

    def define(app: App, sink: MemorySink) -> None:
        current[:] = [app]
        stream = app.stream(source, event_time="at", watermark="5 seconds")
        for name, (keys, windows, condition, columns) in QUERIES.items():
            some = stream if condition is None else stream.where(condition)
            kinds = [tm.sliding(w.length, every=w.slide, offset=w.offset) for w in windows]
            some.group_by(*keys).window(*kinds).agg(**{c: AGGREGATES[c][0] for c in columns}).to(sink, name)

    followed: list[Arrangement] = []

    def migrate(step: str) -> None:
        if step == "committed":
            loop = current[0]._loop
            assert loop is not None
            followed.append(arrangements(current[0], r))
            loop.learning.follow(loop.streams["stream1"], followed[-1])

    records = rows(r, 160)
    bench = Bench(interpreted, tmp_path / "moving", define)
    for part, crash in ((records[:90], ("windows closed", 2)), (records[90:], None)):
        source.add(part)
        bench.run(close_all=False, crash_at=crash, on_step=migrate)
    bench.run(on_step=migrate)
    assert any(arrangement.direct for arrangement in followed)
    batches = {
        name: BatchQuery(
            windows,
            {key: F.col(key) for key in keys},
            {c: F.expr(AGGREGATES[c][1]) for c in columns},
            lambda df, condition=condition: df if condition is None else df.where(condition),
        )
        for name, (keys, windows, condition, columns) in QUERIES.items()
    }
    table = logged_rows(source._from_python(records), bench.cuts_of())
    wanted = expected(interpreted, source.schema, table, "at", batches)
    for name, (keys, _, _, _) in QUERIES.items():
        assert differences(bench.sink.to_table(name), wanted[name], len(keys)) == [], name
    assert lost(bench, records) == sorted(
        (letter["event_time"], letter["queries"]) for letter in bench.letters() if letter["reason"] == "late"
    )


@pytest.mark.parametrize("lives", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_costs_decide_while_it_runs_and_a_restart_goes_on_with_the_decision(spark, tmp_path, monkeypatch, lives: int):
    monkeypatch.setattr(adapting, "FEWEST_CUTS", 2)
    monkeypatch.setattr(adapting, "FEWEST_ROWS", 2)
    source = PiecewiseSource(SCHEMA, (20,))
    current: list[App] = []
    costs = [UnitCosts(row=1e-9, merge=1.0)]

    def define(app: App, sink: MemorySink) -> None:
        current[:] = [app]
        stream = app.stream(source, event_time="at")
        window = tm.sliding("8 seconds", every="2 seconds")
        stream.group_by("user").window(window).agg(n=tm.count(), total=tm.sum("x")).within("1 second").to(sink, "users")
        stream.group_by().window("4 seconds").agg(n=tm.count()).to(sink, "all")

    seen: list[tuple[int, int]] = []

    def watch(step: str) -> None:
        loop = current[0]._loop
        assert loop is not None
        loop.learning.adapters.costs = costs[0]
        if step == "cut logged":
            components = loop.streams["stream1"].compiled.components
            seen.append((len(components), sum(component.direct for component in components)))

    records = [("p", f"u{i}", i, i * SECOND // 5) for i in range(240)]
    bench = Bench(spark, tmp_path, define)
    for life in range(lives):
        source.add(records[life * 240 // lives : (life + 1) * 240 // lives])
        bench.run(close_all=life == lives - 1, on_step=watch)
        costs[0] = UnitCosts(row=1e-3, merge=1e-9)
    assert seen[0] == (1, 0), "one aggregation, by panes, before anything is known"
    assert (2, 1) in seen, "merging takes longer than the target: users are computed window by window"
    spans = [(start, start + 8) for start in range(-6, 48, 2)]
    wanted = {(start, end, user) for _, user, i, _ in records for start, end in spans if start <= i / 5 < end}
    assert {(row[0] // SECOND, row[1] // SECOND, row[2]) for row in bench.rows("users")} == wanted
    assert {row[3:] for row in bench.rows("users")} == {(1, i) for i in range(240)}
    assert sum(row[2] for row in bench.rows("all")) == 240
    if lives > 1:
        first = seen.index((2, 1))
        assert seen[first:].index((1, 0)) > 1, "rows are dear: back to panes, but not before the longest window went by"


def lost(bench: Bench, records: list[tuple[Any, ...]]) -> list[tuple[int, list[str]]]:
    """Return the times of the rows that came too late for some queries, with their names."""
    found = []
    for cut in bench.cuts_of():
        for _, _, x, at in records[cut.start : cut.end]:
            names = [
                name
                for name, (_, windows, condition, _) in QUERIES.items()
                if at < min(window.late_before(cut.watermark) for window in windows)
                and (condition is None or (x is not None and eval(condition, {"x": x})))
            ]
            if names:
                found.append((at, names))
    return sorted(found)
