"""Commands that read a checkpoint or results, given a URI."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from transom.checkpoint import Checkpoint
from transom.cli.loading import load
from transom.cli.main import cli
from transom.model.time import ManualClock
from transom.sinks import parquet
from transom.sinks.base import WindowResults
from transom.sinks.owner import Claim, Owner
from transom.storage.durable import replacing
from transom.storage.places import ObjectPath

NOON = 1_700_000_000_000_000


@pytest.fixture
def folder(s3_place: Callable[[], ObjectPath]) -> ObjectPath:
    """What an application leaves: a checkpoint, two dead letters, and results of three cuts."""
    folder = s3_place()
    with Checkpoint.open(folder / "checkpoint", ManualClock(NOON)) as checkpoint:
        checkpoint.append({"type": "note", "n": 7}, sync=True)
        letters = checkpoint.directory("dead-letters", "trips") / "cut=3"
        with replacing(letters / "part-0.parquet") as file:
            pq.write_table(pa.table({"reason": ["corrupt", "late"], "record": ["oops", "{}"]}), file)
        (letters / "_SUCCESS").put(b"")
    sink = parquet(f"{folder}/out")
    sink.open("q")
    sink.claim(Claim(Owner("c1", "q", "/c")))
    for cut in range(3):
        sink.write(WindowResults("q", cut, pa.table({"n": [cut]})))
    return folder


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_commands_take_uris(folder: ObjectPath) -> None:
    shown = invoke("checkpoint", f"{folder}/checkpoint")
    assert f"{folder}/checkpoint" in shown
    assert '"n": 7' in shown
    assert json.loads(invoke("checkpoint", f"{folder}/checkpoint", "--json"))["records"] == 1
    (letters,) = map(json.loads, invoke("dead-letters", f"{folder}/checkpoint", "--json").splitlines())
    assert letters["counts"] == {"corrupt": 1, "late": 1}
    assert letters["samples"]["late"] == [{"reason": "late", "record": "{}", "cut": 3}]
    assert json.loads(invoke("queries", f"{folder}/checkpoint", "--json")) == {"application_runs": False, "queries": []}
    assert f"{folder}/out: 3 files" in invoke("compact", f"{folder}/out")
    assert f"There is no directory {folder}/none" in CliRunner().invoke(cli, ["compact", f"{folder}/none"]).output


def test_a_job_gets_the_uri_as_it_was_given(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text("def build(spark, checkpoint):\n    raise ValueError(checkpoint)\n")
    with pytest.raises(ValueError, match=r"^s3://bucket/checkpoint$"):
        load(job, Path("s3://bucket/checkpoint"))(None)  # type: ignore[arg-type]
