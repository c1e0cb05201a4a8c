"""What an earlier Transom left behind is gone on with, exactly."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from checkpoint_helpers import reopen
from golden_helpers import CASES, GOLDEN, UPDATES, last_cut, restore, results, run
from pyspark.sql import SparkSession

from transom.checkpoint import Checkpoint, store
from transom.checkpoint.log import FORMAT
from transom.sinks.inmemory import MemorySink

SOON = "format-1-driver"
"""The oldest is restored in each run of the tests; all in the long one."""
GOLDENS = [
    pytest.param(case, marks=() if name == SOON else pytest.mark.slow, id=name)
    for name, case in sorted((f"{case.parent.name}-{case.name}", case) for case in GOLDEN.glob("format-*/*"))
]


def require_expected(golden: Path, sink: MemorySink) -> None:
    after = last_cut(golden / "checkpoint")
    expected, found = json.loads((golden / "expected.json").read_text()), results(sink, after)
    for query in UPDATES:
        rows = found.pop(query)
        assert len(rows) >= 5
        assert set(rows) <= set(expected.pop(query))
    assert found == expected


@pytest.mark.parametrize("golden", GOLDENS)
def test_a_checkpoint_of_each_format_leads_to_the_same_results(
    interpreted: SparkSession, tmp_path: Path, golden: Path
) -> None:
    restore(golden, tmp_path)
    sink = MemorySink()
    run(interpreted, tmp_path, sink, **CASES[golden.name])
    require_expected(golden, sink)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A checkpoint of format 1."""
    restore(GOLDEN / "format-1" / "driver", tmp_path)
    return tmp_path / "checkpoint"


def said(checkpoint: Path) -> int:
    found: int = json.loads((checkpoint / "checkpoint.json").read_text())["format"]
    return found


def test_the_first_snapshot_leaves_nothing_of_an_older_format(old: Path) -> None:
    with reopen(old) as checkpoint:
        assert checkpoint.found_format == 1
        records = checkpoint.records
        checkpoint.append({"type": "note"}, sync=True)
    assert said(old) == FORMAT
    with reopen(old) as checkpoint:
        assert checkpoint.found_format == 1
        assert checkpoint.records == [*records, {"type": "note"}]
        assert checkpoint.snapshot is not None
        checkpoint.write_snapshot(checkpoint.snapshot.state, checkpoint.snapshot.tables)
        checkpoint.append({"type": "note"}, sync=True)
    with reopen(old) as checkpoint:
        assert checkpoint.found_format == FORMAT
        assert checkpoint.records == [{"type": "note"}]


@pytest.mark.parametrize("step", ["raise_format", "LogWriter", "remove_obsolete"])
@pytest.mark.parametrize("done", [False, True])
def test_a_crash_while_an_older_format_is_taken_over(
    old: Path, monkeypatch: pytest.MonkeyPatch, step: str, done: bool
) -> None:
    class Crash(BaseException):
        pass

    do = getattr(store, step)

    def crash(*args: object) -> None:
        if done:
            do(*args)
        raise Crash

    with reopen(Path(shutil.copytree(old, old.with_name("copy")))) as copy:
        wanted: Checkpoint = copy
    with monkeypatch.context() as patch:
        patch.setattr(store, step, crash)
        with pytest.raises(Crash):
            reopen(old)
    with reopen(old) as checkpoint:
        assert checkpoint.found_format == 1
        assert checkpoint.records == wanted.records
        assert checkpoint.snapshot is not None
        assert wanted.snapshot is not None
        assert checkpoint.snapshot.state == wanted.snapshot.state
    assert said(old) == FORMAT
