"""The streams of an application that several sites run: at each site, those that leave, and those that arrive.

A flow is what one site owes another: queries of one stream with one destination, one chain of transformations and one
condition, whose keys are those of the finest one or some of them. At its sources it is one query, with all windows and
aggregates of its queries; at its destination it is a stream with these queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from transom.engine.spark.lookups import lookup_tables
from transom.engine.state.absence import MISSING
from transom.engine.streams.definition import StreamDefinition
from transom.engine.streams.derived import DerivedSource
from transom.engine.streams.results import ResultsSource
from transom.engine.streams.sending import Leaving, query_of
from transom.errors import DefinitionError
from transom.model.time import Micros
from transom.model.window import SessionSpec
from transom.sites.arriving import ArrivingSource
from transom.widearea.ticks import Ticks
from transom.widearea.topology import Site
from transom.windows.components import plan_components
from transom.windows.query import WindowedQuery


@dataclass(frozen=True)
class FlowDefinition:
    """A flow as all sites know it."""

    name: str
    """That of its first query."""
    stream: str
    destination: Site
    queries: tuple[WindowedQuery, ...]
    """The finest first."""
    leaves_out: bool = False
    """Whether windows may close without the rows of a site that is silent."""

    @property
    def arriving(self) -> str:
        """The name of its stream at the destination."""
        return f"{self.name}.arriving"

    @property
    def limit(self) -> Micros:
        """The tightest latency limit of its queries; 0 where none has one."""
        return min((query.target.limit for query in self.queries if query.target is not None), default=0)

    @property
    def merged(self) -> WindowedQuery:
        """One query that has all the panes, keys and aggregates of the others; it makes partials at a source."""
        finest = self.queries[0]
        aggregates = dict.fromkeys(aggregate for query in self.queries for _, aggregate in query.aggregates)
        windows = dict.fromkeys(window for query in self.queries for window in query.windows)
        return WindowedQuery(
            query_of(self.name),
            finest.branch,
            finest.keys,
            tuple(windows),
            tuple((f"a{number}", aggregate) for number, aggregate in enumerate(aggregates)),
            condition=finest.condition,
        )


def flows_of(definition: StreamDefinition, destination: Callable[[str], Site]) -> list[FlowDefinition]:
    """Return the flows of a stream whose rows several sites have.

    Args:
        definition: The stream.
        destination: Returns the site where the windows of a query are made.

    Raises:
        DefinitionError: A query cannot work over several sites.
    """
    groups: dict[tuple[Site, str | None], list[WindowedQuery]] = {}
    for query in definition.queries:
        _check(query)
        if definition.policy.absent_after is not None:
            _check_column(query)
        if tables := lookup_tables([definition.rows.branches[query.branch]]):
            raise DefinitionError(
                f"query {query.name!r}: rows are looked up in {tables[0].name!r}, of which sites would see different "
                "versions at different times.",
                "Add its columns to the rows before they come to the sites, or look up the results of a query.",
            )
        condition = None if query.condition is None else query.condition.text
        groups.setdefault((destination(query.name), condition), []).append(query)
    found = []
    for (site, _), queries in groups.items():
        for component in plan_components(queries):
            mine = [query for key_set in component.key_sets for query in key_set.queries]
            first = next(query.name for query in queries if query in mine)
            leaves_out = definition.policy.absent_after is not None
            found.append(FlowDefinition(first, definition.name, site, tuple(mine), leaves_out))
    return found


def _check(query: WindowedQuery) -> None:
    """Refuse what cannot be made of partials of several sites.

    Raises:
        DefinitionError: The query is of that kind.
    """
    what = f"query {query.name!r}"
    if any(isinstance(window, SessionSpec) for window in query.windows):
        raise DefinitionError(
            f"{what}: a session over several sites is not possible, as whether a row is late for it is no edge of a "
            "pane.",
            "Use a window of a fixed length, or send the rows to one site and compute the sessions there.",
        )
    if query.keeps_rows:
        raise DefinitionError(
            f"{what}: joins, late_rows() and rows() need rows, and only partials go from site to site.",
            "Join, or write rows, in an application of one site; or send the rows to one site first.",
        )
    if query.sheds:
        raise DefinitionError(
            f'{what}: on_overload="shed" leaves out rows of one site, and does not go with several.',
            'Leave it out: on_overload="delay" is what happens without it.',
        )


def _check_column(query: WindowedQuery) -> None:
    """Refuse a query with a column of the name of that which tells what sites results lack.

    Raises:
        DefinitionError: It has one.
    """
    if MISSING in (*query.result_columns, *query.columns):
        raise DefinitionError(
            f"query {query.name!r}: with absent_after, results have a column {MISSING!r}, the sites that they lack, "
            "and there is one of that name.",
            "Give the other one another name, or leave out absent_after.",
        )


@dataclass(frozen=True)
class SiteStreams:
    """What one site runs of an application."""

    definitions: list[StreamDefinition]
    """The streams whose partials leave, those of flows that arrive, then those that read results."""
    flows: tuple[FlowDefinition, ...]
    """All flows of the application."""
    arriving: Mapping[str, ArrivingSource]
    """By flow, those whose destination is here."""


def streams_at(
    site: Site,
    definitions: Sequence[StreamDefinition],
    sources: Callable[[str], Iterable[Site]],
    destination: Callable[[str], Site],
    ticks: Ticks,
    most_bytes: int,
) -> SiteStreams:
    """Return what a site runs.

    Args:
        site: The site.
        definitions: The streams of the application, parents first.
        sources: Returns the sites that have rows of a stream.
        destination: Returns the site where the windows of a query are made.
        ticks: When streams are cut here.
        most_bytes: So much may wait to be sent, for each stream.

    Raises:
        DefinitionError: A query cannot work over several sites, or a query goes where what it reads does not.
    """
    leaving: list[StreamDefinition] = []
    arriving: list[StreamDefinition] = []
    derived: list[StreamDefinition] = []
    flows: list[FlowDefinition] = []
    inboxes: dict[str, ArrivingSource] = {}
    for definition in definitions:
        if isinstance(definition.source, DerivedSource):
            derived += _derived(site, definition, flows, destination)
            continue
        mine, having = flows_of(definition, destination), sorted(sources(definition.source_name))
        flows += mine
        if not having:
            raise DefinitionError(
                f"No site has rows of the stream {definition.source_name!r}.",
                f'Say it in the topology, such as [sources] {definition.source_name} = ["site1", "site2"].',
            )
        if site in having:
            leaves = Leaving(tuple(flow.name for flow in mine), ticks, most_bytes)
            merged = tuple(flow.merged for flow in mine)
            leaving.append(replace(definition, queries=merged, leaving=leaves))
        for flow in mine:
            if flow.destination == site:
                source = inboxes[flow.name] = ArrivingSource(flow.name, having)
                arriving.append(_arriving(definition, flow, source))
    return SiteStreams([*leaving, *arriving, *derived], tuple(flows), inboxes)


def _arriving(definition: StreamDefinition, flow: FlowDefinition, source: ArrivingSource) -> StreamDefinition:
    return replace(
        definition, name=flow.arriving, source=source, queries=flow.queries, origin="", rows_of=definition.source
    )


def _derived(
    site: Site,
    definition: StreamDefinition,
    flows: Sequence[FlowDefinition],
    destination: Callable[[str], Site],
) -> list[StreamDefinition]:
    """Return a stream that reads results, where what it reads is made; its parent is the stream of a flow there.

    Raises:
        DefinitionError: It reads what partials cannot give, or its queries go elsewhere.
    """
    source = definition.source
    if not isinstance(source, ResultsSource):
        raise DefinitionError(
            f"The stream {definition.name!r} needs rows, and only partials go from site to site.",
            "Make joins and late_rows() in an application of one site, or of the results of queries.",
        )
    for query in definition.queries:
        if (there := destination(query.name)) != destination(source.query):
            raise DefinitionError(
                f"The query {query.name!r} is to be made at {there!r}, and what it reads, {source.query!r}, at "
                f"{destination(source.query)!r}.",
                "Give both one destination.",
            )
    parent = next((flow for flow in flows if any(q.name == source.query for q in flow.queries)), None)
    if parent is not None and parent.leaves_out:
        raise DefinitionError(
            f"The stream {definition.name!r} reads the results of {source.query!r}, of which rows of sites may be "
            "missing (absent_after), and its own results would not tell.",
            "Leave out absent_after, so that windows wait for all sites, or the query over its results.",
        )
    if destination(source.query) != site:
        return []
    if parent is not None:
        source.parents = (parent.arriving,)
    return [definition]
