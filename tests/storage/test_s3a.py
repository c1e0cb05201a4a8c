"""An application whose data is on S3 and that Spark reads by s3a://."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.fetching import MissingError
from tests.storage import s3a

from transom.checkpoint.files import checkpoint_at
from transom.cli.deadletters import read_dead_letters
from transom.sinks.parts import list_parts
from transom.storage.durable import opened, reading
from transom.storage.places import ObjectPath


def run(place: str, checkpoint: str, endpoint: str, jars: str) -> None:
    """Run the application to the end of its input, in a process whose Spark has the jars."""
    import transom as tm

    builder = tm.session_builder().master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.extraClassPath", f"{jars}/*")
    for name, value in s3a.settings(endpoint).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    tier = "cluster" if checkpoint.startswith("s3") else "driver"  # its files are written by Python workers
    app = tm.App(spark, checkpoint, tier=tier, key_groups=2)
    source = tm.sources.files(f"{place}/in/*/*.json", "zone string, n bigint, at timestamp", partition_by="directory")
    stream = app.stream(source, event_time="at", watermark=tm.watermark("0 seconds"))
    windows = stream.group_by("zone").window("10 seconds").agg(n=tm.sum("n"))
    windows.to(tm.sinks.json(f"{place}/out"), "sums")
    stream.rows().to(tm.sinks.parquet(f"{place}/rows"), "rows", partition_by="zone")
    app.run(once=True, close_all=True)
    spark.stop()


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint_there", [False, True])
def test_from_s3_to_s3(s3: str, s3_place: Callable[[], ObjectPath], tmp_path: Path, checkpoint_there: bool) -> None:
    try:
        jars = s3a.jars()
    except MissingError as missing:
        pytest.skip(str(missing))
    program = [sys.executable, "-m", "tests.storage.test_s3a"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    folder = s3_place()
    checkpoint = str(folder / "checkpoint") if checkpoint_there else str(tmp_path / "checkpoint")
    for n in range(3):
        rows = [{"zone": "ab"[i % 2], "n": i, "at": f"2026-01-01T00:00:{i:02d}Z"} for i in range(40)]
        lines = [json.dumps(row) for row in rows] + ["no json"]
        (folder / "in" / f"day {n}" / "rows.json").put("\n".join(lines).encode())
        subprocess.run([*program, str(folder), checkpoint, s3, str(jars)], env=environment, check=True)
    results = [json.loads(line) for part in list_parts(folder / "out") for line in reading(folder / "out" / part.name)]
    assert len(results) == 8
    rows = [entry.name for entry in (folder / "rows").walk() if entry.name.endswith(".parquet")]
    assert [entry.name for entry in (folder / "rows").entries()] == ["_transom", "zone=a", "zone=b"]
    assert sum(pq.ParquetFile(opened(folder / "rows" / name)).metadata.num_rows for name in rows) == 120
    (letters,) = read_dead_letters(checkpoint_at(checkpoint), 0)
    assert letters.counts["corrupt"] == 3


if __name__ == "__main__":
    run(*sys.argv[1:])
