"""A run in a notebook: one table that stays in its place and is drawn anew."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any, Protocol

from rich.console import Console, RenderableType

from transom.engine.loop.progress import Progress
from transom.model.time import MICROS_PER_SECOND, MIN_TIME, Micros
from transom.views.dashboard import render

EVERY: Micros = MICROS_PER_SECOND // 2
"""Shortest time between two pictures."""
NOTES_SHOWN = 6
WIDTH = 110
"""Characters of a line."""
_FORMAT = '<pre style="white-space:pre;overflow-x:auto;line-height:1.25;margin:0">{code}</pre>'


class Handle(Protocol):
    """An output of IPython that can be changed."""

    def update(self, picture: Any) -> None:
        """Show another picture in the place of the last."""


def notebook_display() -> Callable[..., Handle] | None:
    """Return IPython's `display` in a notebook; None elsewhere, as in a terminal that IPython runs in."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or getattr(shell, "kernel", None) is None:
        return None
    from importlib import import_module

    display: Callable[..., Handle] = import_module("IPython.display").display
    return display


class Picture:
    """A renderable of rich as notebooks show it."""

    def __init__(self, content: RenderableType) -> None:
        self._content = content

    def _console(self) -> Console:
        # Without `force_jupyter=False` rich would print into the notebook by itself.
        console = Console(file=io.StringIO(), width=WIDTH, record=True, force_jupyter=False)
        console.print(self._content)
        return console

    def _repr_html_(self) -> str:
        return self._console().export_html(inline_styles=True, code_format=_FORMAT)

    def __repr__(self) -> str:
        return self._console().export_text()


class NotebookView:
    """The live table of a run; `update` is given to the run as `on_progress`.

    Args:
        display: IPython's.
    """

    def __init__(self, display: Callable[..., Handle]) -> None:
        self._display = display
        self._handle: Handle | None = None
        self._due: Micros = MIN_TIME
        self._notes: list[str] = []

    def update(self, progress: Progress) -> None:
        """Show a newer state of the run."""
        self._notes = [*self._notes, *progress.notes][-NOTES_SHOWN:]
        if progress.ran >= self._due or progress.notes:
            self._due = progress.ran + EVERY
            self._show(Picture(render(progress, self._notes, hint="interrupt the kernel to stop")))

    def finish(self, progress: Progress) -> None:
        """Show the last state of the run."""
        self._notes = [*self._notes, *progress.notes][-NOTES_SHOWN:]
        self._show(Picture(render(progress, self._notes, ended=True)))

    def _show(self, picture: Picture) -> None:
        if self._handle is None:
            self._handle = self._display(picture, display_id=True)
        else:
            self._handle.update(picture)
