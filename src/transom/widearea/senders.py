"""The source's end of a flow: what is gathered, when it leaves, and what is kept until the destination has it.

At the end of an interval what was gathered is due. It leaves when its link has room, and only then is its range of
cuts fixed (`Fix`), before the first byte; until then more cuts join it. So after an hour without a link a site sends
the partials of one hour, not 3,600 times those of a second. What was fixed stays as it is, is sent again the same
way or another one, and is forgotten with the destination's ack.

A run that is not the first of its checkpoint does not know whether that is an old copy. If it were, cuts that are made
now would have numbers of others that the destination has, and would be taken for those. So before it fixes any it asks
where the destination stands, by what was fixed before, or a parcel without rows: whoever acks has heard of this run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from transom.model.time import Micros
from transom.widearea.parcels import (
    Body,
    Delays,
    FlowName,
    Parcel,
    Part,
    PartitionProgress,
    Place,
    Reason,
    Refusal,
    RowCounts,
    Standing,
)
from transom.widearea.topology import Site

LATE = 3
"""A parcel whose ack has not come after so many times the prediction takes another way."""
CROWDED = 4
"""What there was no room for is sent again after so many times that at most: nobody says when there is."""
AGAIN = 4
"""So many of the oldest parcels are sent again while acks are missing: those behind them could only be held."""
SHORTEST: Micros = 1_000_000
LONGEST: Micros = 60_000_000
"""Bounds of the wait for an ack, microseconds; it doubles with each try, until there is a new connection."""


@dataclass(frozen=True)
class Fix:
    """The order to fix a range of cuts, in the log, and to make a parcel of what was gathered of it: then say `fixed`.

    Where the range is empty, nothing is logged.
    """

    flow: FlowName
    site: Site
    incarnation: str
    epoch: int
    after: int
    upto: int
    tick: int
    step: int
    since: int
    acked: int
    ended: bool = False
    """Whether the run ends with it."""

    def parcel(
        self,
        body: Body = b"",
        partitions: Sequence[PartitionProgress] = (),
        arrived: Micros | None = None,
        counts: RowCounts | None = None,
        delays: Delays | None = None,
        failed: Mapping[str, str] | None = None,
        injected: Micros | None = None,
    ) -> Parcel:
        """Return the parcel of the range; the arguments are those of `Part`."""
        part = Part(
            self.site,
            self.incarnation,
            self.epoch,
            self.after,
            self.upto,
            self.step,
            self.since,
            self.acked,
            tuple(partitions),
            arrived,
            counts or RowCounts(),
            delays or Delays(),
            dict(failed or {}),
            injected,
            self.ended,
        )
        return Parcel(self.flow, self.tick, (part,), body)


@dataclass
class _Sent:
    """A parcel that the destination has not acked."""

    parcel: Parcel
    via: Site | None = None
    """The neighbour that it was last given to; None for none."""
    at: Micros = 0
    """When, monotonic."""
    tries: int = 0
    late: int = 0
    """How often it was sent since there was a new connection to anybody: acks were missing, and nobody knows why."""
    wait: Micros = field(default=0)
    """After so long it is sent again."""


class Sender:
    """Sends one flow of a site.

    Args:
        flow: The flow.
        site: This site.
        incarnation: Of its checkpoint.
        epoch: Of this run.
        committed: The last cut of the stream.
        since: The cut after which the flow begins here.
    """

    def __init__(
        self, flow: FlowName, site: Site, incarnation: str, epoch: int, committed: int = 0, since: int = 0
    ) -> None:
        self.flow, self.site, self.incarnation, self.epoch, self.since = flow, site, incarnation, epoch, since
        self.gathered = max(committed, since)
        """The last cut that was committed."""
        self.prediction: Micros = SHORTEST // LATE
        """From departure to ack, by the plan."""
        self.refusal: Refusal | None = None
        """The last one that somebody has to do something about; the flow rests."""
        self._fixed = self.gathered
        self._step = 0
        self._due: int | None = None
        self._fixing: Fix | None = None
        self._news = True
        """Whether there is progress that no parcel told."""
        self._ends = False
        """Whether this run reads no more rows, as far as is known now."""
        self.told_end = False
        """Whether the last parcel says so."""
        self._knows = epoch <= 1
        """Whether the destination is known to have no cuts of a later copy of the checkpoint."""
        self._sent: list[_Sent] = []

    @property
    def acked(self) -> int:
        """The last cut of which it is known that the destination has it."""
        rows = [each.parcel.part.after for each in self._sent if not each.parcel.part.empty]
        if self._fixing is not None:
            rows.append(self._fixing.after)
        return min(rows, default=self._fixed)

    @property
    def standing(self) -> Standing:
        """What this site has fixed of the flow, as it tells the destination."""
        return Standing(self.flow, self.site, self.incarnation, Place(self._fixed, self.epoch, self._step))

    @property
    def due(self) -> int | None:
        """The tick on which something was due that has not left; None when nothing is."""
        has_some = self.gathered > self._fixed or self._news
        waits = self._fixing is not None or self.refusal is not None or (not self._knows and bool(self._sent))
        return self._due if has_some and not waits else None

    @property
    def unacked(self) -> tuple[Parcel, ...]:
        """What is kept: parcels that the destination has not acked, in order."""
        return tuple(each.parcel for each in self._sent)

    @property
    def _patience(self) -> Micros:
        return max(SHORTEST, LATE * self.prediction)

    def restored(self, after: int, parcels: Sequence[Parcel] = ()) -> None:
        """Go on after a restart, before anything else.

        Args:
            after: The last cut that was fixed; what was gathered behind it is not.
            parcels: What was fixed and not acked, in order, with the same ranges and ticks as before.
        """
        self._fixed = max(after, self.since)
        for parcel in parcels:
            self._step += 1
            part = replace(parcel.part, epoch=self.epoch, step=self._step)
            self._sent.append(_Sent(replace(parcel, parts=(part,))))

    def committed(self, cut: int) -> None:
        """Take note of a cut whose partials were gathered."""
        self.gathered, self._news, self.told_end = cut, True, False

    def progressed(self) -> None:
        """Take note of progress without rows: a partition is idle, or its source said a watermark."""
        self._news = True

    def departs(self, tick: int) -> None:
        """Take note of the end of an interval: what was gathered may leave."""
        self._due = tick

    def ends(self, tick: int) -> None:
        """Take note, at each look, that this run reads no more rows: the destination is told, at once and once."""
        self._ends = True
        if not self.told_end:
            self._due, self._news = tick, True

    def goes_on(self) -> None:
        """Take note, at each look, that this run may read more rows."""
        self._ends = False

    def forgotten(self) -> None:
        """Take note that the destination runs anew: what it was told besides rows it does not know any more."""
        self._news, self.told_end = True, False

    def fix(self) -> Fix | None:
        """Return the order to fix what is due, as there is room for it; None when nothing is."""
        tick = self.due
        if tick is None:
            return None
        self._step += 1
        upto = self.gathered if self._knows else self._fixed
        if upto == self.gathered:
            self._due, self._news, self.told_end = None, False, self._ends
        self._fixing = Fix(
            self.flow,
            self.site,
            self.incarnation,
            self.epoch,
            self._fixed,
            upto,
            tick,
            self._step,
            self.since,
            self.acked,
            self.told_end,
        )
        self._fixed = upto
        return self._fixing

    def fixed(self, parcel: Parcel) -> None:
        """Take the parcel that a `Fix` ordered; it waits to be sent."""
        self._fixing = None
        if parcel.part.empty:  # later progress makes earlier one needless
            self._sent = [each for each in self._sent if not each.parcel.part.empty]
        self._sent.append(_Sent(parcel))

    def waiting(self, now: Micros, there: Collection[Site] | None = None) -> list[tuple[Parcel, int]]:
        """Return the parcels to be sent now, in order, each with how often it was sent before.

        Those that were not sent yet, and those whose ack is late. Of a flow that rests the oldest one, now and then:
        who is behind a neighbour that passes things on may have been helped, and nobody here hears of it.

        Args:
            now: Monotonic time.
            there: The sites that can be reached, with this one; None for all. What others were given is no longer
                waited for than after the first try.
        """
        rests = self.refusal is not None
        if not self._sent or self._is_behind:
            return []
        due: list[_Sent] = []
        for place, each in enumerate(self._sent[:1] if rests else self._sent):
            lost = there is not None and each.via not in there and not rests
            wait = min(each.wait, self._patience) if lost else each.wait
            if (each.via is None and not rests) or (place < AGAIN and now - each.at >= wait):
                due.append(each)
        if not due:
            return []
        acked = self.acked
        told = [replace(each.parcel, parts=(replace(each.parcel.part, acked=acked),)) for each in due]
        return [(parcel, each.tries) for parcel, each in zip(told, due, strict=True)]

    @property
    def _is_behind(self) -> bool:
        """Whether the flow rests as the destination has more of this site than it knows: nobody else can help."""
        return self.refusal is not None and self.refusal.reason is Reason.BEHIND

    def sent(self, parcel: Parcel, via: Site, now: Micros) -> None:
        """Take note that a parcel of `waiting` was given to a neighbour."""
        for each in self._sent:
            if each.parcel.part.place == parcel.part.place:
                each.via, each.at = via, now
                each.wait = min(LONGEST, self._patience << min(each.late, 16))
                each.tries, each.late = each.tries + 1, each.late + 1

    def reopened(self, peer: Site, forgot: bool) -> None:
        """Take note that there is a new connection to a neighbour: nothing waits longer than after the first try.

        A flow that was refused is tried again: somebody may have helped. Not if it is this site that is behind.

        Args:
            peer: The neighbour.
            forgot: Whether what it was given is gone; then it is sent again at once.
        """
        if not self._is_behind:
            self.refusal = None
        for each in self._sent:
            each.wait, each.late = min(each.wait, self._patience), 0
            if forgot and each.via == peer:
                each.via = None

    def begin_anew(self, incarnation: str) -> None:
        """Send as a site with another checkpoint from here on: the destination has cuts with the numbers of ours."""
        self.incarnation, self.refusal, self._knows = incarnation, None, True
        self._sent = [
            _Sent(replace(each.parcel, parts=(replace(each.parcel.part, incarnation=incarnation),)))
            for each in self._sent
        ]

    def stands(self, standing: Standing) -> tuple[Parcel, ...]:
        """Take an ack, or what is in a refusal; return the parcels that are needed no longer.

        If it tells of cuts that have not left, the checkpoint here is an old copy. Then the flow rests: cuts that are
        made now would be taken for those.
        """
        if standing.incarnation != self.incarnation:
            return ()
        if standing.place.upto > self._fixed:
            places = ((self.site, standing.place),)
            detail = f"It has cuts up to {standing.place.upto} of {self.site}, which knows to have sent {self._fixed}."
            self.refusal = Refusal(self.flow, 0, places, Reason.BEHIND, (standing,), detail)
            return ()
        if standing.place[:2] == (self._fixed, self.epoch) and standing.place.step > self._step:
            self._step = standing.place.step  # a run with this number, of another copy, told that; ours tells its own
            self.forgotten()
        else:
            self._knows |= standing.place > Place(self._fixed, self.epoch, 0)  # who says so has heard of this run
        gone = tuple(each.parcel for each in self._sent if standing.covers(each.parcel.part))
        self._sent = [each for each in self._sent if not standing.covers(each.parcel.part)]
        if gone and not self._is_behind:
            self.refusal = None
        return gone

    def refused(self, refusal: Refusal, now: Micros) -> None:
        """Take a refusal: what passes is sent again later, what does not makes the flow rest until somebody helps."""
        places = dict(refusal.places)
        mine = [each for each in self._sent if places.get(self.site) == each.parcel.part.place]
        if not mine:  # of a parcel that is not there any more, or of a run before this one
            return
        rests = not refusal.reason.passes and len(refusal.places) == 1  # else it may be about another one's part
        if rests:
            self.refusal = refusal
        full = refusal.reason is Reason.FULL
        for each in self._sent[:1] if rests else mine:
            crowded = min(max(each.wait, self._patience), CROWDED * self._patience) if full else self._patience
            each.at, each.wait = now, LONGEST if rests else crowded


def way(tries: int, parent: Site, destination: Site, neighbours: Sequence[Site]) -> Site | None:
    """Return the neighbour to which a parcel goes; None where no way is open.

    First the plan's; then, try by try, the destination itself, and by way of each other neighbour, of those that can
    be reached. Whoever is not asked by the plan to merge a flow passes it on at once.

    >>> [way(tries, "relay", "home", ["a", "home", "relay"]) for tries in range(4)]
    ['relay', 'home', 'a', 'relay']
    """
    others = sorted(set(neighbours) - {parent, destination})
    ways = [each for each in dict.fromkeys([parent, destination, *others]) if each in neighbours]
    return ways[tries % len(ways)] if ways else None
