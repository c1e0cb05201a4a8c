"""Rows that are looked up in a table that changes: each cut sees the version that the log names, whatever is killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exact_helpers import SECOND, STEPS, Bench, PiecewiseSource
from pyspark.sql import DataFrame, SparkSession
from tests.at_once import at_once

import transom as tm
from transom.api.app import App
from transom.engine.streams import tableversions
from transom.errors import CheckpointCorruptError, DefinitionError, SourceError
from transom.sinks.inmemory import MemorySink

SCHEMA = "k string, x bigint, at timestamp"
Rows = dict[str, list[int]]


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, Rows]:
    """The rows of each copy in the checkpoint, by file; tables are read anew at once, not on a thread."""
    found: dict[str, Rows] = {}
    read = tableversions.TableVersions._read

    def noted(self: Any, *args: Any) -> Any:
        held = read(self, *args)
        rows = found[held.version.file] = {}
        for row in held.rows.to_pylist():
            rows.setdefault(row["k"], []).append(row["v"])
        return held

    monkeypatch.setattr(tableversions.TableVersions, "_read", noted)
    monkeypatch.setattr(tableversions, "aside", at_once)
    return found


class Changing:
    """A table with other rows each time it is read."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self, spark: SparkSession) -> DataFrame:
        self.reads += 1
        n, key = self.reads, "bc"[self.reads % 2]
        return spark.sql(f"SELECT * FROM VALUES ('a', {n}L), ('a', -{n}L), ('{key}', 7L), (NULL, 9L) AS t(k, v)")


def looked_up(k: Any, x: int, table: Rows, how: str) -> list[tuple[int, int | None]]:
    found = [] if k is None else table.get(k, [])
    if how in ("left_semi", "left_anti"):
        return [(x, None)] if bool(found) == (how == "left_semi") else []
    return [(x, v) for v in found] or ([(x, None)] if how == "left" else [])


def define(how: str, table: Any) -> Callable[[App, MemorySink, PiecewiseSource], None]:
    def make(app: App, sink: MemorySink, source: PiecewiseSource) -> None:
        rows = app.stream(source, event_time="at", watermark=tm.watermark("5 seconds", max_ahead=None))
        found = rows.where("x > 0").lookup(table, "k", how=how, refresh="1 second", name="names")
        values = "struct(x, v)" if how in ("inner", "left") else "struct(x, bigint(null) as v)"
        found.window("10 seconds").agg(rows=tm.collect_list(f"to_json({values})")).to(sink, "rows")
        rows.window("10 seconds").agg(n=tm.count()).to(sink, "all")

    return make


def wanted(bench: Bench, rows: list[Any], versions: dict[str, Rows], how: str) -> Counter[tuple[int, int, int | None]]:
    texts: Counter[tuple[int, int, int | None]] = Counter()
    for cut in bench.cuts_of():
        for k, x, at in rows[cut.start : cut.end]:
            end = at // (10 * SECOND) * 10 * SECOND + 10 * SECOND
            if x > 0 and end > cut.watermark:
                texts.update((end, *found) for found in looked_up(k, x, versions[cut.tables["names"].file], how))
    return texts


def found(bench: Bench) -> Counter[tuple[int, int, int | None]]:
    import json

    read = [(end, json.loads(text)) for _, end, texts in bench.rows("rows") for text in texts]
    return Counter((end, row["x"], row.get("v")) for end, row in read)


def sample(count: int) -> list[tuple[Any, ...]]:
    return [
        (["a", "b", "c", None][i % 4], i % 10 - 1, i * SECOND - (20 * SECOND if i % 9 == 8 else 0))
        for i in range(count)
    ]


def run_killed(bench: Bench, source: PiecewiseSource, steps: list[str], rows: list[Any]) -> int:
    """Run once for each step, and kill it there; time goes on with each cut, so that the table is read anew."""
    killed, each = 0, len(rows) // (len(steps) + 1)
    for number, step in enumerate([*steps, None]):
        source.add(rows[number * each : (number + 1) * each if step else None])
        crash = None if step is None else (step, 1)
        killed += bench.run(step is None, crash, lambda at: bench.clock.advance(SECOND * (at == "committed"))) is None
    return killed


@pytest.mark.parametrize("how", ["left", *(pytest.param(h, marks=pytest.mark.slow) for h in ("inner", "left_anti"))])
def test_each_cut_sees_the_version_that_its_record_names(
    interpreted: SparkSession, tmp_path: Path, versions: dict[str, Rows], how: str
) -> None:
    source, table, rows = PiecewiseSource(SCHEMA, [6]), Changing(), sample(30)
    make = define(how, table)
    bench = Bench(interpreted, tmp_path, lambda app, sink: make(app, sink, source))
    assert run_killed(bench, source, ["job done"], rows) == 1
    assert found(bench) == wanted(bench, rows, versions, how)
    used = {cut.tables["names"].file for cut in bench.cuts_of() if cut.tables}
    assert len(used) == 5
    assert len(list((bench.checkpoint / "lookups" / "stream1").iterdir())) == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["left_semi", "left"])
