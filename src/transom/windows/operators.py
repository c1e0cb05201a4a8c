"""Operators, the graph they form and the components they are fused into, as values (Enorm, sections 4.2 to 4.5)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, reduce
from operator import and_
from typing import TypeAlias

from transom.errors import DefinitionError

Schema: TypeAlias = "tuple[tuple[str, str], ...]"
"""Names and types of columns."""


class OperatorKind(Enum):
    """The kind of an operator (Enorm, Table 1; joins are ours)."""

    MAP = "map"
    """Rows to rows, without state."""
    COMPUTE = "compute"
    """Rows to partials, one per pane and key."""
    CONSOLIDATE = "consolidate"
    """Partials to windows; what it buffers can be asked for again, so that it has no state of its own."""
    JOIN = "join"
    """Rows of two inputs to pairs with equal keys in one window; it keeps the rows of open windows."""

    @property
    def stateless(self) -> bool:
        """Whether nothing is lost with an instance."""
        return self in (OperatorKind.MAP, OperatorKind.CONSOLIDATE)

    @property
    def flexible(self) -> bool:
        """Whether the partitioning of the input can change without moving state."""
        return self in (OperatorKind.MAP, OperatorKind.COMPUTE)


@dataclass(frozen=True)
class Attributes:
    """The attributes by which an operator's input is partitioned: some, none (one global partition), or all."""

    names: frozenset[str] = frozenset()
    whole: bool = False
    """Whether every attribute of the row may be used: PA(O) = IS(O), as for a map."""

    @classmethod
    def of(cls, *names: str) -> Attributes:
        """Return a set of names.

        >>> str(Attributes.of("user", "area") & Attributes.of("area"))
        'area'
        """
        return cls(frozenset(names))

    def __and__(self, other: Attributes) -> Attributes:
        if self.whole or other.whole:
            return other if self.whole else self
        return Attributes(self.names & other.names)

    def __bool__(self) -> bool:
        return self.whole or bool(self.names)

    def __str__(self) -> str:
        return "all" if self.whole else ", ".join(sorted(self.names)) or "none"


ALL = Attributes(whole=True)


@dataclass(frozen=True)
class Operator:
    """A vertex of the graph: <IS, OS, PA> and its kind.

    Raises:
        DefinitionError: It is partitioned by something that an input does not have, or has fewer than no keys.
    """

    name: str
    kind: OperatorKind
    inputs: tuple[Schema, ...]
    """IS(O): one schema per input; two for a join."""
    output: Schema
    """OS(O)."""
    partition: Attributes
    """PA(O)."""
    keys: int | None = None
    """Distinct values of the partition attributes, if they were counted."""

    def __post_init__(self) -> None:
        for columns in self.inputs:
            if missing := self.partition.names - {name for name, _ in columns}:
                raise DefinitionError(
                    f"operator {self.name!r}: its input has no {', '.join(sorted(missing))} to partition by.",
                    f"The input's columns are {', '.join(name for name, _ in columns) or 'none'}.",
                )
        if self.keys is not None and self.keys < 0:
            raise DefinitionError(f"operator {self.name!r}: {self.keys} keys.", "Give 0 or more.")

    @property
    def cardinality(self) -> float | None:
        """PA^c(O): the most partitions there can be; 1 for no attributes, infinite for all, None if not counted."""
        if not self.partition:
            return 1.0
        return math.inf if self.partition.whole else self.keys


@dataclass(frozen=True)
class OperatorEdge:
    """A flow of tuples from one operator to another, by name.

    Raises:
        DefinitionError: A rate is negative or not a number.
    """

    source: str
    target: str
    rows: float | None = None
    """Rows per second, if measured."""
    bytes: float | None = None
    """Bytes per second, if measured."""

    def __post_init__(self) -> None:
        for rate in (self.rows, self.bytes):
            if rate is not None and not 0 <= rate < math.inf:
                raise DefinitionError(f"edge {self.source} -> {self.target}: a rate of {rate}.", "Give 0 or more.")


