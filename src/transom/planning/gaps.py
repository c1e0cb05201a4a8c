"""How long there is between the starts of two cuts of a stream that has a trigger."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

LEAST = 5e-3
"""Share of the cuts from which on a length counts."""
ALIKE = 0.15
"""Lengths that differ by less, as a part of the longer one, count as one."""
MOST = 60
"""Cuts of a run that are looked at."""
ROUNDS = 4
"""Steps in which the length of the last cut of a run must settle."""
NEAR = 0.02
"""Part of the time between two closings by which it may still move then."""
PARTS = 16
"""Spans of `Times` that are followed, at most."""
Times: TypeAlias = Sequence[tuple[float, float]]
"""Spans of time, each moment of which is as likely as each other one."""
Gaps: TypeAlias = Sequence[tuple[float, float]]
"""Shares of the cuts, and seconds from the start of the one before to that of each; the longest first."""


def gaps(trigger: float, least: float, first: float, closing: float, piece: float = 0.0) -> Gaps:
    """Return how long there is between two starts.

    A cut that completes windows is followed at once by the one that closes them, whatever the trigger. So after the
    trigger there is a run of cuts, each as long as it takes to read what came during the one before, until one
    completes nothing: it is long at first, and the fuller the cores are, the slower its cuts get shorter. Windows end
    like clockwork. So how likely a cut completes some follows from when the last ones ended, of which there is known
    that it lies between two times, each moment as likely. The trigger counts all the same if nothing came meanwhile.

    Args:
        trigger: Least time between two starts, seconds.
        least: How long a cut takes that reads hardly anything.
        first: How long one takes that reads what comes in the time of the trigger; less than that.
        closing: Time between two closings.
        piece: Time from one arrival of rows to the next.

    Returns:
        The lengths, the trigger first; none if each cut completes windows, so that they follow each other for ever.

    >>> [(round(share, 2), round(length, 2)) for share, length in gaps(1.0, 0.5, 0.5, 2.0)]
    [(0.58, 1.0), (0.42, 0.5)]
    """
    least = min(least, first)
    slope = (first - least) / trigger
    still = least / (1 - slope)
    if still >= max(closing, piece):
        return []
    last, found = still, list[tuple[float, float]]()
    for _ in range(ROUNDS):
        before = last
        found, last = _run(trigger, first, slope, still, closing, piece, min(last, closing))
        if abs(last - before) < NEAR * closing:
            break
    return _few(found)


def _few(found: Gaps) -> Gaps:
    """Return the same lengths, those that are alike as one; the trigger stays by itself."""
    total, grouped = sum(share for share, _ in found), list[list[tuple[float, float]]]()
    for number, (share, length) in enumerate(found):
        if number > 1 and length > (1 - ALIKE) * grouped[-1][0][1]:
            grouped[-1].append((share / total, length))
        else:
            grouped.append([(share / total, length)])
    return [group[0] if len(group) == 1 else _together(group) for group in grouped]


def _together(group: Gaps) -> tuple[float, float]:
    portion = sum(share for share, _ in group)
    return portion, sum(share * length for share, length in group) / portion


def _run(
    trigger: float, first: float, slope: float, still: float, closing: float, piece: float, last: float
) -> tuple[list[tuple[float, float]], float]:
    """Return how often there are which lengths in a run, and how long its last one is on average.

    Args:
        trigger: Its first length.
        first: See `gaps`.
        slope: How much longer a cut takes that reads what came in a longer time.
        still: How long cuts are when they do not get shorter any more.
        closing: Time between two closings.
        piece: Time from one arrival of rows to the next.
        last: How long the last one of the run before was, in which no window ended.
    """
    found, share, length, ended, ends = list[tuple[float, float]](), 1.0, trigger, 0.0, 0.0
    since: Times = [(last, closing)] if last < closing else [(0.0, closing)]
    while share >= LEAST and len(found) < MOST:
        found.append((share, length))
        before, since = _span(since), _later(since, length, closing)
        chance = _span(since) / before
        ended, ends = ended + share * (1 - chance), ends + share * (1 - chance) * length
        length = max(still, first + slope * (length - trigger))
        share *= chance * min(1.0, length / piece if piece else 1.0)
    return found, ends / ended if ended > 0 else last


def _later(since: Times, length: float, closing: float) -> Times:
    """Return how long ago windows ended after some time, where some ended meanwhile.

    >>> _later([(0.0, 0.5)], 0.75, 1.0), _later([(0.0, 0.5)], 1.75, 1.0)
    ([(0.0, 0.25)], [(0.75, 1.0), (0.0, 0.25)])
    """
    found: list[tuple[float, float]] = []
    for low, high in since:
        low = max(low, closing - length)
        if low >= high:
            continue
        whole = math.floor((low + length) / closing) * closing
        low, high = low + length - whole, high + length - whole
        found += [(low, high)] if high <= closing else [(low, closing), (0.0, high - closing)]
    return found[:PARTS]


def _span(times: Times) -> float:
    return sum(high - low for low, high in times)
