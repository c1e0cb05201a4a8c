"""The destination's end of a flow: which parcels are taken, in which order, and what their senders are told.

A part is taken if it begins where the destination stands with its site. A parcel is taken as a whole or not at all, as
what a relay merged cannot be taken apart. So of a merged parcel every part has to fit; one of which some is there
already is refused, and the relay sends the rest apart. What is ahead is held within a bound until what is before it
has come, and refused when that takes too long: two merged parcels may wait for each other.

Whoever brings a parcel is told what becomes of it, also where another neighbour has brought the same one: a relay keeps
it until then.
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
    vias: tuple[Site, ...]
    """The neighbours that brought it."""


@dataclass(eq=False)
class _Held:
    """A parcel that is ahead."""

    parcel: Parcel
    vias: list[Site]
    """The neighbours that brought it."""
    since: Micros


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
        self._came: set[Site] = set()
        """Sites of which something was taken in this run."""
        self._forgiven: set[Site] = set()
        """Sites with which it began anew in this run."""
        self._anew = set(anew)
        """Sites of which the next rows are the first after something was lost."""
        self.losses: list[str] = []
        """What was lost and accepted, for people; to be taken from here."""
        self._held: list[_Held] = []
        self._given_up: list[_Held] = []
        """Of those what is not to be taken any more, and nobody was told."""
        self._owed: dict[tuple[Site, Site], Part] = {}
        """By site and neighbour, the newest part that the latter brought while it was being stored."""
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
        return sum(each.parcel.nbytes for each in self._held)

    def accept_loss(self, site: Site) -> None:
        """Begin anew with a site, whatever was lost: with the first cut that it still keeps for this destination."""
        self._durable.pop(site, None)
        self._taken.pop(site, None)
        self._epochs.pop(site, None)
        self._forgiven.add(site)
        self._anew.add(site)
        self._owed = {key: part for key, part in self._owed.items() if part.site != site}
        gone = [each for each in self._held if any(part.site == site for part in each.parcel.parts)]
        self._held = [each for each in self._held if each not in gone]
        self._given_up += gone

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
        return [*self._take(parcel, fits, [via], now), *self._take_held(now)]

    def stored(self, store: Store) -> list[Action]:
        """Take note that a parcel is durable, and return the acks."""
        for part in store.parcel.parts:
            self._durable[part.site] = self._behind(part)
        found = []
        for via in store.vias:
            found += [self._ack(part.site, via) for part in store.came.parts if part.site in self._durable]
            self._owe(store.came, via)
        for (site, via), part in list(self._owed.items()):
            if self._is_durable(part):
                del self._owed[site, via]
                found += [] if via in store.vias else [self._ack(site, via)]
        return found

    def _owe(self, parcel: Parcel, via: Site) -> None:
        """Take note of a neighbour that brought what is being stored, so that it is told when that is done."""
        for part in parcel.parts:
            before = self._owed.get((part.site, via))
            if not self._is_durable(part) and (before is None or before.place < part.place):
                self._owed[part.site, via] = part

    def expired(self, now: Micros) -> list[Action]:
        """Refuse what has been ahead for too long."""
        late = [*self._given_up, *(each for each in self._held if now - each.since >= self.patience)]
        self._held, self._given_up = [each for each in self._held if now - each.since < self.patience], []
        return [Tell(via, self._refusal(each.parcel, Reason.AHEAD)) for each in late for via in each.vias]

    def _refused(self, parcel: Parcel) -> Refusal | None:
        """Return why a parcel cannot be taken ever; None if it can, perhaps as what is lost is accepted."""
        for part in parcel.parts:
            if (wrong := self._wrong(part)) is None:
                continue
            reason, detail = wrong
            overtaken = reason is Reason.EPOCH and part.site in self._came  # by another run of now: nothing is lost
            if not self._accepts_loss or part.site in self._forgiven or overtaken:
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
        for each in self._held:
            if each.parcel == parcel:
                each.vias += [] if via in each.vias else [via]
                return []
        if self.held + parcel.nbytes > self.held_bytes:
            return [Tell(via, self._refusal(parcel, Reason.AHEAD))]
        self._held.append(_Held(parcel, [via], now))
        return []

    def _take(self, parcel: Parcel, fits: dict[Site, _Fit], vias: list[Site], now: Micros) -> list[Action]:
        """Take a parcel of which no part is ahead, if that can be."""
        for part in parcel.parts:
            self._epochs[part.site] = max(part.epoch, self._epochs.get(part.site, 0))
            self._came.add(part.site)
        rows = {fits[part.site] for part in parcel.parts if not part.empty}
        if _Fit.OVERLAPS in rows or rows == {_Fit.OLD, _Fit.NEXT}:
            return self._tell(vias, self._refusal(parcel, Reason.OVERLAP))
        if _Fit.NEXT in rows and not self._has_room(parcel, now):
            return self._tell(vias, self._refusal(parcel, Reason.FULL))
        news = tuple(new for part in parcel.parts if (new := self._news(part, fits[part.site])) is not None)
        if not news:
            for via in vias:
                self._owe(parcel, via)
            known = [part.site for part in parcel.parts if self._is_durable(part)]
            return [self._ack(site, via) for site in known for via in vias]
        news = tuple(replace(part, anew=part.site in self._anew) for part in news)
        self._anew.difference_update(part.site for part in news if not part.empty)
        for part in news:
            self._taken[part.site] = self._behind(part)
        body = parcel.body if _Fit.NEXT in rows else b""
        return [Store(replace(parcel, parts=news, body=body), parcel, tuple(vias))]

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
                if entry not in self._held:  # given up meanwhile, with a site that is begun anew with
                    continue
                parcel = entry.parcel
                fits = self._fits(parcel)
                if _Fit.AHEAD in fits.values() and _Fit.OVERLAPS not in fits.values():
                    continue
                self._held.remove(entry)
                wrong = self._refused(parcel)
                fits, vias = self._fits(parcel), entry.vias
                found += self._tell(vias, wrong) if wrong else self._take(parcel, fits, vias, now)
                more = True
        return found

    @staticmethod
    def _tell(vias: Iterable[Site], refusal: Refusal) -> list[Action]:
        return [Tell(via, refusal) for via in vias]

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
