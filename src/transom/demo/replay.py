"""Running the demo: the year is caught up with, then its last days come at a pace, as from a live source."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transom.engine.loop.progress import Progress
from transom.errors import SourceError
from transom.model.time import MICROS_PER_SECOND, Clock, Micros
from transom.views.terminal import RunView

if TYPE_CHECKING:
    from transom.api.app import App

OVER: Micros = 20 * MICROS_PER_SECOND
"""Duration of the paced part."""
LOOK = 0.05
"""Seconds between two looks whether the stream has caught up."""


@dataclass(frozen=True)
class Replayed:
    """The measurements of a replay."""

    final: Progress
    """The run until its stop."""
    closing: Progress | None
    """The run after it, which closed the windows that were open; None if the user stopped the demo."""
    caught_up: tuple[int, Micros] | None
    """Rows that had been there before, and how long they took; None if they were not all read."""
    paced: tuple[int, Micros] | None
    """Rows that came at a pace, and how long that took; None if not all did."""


class Replay:
    """One replay.

    Args:
        app: The application; its one stream reads the files.
        files: What is to come at a pace: paths and texts.
        rows: Rows that are there already, and rows of the files.
        view: Shows the run.
        clock: The time.
    """

    def __init__(
        self, app: App, files: Sequence[tuple[Path, str]], rows: tuple[int, int], view: RunView, clock: Clock
    ) -> None:
        self._app, self._files, self._rows, self._view, self._clock = app, files, rows, view, clock
        self._waiting, self._coming = rows
        self._progress: Progress | None = None
        self._caught_up: Micros | None = None
        self._paced: Micros | None = None
        self._all_read = False
        self._unwritten: OSError | None = None
        self._ended = threading.Event()

    def run(self) -> Replayed:
        """Run until the files have come and been read, or the user stops it.

        Raises:
            TransomError: The run failed, or the files cannot be written.
            KeyboardInterrupt: It was stopped at once.
        """
        then = f" Then the last {self._coming:,} come at a pace." if self._files else ""
        self._view.tell(
            f"{self._waiting:,} flights are there already, as after an outage: they are read as fast as it goes.{then}"
        )
        with self._app.start(on_progress=self._show) as running:
            pacer = threading.Thread(target=self._pace, name="transom-demo", daemon=True)
            pacer.start()
            try:
                final = running.wait()
            finally:
                self._ended.set()
                pacer.join()
        if self._unwritten is not None:
            raise SourceError(
                f"The demo's input cannot be written: {self._unwritten}.",
                "Make room, or choose another place by --out.",
            )
        self._view.finish(final)
        closing = None if not self._all_read else self._app.run(once=True, close_all=True)
        caught_up = None if self._caught_up is None else (self._waiting, self._caught_up)
        return Replayed(final, closing, caught_up, None if self._paced is None else (self._coming, self._paced))

    def _show(self, progress: Progress) -> None:
        self._progress = progress
        if self._caught_up is None and self._has_read(self._waiting):
            self._caught_up = progress.ran
        self._view.update(progress)

    def _has_read(self, rows: int) -> bool:
        return self._progress is not None and sum(stream.rows for stream in self._progress.streams) >= rows

    def _wait_for(self, rows: int) -> bool:
        """Wait until so many rows are committed; return whether they are, else the run has ended."""
        while not self._has_read(rows):
            if self._ended.wait(LOOK):
                return False
        return True

    def _pace(self) -> None:
        try:
            self._all_read = self._wait_for(self._waiting) and (not self._files or self._put_files())
        except OSError as error:
            self._unwritten = error
        if self._all_read or self._unwritten is not None:
            self._app.stop()

    def _put_files(self) -> bool:
        """Let the files come, and wait until they are read; return whether they are, else the run has ended."""
        seconds = OVER / MICROS_PER_SECOND
        self._view.tell(
            f"Live: the last {self._coming:,} flights come within {seconds:.0f} seconds, a file of them every "
            f"{seconds / len(self._files) * 1000:.0f} ms. "
            "p50, p95 and p99 are the times from a file that completes a window to its result."
        )
        begin = self._clock.monotonic()
        for number, (path, text) in enumerate(self._files, 1):
            put(path, text)
            due = begin + OVER * number // len(self._files)
            if self._ended.wait(max(0, due - self._clock.monotonic()) / MICROS_PER_SECOND):
                return False
        took = self._clock.monotonic() - begin
        if not self._wait_for(self._waiting + self._coming):
            return False
        self._paced = took
        return True


def put(path: Path, text: str) -> None:
    """Let a file appear at once, whole, as a stream's files must."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)
