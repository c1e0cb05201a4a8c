"""The schema of a source changes between two runs: states go on exactly, or the query says why they cannot."""

from __future__ import annotations

import json
import os

import pytest
from faults_app import Killed, at_step

import transom as tm
from transom.errors import JobChangedError
from transom.model.time import ManualClock

NOON = 1_700_000_000_000_000
FORMER = "zone smallint, at long, v smallint, f float, d decimal(5,2), t string"
NOW = "zone int, at long, v bigint, f double, d decimal(20,2), t string"


def write(root, number, *rows):
    root.mkdir(exist_ok=True)
    path = root / f"{number}.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(path, (1_600_000_000 + number,) * 2)


def row(at, v, f=0.5, d="1.25", t="x"):
    return {"zone": 7, "at": at, "v": v, "f": f, "d": d, "t": t}


def app(spark, root, schema, queries, **settings):
    made = tm.App(spark, root / "checkpoint", clock=ManualClock(NOON), max_rows_per_cut=1, **settings)
    source = tm.sources.files(str(root / "in" / "*.json"), schema=schema)
    stream = made.stream(source, event_time="timestamp_seconds(at)", watermark=tm.watermark(0, max_ahead=None))
    for name, (sink, window, values) in queries.items():
        stream.group_by("zone").window(window).agg(**values).to(sink, name)
    return made


@pytest.mark.parametrize(
    ("snapshot_bytes", "tier"),
    [
        (1, "driver"),
        (1 << 20, "cluster"),
        pytest.param(1, "cluster", marks=pytest.mark.slow),
        pytest.param(1 << 20, "driver", marks=pytest.mark.slow),
    ],
    ids=["snapshots-driver", "log-cluster", "snapshots-cluster", "log-driver"],
)
def test_states_and_keys_are_widened(spark, tmp_path, snapshot_bytes, tier):
    options = {"snapshot_bytes": snapshot_bytes, "tier": tier}
    write(tmp_path / "in", 1, row(1, 32_767), row(2, -32_768, 0.125, "-999.99"))
    write(tmp_path / "in", 2, row(3, 5))
    values = {
        "most": tm.max("v"),
        "last": tm.last("v"),
        "sum": tm.sum("v"),
        "mean": tm.avg("v"),
        "few": tm.collect_set("v", 9),
        "half": tm.quantile("v", 0.5),
        "spread": tm.var_pop("v"),
        "top": tm.top_k("v", 1),
        "f": tm.sum("f"),
        "low": tm.min("f"),
        "d": tm.sum("d"),
        "least": tm.min("d"),
        "md": tm.avg("d"),
    }
    sinks = {name: tm.sinks.memory() for name in ("plain", "sessions", "early")}

    def again(schema):
        plain, session = ("60 seconds", values), (tm.session_window("10 seconds"), values)
        queries = {"plain": (sinks["plain"], *plain), "sessions": (sinks["sessions"], *session)}
        return app(spark, tmp_path, schema, queries, **options)

    first = again(FORMER)
    first._on_step = at_step("before snapshot" if snapshot_bytes == 1 else "committed", 2, _kill)
    with pytest.raises(Killed):
        first.run(once=True)
    write(tmp_path / "in", 3, row(4, 3_000_000_000, 1e300, "123456789.25"))
    second = again(NOW)
    second._on_step = at_step("committed", 1, _kill)
    with pytest.raises(Killed):
        second.run(once=True)
    again(NOW).run(once=True, close_all=True)
    v = [-32_768, 5, 32_767, 3_000_000_000]
    for name in ("plain", "sessions"):
        (found,) = sinks[name].rows(name)
        assert found["zone"] == 7
        assert (found["most"], found["last"], found["sum"]) == (v[-1], v[-1], sum(v))
        assert found["few"] == v
        assert found["half"] == 5
        assert found["mean"] == sum(v) / 4
        assert found["f"] == 1e300
        assert found["low"] == 0.125
        assert str(found["d"]) == "123455791.76"
        assert str(found["least"]) == "-999.99"
        assert len(found["top"]) == 1


def _kill():
    raise Killed


REFUSED = {
    "narrower": ("v", "v bigint", "v int", tm.max("v")),
    "to double": ("v", "v bigint", "v double", tm.sum("v")),
    "to text": ("v", "v int", "v string", tm.min("v")),
    "hashes": ("v", "v int", "v bigint", tm.approx_count_distinct("v")),
    "mean of decimals": ("v", "v int", "v decimal(10,0)", tm.avg("v")),
    "key": ("zone", "zone string", "zone bigint", tm.count()),
}


def test_what_cannot_go_on_is_named(spark, tmp_path):
    """All at once, before anything was changed."""
    names = [f"{part}{i}" for i, (part, *_) in enumerate(REFUSED.values())]

    def again(side):
        made = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(NOON))
        columns = [case[side].replace(case[0], name) for case, name in zip(REFUSED.values(), names, strict=True)]
        source = tm.sources.files(str(tmp_path / "in" / "*.json"), schema=", ".join(["at long", *columns]))
        stream = made.stream(source, event_time="timestamp_seconds(at)", watermark=tm.watermark(0, max_ahead=None))
        for (query, (part, _, _, aggregate)), name in zip(REFUSED.items(), names, strict=True):
            keys = {"k": name} if part == "zone" else {}
            value = aggregate if part == "zone" else type(aggregate)(*_renamed(aggregate, name))
            stream.group_by(**keys).window("60 seconds").agg(value=value).to(tm.sinks.memory(), query)
        return made

    write(tmp_path / "in", 1, {"at": 1, **{name: "1" if name.startswith("zone") else 1 for name in names}})
    again(1).run(once=True)
    for _ in range(2):
        with pytest.raises(JobChangedError) as caught:
            again(2).run(once=True)
        for query in REFUSED:
            assert f"query {query!r}: the type of" in str(caught.value)
        for text in ("v0 (max(v0)) was bigint and is int", "k (a key) was string and is bigint"):
            assert text in str(caught.value)
    again(1).run(once=True, close_all=True)


def _renamed(aggregate, name):
    """Return the fields of an aggregate of `v`, over another column."""
    from transom.model.expression import Expression

    return [Expression(name) if value == aggregate.x else value for value in vars(aggregate).values()]


def test_kept_rows_of_a_join_are_widened(spark, tmp_path):
    sink = tm.sinks.memory()

    def again(kind):
        made = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(NOON), max_rows_per_cut=1)
        sides = [
            made.stream(
                tm.sources.files(str(tmp_path / name / "*.json"), schema=f"k {kind}, at long, {name} {kind}"),
                event_time="timestamp_seconds(at)",
                watermark=tm.watermark(0, max_ahead=None),
                name=name,
            ).map(lambda df, name=name: df.select("k", name, "_event_micros"))
            for name in ("left", "right")
        ]
        joined = made.join(*sides, on="k", window="10 seconds")
        joined.group_by("k").window("10 seconds").agg(total=tm.sum("left + right")).to(sink, "q")
        return made

    for name in ("left", "right"):
        write(tmp_path / name, 1, {"k": 1, "at": 1, name: 5})
    again("int").run(once=True)
    write(tmp_path / "left", 2, {"k": 1, "at": 2, "left": 3_000_000_000})
    again("bigint").run(once=True, close_all=True)
    assert [row["total"] for row in sink.rows("q")] == [3_000_000_000 + 5 + 5 + 5]
    with pytest.raises(JobChangedError, match=r"left .a column of a join. was bigint and is int"):
        again("int").run(once=True)
