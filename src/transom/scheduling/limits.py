"""Latency limits that are out of reach: the runs of a stream leave its queries no chance to keep them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from transom.model.time import Micros

ENOUGH = 8
"""With fewer runs nothing is said: the first ones are slow, since the JVM compiles."""


def out_of_reach(runs: Sequence[Micros], limits: Mapping[str, Micros]) -> list[str]:
    """Return the queries that could keep their limit only with a stream of their own, where runs may be shorter.

    A result cannot be there before the run that reads its last row is over, so that a limit below the median run is
    missed by half of the results and more. A stream with one query has nobody to part from.

    Args:
        runs: Durations of the last runs that took all there was, microseconds.
        limits: Latency limit of each query of the stream.

    >>> out_of_reach([400_000] * 8, {"a": 300_000, "b": 2_000_000})
    ['a']
    """
    if len(runs) < ENOUGH or len(limits) < 2:
        return []
    typical = median(runs)
    return [name for name, limit in limits.items() if limit < typical]