@dataclass(frozen=True)
class Graph:
    """A directed acyclic graph of operators; their order decides ties.

    Raises:
        DefinitionError: Names are used twice, an edge ends nowhere or is there twice, or there is a cycle.
    """

    operators: tuple[Operator, ...]
    edges: tuple[OperatorEdge, ...] = ()

    def __post_init__(self) -> None:
        if len(self.index) < len(self.operators):
            names = [operator.name for operator in self.operators]
            twice = next(name for name in names if names.count(name) > 1)
            raise DefinitionError(f"operator graph: two operators are called {twice!r}.", "Rename one.")
        for edge in self.edges:
            if unknown := {edge.source, edge.target} - self.index.keys():
                raise DefinitionError(
                    f"operator graph: an edge names {unknown.pop()!r}, which is no operator.", "Add the operator."
                )
        if len({(edge.source, edge.target) for edge in self.edges}) < len(self.edges):
            raise DefinitionError("operator graph: two edges join the same operators.", "Add up their rates.")
        if len(self.levels) < len(self.operators):
            inside = ", ".join(o.name for o in self.operators if o.name not in self.levels)
            raise DefinitionError(f"operator graph: {inside} form a cycle.", "Results may only flow on.")

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each operator, by name."""
        return {operator.name: number for number, operator in enumerate(self.operators)}

    @cached_property
    def downstream(self) -> dict[str, tuple[OperatorEdge, ...]]:
        """Edges out of each operator, by name."""
        found: dict[str, list[OperatorEdge]] = {operator.name: [] for operator in self.operators}
        for edge in self.edges:
            found[edge.source].append(edge)
        return {name: tuple(edges) for name, edges in found.items()}

    @cached_property
    def levels(self) -> dict[str, int]:
        """Length of the longest path to each operator; operators on a cycle are left out. O(operators + edges)."""
        waiting = dict.fromkeys((operator.name for operator in self.operators), 0)
        for edge in self.edges:
            waiting[edge.target] += 1
        levels = {name: 0 for name, count in waiting.items() if count == 0}
        ready = list(levels)
        for name in ready:
            for edge in self.downstream[name]:
                levels[edge.target] = max(levels.get(edge.target, 0), levels[name] + 1)
                waiting[edge.target] -= 1
                if waiting[edge.target] == 0:
                    ready.append(edge.target)
        return {name: levels[name] for name in ready}

    @cached_property
    def weights(self) -> tuple[float, ...] | None:
        """Rate of each edge: bytes if they are known for every edge, else rows, None if neither is."""
        for rates in ([edge.bytes for edge in self.edges], [edge.rows for edge in self.edges]):
            known = tuple(rate for rate in rates if rate is not None)
            if len(known) == len(self.edges):
                return known
        return None

    def __getitem__(self, name: str) -> Operator:
        return self.operators[self.index[name]]


@dataclass(frozen=True)
class Fused:
    """A component C: operators behind one exchange, partitioned by what all of them have in common.

    Raises:
        DefinitionError: It is empty, holds an operator twice, or fuses operators that have no attribute in common.
    """

    operators: tuple[Operator, ...]
    partition: Attributes = field(init=False, compare=False)
    """PA(C), the intersection over its operators; empty only for a single operator that is global."""

    def __post_init__(self) -> None:
        if not self.operators or len({operator.name for operator in self.operators}) < len(self.operators):
            raise DefinitionError(f"component {self}: it is empty or holds an operator twice.", "Name each once.")
        shared = common(self.operators)
        if not shared and len(self.operators) > 1:
            raise DefinitionError(
                f"component {self}: its operators have no partition attribute in common.",
                "Leave one of them out: fused operators are partitioned alike.",
            )
        object.__setattr__(self, "partition", shared)

    @property
    def cardinality(self) -> float | None:
        """PA^c(C): the most partitions, as far as it was counted; None if it was not.

        A component has no more partitions than the operator with fewest. That is the number itself when
        this operator is partitioned by PA(C), else a bound from above.
        """
        known = [found for operator in self.operators if (found := operator.cardinality) is not None]
        finite = [count for count in known if count < math.inf]
        return min(finite) if finite else (math.inf if len(known) == len(self.operators) else None)

    @property
    def stateless(self) -> bool:
        """Whether it holds stateless operators only."""
        return all(operator.kind.stateless for operator in self.operators)

    @property
    def flexible(self) -> bool:
        """Whether it holds flexible operators only, so that its partitioning can change without moving state."""
        return all(operator.kind.flexible for operator in self.operators)

    def __contains__(self, name: object) -> bool:
        return any(operator.name == name for operator in self.operators)

    def __iter__(self) -> Iterator[Operator]:
        return iter(self.operators)

    def __len__(self) -> int:
        return len(self.operators)

    def __str__(self) -> str:
        return "{" + ", ".join(operator.name for operator in self.operators) + "}"


def common(operators: Iterable[Operator]) -> Attributes:
    """Return the attributes by which all of some operators can be partitioned."""
    return reduce(and_, (operator.partition for operator in operators), ALL)