def test_killed_at_every_step(interpreted: SparkSession, tmp_path: Path, versions: dict[str, Rows], how: str) -> None:
    source, table, rows = PiecewiseSource(SCHEMA, [4]), Changing(), sample(130)
    make = define(how, table)
    bench = Bench(interpreted, tmp_path, lambda app, sink: make(app, sink, source))
    assert run_killed(bench, source, STEPS, rows) >= len(STEPS) - 1
    assert found(bench) == wanted(bench, rows, versions, how)


def test_what_is_there_is_kept(spark: SparkSession, tmp_path: Path, versions: dict[str, Rows], caplog: Any) -> None:
    """A table that is the same, or cannot be read anew, is no other version; Parquet that was rewritten is one."""
    source, path = PiecewiseSource(SCHEMA, [1]), tmp_path / "names"
    changes: list[Callable[[], None]] = [
        lambda: None,
        lambda: spark.sql("SELECT 'a' AS k, 2L AS v").coalesce(1).write.mode("overwrite").parquet(str(path)),
        lambda: spark.sql("SELECT 'a' AS k, 'text' AS v").coalesce(1).write.mode("overwrite").parquet(str(path)),
    ]
    spark.sql("SELECT 'a' AS k, 1L AS v").coalesce(1).write.parquet(str(path))
    table = spark.read.parquet(str(path))  # keeps a list of the files that it found
    make = define("inner", table)
    bench = Bench(spark, tmp_path, lambda app, sink: make(app, sink, source))
    source.add([("a", i + 1, i * SECOND) for i in range(4)])

    def step(name: str) -> None:
        if name == "committed" and changes:
            changes.pop(0)()
            bench.clock.advance(SECOND)

    bench.run(on_step=step)
    assert found(bench) == Counter([(10 * SECOND, 1, 1), (10 * SECOND, 2, 1), (10 * SECOND, 3, 2), (10 * SECOND, 4, 2)])
    assert "The table names stays as it was" in caplog.text


@pytest.mark.parametrize("damage", ["flip", "remove"])
def test_a_copy_that_is_not_what_was_written(
    interpreted: SparkSession, tmp_path: Path, versions: dict[str, Rows], damage: str
) -> None:
    source = PiecewiseSource(SCHEMA, [4])
    make = define("inner", Changing())
    bench = Bench(interpreted, tmp_path, lambda app, sink: make(app, sink, source))
    source.add(sample(4))
    assert bench.run(crash_at=("cut logged", 0)) is None
    (file,) = (bench.checkpoint / "lookups" / "stream1").iterdir()
    if damage == "remove":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointCorruptError, match=str(file)):
        bench.run()


@pytest.mark.parametrize(
    ("table", "arguments", "message"),
    [
        (tm.tables.sql("SELECT 1 AS z, 2 AS v"), {}, "the table has no column 'k'.*Its columns are z, v"),
        (tm.tables.sql("SELECT 'a' AS k, 2 AS v"), {"on": "v"}, "the stream has no column 'v'"),
        (tm.tables.sql("SELECT 'a' AS k, 2 AS X"), {}, "there would be two columns 'X'"),
        (tm.tables.sql("SELECT * FROM nowhere"), {}, "lookup 'table1': SQL SELECT .* cannot be read.*nowhere"),
        (lambda session: 3, {}, "returned int, not a DataFrame"),
        (tm.tables.sql("SELECT 'a' AS k"), {"how": "full"}, "lookup: how='full' cannot be had here"),
        (tm.tables.sql("SELECT 'a' AS k"), {"on": []}, "names no columns"),
        (tm.tables.sql("SELECT 'a' AS k"), {"refresh": "0 seconds"}, "refresh is '0 seconds'"),
        ("zones", {}, "'zones' is no table.*tm.tables.parquet"),
    ],
)
def test_lookups_that_cannot_work(
    spark: SparkSession, tmp_path: Path, table: Any, arguments: Any, message: str
) -> None:
    app = App(spark, tmp_path / "checkpoint")
    rows = app.stream(PiecewiseSource(SCHEMA), event_time="at")

    def plan() -> None:
        rows.lookup(table, **{"on": "k", **arguments}).window("10 seconds").agg(n=tm.count()).to(MemorySink(), "q")
        app.explain()

    with pytest.raises(DefinitionError, match=message):
        plan()


def test_a_table_that_cannot_be_read_at_all_ends_the_run(spark: SparkSession, tmp_path: Path) -> None:
    def failing(session: SparkSession) -> DataFrame:
        return session.sql("SELECT 'a' AS k, CAST(raise_error('no rows today') AS BIGINT) AS v")

    source = PiecewiseSource(SCHEMA)
    source.add(sample(4))
    make = define("inner", failing)
    bench = Bench(spark, tmp_path, lambda app, sink: make(app, sink, source))
    with pytest.raises(SourceError, match=r"lookup 'names': failing.*cannot be read.*no rows"):
        bench.run()


def test_explain_shows_the_table(spark: SparkSession, tmp_path: Path) -> None:
    app = App(spark, tmp_path / "checkpoint")
    define("left", tm.tables.sql("SELECT 'a' AS k, 1L AS v"))(app, MemorySink(), PiecewiseSource(SCHEMA))
    shown = [name for operator in app.explain().graph["operators"] for name in operator.get("functions", ())]
    lookup = "lookup in names (SQL SELECT 'a' AS k, 1L AS v; left on k, read every 1 second)"
    assert lookup in shown
