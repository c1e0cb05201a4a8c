"""What people are told that others can cause as often as they like: logs must not grow by it without bound."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from transom.model.time import MICROS_PER_SECOND, Micros

MOST = 20
"""Things that are told about one neighbour in `WHILE`."""
WHILE: Micros = 600 * MICROS_PER_SECOND
LONGEST = 2_000
"""Characters of one."""


class Notices:
    """Decides what people are told about neighbours: once while it stays the same, and so many in a while at most."""

    def __init__(self) -> None:
        self._last: dict[Hashable, str] = {}
        self._told: dict[Hashable, deque[Micros]] = {}

    def news(self, about: Hashable, text: str, now: Micros) -> str:
        """Return what is to be told, not too long; empty if nothing is.

        Args:
            about: Who it is about; of few, as something is remembered of each.
            text: What has happened.
            now: Monotonic time.
        """
        text = text[:LONGEST]
        told = self._told.setdefault(about, deque(maxlen=MOST))
        if self._last.get(about) == text or (len(told) == MOST and now - told[0] < WHILE):
            return ""
        self._last[about] = text
        told.append(now)
        if len(told) == MOST and now - told[0] < WHILE:
            return f"{text} (There have been {MOST} such things: no more of them are told for some minutes.)"
        return text

    def passed(self, about: Hashable) -> None:
        """Take note that all is well again: the same is told if it happens once more."""
        self._last.pop(about, None)
