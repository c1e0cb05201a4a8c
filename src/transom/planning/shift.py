"""Whether the cuts of a stream cost something else from some moment on: seen by all of them, not only by sampled ones.

The time of a cut's job and commit is known of every cut, its phases only of those about which Spark was asked. So the
time is compared with what a profile says of a cut with these rows, and two cumulative sums (Page 1954) of the logarithm
of the ratio, less what is allowed, tell when it is too long or too short, and since when. How much of it is which phase
say the cuts since then of which the phases are known; while there is doubt, Spark should be asked about each.

Tasks that wait for a core make a cut longer and cost nothing more. So what they cost is told by the seconds for which
executors say that they ran, not by the clock; a time that these do not explain is of the cores that the cuts had.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from transom.model.phases import CutPhases, Phase
from transom.model.tuning import StreamTuning
from transom.planning.cuts import AT_ONCE, Cutting
from transom.planning.fit import LEAST, ran
from transom.planning.moments import Moments
from transom.planning.phases import CUT, TASKS
from transom.planning.profile import PhaseCost, StreamProfile

ALLOWED = math.log(1.1)
"""So far off, in logarithms, cuts may be; half of what should be found."""
WILD = math.log(3.0)
"""A cut counts as no more off than this, so that a single one says nothing."""
ENOUGH = 1.2
"""What the sums must reach."""
PATIENCE = 6.0
"""Or so many times the squared deviation of single cuts over what is allowed: noise alone gets there about once in
e^12 cuts."""
DOUBT = 0.3
"""From this share of it on there is doubt."""
OFF = math.log(1.15)
"""So far off must be the median of the cuts since then."""
ASKED = 2
"""Cuts of which the phases are known, to tell which phase it is; twice the sum is enough without them."""
KNOWN = 0.1
"""A phase is another one if it is off by such a share, and by `SHORT`."""
SHORT = 0.002
"""Seconds."""
KEPT = 64
"""Cuts that are looked at."""


@dataclass(frozen=True)
class Change:
    """What is new."""

    since: int
    """Number of the first cut that was so."""
    ratio: float
    """What cuts take, over what they took before."""
    profile: StreamProfile
    """What phases cost now."""


@dataclass(frozen=True)
class _Seen:
    cut: CutPhases
    off: float
    """Logarithm of what it took over what was expected."""


class Shift:
    """Compares the cuts of a stream with a profile.

    Args:
        profile: What phases cost.
        tuning: By which cuts are divided.
        cores: That there are.
        free: Of them, what all else leaves on average.
        rate: Rows that come in a second.
        learning: Of so many cuts the phases should be known before Spark is asked more rarely.
    """

    def __init__(
        self, profile: StreamProfile, tuning: StreamTuning, cores: int, free: float, rate: float, learning: int = 0
    ) -> None:
        self.profile = profile
        self._place = tuning, cores, free, rate
        self._cutting = Cutting(profile, *self._place)
        self._cores, self._learning = cores, learning
        self._seen: deque[_Seen] = deque(maxlen=KEPT)
        self._scv: float | None = None
        self._usual = 0.0
        """Logarithm of what cuts take over what was expected, as far as it is known to be no matter of costs."""
        self._begin()

    def _begin(self) -> None:
        self._seen.clear()
        self._sums = [0.0, 0.0]
        """How much too long cuts are, and how much too short."""
        self._counts = [0, 0]
        """Cuts since these were nothing."""

    def take(self, cut: CutPhases) -> None:
        """Take in a cut; it counts if it had a job."""
        took = _took(cut)
        expected = self._cutting.seconds(cut.rows) if cut.rows else 0.0
        if took <= 0 or expected <= 0:
            return
        if self._scv is None:
            time: Moments = sum((self._cutting.of(cut.rows).phase(phase) for phase in CUT), AT_ONCE)
            self._scv = time.variance / time.mean**2
        self._learning -= bool(cut.stages)
        off = math.log(took / expected) + self._scv / 2  # the mean of logarithms is so much less
        off = min(WILD, max(-WILD, off - self._usual))
        self._seen.append(_Seen(cut, off))
        for side, more in enumerate((off, -off)):
            self._sums[side] = max(0.0, self._sums[side] + more - ALLOWED)
            self._counts[side] = self._counts[side] + 1 if self._sums[side] else 0

    @property
    def asks(self) -> bool:
        """Whether Spark should be asked about each cut."""
        return self._learning > 0 or max(self._sums) >= DOUBT * self._enough

    @property
    def _enough(self) -> float:
        return max(ENOUGH, PATIENCE * (self._scv or 0.0) / ALLOWED)

    def found(self) -> Change | None:
        """Return what is new, once that is sure; None before."""
        side = 0 if self._sums[0] >= self._sums[1] else 1
        if self._sums[side] < self._enough:
            return None
        since = list(self._seen)[-self._counts[side] :]
        if abs(median(each.off for each in since)) < OFF:  # a few wild ones
            return None
        cuts = [each.cut for each in since]
        asked = [cut for cut in cuts if cut.stages]
        if len(asked) < ASKED and self._sums[side] < 2 * self._enough:
            return None
        costs, ran_for = dict(self.profile.costs), list[Phase]()
        if len(asked) >= ASKED:
            ran_for = [phase for phase in TASKS if all(self._is_known(phase, cut) for cut in asked)]
            costs |= {phase: self._mended(phase, asked, phase in ran_for) for phase in CUT}
        # What no phase explains, as none is known or as cuts have other tasks than the model says, is shared by all.
        left = self._left(asked if ran_for else cuts, costs, ran_for)
        if abs(math.log(left)) > OFF:
            costs |= {phase: _times(costs[phase], left) for phase in CUT if phase in costs}
        mended = self._with(costs)
        explained = math.log(median(mended.seconds(cut.rows) / self._cutting.seconds(cut.rows) for cut in cuts))
        if (explained if side == 0 else -explained) < OFF:  # it is not the costs that are others, but the cores
            usual = self._usual + median(each.off for each in since)
            self._usual = usual if abs(usual) >= OFF else 0.0
            self._begin()
            return None
        return Change(min(cut.number for cut in cuts), self._ratio(cuts), replace(self.profile, costs=costs))

    def after(self, change: Change) -> Shift:
        """Return the comparison with what phases cost since a change; they should be known soon."""
        return Shift(change.profile, *self._place, learning=LEAST)

    def anew(self) -> Shift:
        """Return the same comparison without the cuts that were taken in."""
        return Shift(self.profile, *self._place, learning=self._learning)

    def _with(self, costs: Mapping[Phase, PhaseCost]) -> Cutting:
        return Cutting(replace(self.profile, costs=costs), *self._place)

    def _ratio(self, cuts: Sequence[CutPhases]) -> float:
        """Return what cuts took over what they should take."""
        return median(_took(cut) / self._cutting.seconds(cut.rows) for cut in cuts)

    def _left(self, cuts: Sequence[CutPhases], costs: Mapping[Phase, PhaseCost], ran_for: Sequence[Phase]) -> float:
        """Return what cuts took over what they should take by some costs.

        Args:
            cuts: They.
            costs: Of the phases.
            ran_for: The phases of which it is known for how long tasks ran; they count as if these had their cores.
        """
        cutting, taken = self._with(costs), list[float]()
        for cut in cuts:
            waited = sum(cut.seconds[phase] - cutting.of(cut.rows).mean(phase) for phase in ran_for)
            taken.append(max(SHORT, _took(cut) - waited) / cutting.seconds(cut.rows))
        return median(taken)

    def _is_known(self, phase: Phase, cut: CutPhases) -> bool:
        """Tell whether it is known for how long the tasks of a phase ran, and for how long they should."""
        expected = self._cutting.of(cut.rows).mean(phase) > SHORT
        return expected and phase in cut.seconds and self.profile.cost(phase).ran > 0 and ran(cut, phase) > 0

    def _mended(self, phase: Phase, cuts: Sequence[CutPhases], as_ran: bool) -> PhaseCost:
        """Return what a phase costs by some cuts: so many times what it did; or more, where it was nearly nothing.

        Args:
            phase: The phase.
            cuts: They.
            as_ran: Whether it is told by how long tasks ran, not by the clock.
        """
        cost, whole = self.profile.cost(phase), [self._cutting.of(cut.rows) for cut in cuts]
        if as_ran:
            times = median(ran(cut, phase) / of.work(phase) for cut, of in zip(cuts, whole, strict=True)) / cost.ran
            return cost if abs(times - 1) <= KNOWN else _times(cost, times)
        took = median(cut.seconds.get(phase, 0.0) for cut in cuts)
        expected = median(cut.mean(phase) for cut in whole)
        if abs(took - expected) <= max(SHORT, KNOWN * expected):
            return cost
        if expected > SHORT:
            return _times(cost, max(took, SHORT) / expected)
        tasks = median(cut.tasks if phase is Phase.MAP else cut.behind for cut in whole) if phase in TASKS else 1
        return replace(cost, fixed=cost.fixed + (took - expected) / max(1.0, tasks / self._cores))


def _took(cut: CutPhases) -> float:
    """Return the seconds from the start of a cut to its commit; 0 without a job."""
    return 0.0 if cut.job is None else cut.job + cut.seconds.get(Phase.COMMIT, 0.0)


def _times(cost: PhaseCost, ratio: float) -> PhaseCost:
    return replace(cost, fixed=ratio * cost.fixed, each=ratio * cost.each)
