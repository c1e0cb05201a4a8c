"""A relay: merges the parcels of one flow and tick that pass, and passes on what cannot wait.

Its state is soft: whatever it forgets, the sources send again, as they keep all that the destination has not acked. It
keeps single parcels until then, too, if there is room, because the destination refuses a merged parcel of which it has
a part already: then the rest goes apart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from transom.errors import SiteError
from transom.model.time import Micros
from transom.widearea.parcels import Ack, Body, FlowName, Parcel, Part, Reason, Refusal, Standing, Tell
from transom.widearea.topology import Site

Merge: TypeAlias = Callable[[FlowName, Sequence[Body]], Body]
"""Returns the body of some bodies of a flow merged; raises SiteError where that cannot be."""


@dataclass(frozen=True)
class Expected:
    """What a plan says about a flow and a tick here."""

    sites: frozenset[Site]
    """Whose parcels are merged here."""
    interval: Micros
    """Between two departures."""
    slack: Micros
    """For how much longer than planned the first parcel may wait, so that the flow keeps to its limit."""
    gather: Micros = 0
    """From a departure until the last parcel has come here, as planned: links carry it merged, or not at all."""

    @property
    def wait(self) -> Micros:
        """For how long the first parcel waits for the others: as planned, and half an interval more at most."""
        return self.gather + max(0, min(self.interval // 2, self.slack))


@dataclass(frozen=True)
class Forward:
    """Send a parcel on to the flow's destination."""

    parcel: Parcel


Action: TypeAlias = "Forward | Tell"
MOST_LEFT = 1_000
"""Flows and ticks of which it is remembered who did not come in time."""


@dataclass
class _Group:
    """Parcels of one flow and tick that wait for others."""

    until: Micros
    expected: frozenset[Site]
    parcels: dict[Site, Parcel] = field(default_factory=dict)


@dataclass
class _Single:
    """A parcel that was passed on, alone or merged with others."""

    parcel: Parcel
    via: Site


