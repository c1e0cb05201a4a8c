"""An application whose input, checkpoint, partials and results are on HDFS, which Spark reads without more jars."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import transom as tm
from transom.cli.deadletters import read_dead_letters
from transom.sinks.compaction import compact
from transom.sinks.parts import list_parts
from transom.storage.durable import reading
from transom.storage.places import ObjectPath


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["driver", "cluster"])
def test_from_hdfs_to_hdfs(spark: Any, hdfs_place: Callable[[], ObjectPath], tier: str) -> None:
    folder = hdfs_place()
    for n in range(3):
        rows = [{"zone": "ab"[i % 2], "n": i, "at": f"2026-01-01T00:0{n}:{i:02d}Z"} for i in range(40)]
        lines = [json.dumps(row) for row in rows] + ["no json"]
        (folder / "in" / f"day {n}" / "rows.json").put("\n".join(lines).encode())
        app = tm.App(spark, str(folder / "checkpoint"), tier=tier, key_groups=2)
        source = tm.sources.files(f"{folder}/in/*/*.json", "zone string, n bigint, at timestamp")
        stream = app.stream(source, event_time="at", watermark=tm.watermark("0 seconds"))
        windows = stream.group_by("zone").window("10 seconds").agg(n=tm.sum("n"))
        windows.to(tm.sinks.json(f"{folder}/out"), "sums")
        stream.rows().to(tm.sinks.parquet(f"{folder}/rows"), "rows", partition_by="zone")
        app.run(once=True, close_all=n == 2)
    compact(f"{folder}/out")
    results = [json.loads(line) for part in list_parts(folder / "out") for line in reading(folder / "out" / part.name)]
    assert len(results) == 24
    assert sum(row["n"] for row in results) == 3 * sum(range(40))
    assert spark.read.parquet(f"{folder}/rows").groupBy("zone").count().collect() == [("a", 60), ("b", 60)]
    assert [entry.name for entry in (folder / "rows").entries()] == ["_transom", "zone=a", "zone=b"]
    (letters,) = read_dead_letters(folder / "checkpoint", 0)
    assert letters.counts == {"corrupt": 3}
