"""Generators without Spark SQL: results, dead letters and counts are those of Spark SQL, whatever they make."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from exact_helpers import NOON, SECOND, Bench, few_examples
from hypothesis import given
from hypothesis import strategies as st

import transom as tm
from transom.engine.execution import generatedparts, lane
from transom.model import tuning

TIMES = [
    "event_time",
    "event_time - make_interval(0, 0, 0, 0, 0, 0, id % 7)",
    "event_time + (pmod(xxhash64(id, 3), 5) - 2) * INTERVAL 1 SECOND",
    "if(id % 11 = 0, NULL, timestamp_micros(unix_micros(event_time) - id % 1000))",
    "CASE WHEN id % 90 = 5 THEN timestamp_seconds(id - 99999999999) WHEN id % 91 = 6 THEN TIMESTAMP'2090-01-01' "
    "ELSE timestampadd(MILLISECOND, -pmod(hash(id), 3000), event_time) END",
]
KEYS = [
    "concat('/page/', id % 3)",
    "element_at(array('north', 'east', 'south'), int(pmod(xxhash64(id, 2), 3)) + 1)",
    "nullif(CAST(pmod(hash(id, 'k'), 4) AS STRING), '2')",
    "upper(concat(if(id % 83 = 7, 'é', 'a'), id % 3))",
    "elt(1 + id % 3, 'x', 'y', NULL)",
]
VALUES = [
    "CAST(pmod(xxhash64(id, 1), 900) + 100 AS INT)",
    "if(id % 5 = 0, NULL, id % 90 * 0.25)",
    "double(1000 + pmod(xxhash64(id, 5), 49) * 1000)",
    "round(id / 8) - 7",
    "bigint(abs(hash(id % 1000) % 500))",
    "floor((id % 77) / 4)",
    "array(id, -id, NULL)[id % 3]",
]


def define_on(source: Callable[[], Any]) -> Callable[[tm.App, Any], None]:
    """Return what defines a stream over a generator, with keys, conditions, a map and sessions."""

    def define(app: tm.App, sink: Any) -> None:
        rows = app.stream(source(), event_time="at", watermark="2 seconds")
        made = {
            "n": tm.count(),
            "v": tm.sum("v"),
            "most": tm.max("v").where("id % 2 = 0"),
            "first": tm.first("k"),
            "about": tm.approx_count_distinct("v"),
        }
        rows.group_by("k").window("2 seconds", tm.sliding("3 seconds", every="1 second")).agg(**made).to(sink, "all")
        some = rows.map(lambda df: df.where("v > 10").withColumn("more", df.v + 1)).group_by("k")
        some.window(tm.session_window("1 second")).agg(n=tm.count(), more=tm.min("more")).to(sink, "some")

    return define


def outcome(spark: Any, define: Callable[[tm.App, Any], None], **settings: Any) -> tuple[tuple[Any, ...], Any]:
    """Return the results, the dead letters and the counts of a run, and the run."""
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(spark, Path(directory), define, now=NOON + 3_600 * SECOND, tier="driver", **settings)
        progress = bench.run()
        assert progress is not None
        stream = progress.streams[0]
        late = {query.name: query.late_rows for query in progress.queries}
        found = [bench.rows("all"), bench.rows("some"), sorted(map(repr, bench.letters()))]
    return (*found, late, stream.rows, stream.dead_letters, stream.max_event_time), stream


@st.composite
def generators(draw: st.DrawFn) -> Callable[[], Any]:
    """Return what makes a generator, the same each time."""
    rate = draw(st.sampled_from([1, 3, 7.25, 1 / 3, 50, 999_983, 5_000_000])) * draw(st.sampled_from([1, 10]))
    rows = min(draw(st.integers(1, 700)), int(rate * 90) + 1)  # else there are as many windows as rows
    start = NOON + draw(st.integers(-(10**12), 10**9)) - int(rows / rate * 10**6)
    columns = {name: draw(st.sampled_from(of)) for name, of in {"at": TIMES, "k": KEYS, "v": VALUES}.items()}
    partitions = draw(st.sampled_from([1, 1, 2, 5]))
    return lambda: tm.sources.generator({"id": "id", **columns}, rate, rows=rows, start=start, partitions=partitions)


def in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let cuts be divided as large ones are."""
    monkeypatch.setattr(tuning, "ONE_TASK_ROWS", 60)
    monkeypatch.setattr(generatedparts, "PART_ROWS", 50)
    monkeypatch.setattr(lane, "TASK_BYTES", 100 * lane.ROW_BYTES)


