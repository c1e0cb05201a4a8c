"""Which queries share what: components (one aggregation in the job each) and key sets (one store each)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from transom.model.expression import Expression
from transom.model.query import Key, Query
from transom.windows.aggregates.base import Primitive
from transom.windows.aggregates.count import Count
from transom.windows.panes import Grid

ROWS = Count()


def ordered(keys: Iterable[Key]) -> tuple[Key, ...]:
    """Return keys by name."""
    return tuple(sorted(keys, key=lambda key: (key.name, key.expression.text)))


@dataclass(frozen=True)
class KeySet:
    """Queries with the same keys over the same rows; their partials are kept together."""

    branch: int
    keys: frozenset[Key]
    queries: tuple[Query, ...]
    condition: Expression | None = None
    """Which rows of the branch these are; all if None."""
    only: str = ""
    """Name of the query that shares with no other; empty when queries share."""

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """The distinct primitives, in the order of their first use."""
        found = [p for query in self.queries for _, aggregate in query.aggregates for p in aggregate.primitives]
        return tuple(dict.fromkeys(found))

    @property
    def grid(self) -> Grid:
        """The panes of these queries."""
        return Grid.of(window for query in self.queries for window in query.windows)


@dataclass(frozen=True)
class Component:
    """One aggregation of the job, by pane and the keys of its finest key set; the others are derived from it.

    Key sets with different conditions are told apart by a tag: a row is aggregated once for each condition that it
    satisfies.
    """

    finest: KeySet
    coarser: tuple[KeySet, ...]
    primitives: tuple[Primitive, ...]
    """What is computed per pane and key; the number of rows always, to count the late ones."""

    @property
    def branch(self) -> int:
        """Index of the transformations that its rows went through."""
        return self.finest.branch

    @property
    def keys(self) -> tuple[Key, ...]:
        """The grouping keys, ordered."""
        return ordered(self.finest.keys)

    @property
    def key_sets(self) -> tuple[KeySet, ...]:
        """All key sets, the finest first."""
        return (self.finest, *self.coarser)

    @property
    def conditions(self) -> tuple[Expression | None, ...]:
        """The distinct conditions; a row's tag is the index of one of them."""
        return tuple(dict.fromkeys(key_set.condition for key_set in self.key_sets))

    @property
    def grid(self) -> Grid:
        """Panes that serve every key set."""
        return Grid.of(w for key_set in self.key_sets for query in key_set.queries for w in query.windows)


Part: TypeAlias = "tuple[KeySet, tuple[Primitive, ...]]"
"""A key set and those of its primitives that a component computes."""


def key_sets_of(queries: Sequence[Query], share: bool = True) -> tuple[KeySet, ...]:
    """Return the key sets of some queries, those with more keys first.

    Args:
        queries: The queries of a stream.
        share: Whether queries share partials; else each has a key set of its own.
    """
    grouped: dict[tuple[int, frozenset[Key], Expression | None, str], list[Query]] = {}
    for query in queries:
        only = "" if share else query.name
        grouped.setdefault((query.branch, frozenset(query.keys), query.condition, only), []).append(query)
    key_sets = [
        KeySet(branch, keys, tuple(members), condition, only)
        for (branch, keys, condition, only), members in grouped.items()
    ]
    return tuple(sorted(key_sets, key=lambda key_set: -len(key_set.keys)))


def plan_components(
    queries: Sequence[Query],
    share: bool = True,
    hashable: Callable[[int, Primitive], bool] = lambda branch, primitive: True,
) -> tuple[Component, ...]:
    """Group queries into as few components as their keys allow.

    A key set joins a component when its keys are a subset of the component's and every primitive it needs is either
    computed there already or small (a few numbers): sketches per fine key cost more than a second aggregation.

    Args:
        queries: The queries of a stream.
        share: Whether queries share anything; else each has a component of its own.
        hashable: Tells, for a branch and a primitive, whether Spark can update its state in place in a hash map. One
            primitive that is not makes an aggregation sort all of its rows, so those get aggregations of their own.
    """
    key_sets = key_sets_of(queries, share)
    components: list[Component] = []
    for fast in (True, False):
        parts: list[Part] = []
        for key_set in key_sets:
            mine = tuple(p for p in key_set.primitives if hashable(key_set.branch, p) is fast)
            if mine:
                parts.append((key_set, mine))
        components += [_component(members) for members in _fused(parts)]
    return tuple(components)


def _fused(parts: Sequence[Part]) -> list[list[Part]]:
    groups: list[list[Part]] = []
    for key_set, primitives in parts:
        for members in groups:
            finest = members[0][0]
            there = {p for _, computed in members for p in computed}
            if (
                finest.branch == key_set.branch
                and finest.only == key_set.only
                and key_set.keys <= finest.keys
                and all(p in there or p.small for p in primitives)
            ):
                members.append((key_set, primitives))
                break
        else:
            groups.append([(key_set, primitives)])
    return groups


def _component(members: Sequence[Part]) -> Component:
    computed = dict.fromkeys((ROWS, *(p for _, primitives in members for p in primitives)))
    return Component(members[0][0], tuple(key_set for key_set, _ in members[1:]), tuple(computed))
