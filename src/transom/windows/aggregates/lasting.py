"""Primitives by the lasting names of their states: whoever merges states needs no more of them than that."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from transom.model.expression import Expression
from transom.windows.aggregates.base import Primitive
from transom.windows.aggregates.best import Best
from transom.windows.aggregates.bits import Bits
from transom.windows.aggregates.collect import FirstOf, Smallest
from transom.windows.aggregates.count import Count
from transom.windows.aggregates.edges import Edge
from transom.windows.aggregates.extremes import Extreme
from transom.windows.aggregates.filtered import Filtered
from transom.windows.aggregates.mean import MeanSum
from transom.windows.aggregates.moments import Moments
from transom.windows.aggregates.pairs import PairMoments
from transom.windows.aggregates.shape import HigherMoments
from transom.windows.aggregates.sketches import Hll, Kll
from transom.windows.aggregates.sums import Sum
from transom.windows.aggregates.times import TimeRange
from transom.windows.aggregates.topk import FrequentItems, HeavyItems

_X = Expression
_MAKE: Mapping[str, Callable[..., Any]] = {
    "best.1": lambda which, x, y: Best(_X(x), _X(y), which == "max"),
    "bits.1": lambda function, x: Bits(_X(x), function),
    "count.1": lambda *x: Count(*map(_X, x)),
    "edge.1": lambda which, x, *nulls: Edge(_X(x), which == "last", bool(nulls)),
    "extreme.1": lambda function, x: Extreme(_X(x), function),
    "first.1": lambda limit, order, x, by: FirstOf(_X(x), _X(by), order == "desc", limit),
    "frequent.1": lambda items, x: FrequentItems(_X(x), items),
    "heavy.1": lambda items, x, weight: HeavyItems(_X(x), _X(weight), items),
    "hll.1": lambda size, x: Hll(_X(x)),
    "kll.1": lambda k, x: Kll(_X(x), k),
    "mean.1": lambda x: MeanSum(_X(x)),
    "moments.1": lambda x: Moments(_X(x)),
    "moments4.1": lambda x: HigherMoments(_X(x)),
    "pairs.1": lambda x, y: PairMoments(_X(x), _X(y)),
    "smallest.1": lambda limit, unique, x: Smallest(_X(x), limit, unique),
    "sum.1": lambda x: Sum(_X(x)),
    "times.1": TimeRange,
    "where.1": lambda condition, of: Filtered(primitive_of(of), _X(condition)),
}


def primitive_of(key: str) -> Primitive:
    """Return the primitive whose states have a lasting name; good for merging them, not for computing them.

    Raises:
        ValueError: It is of no kind that is known, or of a user's own, whose functions no name tells.

    >>> primitive_of('["sum.1", "fare"]').key
    '["sum.1", "fare"]'
    """
    try:
        kind, *details = json.loads(key)
        made: Primitive = _MAKE[kind](*details)
        if made.key == key:
            return made
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        pass
    raise ValueError(f"There is no way to merge states called {key!r} without the job.")
