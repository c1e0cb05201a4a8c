"""Windows whose partials are at the executors of a cluster."""

from __future__ import annotations

from typing import Any


def test_results_stay_exact_when_an_executor_is_killed(seen: dict[str, Any]) -> None:
    found = seen["tier"]
    assert found["same"]
    assert found["rows"] > 2_000
    assert found["lost"], "the application tells which executor was lost"
    assert 0 < found["recovery_s"] < 30
