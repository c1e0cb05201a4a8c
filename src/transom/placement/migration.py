"""Migration of a key group to another executor: the three strategies of Enorm (section 5.1).

What each means for the windows of a group is decided by `KeyGroups`.
"""

from __future__ import annotations

from enum import Enum


class Strategy(Enum):
    """The treatment of a group's partials when it moves."""

    INSTANT = "instant"
    """Nothing waits: the source goes on until the target has read them in the background. (In the paper the target
    gets new partials at once, and windows are merged from both; see docs/decisions/0024.)"""
    DISRUPTIVE = "disruptive"
    """The stream waits until they are at the target."""
    SMOOTH = "smooth"
    """The source goes on with the windows that have begun; the target begins with the next ones."""
