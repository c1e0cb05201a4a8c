"""Profiles that cannot be made, of files larger than any cut or by a run that is interrupted, and how runs are set."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from transom.api.profiling import COARSE, Profiler, _numbered, _undisturbed
from transom.errors import DefinitionError
from transom.model.phases import CutPhases
from transom.settings import Settings

LIMIT = round(COARSE * 1_000)


@pytest.mark.parametrize(("least", "refused"), [(LIMIT, False), (LIMIT + 1, True)])
def test_a_file_larger_than_any_cut_should_be_is_refused(least: int, refused: bool) -> None:
    cuts = [CutPhases("clicks", number, rows, {}) for number, rows in enumerate((0, 90_000, least))]
    profiler = Profiler(build=lambda: None, seconds=60, cuts={"clicks": cuts})  # type: ignore[arg-type,return-value]
    if not refused:
        profiler._require_small_pieces({"clicks": 1_000})
        return
    with pytest.raises(DefinitionError, match=f"no cut of 'clicks' has fewer than {least:,} rows") as found:
        profiler._require_small_pieces({"clicks": 1_000})
    assert "more and smaller files" in str(found.value)


class Interrupted:
    """An application whose run somebody interrupts."""

    def __init__(self) -> None:
        self.settings, self.stopped = Settings(), 0
        self.checkpoint: Any = None
        self._queries = SimpleNamespace(mute=lambda: None)

    def start(self, on_progress: Callable[[Any], None]) -> Any:
        self.checkpoint.mkdir()
        (self.checkpoint / "log").write_text("a cut")
        return SimpleNamespace(_ended=SimpleNamespace(wait=self._interrupted))

    def _interrupted(self, seconds: float) -> bool:
        raise KeyboardInterrupt

    def _stop_at_once(self) -> None:
        self.stopped += 1


def test_a_run_that_is_interrupted_ends_at_once_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    app = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        Profiler(lambda: app, 60.0)._measure({}, 60.0, 0.1)  # type: ignore[arg-type,return-value]
    assert app.stopped == 1
    assert app.checkpoint.name == "checkpoint"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("tier", "measured"), [("auto", "driver"), ("driver", "driver"), ("cluster", "cluster")])
def test_cuts_are_measured_with_their_partials_where_they_will_be(tier: str, measured: str) -> None:
    """By themselves partials are on the driver, unless there are too many."""
    assert _undisturbed(Settings(tier=tier), 100_000, {}, 1_000).tier == measured


def test_cuts_know_the_rows_before_them_in_their_order() -> None:
    cuts = [CutPhases("clicks", number, rows, {}) for number, rows in ((3, 30), (1, 10), (2, 0))]
    assert [(cut.number, cut.before) for cut in _numbered(cuts)] == [(1, 0), (2, 10), (3, 10)]
