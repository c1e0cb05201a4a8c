"""The operator graph of what was compiled, with what was measured of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from transom.engine.spark.compile import Compiled
from transom.engine.streams.deduplicating import FirstRowsSource
from transom.engine.streams.feed import OUTSIDE, Feed
from transom.engine.streams.joining import JoinSource
from transom.engine.streams.results import ResultsSource, result_schema
from transom.engine.streams.uniting import UnionSource
from transom.model.expression import Expression
from transom.windows.aggregates.base import Primitive
from transom.windows.aggregates.filtered import Filtered
from transom.windows.components import KeySet
from transom.windows.operators import ALL, Attributes, Graph, Operator, OperatorEdge, OperatorKind, Schema
from transom.windows.query import WindowedQuery

TIME = ("event time", "int64")
PANE = ("pane start", "int64")


@dataclass(frozen=True)
class Rate:
    """A measured rate: rows per second, and bytes per second if they were counted."""

    rows: float
    bytes: float | None = None


@dataclass(frozen=True)
class Rates:
    """Measured rates of a stream; what is missing is unknown."""

    rows: Mapping[str, Rate] = field(default_factory=dict)
    """Rows into each compute operator, by its name."""
    partials: Mapping[str, Rate] = field(default_factory=dict)
    """Partials out of each compute operator, by its name."""
    results: Mapping[str, Rate] = field(default_factory=dict)
    """Results of each query, by its name."""
    keys: Mapping[str, int] = field(default_factory=dict)
    """Keys of each compute operator, by its name."""


@dataclass(frozen=True)
class Compute:
    """A compute operator: a key set, or those of its aggregates that one component computes."""

    name: str
    component: int
    """Index of the component of the job."""
    key_set: KeySet


@dataclass(frozen=True, eq=False)
class StreamGraph:
    """The operators of one stream's queries, and the join that the stream is made of, if it is.

    Args:
        compiled: The queries.
        stream: Name of the stream; it is in front of the operators' names.
        columns: What the source gives, if known.
        rates: What was measured.
        feed: What other streams of the application it reads.
    """

    compiled: Compiled
    stream: str
    columns: Schema = ()
    rates: Rates = field(default_factory=Rates)
    feed: Feed = OUTSIDE

    @cached_property
    def computes(self) -> tuple[Compute, ...]:
        """The compute operators, in the order of the job's components."""
        found: list[Compute] = []
        taken: dict[str, int] = {}
        for number, component in enumerate(self.compiled.components):
            for key_set in component.key_sets:
                name = f"{self.stream}/compute {_of(key_set, len(self.compiled.plan.branches))}"
                taken[name] = taken.get(name, 0) + 1
                found.append(Compute(f"{name} ({taken[name]})" if taken[name] > 1 else name, number, key_set))
        return tuple(found)

    def finest(self, compute: Compute) -> Compute:
        """Return the operator of the same component that takes rows; the others take its partials."""
        return self._finest[compute.component]

    @cached_property
    def _finest(self) -> dict[int, Compute]:
        return {compute.component: compute for compute in reversed(self.computes)}

    @cached_property
    def derived(self) -> frozenset[str]:
        """Names of the compute operators that take another one's partials."""
        return frozenset(compute.name for compute in self.computes if compute is not self.finest(compute))

    @property
    def join_name(self) -> str:
        """Return the name of the join operator, if there is one."""
        return f"{self.stream}/join"

    def map_name(self, branch: int) -> str:
        """Return the name of a branch's map operator."""
        return f"{self.stream}/map {branch}"

    def consolidate_name(self, query: str) -> str:
        """Return the name of a query's consolidate operator."""
        return f"{self.stream}/consolidate {query}"

    @cached_property
    def operators(self) -> tuple[Operator, ...]:
        """The join, maps, computes and consolidates."""
        partials = {compute.name: self._partials(compute) for compute in self.computes}
        maps = tuple(
            Operator(self.map_name(branch), OperatorKind.MAP, (self.columns,), self._mapped(branch), ALL)
            for branch in sorted({compute.key_set.branch for compute in self.computes})
        )
        computes = tuple(
            Operator(
                compute.name,
                OperatorKind.COMPUTE,
                (self._rows(compute.key_set),),
                partials[compute.name],
                self._attributes(compute.key_set),
                self.rates.keys.get(compute.name),
            )
            for compute in self.computes
        )
        consolidates = tuple(
            Operator(
                self.consolidate_name(query.name),
                OperatorKind.CONSOLIDATE,
                (_union(*(partials[compute.name] for compute in self._computes_of(query))),),
                _schema(result_schema(self.compiled, query.name)),
                self._attributes(self._computes_of(query)[0].key_set),
                self.rates.keys.get(self._computes_of(query)[0].name),
            )
            for query in self._queries
        )
        return self._joins + maps + computes + consolidates

    @property
    def _joins(self) -> tuple[Operator, ...]:
        if not isinstance(self.feed, JoinSource):
            return ()
        on = self.feed.join.on
        sides = tuple(
            tuple((_as_written(f.name, on), f.dataType.simpleString()) for f in side.columns.fields)
            for side in self.feed.sides
        )
        return (Operator(self.join_name, OperatorKind.JOIN, sides, self.columns, Attributes.of(*on)),)

    @cached_property
    def edges(self) -> tuple[OperatorEdge, ...]:
        """Rows from maps to computes, partials from computes to consolidates.

        A compute operator is fed by its map even when the job derives it from another one's partials: that it can be,
        is what fusing them is for.
        """
        rows = [
            _edge(self.map_name(compute.key_set.branch), compute.name, self.rates.rows.get(compute.name))
            for compute in self.computes
        ]
        partials = [
            _edge(compute.name, self.consolidate_name(query.name), self.rates.partials.get(compute.name))
            for query in self._queries
            for compute in self._computes_of(query)
        ]
        joined = [
            OperatorEdge(self.join_name, self.map_name(branch))
            for branch in dict.fromkeys(compute.key_set.branch for compute in self.computes)
            if self._joins
        ]
        return (*joined, *rows, *partials)

    @cached_property
    def graph(self) -> Graph:
        """The graph of this stream alone, for `fuse`."""
        return Graph(self.operators, self.edges)

    @property
    def _queries(self) -> list[WindowedQuery]:
        return [compiled.query for compiled in self.compiled.queries.values() if self._computes_of(compiled.query)]

    def _computes_of(self, query: WindowedQuery) -> list[Compute]:
        return self._by_query.get(query.name, [])

    @cached_property
    def _by_query(self) -> dict[str, list[Compute]]:
        found: dict[str, list[Compute]] = {}
        for compute in self.computes:
            for query in compute.key_set.queries:
                found.setdefault(query.name, []).append(compute)
        return found

    @cached_property
    def _names(self) -> dict[Expression, str]:
        """A name for each expression: a key's, or its text; different ones of the same name are numbered."""
        queries = [query for compute in self.computes for query in compute.key_set.queries]
        wanted = [(key.expression, key.name) for query in queries for key in query.keys]
        wanted += [(e, e.text) for query in queries for _, aggregate in query.aggregates for e in aggregate.inputs]
        names: dict[Expression, str] = {}
        taken: dict[str, int] = {}
        for expression, name in wanted:
            if expression not in names:
                taken[name] = taken.get(name, 0) + 1
                names[expression] = name if taken[name] == 1 else f"{name} ({taken[name]})"
        return names

    def _attributes(self, key_set: KeySet) -> Attributes:
        return Attributes.of(*(self._names[key.expression] for key in key_set.keys))

    def _keys(self, key_set: KeySet) -> Schema:
        for stored, _, schema, _ in self.compiled.stores:
            if stored.branch == key_set.branch and stored.keys == key_set.keys:
                types = {field.name: str(field.type) for field in schema}
                found = {self._names[key.expression]: types[key.name] for key in key_set.keys}
                return tuple(sorted(found.items()))
        return ()

    def _rows(self, key_set: KeySet) -> Schema:
        inputs: dict[str, str] = {}
        for query in key_set.queries:
            types = self.compiled.queries[query.name].input_types
            for column, aggregate in query.aggregates:
                names = (self._names[expression] for expression in aggregate.inputs)
                inputs.update(zip(names, map(str, types[column]), strict=True))
        return _union((TIME,), self._keys(key_set), tuple(inputs.items()))

    def _mapped(self, branch: int) -> Schema:
        return _union(*(self._rows(c.key_set) for c in self.computes if c.key_set.branch == branch))

    def _partials(self, compute: Compute) -> Schema:
        computed = self.compiled.components[compute.component].primitives
        states: dict[str, str] = {}
        for stored, _, _, primitives in self.compiled.stores:
            if stored == compute.key_set:
                for primitive, types in primitives.items():
                    if primitive in computed:
                        text = partial_text(primitive)
                        states.update({f"{text}.{column}": str(kind) for column, kind in types.items()})
        return _union((PANE,), self._keys(compute.key_set), tuple(states.items()))


