"""One site as its application knows it: what it runs of a job, its own sources, and the way to the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from transom.checkpoint.store import Checkpoint
from transom.engine.streams.definition import StreamDefinition
from transom.errors import DefinitionError
from transom.model.time import Clock, format_duration
from transom.settings import Settings
from transom.sites.flows import SiteStreams, streams_at
from transom.sites.mail import Mail
from transom.sites.planning import Bounds, Planning
from transom.sites.receiving import Most
from transom.sites.region import Region
from transom.sites.shipping import Self, Shipping
from transom.sources.base import Source
from transom.widearea.carriers import Carrier
from transom.widearea.ticks import Ticks

if TYPE_CHECKING:
    from transom.sites.coordinating import Asking


@dataclass(frozen=True)
class LocalSite:
    """A site in the process that runs it.

    Raises:
        DefinitionError: The region has no site of that name.
    """

    name: str
    region: Region
    mail: Callable[[], Mail]
    """Makes the way to other sites, for one run."""
    sources: Mapping[str, Source] = field(default_factory=dict)
    """Where its rows are, by stream, if it is not where the job says."""
    outbox_bytes: int = 1 << 30
    """So much may wait to be sent, of each stream; beyond that, rows wait in their source."""
    inbox_bytes: int = 1 << 30
    """So much may wait for the stream of a flow; beyond that, others wait."""

    accept_loss: bool = False
    """Whether it goes on where something was lost, with windows of which nothing is: in this run only."""
    coordinator: Callable[[], Asking] | None = None
    """Makes the way to who plans, for one run; without one, partials go straight."""

    def __post_init__(self) -> None:
        self.region.entry(self.name)

    def source(self, stream: str, default: Source) -> Source:
        """Return where the rows of a stream are at this site.

        Args:
            stream: Name of the stream.
            default: Where they are if this site does not say; at a site that has none, it tells their columns.
        """
        return self.sources.get(stream, default)

    def streams(self, definitions: Sequence[StreamDefinition]) -> SiteStreams:
        """Return what this site runs of an application.

        Raises:
            DefinitionError: A query cannot work over several sites, or there is nothing to do here.
        """
        region, entry = self.region, self.region.entry(self.name)
        known = {definition.source_name for definition in definitions}
        for stream in entry.sources:
            if stream not in known:
                raise DefinitionError(
                    f"The site {self.name!r} is to have rows of the stream {stream!r}, which no query reads.",
                    f"Streams are {', '.join(sorted(known))}.",
                )
        for definition in definitions:
            self._check_absence(definition)
        ticks = Ticks(region.tick, entry.offset)
        found = streams_at(self.name, definitions, region.sources, region.destination, ticks, self.outbox_bytes)
        if not found.definitions:
            raise DefinitionError(
                f"The site {self.name!r} has no rows, and no query ends there: it has nothing to do.",
                "Give it a source, or make it the destination of a query, in the topology.",
            )
        return found

    def _check_absence(self, definition: StreamDefinition) -> None:
        """Refuse to leave out sites sooner than one that is there may be heard.

        Raises:
            DefinitionError: `absent_after` is too short for the topology.
        """
        after, longest = definition.policy.absent_after, self.region.most * self.region.tick
        if after is not None and after < 2 * longest:
            raise DefinitionError(
                f"stream {definition.name!r}: absent_after is {format_duration(after)}, and a site may be "
                f"silent for {format_duration(longest)}, the longest interval of flows, while it is there.",
                f'Write absent_after = "{format_duration(2 * longest)}" or more, or a shorter most_interval in the '
                "topology.",
            )

    def check(self, definitions: Sequence[StreamDefinition], settings: Settings) -> None:
        """Find what cannot work over several sites, as far as that is known without Spark.

        Raises:
            DefinitionError: Something cannot.
        """
        self.streams(definitions)
        self.settings(settings)

    def settings(self, settings: Settings) -> Settings:
        """Return the settings of an application as they hold here: the driver has the partials of flows.

        Raises:
            DefinitionError: The executors are to have them.
        """
        if settings.tier == "cluster":
            raise DefinitionError(
                "settings: tier 'cluster' does not go with several sites, whose partials the driver sends.",
                'Leave the setting out, or write tier = "driver".',
            )
        return replace(settings, tier="driver")

    def shipping(self, streams: SiteStreams, checkpoint: Checkpoint, clock: Clock, settings: Settings) -> Shipping:
        """Return what goes on beside the loop of the application."""
        region = self.region
        return Shipping(
            Self(self.name, checkpoint.identity.id, checkpoint.epoch, self.accept_loss),
            streams,
            region.sources,
            region.rates(self.name),
            region.tick,
            region.most,
            self.mail(),
            clock,
            checkpoint.check_writer,
            Most(self.inbox_bytes, settings.driver_bytes),
            checkpoint.directory("sites"),
            None if self.coordinator is None else partial(self._planning, self.coordinator(), clock),
        )

    def _planning(self, asking: Asking, clock: Clock, carrier: Carrier) -> Planning:
        return Planning(carrier, asking, Bounds(self.region.least, self.region.most), clock.now)
