"""Which stream runs next: pure functions over what is known of the streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from transom.model.time import Micros


@dataclass(frozen=True)
class StreamView:
    """A stream that has work, as a policy sees it."""

    name: str
    waiting_since: Micros
    """Wall time since when it has had work that was not started."""


Policy: TypeAlias = "Callable[[Sequence[StreamView], Micros], list[str]]"
"""Names of the streams in the order in which to run them, given the wall time."""


def first_come_first_served(streams: Sequence[StreamView], now: Micros) -> list[str]:
    """Return the stream first that has waited longest; ties by name."""
    return [view.name for view in sorted(streams, key=lambda view: (view.waiting_since, view.name))]