@pytest.mark.parametrize("count", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_both_lanes_make_the_same_of_any_generator(
    interpreted: Any, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    in_small_parts(monkeypatch)
    native = []

    @few_examples(count)
    @given(source=generators(), rows=st.integers(20, 400))
    def check(source: Callable[[], Any], rows: int) -> None:
        define = define_on(source)
        wanted, by_spark = outcome(interpreted, define, lane="spark", max_rows_per_cut=rows)
        found, stream = outcome(interpreted, define, lane="auto", max_rows_per_cut=rows)
        assert found == wanted
        assert by_spark.native_cuts == 0
        native.append(stream.native_cuts)

    check()
    assert sum(native) > 0


ROWS = 1_000


def of_columns(columns: Mapping[str, str]) -> Callable[[], Any]:
    """Return what makes a generator of 1,000 rows, 100 a second."""
    return lambda: tm.sources.generator({"at": "event_time", "id": "id", **columns}, 100, rows=ROWS, start=NOON)


def test_ranges_in_doubt_are_judged_by_spark(interpreted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those only, in the same cut."""
    in_small_parts(monkeypatch)
    define = define_on(of_columns({"k": "upper(concat(if(id % 400 = 7, 'é', 'a'), id % 3))", "v": "id % 90"}))
    wanted, _ = outcome(interpreted, define, lane="spark")
    found, stream = outcome(interpreted, define, lane="auto")
    assert found == wanted
    assert (stream.native_cuts, stream.judged_files) == (1, len(range(7, ROWS, 400)))


def test_a_restart_in_the_other_lane(interpreted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut that was begun in one is done again in the other."""
    in_small_parts(monkeypatch)
    define = define_on(of_columns({"k": KEYS[1], "v": VALUES[2]}))
    wanted, _ = outcome(interpreted, define, lane="spark", max_rows_per_cut=130)
    bench = Bench(interpreted, tmp_path, define, now=NOON + 3_600 * SECOND, tier="driver", max_rows_per_cut=130)
    for way, cut in (("auto", 1), ("spark", 1), ("auto", 2)):
        bench.settings["lane"] = way
        assert bench.run(crash_at=("job done", cut)) is None
    done = bench.run()
    assert done is not None
    assert done.streams[0].native_cuts > 0
    assert (bench.rows("all"), bench.rows("some")) == wanted[:2]


@pytest.mark.slow
@pytest.mark.parametrize("columns", [{"v": "1000 div (id - 500)"}, {"v": "int(id * 5000000)"}])
def test_what_raises_in_spark_raises_in_either_lane(interpreted: Any, columns: dict[str, str]) -> None:
    messages = []
    for way in ("spark", "auto"):
        with pytest.raises(tm.TransomError) as raised:
            outcome(interpreted, define_on(of_columns({"k": "'a'", **columns})), lane=way)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


def test_why_a_generator_is_made_by_spark_sql_is_explained(interpreted: Any, tmp_path: Path) -> None:
    """What nobody needs matters to nobody."""
    app = tm.App(interpreted, tmp_path / "checkpoint", lane="auto")
    for name, column in (("known", "id"), ("unknown", "wave"), ("gap", "gap")):
        columns = {"id": "id", "wave": "sin(id)", "at": "event_time"} | (
            {"gap": "make_interval(1)"} if name == "gap" else {}
        )
        rows = app.stream(tm.sources.generator(columns, 10, start=NOON), event_time="at", name=name)
        rows.window("1 second").agg(n=tm.max(column) if name != "gap" else tm.count()).to(tm.sinks.memory(), name)
    known, unknown, gap = app.explain().streams
    assert (known["lane"], known["lane_why"]) == ("native", None)
    assert (unknown["lane"], unknown["lane_why"]) == ("spark", "only Spark computes SIN(CAST(id AS DOUBLE))")
    assert gap["lane_why"] == "only Spark has values of gap (interval)"


def test_when_rows_are_due() -> None:
    """As Spark computes it, from fractions."""
    from transom.native.schedules import Schedule
    from transom.native.values import UncertainError

    for rate in (Fraction(1, 3), Fraction(999_983), Fraction(29, 4)):
        schedule = Schedule(-5, rate.numerator, rate.denominator)
        first = 10**12
        rows = schedule.between(first, first + 9)
        due = [int(-5 + (row * 1_000_000 / rate).__floor__()) for row in range(first, first + 9)]
        assert rows.column(1).cast("int64").to_pylist() == due == [schedule.due(row) for row in range(first, first + 9)]
        assert rows.column(0).to_pylist() == list(range(first, first + 9))
    far = Schedule(0, 1, 1_000_000)
    assert far.between(9_223_372, 9_223_373).column(1).cast("int64").to_pylist() == [9_223_372_000_000_000_000 // 1]
    with pytest.raises(UncertainError):
        far.between(9_223_370, 9_223_374)
