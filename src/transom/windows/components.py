"""Which queries share what: components (one aggregation in the job each) and key sets (one store each)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transom.model.query import Key, Query
from transom.windows.aggregates.base import Primitive
from transom.windows.aggregates.count import Count
from transom.windows.panes import Grid

ROWS = Count()


@dataclass(frozen=True)
class KeySet:
    """Queries of one branch with the same keys; their partials are kept together."""

    branch: int
    keys: frozenset[Key]
    queries: tuple[Query, ...]

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
    """One aggregation of the job, by pane and the keys of its finest key set; the others are derived from it."""

    finest: KeySet
    coarser: tuple[KeySet, ...]

    @property
    def branch(self) -> int:
        """Index of the transformations that its rows went through."""
        return self.finest.branch

    @property
    def keys(self) -> tuple[Key, ...]:
        """The grouping keys, ordered by name."""
        return tuple(sorted(self.finest.keys, key=lambda key: (key.name, key.expression.text)))

    @property
    def key_sets(self) -> tuple[KeySet, ...]:
        """All key sets, the finest first."""
        return (self.finest, *self.coarser)

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """What is computed per pane and key; the number of rows always, to count the late ones."""
        return tuple(dict.fromkeys((ROWS, *(p for key_set in self.key_sets for p in key_set.primitives))))

    @property
    def grid(self) -> Grid:
        """Panes that serve every key set."""
        return Grid.of(w for key_set in self.key_sets for query in key_set.queries for w in query.windows)


def plan_components(queries: Sequence[Query]) -> tuple[Component, ...]:
    """Group queries into as few components as their keys allow.

    A key set joins a component when its keys are a subset of the component's and every primitive it needs is either
    computed there already or small (a few numbers): sketches per fine key cost more than a second aggregation.
    """
    grouped: dict[tuple[int, frozenset[Key]], list[Query]] = {}
    for query in queries:
        grouped.setdefault((query.branch, frozenset(query.keys)), []).append(query)
    key_sets = [KeySet(branch, keys, tuple(members)) for (branch, keys), members in grouped.items()]
    key_sets.sort(key=lambda key_set: -len(key_set.keys))
    components: list[list[KeySet]] = []
    for key_set in key_sets:
        for members in components:
            finest = members[0]
            there = {p for member in members for p in member.primitives}
            if (
                finest.branch == key_set.branch
                and key_set.keys <= finest.keys
                and all(p in there or p.small for p in key_set.primitives)
            ):
                members.append(key_set)
                break
        else:
            components.append([key_set])
    return tuple(Component(members[0], tuple(members[1:])) for members in components)
