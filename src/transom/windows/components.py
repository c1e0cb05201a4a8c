"""Sharing between queries: components (one aggregation in the job each) and key sets (one store each)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from transom.model.expression import Expression
from transom.model.window import SessionSpec, WindowKind, WindowSpec
from transom.windows.aggregates.base import Primitive
from transom.windows.aggregates.count import Count
from transom.windows.intervals import shape_of
from transom.windows.panes import Grid
from transom.windows.query import Key, WindowedQuery

ROWS = Count()
ENDED = "ends_when"
"""Queries with sessions that a row can end share with one another only: their partials are one for each moment."""


def ordered(keys: Iterable[Key]) -> tuple[Key, ...]:
    """Return keys by name."""
    return tuple(sorted(keys, key=lambda key: (key.name, key.expression.text)))


@dataclass(frozen=True)
class KeySet:
    """Queries with the same keys over the same rows; their partials are kept together."""

    branch: int
    keys: frozenset[Key]
    queries: tuple[WindowedQuery, ...]
    condition: Expression | None = None
    """The condition on the rows of the branch; all if None."""
    only: str = ""
    """Those with whom it shares: the name of the query that shares with no other, ENDED; empty for all others."""

    @cached_property
    def primitives(self) -> tuple[Primitive, ...]:
        """The distinct primitives, in the order of their first use."""
        found = [p for query in self.queries for _, aggregate in query.aggregates for p in aggregate.primitives]
        return tuple(dict.fromkeys([*found, *(p for spec in self.sessions for p in shape_of(spec))]))

    @cached_property
    def sessions(self) -> tuple[SessionSpec, ...]:
        """The distinct kinds of sessions; the others are windows of panes."""
        kinds = (window for query in self.queries for window in query.windows if isinstance(window, SessionSpec))
        return tuple(dict.fromkeys(kinds))

    def session_primitives(self, spec: SessionSpec) -> tuple[Primitive, ...]:
        """Return the distinct primitives of the queries with a kind of sessions."""
        queries = tuple(q for q in self.queries if spec in q.windows)
        found = [p for query in queries for _, aggregate in query.aggregates for p in aggregate.primitives]
        return tuple(dict.fromkeys([*found, *shape_of(spec)]))

    @cached_property
    def pane_windows(self) -> tuple[WindowKind, ...]:
        """The windows that are made of panes."""
        return tuple(dict.fromkeys(window for query in self.queries for window in query.pane_windows))

    @cached_property
    def windows(self) -> tuple[WindowKind, ...]:
        """The distinct windows of these queries."""
        return tuple(dict.fromkeys(window for query in self.queries for window in query.windows))

    @cached_property
    def grid(self) -> Grid:
        """The panes to store; those of sessions, which are not stored, if there are no others."""
        return Grid.of(self.pane_windows or self.sessions)

    @cached_property
    def name(self) -> str:
        """A name that stays while the application is defined in the same order."""
        keys = [str(key) for key in ordered(self.keys)]
        return json.dumps([self.branch, keys, "" if self.condition is None else self.condition.text, self.only])

    @property
    def remembers_keys(self) -> bool:
        """Whether the driver knows its keys, wherever the partials are.

        Queries with early or late results remember which keys changed.
        """
        return any(query.updates for query in self.queries)

    @property
    def can_be_direct(self) -> bool:
        """Whether its windows can be computed from the rows, without panes.

        They must be fixed, with slides that divide the lengths, so that each row is in the same number of them, and no
        two of one length, so that none is there twice.
        """
        fixed = [window for window in self.windows if isinstance(window, WindowSpec)]
        return len(fixed) == len(self.windows) == len({window.length for window in fixed}) and all(
            window.length % window.slide == 0 for window in fixed
        )


@dataclass(frozen=True)
class Arrangement:
    """The form of computing key sets, by their names; what it does not tell follows the rule of `plan_components`.

    Results do not depend on it: it may change with every cut.
    """

    hosts: frozenset[tuple[str, str]] = frozenset()
    """Key set, and the key set whose aggregation it is derived from; itself, if it is computed from the rows."""
    direct: frozenset[str] = frozenset()
    """Key sets whose windows are computed from the rows, if that is possible."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"hosts": sorted(self.hosts), "direct": sorted(self.direct)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Arrangement:
        """Return what `to_json` wrote."""
        return cls(frozenset((name, host) for name, host in value["hosts"]), frozenset(value["direct"]))


DEFAULT = Arrangement()


