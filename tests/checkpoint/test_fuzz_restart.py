"""Any damage to any file of a whole application's checkpoint: the same results, or a clear error.

The checkpoints are the golden ones of the format that is written; `test_fuzz_files` tries many more, without an engine.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from damage import inflict
from golden_helpers import CASES, GOLDEN, restore, run
from pyspark.sql import SparkSession
from test_golden import require_expected

from transom.checkpoint.log import FORMAT
from transom.errors import TransomError
from transom.sinks.inmemory import MemorySink

NEWEST = GOLDEN / f"format-{FORMAT}"


def check(interpreted: SparkSession, case: str, directory: Path, seed: int, only: str = "") -> str:
    restore(NEWEST / case, directory)
    what = f"seed {seed}: {inflict(random.Random(seed), directory / 'checkpoint', [], only)}"
    sink = MemorySink()
    try:
        run(interpreted, directory, sink, **CASES[case])
    except TransomError as error:
        return f"{what}: {type(error).__name__}"
    try:
        require_expected(NEWEST / case, sink)
    except AssertionError as error:
        raise AssertionError(what) from error
    return f"{what}: same"


@pytest.mark.parametrize(
    ("case", "only"), [("driver", "sources/pairs"), pytest.param("cluster", "files/left", marks=pytest.mark.slow)]
)
def test_damage_is_found_or_changes_nothing(interpreted: SparkSession, tmp_path: Path, case: str, only: str) -> None:
    check(interpreted, case, tmp_path, 1, only)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 30))
@pytest.mark.parametrize("case", CASES)
def test_damage_is_found_or_changes_nothing_at_length(
    interpreted: SparkSession, tmp_path: Path, case: str, seed: int
) -> None:
    check(interpreted, case, tmp_path, seed)
