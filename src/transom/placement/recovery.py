"""The datasets to checkpoint now so that what is lost is there again within a time: the policies behind one rule.

The bound of the paper is on paths: it takes branches that meet to be recomputed at the same time. Here a task
recomputes them one after the other, so what has to be within the bound is the whole work behind a dataset. Looking
ahead decides on work. Cuts are about paths: they get delays with which the longest path to a dataset is the work behind
it, and what they choose is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from transom.placement.checkpoints import checkpoints, edge
from transom.placement.lineage import Lineage, LineageNode
from transom.placement.lookahead import lookahead

Policy: TypeAlias = Literal["lookahead", "cut", "edge"]
"""Fewest bytes over the steps to come; Stark's minimum cut, relaxed by f; all leaves."""
POLICIES: tuple[Policy, ...] = ("lookahead", "cut", "edge")

TRIES, SHORTER = 6, 0.9
"""So often the bound of a cut is shortened, and by this, until the work is within the bound."""


def due(
    lineage: Lineage, newest: str, bound: float, made: Sequence[LineageNode], policy: Policy, relax: float
) -> list[str]:
    """Return what to checkpoint now that a dataset was made; nothing while the work behind it is within the bound.

    Args:
        lineage: All datasets that can be needed, the newest last; the work behind the others is within the bound.
        newest: The dataset that was made last.
        bound: Seconds that a recovery may compute and read.
        made: The last datasets in the order in which they were made; see `lookahead.period`.
        policy: How to choose.
        relax: f of the relaxed minimum cut; `lookahead` is this cut as well while it has no answer.
    """
    work = lineage.work(newest)
    if work <= bound:
        return []
    if policy == "lookahead" and (plan := lookahead(lineage, newest, bound, made)) is not None:
        return plan
    series, paths = lineage.in_series(), max(bound, 1e-9)
    for _ in range(TRIES):
        cut = edge(series, [newest], paths) if policy == "edge" else checkpoints(series, [newest], paths, relax)
        if cut and lineage.checkpointed(cut).work(newest) <= bound:
            return cut
        paths *= SHORTER
    return [newest]