class Relay:
    """Merges what passes a site.

    Args:
        merge: Merges bodies.
        most_bytes: Of parcels in memory.
    """

    def __init__(self, merge: Merge, most_bytes: int = 256 << 20) -> None:
        self.merge, self.most_bytes = merge, most_bytes
        self._waiting: dict[tuple[FlowName, int], _Group] = {}
        self._left: dict[tuple[FlowName, int], set[Site]] = {}
        """Sites whose parcels of a flow and tick came too late to be waited for: they go on at once."""
        self._passed: dict[tuple[FlowName, Site, int], _Single] = {}
        """By flow, site and last cut, oldest first; progress alone is not kept."""
        self._via: dict[tuple[FlowName, Site], Site] = {}
        """The neighbour that brought the newest parcel of a site."""
        self._standings: dict[tuple[FlowName, Site], Standing] = {}
        self._bytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the parcels that are kept."""
        return self._bytes

    @property
    def flows(self) -> set[FlowName]:
        """The flows of which parcels are kept: they wait for others, or for the word of their destination."""
        return {flow for flow, _ in self._waiting} | {flow for flow, _, _ in self._passed}

    def received(self, parcel: Parcel, via: Site, expected: Expected | None, now: Micros) -> list[Action]:
        """Take a parcel of one site; merged ones are passed on as they are.

        Args:
            parcel: The parcel.
            via: The neighbour that brought it; the site itself for its own.
            expected: What the plan says about its flow and tick; None where nothing is merged here.
            now: Monotonic time.
        """
        for part in parcel.parts:
            self._via[parcel.flow, part.site] = via
        if parcel.merged:
            return [Forward(parcel)]
        part = parcel.part
        standing = self._standings.get((parcel.flow, part.site))
        if standing is not None and standing.covers(part):
            return [Tell(via, Ack(standing))]
        if not self._has_room(parcel):
            return [Forward(parcel)]
        again = (parcel.flow, part.site, part.upto) in self._passed and not part.empty
        late = part.site in self._left.get((parcel.flow, parcel.tick), ())
        if again or late or expected is None or part.site not in expected.sites or len(expected.sites) == 1:
            self._keep(parcel, via)
            return [Forward(parcel)]
        return self._gather(parcel, expected, now)

    def _gather(self, parcel: Parcel, expected: Expected, now: Micros) -> list[Action]:
        done: list[Action] = []
        key, site = (parcel.flow, parcel.tick), parcel.part.site
        group = self._waiting.get(key)
        if group is not None and site in group.parcels:
            if group.parcels[site].part.place == parcel.part.place:
                return []
            done = self._leave(key)  # more of the same site: what was there before it goes first
            group = None
        if group is None:
            group = self._waiting[key] = _Group(now + expected.wait, expected.sites)
        group.parcels[site] = parcel
        self._bytes += parcel.nbytes
        if expected.sites <= group.parcels.keys():
            return [*done, *self._leave(key)]
        return done

    def lacks(self, flow: FlowName, tick: int, site: Site) -> bool:
        """Tell whether others wait for what a site has of a flow and tick."""
        group = self._waiting.get((flow, tick))
        return group is not None and site in group.expected - group.parcels.keys()

    def expired(self, now: Micros) -> list[Action]:
        """Pass on what has waited for others as long as it may."""
        due = [key for key, group in self._waiting.items() if group.until <= now]
        for key in due:
            self._left[key] = set(self._waiting[key].expected - self._waiting[key].parcels.keys())
        while len(self._left) > MOST_LEFT:
            del self._left[next(iter(self._left))]
        return [action for key in due for action in self._leave(key)]

    def acked(self, ack: Ack, cost: Micros = 0) -> list[Action]:
        """Take the destination's ack, forget what it covers, and pass it on with the hop's own cost added."""
        standing = ack.standing
        key = (standing.flow, standing.site)
        known = self._standings.get(key)
        if known is None or known.incarnation != standing.incarnation or known.place < standing.place:
            self._standings[key] = standing
        for (flow, site, upto), single in list(self._passed.items()):
            if (flow, site) == key and standing.covers(single.parcel.part):
                self._forget((flow, site, upto))
        via = self._via.get(key)
        return [] if via is None else [Tell(via, Ack(standing, ack.cost + cost, ack.deadline))]

    def refused(self, refusal: Refusal) -> list[Action]:
        """Take a refusal: of a merged parcel, send apart what the destination does not have; of a single one, tell."""
        found = [action for standing in refusal.standings for action in self.acked(Ack(standing))]
        if len(refusal.places) > 1 and refusal.reason is not Reason.FULL:
            covered = {standing.site: standing for standing in refusal.standings}
            for site, place in refusal.places:
                single = self._passed.get((refusal.flow, site, place.upto))
                if single is not None and not (site in covered and covered[site].covers(single.parcel.part)):
                    found.append(Forward(single.parcel))
            return found
        for site, place in refusal.places:
            via = self._via.get((refusal.flow, site))
            if via is not None:  # of its part alone: two relays would tell each other of the other's for ever
                standings = tuple(standing for standing in refusal.standings if standing.site == site)
                found.append(Tell(via, replace(refusal, places=((site, place),), standings=standings)))
            self._drop(refusal.flow, site)
        return found

    def unanswered(self, flow: FlowName, under_way: Collection[Parcel] = ()) -> None:
        """Forget of a flow what was passed on before a new connection to its destination, and has come there.

        What became of it was said on the connection before, or will be said to whoever sends it next. To keep it would
        be to keep it for ever, and whoever waits until nothing passes would never end.

        Args:
            flow: The flow.
            under_way: What goes on over the new connection.
        """
        goes_on = {(flow, part.site, part.upto) for parcel in under_way if parcel.flow == flow for part in parcel.parts}
        for key in [key for key in self._passed if key[0] == flow and key not in goes_on]:
            self._forget(key)

    def lost(self, parcel: Parcel) -> None:
        """Forget a parcel that could not be passed on: whoever has it sends it again, perhaps another way."""
        for part in parcel.parts:
            self._forget((parcel.flow, part.site, part.upto))

    def forget(self, flow: FlowName) -> None:
        """Forget a flow, with where its destination stands."""
        for waiting in [key for key in self._waiting if key[0] == flow]:
            self._bytes -= sum(parcel.nbytes for parcel in self._waiting.pop(waiting).parcels.values())
        for left in [key for key in self._left if key[0] == flow]:
            del self._left[left]
        for passed in [key for key in self._passed if key[0] == flow]:
            self._forget(passed)
        for standing in [key for key in self._standings if key[0] == flow]:
            del self._standings[standing]

    def _leave(self, key: tuple[FlowName, int]) -> list[Action]:
        """Pass on what waits of a flow and tick, merged."""
        parcels = [parcel for _, parcel in sorted(self._waiting.pop(key).parcels.items())]
        for parcel in parcels:
            self._bytes -= parcel.nbytes
            self._keep(parcel, self._via[parcel.flow, parcel.part.site])
        if len(parcels) == 1:
            return [Forward(parcels[0])]
        bodies = [parcel.body for parcel in parcels if parcel.body]
        try:
            body = self.merge(key[0], bodies) if len(bodies) > 1 else bodies[0] if bodies else b""
        except SiteError:  # the destination says what is wrong with which
            return [Forward(parcel) for parcel in parcels]
        parts: tuple[Part, ...] = tuple(parcel.part for parcel in parcels)
        return [Forward(Parcel(key[0], key[1], parts, body))]

    def _keep(self, parcel: Parcel, via: Site) -> None:
        part = parcel.part
        if part.empty:
            return
        key = (parcel.flow, part.site, part.upto)
        self._forget(key)
        self._passed[key] = _Single(parcel, via)
        self._bytes += parcel.nbytes

    def _drop(self, flow: FlowName, site: Site) -> None:
        for key in [key for key in self._passed if key[:2] == (flow, site)]:
            self._forget(key)

    def _forget(self, key: tuple[FlowName, Site, int]) -> None:
        single = self._passed.pop(key, None)
        if single is not None:
            self._bytes -= single.parcel.nbytes

    def _has_room(self, parcel: Parcel) -> bool:
        """Tell whether a parcel fits, when that is so without what was passed on already, oldest first."""
        while self._passed and self._bytes + parcel.nbytes > self.most_bytes:
            self._forget(next(iter(self._passed)))
        return self._bytes + parcel.nbytes <= self.most_bytes
