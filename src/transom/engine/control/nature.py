"""What the definition of a stream says of its costs, without measuring: how often windows close, limits, looks."""

from __future__ import annotations

import math
from collections.abc import Iterable

from transom.engine.streams.definition import StreamDefinition
from transom.engine.streams.derived import DerivedSource
from transom.model.calendar import UNITS, CalendarSpec
from transom.model.time import MICROS_PER_SECOND, Micros
from transom.model.window import SessionSpec, WindowKind, WindowSpec
from transom.planning.fit import Nature

MOST_EDGES = 10_000
"""Edges of windows that are looked at one by one until all repeat."""


def nature(stream: StreamDefinition, look: Micros) -> Nature:
    """Return what a definition says of its stream.

    Args:
        stream: It.
        look: Time between two looks at its source.
    """
    windows = [window for query in stream.queries for window in query.windows]
    lengths = [_length(window) for window in windows]
    sessions = any(isinstance(window, SessionSpec) for window in windows)
    ends = _apart([(_period(window), _end(window)) for window in windows])
    edges = _apart([(_period(window), each) for window in windows for each in {0, _end(window)}])
    closing = look if sessions or not windows else ends
    limits = [query.target.limit / MICROS_PER_SECOND for query in stream.queries if query.target is not None]
    feed = stream.feed
    return Nature(
        closing=closing / MICROS_PER_SECOND,
        windows=0.0 if sessions else sum(closing / _period(window) for window in windows) or 1.0,
        pane=0.0 if sessions else edges / MICROS_PER_SECOND,
        span=sum(lengths) / len(lengths) / MICROS_PER_SECOND if windows else 0.0,
        look=look / MICROS_PER_SECOND,
        limit=min(limits, default=None),
        after=feed.parents[0] if isinstance(feed, DerivedSource) else None,
    )


def _apart(edges: Iterable[tuple[Micros, Micros]]) -> float:
    """Return the mean time between two moments of periodic ones, each given by period and phase.

    Those that fall together count once, as far as that can be seen.

    >>> _apart([(1_000, 0), (1_000, 250), (2_000, 250)])
    500.0
    """
    known = {(period, phase % period) for period, phase in edges}
    if not known:
        return 0.0
    known = {one for one in known if not any(_holds(other, one) for other in known - {one})}
    whole = math.lcm(*(period for period, _ in known))
    if sum(whole // period for period, _ in known) > MOST_EDGES:
        return 1 / sum(1 / period for period, _ in known)
    return whole / len({phase + times * period for period, phase in known for times in range(whole // period)})


def _holds(one: tuple[Micros, Micros], other: tuple[Micros, Micros]) -> bool:
    """Tell whether all moments of another period and phase are moments of one."""
    return other[0] % one[0] == 0 and other[1] % one[0] == one[1]


def _period(window: WindowKind) -> Micros:
    """Return the time from the end of one window to that of the next; of sessions their gap."""
    if isinstance(window, SessionSpec):
        return window.gap
    if isinstance(window, CalendarSpec):
        return UNITS[window.unit]
    return window.slide


def _length(window: WindowKind) -> Micros:
    return window.length if isinstance(window, WindowSpec) else _period(window)


def _end(window: WindowKind) -> Micros:
    """Return when a window ends after the beginning of a period."""
    return (window.offset + window.length) if isinstance(window, WindowSpec) else 0