def application_graph(streams: Sequence[StreamGraph]) -> Graph:
    """Return the graph of all streams, parents first.

    Results of queries flow into the maps of the streams that read them, and so do rows of which a stream has the first,
    or all; rows of both sides, and how many there are in each window, into joins.
    """
    by_stream = {graph.stream: graph for graph in streams}
    operators: list[Operator] = []
    edges: list[OperatorEdge] = []
    for graph in streams:
        source = graph.feed
        operators += graph.operators
        edges += graph.edges
        maps = [operator.name for operator in graph.operators if operator.kind is OperatorKind.MAP]
        if isinstance(source, ResultsSource):
            parent = by_stream[source.parents[0]]
            flow = parent.rates.results.get(source.query)
            edges += [_edge(parent.consolidate_name(source.query), name, flow) for name in maps]
        elif isinstance(source, JoinSource):
            for side in source.sides:
                parent = by_stream[side.stream]
                branch = parent.compiled.queries[side.query].query.branch
                into = OperatorEdge(parent.map_name(branch), graph.join_name)
                edges += [] if into in edges else [into]  # both sides may be the same rows
                edges.append(OperatorEdge(parent.consolidate_name(side.query), graph.join_name))
        elif isinstance(source, FirstRowsSource | UnionSource):
            for part in source.sides if isinstance(source, FirstRowsSource) else source.parts:
                parent = by_stream[part.stream]
                rows = parent.map_name(parent.compiled.queries[part.query].query.branch)
                edges += [OperatorEdge(rows, name) for name in maps if OperatorEdge(rows, name) not in edges]
    return Graph(tuple(operators), tuple(edges))


