"""The tier of partials, driver or executors, by a budget of bytes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

PROMOTED_TO = 0.75
"""Partials go to the executors until the driver holds at most this share of its budget."""
DEMOTED_AT = 0.25
"""Partials come back only while the driver then holds at most this share: far below `PROMOTED_TO`, so that a load
that goes up and down does not move it to and fro."""


@dataclass(frozen=True)
class Footprint:
    """The partials of a component."""

    name: str
    here: int
    """Bytes on the driver."""
    there: int
    """Bytes in files."""

    @property
    def total(self) -> int:
        """Bytes of all of them, which are in one place after the next snapshot."""
        return self.here + self.there


def in_files(now: Collection[str], footprints: Sequence[Footprint], budget: int) -> frozenset[str]:
    """Return the components whose partials are kept by the executors. O(components log components).

    What it returns is at rest: once the partials are where it says, the same sizes move nothing.

    Args:
        now: Names of those that are so already.
        footprints: All components.
        budget: Bytes that the driver may hold.
    """
    kept = {one.name for one in footprints if one.name in now}
    held = sum(one.total for one in footprints if one.name not in kept)
    if held > budget:
        for one in sorted(footprints, key=lambda one: -one.total):
            if one.name not in kept and held > PROMOTED_TO * budget:
                kept.add(one.name)
                held -= one.total
    for one in sorted(footprints, key=lambda one: one.total):  # what has just gone is too large to come back
        if one.name in kept and held + one.total <= DEMOTED_AT * budget:
            kept.discard(one.name)
            held += one.total
    return frozenset(kept)
