"""Which datasets to checkpoint when the steps to come are known: the fewest bytes in the long run, not now.

An application that keeps a running result makes alike datasets from alike datasets, step after step. Then the graph of
the next steps is the last one repeated, with the sizes and delays that were measured. Over the datasets there are and
those of some steps to come, the checkpoints with the fewest bytes that keep every path within the bound are a
length-bounded vertex cut. It is NP-hard (Baier et al., 2010), but some dozens of datasets are solved exactly as a mixed
integer program by HiGHS. Of its answer only what exists is written; the rest is decided again when the next path is too
long (receding horizon). This goes beyond Stark, whose cut sees only the past.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from transom.placement.checkpoints import checkpoints, violating
from transom.placement.lineage import Dataset, Lineage

HISTORY = 256
"""Datasets that a period is looked for in."""
AVERAGED = 4
"""Steps whose measurements are averaged, at most."""
REACH = 8
"""The horizon is so many times the steps that fit into the bound, so that its end hardly matters now."""
MOST = 180
"""Datasets in the horizon, at most."""
DISCOUNT = 0.85
"""What a byte costs a step later. A checkpoint that is later puts off all that follow, which a horizon does not see."""
SECONDS = 1.0
"""Time to solve one integer program."""
ROUNDS = 100
"""Integer programs for one answer, at most."""


@dataclass(frozen=True)
class Period:
    """What was made in the last step, and how long ago what it was made from."""

    datasets: tuple[Dataset, ...]
    back: tuple[tuple[int, ...], ...]
    """For each dataset: how many datasets before it each of its parents was made."""


def period(made: Sequence[Dataset]) -> Period | None:
    """Return the period with which the last datasets repeat; None if they do not.

    Of all periods whose kinds came twice, the one that goes back furthest, of several the shortest. O(n^2).

    Args:
        made: All datasets in the order in which they were made, or the last of them; as they were then.
    """
    best, longest = 0, 0
    for length in range(1, len(made) // 2 + 1):
        run = 0
        while run < len(made) - length and made[-1 - run].kind == made[-1 - run - length].kind:
            run += 1
        if run >= length and run + length > longest:
            best, longest = length, run + length
    places = {dataset.name: place for place, dataset in enumerate(made)}
    last = made[len(made) - best :]
    if not best or any(parent not in places for dataset in last for parent in dataset.parents):
        return None
    back = tuple(tuple(places[each.name] - places[parent] for parent in each.parents) for each in last)
    repeats = min(longest // best, AVERAGED)
    alike = [[made[place - best * ago] for ago in range(repeats)] for place in range(len(made) - best, len(made))]
    return Period(tuple(_mean(each) for each in alike), back)


def _mean(alike: Sequence[Dataset]) -> Dataset:
    """Return the first of some datasets, with what is measured of all."""
    size = sum(each.size for each in alike) // len(alike)
    delay, reading = (sum(values) / len(alike) for values in zip(*((d.delay, d.reading) for d in alike), strict=True))
    return replace(alike[0], size=size, delay=delay, reading=reading)


def continued(lineage: Lineage, made: Sequence[Dataset], found: Period, steps: int) -> Lineage:
    """Return the lineage after some more steps like the last one. O(datasets)."""
    names = [dataset.name for dataset in made]
    datasets = dict(lineage.datasets)
    for step in range(steps):
        for dataset, back in zip(found.datasets, found.back, strict=True):
            name = f"{step}+{dataset.name}"
            parents = tuple(parent for one in back if (parent := names[len(names) - one]) in datasets)
            names.append(name)
            datasets[name] = Dataset(
                name, parents, dataset.size, dataset.delay, dataset.durable, dataset.reading, dataset.kind
            )
    return Lineage(datasets)


def least(
    lineage: Lineage, bound: float, price: Mapping[str, float] | None = None, seconds: float = SECONDS
) -> list[str] | None:
    """Return the checkpoints with the fewest bytes that keep every path of a lineage within the bound.

    A minimum hitting set: of each path that is too long by its delays, one dataset is written; of a path that is too
    long after what it begins with was read, too, if that is durable or written itself. Paths are exponentially many,
    so only those are told to the solver that its last answer left too long, until there are none (cutting planes).
    Of answers with the same bytes it is one with few checkpoints.

    Args:
        lineage: What there is and what will be.
        bound: Seconds.
        price: Of a byte, by dataset; None for 1.
        seconds: Limit for the solver, each time.

    Returns:
        Names in order; None if there is no such set, or it was not found in time.
    """
    # Only here, as it takes half a second, and this module is loaded wherever Transom is.
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    open_ = {dataset.name: place for place, dataset in enumerate(d for d in lineage.datasets.values() if not d.durable)}
    datasets = [lineage.datasets[name] for name in open_]
    total = max(sum(dataset.size for dataset in datasets), 1)
    cost = np.array([each.size / total * (1.0 if price is None else price[each.name]) + 1e-9 for each in datasets])
    possible = np.array([float(dataset.held and dataset.reading <= bound) for dataset in datasets])
    rows: list[dict[int, float]] = []
    lower: list[float] = []
    chosen: list[str] = []
    for _ in range(ROUNDS):
        long = _too_long(lineage.checkpointed(chosen), set(chosen), bound)
        if not long:
            return chosen
        for begin, path in long:
            row = {open_[name]: 1.0 for name in path}
            if begin is not None:
                row[open_[begin]] = -1.0
            rows.append(row)
            lower.append(1.0 if begin is None else 0.0)
        places = [(number, column, value) for number, row in enumerate(rows) for column, value in row.items()]
        at, columns, values = zip(*places, strict=True)
        found = milp(
            cost,
            integrality=np.ones(len(cost)),
            bounds=Bounds(0.0, possible),
            constraints=LinearConstraint(coo_array((values, (at, columns)), shape=(len(rows), len(cost))), lower),
            options={"time_limit": seconds, "mip_rel_gap": 1e-6},
        )
        if found.status != 0:
            return None
        chosen = [name for name, place in open_.items() if found.x[place] > 0.5]
    return None


def _too_long(lineage: Lineage, chosen: set[str], bound: float) -> list[tuple[str | None, list[str]]]:
    """Return for each dataset the end of the longest path to it, if that is too long: no more of it than is too long.

    Before it comes the checkpoint that it begins with, if it is too long only with reading that.
    """
    lengths = lineage.lengths()
    found: list[tuple[str | None, list[str]]] = []
    for name, dataset in lineage.datasets.items():
        if dataset.durable or lengths[name] <= bound:
            continue
        path: list[str] = []
        delays, at = 0.0, dataset
        while True:
            path.append(at.name)
            delays += at.delay
            above = [lineage.datasets[parent] for parent in at.parents]
            last = max(above, key=lambda each: lengths[each.name], default=None)
            if delays > bound or last is None or last.durable:
                break
            at = last
        by_reading = delays <= bound and last is not None and last.name in chosen
        found.append((last.name if by_reading and last is not None else None, path))
    return found


def lookahead(
    lineage: Lineage, newest: Sequence[str], bound: float, made: Sequence[Dataset], relax: float = 1.0
) -> list[str]:
    """Return what to checkpoint so that paths are within the bound, for the fewest bytes over the steps to come.

    Nothing while all paths to the newest datasets are within it. Where no period is known, or no answer within the
    time, it is the relaxed minimum cut (`checkpoints`). What is returned keeps the bound in any case.

    Args:
        lineage: All datasets that can be needed; those before the newest are within the bound.
        newest: The datasets that were made last.
        bound: Recovery bound r, seconds.
        made: The datasets in the order in which they were made, the newest last; see `period`.
        relax: f of the cut.
    """
    long = violating(lineage, newest, bound)
    if not long:
        return []
    found = period(made[-HISTORY:])
    if found is not None:
        step = sum(dataset.delay for dataset in found.datasets if not dataset.durable)
        steps = min(max(2, ceil(REACH * bound / step) if step else 2), max(1, MOST // len(found.datasets)))
        future = continued(lineage, made, found, steps)
        ago, length = len(lineage.datasets), len(found.datasets)
        price = {name: DISCOUNT ** ((place - ago) / length) for place, name in enumerate(future.datasets)}
        plan = least(future, bound, price)
        chosen = [name for name in plan or () if name in lineage.datasets]
        if plan is not None and not violating(lineage.checkpointed(chosen), newest, bound):
            return _now(lineage, chosen, newest, bound)
    return checkpoints(lineage, newest, bound, relax)


def _now(lineage: Lineage, chosen: Sequence[str], newest: Sequence[str], bound: float) -> list[str]:
    """Return what of a plan has to be written now: the rest can wait for what is known by then; the largest first."""
    kept = list(chosen)
    for name in sorted(chosen, key=lambda each: -lineage.datasets[each].size):
        others = [each for each in kept if each != name]
        if not violating(lineage.checkpointed(others), newest, bound):
            kept = others
    return kept