def partial_text(primitive: Primitive) -> str:
    """Return a primitive for people: `sum_squares(fare)`."""
    if isinstance(primitive, Filtered):
        return f"{partial_text(primitive.of)} where {primitive.condition}"
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(primitive).__name__).lower()
    return f"{name}({', '.join(map(str, primitive.inputs)) or '*'})"


def _of(key_set: KeySet, branches: int) -> str:
    keys = ", ".join(sorted(str(key) for key in key_set.keys)) or "all rows"
    where = "" if key_set.condition is None else f" where {key_set.condition}"
    rows = f" of map {key_set.branch}" if branches > 1 else ""
    only = f" for {key_set.only}" if key_set.only else ""
    return f"{keys}{where}{rows}{only}"


def _edge(source: str, target: str, flow: Rate | None) -> OperatorEdge:
    return OperatorEdge(source, target) if flow is None else OperatorEdge(source, target, flow.rows, flow.bytes)


def _as_written(column: str, keys: Sequence[str]) -> str:
    """Return the key that the column is, as the join writes it; to Spark case may make no difference."""
    return next((key for key in keys if key.lower() == column.lower()), column)


def _union(*schemas: Schema) -> Schema:
    return tuple({name: kind for schema in schemas for name, kind in schema}.items())


def _schema(schema: pa.Schema) -> Schema:
    return tuple((field.name, str(field.type)) for field in schema)
