"""Dead letters that cannot be written end the run, and the error says what helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import transom as tm
from transom.engine.spark import deadletters
from transom.errors import CheckpointError


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (OSError(28, "No space left on device"), "free some space on that disk"),
        (OSError(5, "Input/output error"), "repair that disk or store"),
        (ValueError("no such zone"), "correct what raises for these rows"),
    ],
    ids=["full", "broken", "function"],
)
def test_the_remedy_fits_the_cause(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, remedy: str
) -> None:
    def written(*given: Any, **more: Any) -> Any:
        raise error

    monkeypatch.setattr(deadletters, "write_dead_letters", written)
    source = tm.sources.memory("at long")
    source.add([(1,), (None,)])
    app = tm.App(spark, tmp_path / "checkpoint")
    stream = app.stream(source, event_time="timestamp_seconds(at)", watermark=tm.watermark(0, max_ahead=None))
    stream.window("1 hour").agg(n=tm.count()).to(tm.sinks.memory(), "counts")
    with pytest.raises(CheckpointError, match="Could not write the dead letters") as caught:
        app.run(once=True)
    assert remedy in str(caught.value)
