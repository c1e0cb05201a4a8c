"""The flows that end at a site: what comes is checked, and put into their inboxes; used on the loop's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from transom.engine.loop.loop import Loop
from transom.errors import SiteError
from transom.model.time import Micros
from transom.sites.agreement import difference, flaw, partials_in
from transom.sites.arriving import ArrivingSource
from transom.sites.flows import FlowDefinition
from transom.sites.status import left_out
from transom.widearea.carriers import Carrier
from transom.widearea.parcels import Parcel, Reason, Refusal, Standing
from transom.widearea.receivers import Action, Receiver, Store
from transom.widearea.topology import Site


class Receiving:
    """What arrives at a site.

    Args:
        flows: All flows of the application, by name.
        arriving: The sources of those that end here.
        carrier: Of this site.
        inbox_bytes: So much may wait for the stream of a flow.
        accepts_loss: Whether it goes on with sites of which something was lost.
    """

    def __init__(
        self,
        flows: Mapping[str, FlowDefinition],
        arriving: Mapping[str, ArrivingSource],
        carrier: Carrier,
        inbox_bytes: int,
        accepts_loss: bool,
    ) -> None:
        self.sources = dict(arriving)
        """By flow."""
        self._flows, self._carrier = flows, carrier
        self._inbox_bytes, self._accepts_loss = inbox_bytes, accepts_loss
        self._receivers: dict[str, Receiver] = {}
        self._alike: dict[str, pa.Schema] = {}
        """By flow, the last schema of partials that were found to be those that are made here."""
        self._missing: dict[str, frozenset[Site]] = {}
        """By flow, the sites without which windows go on, as people were told last."""
        self._noted: dict[tuple[str, Site], str] = {}
        """By flow and neighbour that brought it, why its last parcel was refused, as people were told."""
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
            accepts = self._accepts_loss
            self._receivers[flow] = Receiver(flow, source.standings(), accepts_loss=accepts, anew=source.anew)

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
            if (stream := self._loop.streams.get(self._flows[flow].arriving)) is not None:
                receiver = self._receivers[flow]
                receiver.cost, receiver.deadline = self._loop.scheduler.remains(stream, now)
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
        arrivals, self._carrier.arrivals = self._carrier.arrivals, []
        for parcel, via in arrivals:
            if parcel.flow in self.sources:
                self.sources[parcel.flow].came(part.site for part in parcel.parts)
            refusal = self._refused(parcel)
            self._tell_refused(parcel, via, refusal)
            if refusal is not None:
                self._carrier.answer(via, refusal)
            else:
                self._do(self._receivers[parcel.flow].received(parcel, via, now), parcel.flow)
                self._tell_losses(parcel.flow)

    def _tell_refused(self, parcel: Parcel, via: Site, refusal: Refusal | None) -> None:
        """Tell people that nothing of a flow is taken from a neighbour, once while it stays the same."""
        about = parcel.flow, via
        if refusal is None:
            self._noted.pop(about, None)
        elif not refusal.reason.passes and self._noted.get(about) != refusal.detail:
            self._noted[about] = refusal.detail
            self._journal.note(f"a parcel of the flow {parcel.flow!r} from {via} is refused: {refusal.detail}")

    def _tell_losses(self, flow: str) -> None:
        """Tell people what was lost and accepted."""
        losses = self._receivers[flow].losses
        for detail in losses:
            self._journal.note(f"the flow {flow!r} begins anew, with windows of which nothing is lost: {detail}")
        losses.clear()

    def _do(self, actions: Iterable[Action], flow: str) -> None:
        for action in actions:
            if isinstance(action, Store):
                self.sources[flow].add(action.parcel)
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
        if source.inbox.nbytes > self._inbox_bytes and source.waiting_bytes(stream.state.offset) > self._inbox_bytes:
            return Refusal.of(parcel, Reason.FULL)
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

    def _are_known(self, flow: str, schema: pa.Schema) -> bool:
        known = self._alike.get(flow)
        return known is not None and known.equals(schema, check_metadata=True)
