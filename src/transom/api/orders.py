"""The order of a run: what it makes of the definitions of an application, all of it or that of one site."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from transom.api.queries import Queries
from transom.engine.streams.definition import StreamDefinition
from transom.sinks.nowhere import Nowhere
from transom.sinks.outlets import Outlets
from transom.sites.flows import SiteStreams
from transom.sites.here import LocalSite
from transom.sources.base import Source


@dataclass(frozen=True)
class RunOrder:
    """A run that is to be made."""

    definitions: list[StreamDefinition]
    sinks: dict[str, Outlets]
    """Sinks of each query."""
    once: bool
    close_all: bool
    streams: SiteStreams | None = None
    """What this site runs, where there are several."""


def ordered(
    queries: Queries,
    what: str,
    definitions: Callable[[], list[StreamDefinition]],
    site: LocalSite | None,
    once: bool,
    close_all: bool,
) -> RunOrder:
    """Begin a run of an application, and return its order.

    Args:
        queries: The queries of the application.
        what: The method that begins it, for the message.
        definitions: Returns all streams.
        site: The site that this one is, if several run the application.
        once: See `App.run`.
        close_all: See `App.run`.

    Raises:
        DefinitionError: A run goes on, or something cannot work over several sites.
    """
    here: list[StreamDefinition] = []
    streams: list[SiteStreams] = []

    def sources() -> list[Source]:
        whole = definitions()
        if site is not None:
            streams.append(site.streams(whole))
        here.extend(streams[0].definitions if streams else whole)
        return [definition.source for definition in here]

    sinks = queries.begin(what, sources)
    if not streams:
        return RunOrder(here, sinks, once, close_all)
    names = [query.name for definition in here for query in definition.queries]
    # What makes partials has no sink, and the sinks of other queries are at other sites.
    mine = {name: sinks[name] if name in sinks else Outlets.of([Nowhere()]) for name in names}
    return RunOrder(here, mine, once, close_all, streams[0])