@dataclass(frozen=True)
class Component:
    """One aggregation of the job, by pane and the keys of its finest key set; the others are derived from it.

    Key sets with different conditions are distinguished by a tag: a row is aggregated once for each condition that it
    satisfies.
    """

    finest: KeySet
    coarser: tuple[KeySet, ...] = ()
    direct: bool = False
    """Whether rows are aggregated per window instead of per pane."""

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

    @cached_property
    def primitives(self) -> tuple[Primitive, ...]:
        """The primitives computed per pane and key; the number of rows always, to count the late ones."""
        return tuple(dict.fromkeys((ROWS, *(p for key_set in self.key_sets for p in key_set.primitives))))

    @cached_property
    def conditions(self) -> tuple[Expression | None, ...]:
        """The distinct conditions; a row's tag is the index of one of them."""
        return tuple(dict.fromkeys(key_set.condition for key_set in self.key_sets))

    @cached_property
    def windows(self) -> tuple[WindowKind, ...]:
        """The distinct windows of all key sets."""
        return tuple(dict.fromkeys(window for key_set in self.key_sets for window in key_set.windows))

    @property
    def copies(self) -> int:
        """The number of times that each row is aggregated, at most once for each condition."""
        fixed = (window for window in self.windows if isinstance(window, WindowSpec))
        overlap = sum(window.length // window.slide for window in fixed) if self.direct else 1
        return overlap * len(self.conditions)

    @cached_property
    def grid(self) -> Grid:
        """Panes that serve every key set."""
        return Grid.of(self.windows)

    @cached_property
    def told(self) -> Grid:
        """Panes by which it is told what is in files: whole gaps, where rows that end sessions need single moments."""
        windows: list[WindowKind] = []
        for window in self.windows:
            ended = isinstance(window, SessionSpec) and window.ends_when is not None
            windows.append(SessionSpec(window.gap) if isinstance(window, SessionSpec) and ended else window)
        return Grid.of(windows)


def key_sets_of(queries: Sequence[WindowedQuery], share: bool = True) -> tuple[KeySet, ...]:
    """Return the key sets of some queries, those with more keys first.

    Args:
        queries: The queries of a stream.
        share: Whether queries share partials; else each has a key set of its own.
    """
    grouped: dict[tuple[int, frozenset[Key], Expression | None, str], list[WindowedQuery]] = {}
    for query in queries:
        ended = any(isinstance(window, SessionSpec) and window.ends_when is not None for window in query.windows)
        only = query.name if not share else ENDED if ended else ""
        grouped.setdefault((query.branch, frozenset(query.keys), query.condition, only), []).append(query)
    key_sets = [
        KeySet(branch, keys, tuple(members), condition, only)
        for (branch, keys, condition, only), members in grouped.items()
    ]
    return tuple(sorted(key_sets, key=lambda key_set: -len(key_set.keys)))


def plan_components(
    queries: Sequence[WindowedQuery], share: bool = True, arrangement: Arrangement = DEFAULT
) -> tuple[Component, ...]:
    """Group queries into as few components as their keys allow.

    A key set joins a component when its keys are a subset of the component's and every primitive it needs is either
    computed there already or small (a few numbers): sketches per fine key cost more than a second aggregation.

    Args:
        queries: The queries of a stream.
        share: Whether queries share anything; else each has a component of its own.
        arrangement: What differs from this rule.
    """
    hosts = dict(arrangement.hosts)
    groups: list[_Group] = []
    direct: list[KeySet] = []
    for key_set in key_sets_of(queries, share):
        if key_set.name in arrangement.direct and key_set.can_be_direct:
            direct.append(key_set)
            continue
        host = hosts.get(key_set.name)
        able = [group for group in groups if derivable(key_set, group.finest) and host != key_set.name]
        named = [group for group in able if group.finest.name == host]
        chosen = named or [group for group in able if group.has_cheaply(key_set)]
        if not chosen:
            groups.append(_Group(key_set))
        (chosen or groups[-1:])[0].add(key_set)
    split = [Component(group.finest, tuple(group.members[1:])) for group in groups]
    return (*split, *(Component(key_set, direct=True) for key_set in direct))


def derivable(key_set: KeySet, finest: KeySet) -> bool:
    """Tell whether a key set's partials can be made of a finer one's, if the job computes what they need there."""
    same = finest.branch == key_set.branch and finest.only == key_set.only
    return same and key_set.keys <= finest.keys


@dataclass
class _Group:
    """Key sets that become a component."""

    finest: KeySet
    members: list[KeySet] = field(default_factory=list)
    """The finest one first."""
    primitives: set[Primitive] = field(default_factory=set)
    """Those of all members."""

    def add(self, key_set: KeySet) -> None:
        self.members.append(key_set)
        self.primitives.update(key_set.primitives)

    def has_cheaply(self, key_set: KeySet) -> bool:
        return all(p in self.primitives or p.small for p in key_set.primitives)
