"""The flows that end at a site: what comes is checked, and put into their inboxes; used on the loop's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from transom.engine.loop.loop import Loop
from transom.engine.streams.stream import RunningStream
from transom.errors import SiteError
from transom.model.time import Micros
from transom.sites.agreement import difference, flaw, partials_in
from transom.sites.arriving import ArrivingSource
from transom.sites.flows import FlowDefinition
from transom.sites.notices import Notices
from transom.sites.status import left_out
from transom.widearea.belief import arrived_by, too_new
from transom.widearea.carriers import Carrier
from transom.widearea.parcels import Parcel, Reason, Refusal, Standing
from transom.widearea.receivers import Action, Receiver, Store
from transom.widearea.room import Awaited, Room
from transom.widearea.topology import Site


@dataclass(frozen=True)
class Most:
    """How much a destination holds."""

    inbox_bytes: int
    """Of what waits for the stream of a flow."""
    driver_bytes: int
    """Of partials of open windows, over all streams, and of what waits for them."""


class Receiving:
    """What arrives at a site.

    Args:
        flows: All flows of the application, by name.
        arriving: The sources of those that end here.
        carrier: Of this site.
        most: How much it holds.
        accepts_loss: Whether it goes on with sites of which something was lost.
        wall: Returns the wall time.
    """

    def __init__(
        self,
        flows: Mapping[str, FlowDefinition],
        arriving: Mapping[str, ArrivingSource],
        carrier: Carrier,
        most: Most,
        accepts_loss: bool,
        wall: Callable[[], Micros],
    ) -> None:
        self.sources = dict(arriving)
        """By flow."""
        self._flows, self._carrier, self._wall = flows, carrier, wall
        self._most, self._accepts_loss = most, accepts_loss
        self._receivers: dict[str, Receiver] = {}
        self._rooms = {flow: Room() for flow in arriving}
        self._crowded: set[str] = set()
        """Flows that take only what windows wait for, as people were told."""
        self._alike: dict[str, pa.Schema] = {}
        """By flow, the last schema of partials that were found to be those that are made here."""
        self._missing: dict[str, frozenset[Site]] = {}
        """By flow, the sites without which windows go on, as people were told last."""
        self._notices = Notices()
        """Of parcels that are refused, by flow and neighbour that brought them."""
        self.stored = 0
        """Parcels that were put into inboxes in this run."""
        self._held: int | None = None
        """Bytes of partials here, as far as they are known since it was begun to take what came."""
        self._loop: Loop

    def begin(self, loop: Loop, check: Callable[[], None]) -> None:
        """Go on where the inboxes say.

        Args:
            loop: That of the site.
            check: Returns while no other application has taken over the checkpoint.
        """
        self._loop, self._journal = loop, loop.starter.journal
        for flow, source in self.sources.items():
            source.inbox.check, source.once = check, loop.scheduler.once
            room = partial(self._has_room, flow)
            accepts = self._accepts_loss
            known = source.standings()
            self._receivers[flow] = Receiver(flow, known, accepts_loss=accepts, anew=source.anew, has_room=room)

    def standings(self) -> list[Standing]:
        """Return where the flows stand with each of their sites."""
        return [standing for receiver in self._receivers.values() for standing in receiver.standings]

    def expired(self, now: Micros) -> None:
        """Refuse what has been held for too long."""
        for flow, receiver in self._receivers.items():
            self._do(receiver.expired(now), flow)

    def listened(self, now: Micros) -> None:
        """Take note that all was taken that came until a moment, monotonic time."""
        for flow, source in self.sources.items():
            source.listened(now)
            self._tell_who_is_missing(flow)

    def _tell_who_is_missing(self, flow: str) -> None:
        """Tell people when windows go on without a site, and when they wait for it again."""
        stream = self._loop.streams.get(self._flows[flow].arriving)
        out = frozenset[Site]() if stream is None else frozenset(left_out(stream))
        before = self._missing.get(flow, frozenset())
        if out == before:
            return
        self._missing[flow] = out
        for site in sorted(out - before):
            self._journal.note(f"nothing is heard of {site}: the windows of the flow {flow!r} go on without its rows")
        for site in sorted(before - out):
            self._journal.note(f"{site} is heard again: the windows of the flow {flow!r} wait for its rows")

    def take(self, now: Micros) -> None:
        """Take in what the carrier has brought."""
        doubts, self._carrier.doubts = self._carrier.doubts, []
        for flow, via, detail in doubts:
            self._tell_that(flow, via, detail, now)
        arrivals, self._carrier.arrivals = self._carrier.arrivals, []
        self._held = None
        for parcel, via in arrivals:
            if parcel.flow in self.sources:
                self.sources[parcel.flow].came(part.site for part in parcel.parts)
            refusal = self._refused(parcel)
            self._tell_refused(parcel, via, refusal, now)
            if refusal is not None:
                self._carrier.answer(via, refusal)
            else:
                receiver, stream = self._receivers[parcel.flow], self._loop.streams[self._flows[parcel.flow].arriving]
                receiver.cost, receiver.deadline = self._loop.scheduler.remains(stream, now)
                self._do(receiver.received(parcel, via, now), parcel.flow)
                self._tell_losses(parcel.flow)
        self._held = None

    def _tell_refused(self, parcel: Parcel, via: Site, refusal: Refusal | None, now: Micros) -> None:
        """Tell people that nothing of a flow is taken from a neighbour, see `Notices`."""
        if refusal is None:
            self._notices.passed((parcel.flow, via))
        elif not refusal.reason.passes:
            self._tell_that(parcel.flow, via, refusal.detail, now)

    def _tell_that(self, flow: str, via: Site, detail: str, now: Micros) -> None:
        text = f"a parcel of the flow {flow!r} from {via} is refused: {detail}"
        if told := self._notices.news((flow, via), text, now):
            self._journal.note(told)

    def _tell_losses(self, flow: str) -> None:
        """Tell people what was lost and accepted."""
        losses = self._receivers[flow].losses
        for detail in losses:
            self._journal.note(f"the flow {flow!r} begins anew, with windows of which nothing is lost: {detail}")
        losses.clear()

    def _do(self, actions: Iterable[Action], flow: str) -> None:
        for action in actions:
            if isinstance(action, Store):
                self.sources[flow].add(arrived_by(action.parcel, self._wall()))
                self.stored += 1
                self._held = None if self._held is None else self._held + len(action.parcel.body)
                self._journal.step("stored")
                self._do(self._receivers[flow].stored(action), flow)
            else:
                self._carrier.answer(action.peer, action.message)

    def _refused(self, parcel: Parcel) -> Refusal | None:
        """Return why a parcel is not taken whatever came before it; None if it may be."""
        source = self.sources.get(parcel.flow)
        if source is None:
            return Refusal.of(parcel, Reason.FLOW, detail="It does not end here.")
        for part in parcel.parts:
            if part.site not in source.sites:
                return Refusal.of(parcel, Reason.FLOW, detail=f"{part.site} has no rows for it, as is known here.")
        stream = self._loop.streams.get(self._flows[parcel.flow].arriving)
        if stream is None:
            return Refusal.of(parcel, Reason.FLOW, detail="Its queries failed here, and cannot start any more.")
        for part in parcel.parts:
            if early := too_new(part, stream.definition.policy, self._wall()):
                return Refusal.of(parcel, Reason.FUTURE, detail=early)
        try:
            found = partials_in(parcel.body)
        except SiteError as error:
            return Refusal.of(parcel, Reason.DAMAGED, detail=error.message)
        if found is not None and not self._are_known(parcel.flow, found.table.schema):
            if different := difference(stream.compiled.stores, found):
                return Refusal.of(parcel, Reason.FLOW, detail=different)
            self._alike[parcel.flow] = found.table.schema
        if found is not None and (wrong := flaw(stream.compiled.stores, found)):
            return Refusal.of(parcel, Reason.DAMAGED, detail=wrong)
        return None

    def _has_room(self, flow: str, parcel: Parcel, now: Micros) -> bool:
        """Tell whether there is room for a parcel with rows that fits, or none will be before it is taken."""
        source, stream = self.sources[flow], self._loop.streams[self._flows[flow].arriving]
        most = self._most.inbox_bytes
        if source.inbox.nbytes > most and source.waiting_bytes(stream.state.offset) > most:
            return False
        if self._held is None:
            self._held = self._held_bytes()
        full = self._held > self._most.driver_bytes
        taken = self._rooms[flow].takes(parcel, source.inbox.known.last, _awaited(stream) if full else None, now)
        if not full:
            self._crowded.discard(flow)
        elif not taken and flow not in self._crowded:
            self._crowded.add(flow)
            self._journal.note(
                f"partials take more than driver_bytes: of the flow {flow!r} only what its next windows wait for is "
                "taken, until some have closed"
            )
        return taken

    def _held_bytes(self) -> int:
        """Return the bytes of partials here, and of those that wait for their streams."""
        streams = self._loop.streams
        held = sum(entry.store.nbytes for stream in streams.values() for entry in stream.state.stores)
        for flow, source in self.sources.items():
            if (stream := streams.get(self._flows[flow].arriving)) is not None:
                held += source.waiting_bytes(stream.state.offset)
        return held

    def _are_known(self, flow: str, schema: pa.Schema) -> bool:
        known = self._alike.get(flow)
        return known is not None and known.equals(schema, check_metadata=True)


def _awaited(stream: RunningStream) -> Awaited | None:
    """Return what the next window of a stream waits for; None where there is no window."""
    state, policy = stream.state, stream.definition.policy
    ends = [end for query in state.running() if (end := state.first_end(query)) is not None]
    return Awaited(min(ends) + policy.delay, policy.from_source, policy.idle_after) if ends else None
