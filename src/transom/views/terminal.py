"""Views of a run at the command line: a live picture on a terminal, log lines elsewhere, JSON lines for programs.

A view decides when to print by the time in the progress itself, so it needs no clock.
"""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from types import TracebackType
from typing import Protocol, TextIO

from rich.console import Console
from rich.live import Live

from transom.engine.loop.progress import Progress
from transom.model.time import MICROS_PER_SECOND, MIN_TIME, Micros
from transom.views.dashboard import log_lines, notes, render, to_json

LIVE_EVERY: Micros = MICROS_PER_SECOND // 4
"""Shortest time between two pictures of the live view."""
LINES_EVERY: Micros = 5 * MICROS_PER_SECOND
"""Shortest time between two log lines about a stream."""
NOTES_SHOWN = 6
"""Notes that stay in the live view."""


class RunView(Protocol):
    """A view of a run; `update` is given to `App.run` as `on_progress`."""

    def __enter__(self) -> RunView:
        """Start showing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing; the terminal is as before."""

    def update(self, progress: Progress) -> None:
        """Show a newer state of the run."""

    def say(self, line: str) -> None:
        """Show a line from elsewhere, such as Spark's log."""

    def tell(self, words: str) -> None:
        """Say in words what happens from now on; may be called from any thread."""

    def headline(self, line: str) -> None:
        """Show the newest result as a line; may be called from any thread."""

    def finish(self, progress: Progress) -> None:
        """Show the last state of the run, whatever was shown just before."""


def make_view(stdout: TextIO, stderr: TextIO, as_json: bool) -> RunView:
    """Return the view that suits the output: JSON when asked for, live on a terminal, else log lines."""
    if as_json:
        return JsonView(stdout, stderr)
    console = Console(file=stdout)
    return LiveView(console) if console.is_terminal and not console.is_dumb_terminal else LineView(stdout, stderr)


class _EveryView:
    """The common part of the views: a shortest time between two pictures, and nothing to set up or take down."""

    every: Micros

    def __init__(self) -> None:
        self._due: Micros = MIN_TIME

    def _is_due(self, at: Micros) -> bool:
        if at < self._due:
            return False
        self._due = at + self.every
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class LiveView(_EveryView):
    """A picture that stays in place."""

    every = LIVE_EVERY

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._notes: list[str] = []
        self._words = self._headline = ""
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def update(self, progress: Progress) -> None:
        """Show a newer state of the run."""
        self._notes = [*self._notes, *progress.notes][-NOTES_SHOWN:]
        if self._is_due(progress.ran) or progress.notes:
            self._live.update(render(progress, self._notes, words=self._words, headline=self._headline), refresh=True)

    def say(self, line: str) -> None:
        """Show a line from elsewhere."""
        self._live.console.print(line, markup=False, highlight=False, style="dim")

    def tell(self, words: str) -> None:
        """Say in words what happens from now on."""
        self._words = words

    def headline(self, line: str) -> None:
        """Show the newest result as a line."""
        self._headline = line

    def finish(self, progress: Progress) -> None:
        """Show the last state of the run."""
        self._notes = [*self._notes, *progress.notes][-NOTES_SHOWN:]
        self._live.update(render(progress, self._notes, ended=True), refresh=True)


class LineView(_EveryView):
    """A line per stream and per query every few seconds, and one per note."""

    every = LINES_EVERY

    def __init__(self, stdout: TextIO, stderr: TextIO) -> None:
        super().__init__()
        self._stdout, self._stderr = stdout, stderr
        self._first = True

    def __enter__(self) -> LineView:
        return self

    def update(self, progress: Progress) -> None:
        """Show a newer state of the run."""
        self._print(log_lines(progress) if self._is_due(progress.ran) else notes(progress))

    def say(self, line: str) -> None:
        """Show a line from elsewhere."""
        print(line, file=self._stderr, flush=True)

    def tell(self, words: str) -> None:
        """Say in words what happens from now on."""
        print(words, file=self._stdout, flush=True)

    def headline(self, line: str) -> None:
        """Show the first result; the others would be too many lines."""
        if self._first:
            print(f"First result: {line}", file=self._stdout, flush=True)
        self._first = False

    def finish(self, progress: Progress) -> None:
        """Show the last state of the run."""
        self._print(log_lines(progress))

    def _print(self, lines: list[str]) -> None:
        for line in lines:
            print(line, file=self._stdout, flush=True)


class JsonView(_EveryView):
    """One JSON object per line: `{"event": "progress", ...}`, the last one `{"event": "final", ...}`.

    What else prints, such as a console sink, goes to standard error, so that every line here is JSON.
    """

    every = LINES_EVERY

    def __init__(self, stdout: TextIO, stderr: TextIO) -> None:
        super().__init__()
        self._stdout, self._stderr = stdout, stderr
        self._redirect = redirect_stdout(stderr)

    def __enter__(self) -> JsonView:
        self._redirect.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._redirect.__exit__(kind, error, trace)

    def update(self, progress: Progress) -> None:
        """Show a newer state of the run."""
        if self._is_due(progress.ran) or progress.notes:
            self._print("progress", progress)

    def say(self, line: str) -> None:
        """Show a line from elsewhere."""
        print(line, file=self._stderr, flush=True)

    def tell(self, words: str) -> None:
        """Say nothing: these are words for people."""

    def headline(self, line: str) -> None:
        """Say nothing: results are where the job puts them."""

    def finish(self, progress: Progress) -> None:
        """Show the last state of the run."""
        self._print("final", progress)

    def _print(self, event: str, progress: Progress) -> None:
        print(json.dumps({"event": event, **to_json(progress)}), file=self._stdout, flush=True)
