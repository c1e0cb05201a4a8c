"""The measured cuts of a stream that count for its profile: what was measured ten minutes earlier counts half."""

from __future__ import annotations

from collections.abc import Sequence

from transom.model.phases import CutPhases
from transom.model.time import MICROS_PER_SECOND, Micros

HALF: Micros = 600 * MICROS_PER_SECOND
"""The half-life of what was measured."""
MOST = 256
"""Cuts that are kept at most."""
_WHOLE = 1 << 32
_GOLDEN = 2_654_435_769
"""The golden ratio as a part of `_WHOLE`: multiples of it are spread evenly, whichever of them are looked at."""


class Digest:
    """Keeps cuts, and fewer and fewer of the older ones.

    Of those that are k half-lives old one in 2^k is left, so that whatever is fitted to what is kept forgets at this
    pace, medians too. Which these are is drawn by their number, once for all: a cut that went does not come back.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[Micros, int, CutPhases]] = []
        self._number = 0
        self._rarer = 0
        """Times that the number of kept cuts was halved, as there were too many."""

    def take(self, cut: CutPhases, now: Micros) -> None:
        """Take in a cut.

        Args:
            cut: It; counts if Spark was asked about it, or windows were completed.
            now: Monotonic time.
        """
        if not (cut.stages or cut.windows):
            return
        self._number += 1
        self._kept.append((now, self._number * _GOLDEN % _WHOLE, cut))
        if len(self._kept) > MOST:
            self._forget(now)
            while len(self._kept) > MOST:
                self._rarer += 1
                self._forget(now)

    def cuts(self, now: Micros) -> Sequence[CutPhases]:
        """Return those that count at a monotonic time, in order."""
        self._forget(now)
        return [cut for _, _, cut in self._kept]

    def forget_before(self, number: int) -> None:
        """Forget the cuts before the one with a number: what is so since then counts alone."""
        self._kept = [each for each in self._kept if each[2].number >= number]

    def _forget(self, now: Micros) -> None:
        if len(self._kept) < MOST // 4:
            self._rarer = 0
        self._kept = [
            (taken, drawn, cut)
            for taken, drawn, cut in self._kept
            if drawn < _WHOLE >> (self._rarer + max(0, now - taken) // HALF)
        ]
