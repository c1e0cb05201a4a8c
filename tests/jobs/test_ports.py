"""The ports of public jobs give what stands beside them, in TOML and in Python."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from transom.cli.loading import load

ROOT = Path(__file__).resolve().parents[2]
PORTS = ROOT / "examples" / "ports"
TIMES = ("at", "started", "window_start", "window_end")


def rows(directory: Path) -> list[str]:
    """Return the rows that were written, without times, in any order."""
    lines = [line for file in directory.rglob("*.json") for line in file.read_text().splitlines()]
    return sorted(without_times(json.loads(line)) for line in lines)


def without_times(row: dict[str, Any]) -> str:
    kept = {name: value for name, value in sorted(row.items()) if name not in TIMES and value is not None}
    return json.dumps({name: value if isinstance(value, str) else float(value) for name, value in kept.items()})


SLOW = [(name, kind) for name in ("rides", "fraud", "clickstream") for kind in ("toml", "py")][1:]


@pytest.mark.parametrize(
    ("name", "kind"), [("rides", "toml"), *(pytest.param(*one, marks=pytest.mark.slow) for one in SLOW)]
)
def test_a_port_gives_what_is_expected(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    progress = load(PORTS / f"{name}.{kind}")(interpreted).run(once=True, close_all=True)
    assert [query.failure for query in progress.queries if query.failure] == []
    wanted = json.loads((PORTS / name / "expected.json").read_text())
    for query, expected in wanted.items():
        assert rows(tmp_path / "ports-example" / name / query) == sorted(map(without_times, expected)), query
