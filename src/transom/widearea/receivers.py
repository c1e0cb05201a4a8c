"""The destination's end of a flow: which parcels are taken, in which order, and what their senders are told.

A part is taken if it begins where the destination stands with its site. A parcel is taken as a whole or not at all, as
what a relay merged cannot be taken apart. So of a merged parcel every part has to fit; one of which some is there
already is refused, and the relay sends the rest apart. What is ahead is held within a bound until what is before it
has come, and refused when that takes too long: two merged parcels may wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TypeAlias

from transom.model.time import Micros
from transom.widearea.parcels import Ack, FlowName, Parcel, Part, Reason, Refusal, Standing, Tell
from transom.widearea.topology import Site

HELD_BYTES = 64 << 20
"""Of parcels that are ahead of what has come, for one flow."""
PATIENCE: Micros = 30_000_000
"""After so long a parcel that is ahead is refused."""


@dataclass(frozen=True)
class Store:
    """Append a parcel durably to the inbox, behind those before it; then say `stored`."""

    parcel: Parcel
    came: Parcel
    """The parcel as it came, with parts that were known already."""
    via: Site
    """The neighbour that brought it."""


Action: TypeAlias = "Store | Tell"


class _Fit(IntEnum):
    """What a part is to a destination."""

    OLD = 0
    """It has all of it."""
    NEXT = 1
    """It begins where the destination stands."""
    AHEAD = 2
    """Something has to come before it."""
    OVERLAPS = 3
    """It has some of it, and not all."""


class Receiver:
    """Takes the parcels of one flow at its destination.

    Args:
        flow: The flow.
        standings: What is durable in the inbox, for each site that has sent anything.
        held_bytes: Of parcels that are ahead.
        patience: How long they may be, microseconds.
        accepts_loss: Whether it begins anew, once in this run, with a site of which something was lost.
        anew: Sites with which it has begun anew, and of which no row has come since.
        has_room: Given a parcel with rows that could be taken, and monotonic time, tells whether there is room for it.
    """

    def __init__(
        self,
        flow: FlowName,
        standings: Iterable[Standing] = (),
        held_bytes: int = HELD_BYTES,
        patience: Micros = PATIENCE,
        accepts_loss: bool = False,
        anew: Iterable[Site] = (),
        has_room: Callable[[Parcel, Micros], bool] = lambda parcel, now: True,
    ) -> None:
        self.flow = flow
        self.held_bytes, self.patience, self._has_room = held_bytes, patience, has_room
        self._durable = {each.site: each for each in standings}
        self._taken = dict(self._durable)
        """With what is being stored."""
        self._epochs = {each.site: each.place.epoch for each in self._durable.values()}
        """The newest that each site has sent with; what an older one sends is not taken."""
        self._accepts_loss = accepts_loss
        self._forgiven: set[Site] = set()
        """Sites with which it began anew in this run."""
        self._anew = set(anew)
        """Sites of which the next rows are the first after something was lost."""
        self.losses: list[str] = []
        """What was lost and accepted, for people; to be taken from here."""
        self._held: list[tuple[Parcel, Site, Micros]] = []
        self.cost: Micros = 0
        """What remains after a parcel was stored until results are out, as the engine measures it."""
        self.deadline: Micros | None = None
        """The end of the window that closes next."""

    @property
    def standings(self) -> tuple[Standing, ...]:
        """What is durable of each site; for those who connect."""
        return tuple(self._durable.values())

    @property
    def held(self) -> int:
        """Bytes of parcels that are ahead."""
        return sum(parcel.nbytes for parcel, _, _ in self._held)

    def accept_loss(self, site: Site) -> None:
        """Begin anew with a site, whatever was lost: with the first cut that it still keeps for this destination."""
        self._durable.pop(site, None)
        self._taken.pop(site, None)
        self._epochs.pop(site, None)
        self._forgiven.add(site)
        self._anew.add(site)
        self._held = [each for each in self._held if all(part.site != site for part in each[0].parts)]

    def received(self, parcel: Parcel, via: Site, now: Micros) -> list[Action]:
        """Take a parcel, hold it, or refuse it.

        Args:
            parcel: The parcel.
            via: The neighbour that brought it.
            now: Monotonic time.
        """
        if wrong := self._refused(parcel):
            return [Tell(via, wrong)]
        fits = self._fits(parcel)
        if _Fit.AHEAD in fits.values() and _Fit.OVERLAPS not in fits.values():
            return self._hold(parcel, via, now)
        return [*self._take(parcel, fits, via, now), *self._take_held(now)]

    def stored(self, store: Store) -> list[Action]:
        """Take note that a parcel is durable, and return the acks."""
        for part in store.parcel.parts:
            self._durable[part.site] = self._behind(part)
        return [self._ack(part.site, store.via) for part in store.came.parts if part.site in self._durable]

    def expired(self, now: Micros) -> list[Action]:
        """Refuse what has been ahead for too long."""
        late = [each for each in self._held if now - each[2] >= self.patience]
        self._held = [each for each in self._held if now - each[2] < self.patience]
        return [Tell(via, self._refusal(parcel, Reason.AHEAD)) for parcel, via, _ in late]

    def _refused(self, parcel: Parcel) -> Refusal | None:
        """Return why a parcel cannot be taken ever; None if it can, perhaps as what is lost is accepted."""
        for part in parcel.parts:
            if (wrong := self._wrong(part)) is None:
                continue
            reason, detail = wrong
            if not self._accepts_loss or part.site in self._forgiven:
                return Refusal.of(parcel, reason, self._told(part.site), detail)
            self.losses.append(detail)
            self.accept_loss(part.site)
        return None

    def _wrong(self, part: Part) -> tuple[Reason, str] | None:
        """Return why nothing that a site sends can be taken ever, and what to tell people."""
        known = self._taken.get(part.site)
        if known is not None and known.incarnation != part.incarnation:
            return Reason.INCARNATION, f"{part.site} has another checkpoint than before."
        newest = self._epochs.get(part.site, 0)
        if part.epoch < newest:
            return Reason.EPOCH, f"{part.site}: run {part.epoch} after {newest}."
        if part.acked > self._at(part):
            has = "nothing" if known is None else f"cut {known.place.upto}"
            return Reason.LOST, f"{part.site} sent up to cut {part.acked} before; {has} is here."
        return None

    def _fits(self, parcel: Parcel) -> dict[Site, _Fit]:
        return {part.site: self._fit(part) for part in parcel.parts}

    def _at(self, part: Part) -> int:
        """Return the cut up to which it has what the part's site sends; if nothing, where that begins."""
        known = self._taken.get(part.site)
        if known is not None:
            return known.place.upto
        return part.acked if part.site in self._forgiven else part.since

    def _fit(self, part: Part) -> _Fit:
        known, at = self._taken.get(part.site), self._at(part)
        if part.empty:
            older = part.upto < at or (known is not None and part.place <= known.place)
            return _Fit.OLD if older else _Fit.NEXT if part.upto == at else _Fit.AHEAD
        if part.upto <= at:
            return _Fit.OLD
        return _Fit.NEXT if part.after == at else _Fit.AHEAD if part.after > at else _Fit.OVERLAPS

    def _hold(self, parcel: Parcel, via: Site, now: Micros) -> list[Action]:
        if any(held == parcel for held, _, _ in self._held):
            return []
        if self.held + parcel.nbytes > self.held_bytes:
            return [Tell(via, self._refusal(parcel, Reason.AHEAD))]
        self._held.append((parcel, via, now))
        return []

    def _take(self, parcel: Parcel, fits: dict[Site, _Fit], via: Site, now: Micros) -> list[Action]:
        """Take a parcel of which no part is ahead, if that can be."""
        for part in parcel.parts:
            self._epochs[part.site] = max(part.epoch, self._epochs.get(part.site, 0))
        rows = {fits[part.site] for part in parcel.parts if not part.empty}
        if _Fit.OVERLAPS in rows or rows == {_Fit.OLD, _Fit.NEXT}:
            return [Tell(via, self._refusal(parcel, Reason.OVERLAP))]
        if _Fit.NEXT in rows and not self._has_room(parcel, now):
            return [Tell(via, self._refusal(parcel, Reason.FULL))]
        news = tuple(new for part in parcel.parts if (new := self._news(part, fits[part.site])) is not None)
        if not news:
            known = [part.site for part in parcel.parts if self._is_durable(part)]
            return [self._ack(site, via) for site in known]  # of what is being stored, acks follow
        news = tuple(replace(part, anew=part.site in self._anew) for part in news)
        self._anew.difference_update(part.site for part in news if not part.empty)
        for part in news:
            self._taken[part.site] = self._behind(part)
        body = parcel.body if _Fit.NEXT in rows else b""
        return [Store(replace(parcel, parts=news, body=body), parcel, via)]

    def _news(self, part: Part, fit: _Fit) -> Part | None:
        """Return what is new of a part: of rows that came before, the progress if it is newer."""
        if fit is _Fit.NEXT:
            return part
        known = self._taken[part.site].place if part.site in self._taken else None
        newer = known is not None and not part.empty and part.upto == known.upto and part.place > known
        return part.progress_alone() if newer else None

    def _take_held(self, now: Micros) -> list[Action]:
        """Take what is not ahead any more; O(held) for each that is taken."""
        found: list[Action] = []
        more = True
        while more:
            more = False
            for entry in list(self._held):
                parcel, via, _ = entry
                fits = self._fits(parcel)
                if _Fit.AHEAD in fits.values() and _Fit.OVERLAPS not in fits.values():
                    continue
                self._held.remove(entry)
                wrong = self._refused(parcel)
                found += [Tell(via, wrong)] if wrong else self._take(parcel, self._fits(parcel), via, now)
                more = True
        return found

    def _behind(self, part: Part) -> Standing:
        return Standing(self.flow, part.site, part.incarnation, part.place)

    def _is_durable(self, part: Part) -> bool:
        known = self._durable.get(part.site)
        return known is not None and known.covers(part)

    def _ack(self, site: Site, via: Site) -> Action:
        return Tell(via, Ack(self._durable[site], self.cost, self.deadline))

    def _refusal(self, parcel: Parcel, reason: Reason) -> Refusal:
        known = tuple(standing for part in parcel.parts for standing in self._told(part.site))
        return Refusal.of(parcel, reason, known)

    def _told(self, site: Site) -> tuple[Standing, ...]:
        """Return what a refusal says of a site: as an ack, what is durable, as it lets the site forget what it has."""
        return (self._durable[site],) if site in self._durable else ()
