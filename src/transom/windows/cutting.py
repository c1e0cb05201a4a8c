"""Where sessions are cut: by their length, each from its first row on, and after moments that end one."""

from __future__ import annotations

import numpy as np

from transom.model.time import MIN_TIME, Micros
from transom.model.window import SessionSpec
from transom.windows.aggregates.base import Slots
from transom.windows.aggregates.values import Mask
from transom.windows.panes import Times


def apart(spec: SessionSpec, heads: Mask, first: Times, reached: Times, watermark: Micros) -> Mask:
    """Return which intervals have to stay apart from the one before.

    A row that comes can still move the beginning of a session that is not before the watermark, and with it each cut
    that follows. Intervals of such sessions are one only within a grain, which is never cut. An interval that is longer
    than a grain is part of a session whose beginning is known, and so is what it overlaps. Where a row can end a
    session, one can still come at any moment that is not before the watermark, so that all from there on stay apart.

    Args:
        spec: The kind of sessions; they can be cut.
        heads: Where the activity of a key begins, or goes on after more than a gap, or after a moment that ended it.
        first: Time of the first row of each interval, ascending within an activity.
        reached: Time of the last row of the key in the intervals up to each.
        watermark: All rows before it are there.
    """
    grains = starts_of(first // spec.grain)
    grains[1:] &= first[1:] > reached[:-1]
    grains |= heads
    if watermark <= MIN_TIME:
        return grains
    begins = heads if spec.at_most is None else session_begins(spec, heads, first)
    if spec.ends_when is not None:
        return begins | (grains & (first >= watermark))
    at = np.maximum.accumulate(np.where(begins, np.arange(len(first)), 0))
    return begins | (grains & (first[at] >= watermark))


def after_ends(heads: Mask, first: Times, reached: Times, ended: Mask) -> Mask:
    """Return `heads` with those intervals that follow a moment which ended their session.

    Args:
        heads: Where the activity of a key begins, or goes on after more than a gap.
        first: Time of the first row of each interval, ascending within a key.
        reached: Time of the last row of the key in the intervals up to each.
        ended: Which intervals have a row that ends the session at their last moment.
    """
    moments = heads.copy()
    moments[1:] |= first[1:] > reached[:-1]
    over = np.zeros(int(moments.sum()), np.bool_)
    over[(np.cumsum(moments) - 1)[ended]] = True
    found = heads.copy()
    found[np.flatnonzero(moments)[1:]] |= over[:-1]
    return found


def session_begins(spec: SessionSpec, heads: Mask, first: Times) -> Mask:
    """Return which intervals begin a session, if nothing else comes; arguments as of `apart`.

    O(n log n), in as many steps as the activity with the most sessions has.
    """
    activity: Slots = np.cumsum(heads, dtype=np.int64)
    moments = np.unique(first)

    def place(of: Slots, moment: Times) -> Slots:
        """Return a number that ascends with activity and moment."""
        return of * (len(moments) + 1) + np.searchsorted(moments, moment)

    # If an interval begins a session, then the first one beyond its limit begins the next.
    following = np.searchsorted(place(activity, first), place(activity, spec.limits(first)))
    begins = heads.copy()
    now = np.flatnonzero(heads)
    while len(now):
        later = following[now]
        inside = later < len(first)
        now = later[inside][activity[later[inside]] == activity[now[inside]]]
        begins[now] = True
    return begins


def starts_of(groups: Slots) -> Mask:
    """Return where a group begins; equal numbers are neighbours."""
    starts = np.ones(len(groups), np.bool_)
    starts[1:] = groups[1:] != groups[:-1]
    return starts
