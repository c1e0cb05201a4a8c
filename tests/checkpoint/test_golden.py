"""What an earlier Transom left behind is gone on with, exactly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden_helpers import CASES, GOLDEN, restore, results, run
from pyspark.sql import SparkSession

from transom.sinks.memory import MemorySink

GOLDENS = sorted(case for version in GOLDEN.iterdir() for case in version.iterdir())


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_checkpoint_of_each_format_leads_to_the_same_results(
    spark: SparkSession, tmp_path: Path, golden: Path
) -> None:
    restore(golden, tmp_path)
    session = spark.newSession()
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    sink = MemorySink()
    run(session, tmp_path, sink, **CASES[golden.name])
    assert results(sink) == json.loads((golden / "expected.json").read_text())
