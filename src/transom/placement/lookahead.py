"""The datasets to checkpoint when the steps to come are known: the fewest bytes in the long run, not now.

An application that keeps a running result makes alike datasets from alike datasets, step after step. Then the graph of
the next steps is the last one repeated, with the sizes and delays that were measured. Over the datasets there are and
those of some steps to come, the checkpoints with the fewest bytes that keep the work behind every dataset within the
bound are a minimum hitting set. It is NP-hard (already for paths: Baier et al., 2010), but some dozens of datasets are
solved exactly as a mixed integer program by HiGHS. Of its answer only what exists is written, and of that only what the
newest dataset needs; the rest is decided again when the bound is broken next (receding horizon). This goes beyond
Stark, whose cut sees only the past.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import ceil

import numpy as np

from transom.placement.lineage import Lineage, LineageNode

HISTORY = 256
"""Datasets that a period is looked for in."""
AVERAGED = 4
"""Steps whose measurements are averaged, at most."""
REACH = 2
"""The horizon is so many times the steps that fit into the bound, so that its end matters little now."""
MOST = 54
"""Datasets in the horizon, at most."""
DISCOUNT = 0.85
"""Cost of a byte a step later. A checkpoint that is later puts off all that follow, which a horizon does not see."""
SECONDS = 0.1
"""Time for one integer program; then the best answer so far counts."""
GAP = 1e-2
"""An answer may have so many more bytes than the fewest, as a share: what is to come is not known better."""
ROUNDS = 100
"""Integer programs for one answer, at most."""


@dataclass(frozen=True)
class Period:
    """The datasets of the last step, and the age of what each was made from."""

    datasets: tuple[LineageNode, ...]
    back: tuple[tuple[int, ...], ...]
    """For each dataset: how many datasets before it each of its parents was made."""


def period(made: Sequence[LineageNode]) -> Period | None:
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


def _mean(alike: Sequence[LineageNode]) -> LineageNode:
    """Return the first of some datasets, with what is measured of all."""
    size = sum(each.size for each in alike) // len(alike)
    delay, reading = (sum(values) / len(alike) for values in zip(*((d.delay, d.reading) for d in alike), strict=True))
    return replace(alike[0], size=size, delay=delay, reading=reading)


def continued(lineage: Lineage, made: Sequence[LineageNode], found: Period, steps: int) -> Lineage:
    """Return the lineage after some more steps like the last one. O(datasets)."""
    names = [dataset.name for dataset in made]
    datasets = dict(lineage.datasets)
    for step in range(steps):
        for dataset, back in zip(found.datasets, found.back, strict=True):
            name = f"{step}+{dataset.name}"
            parents = tuple(parent for one in back if (parent := names[len(names) - one]) in datasets)
            names.append(name)
            datasets[name] = LineageNode(
                name, parents, dataset.size, dataset.delay, dataset.durable, dataset.reading, dataset.kind
            )
    return Lineage(datasets)


def least(
    lineage: Lineage, bound: float, price: Mapping[str, float] | None = None, seconds: float = SECONDS
) -> list[str] | None:
    """Return the checkpoints with the fewest bytes that keep the work behind every dataset within the bound.

    A minimum hitting set: of what it takes to make a dataset again, as far back as it is just too much, one dataset is
    written; if it is too much only with reading other checkpoints, one of it, or not all of those. Such sets are
    exponentially many, so only those are told to the solver that its last answer left, until there are none (cutting
    planes). Of answers with the same bytes it is one with few checkpoints.

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
        excess = _excess(lineage, set(chosen), bound)
        if not excess:
            return chosen
        for made, read in excess:
            rows.append({**{open_[name]: 1.0 for name in made}, **{open_[name]: -1.0 for name in read}})
            lower.append(1.0 - len(read))
        places = [(number, column, value) for number, row in enumerate(rows) for column, value in row.items()]
        at, columns, values = zip(*places, strict=True)
        where = np.array([at, columns], dtype=np.int32)  # wider ones the solver of SciPy 1.11 refuses
        found = milp(
            cost,
            integrality=np.ones(len(cost)),
            bounds=Bounds(0.0, possible),
            constraints=LinearConstraint(coo_array((values, tuple(where)), shape=(len(rows), len(cost))), lower),
            options={"time_limit": seconds, "mip_rel_gap": GAP},
        )
        if found.x is None:
            return None
        chosen = [name for name, place in open_.items() if found.x[place] > 0.5]
    return None


def _excess(lineage: Lineage, chosen: set[str], bound: float) -> list[tuple[list[str], list[str]]]:
    """Return for each dataset with too much work behind it: what is made again for it, no more than is too much.

    And the checkpoints that are read for that, if it is too much only with them. O(datasets x those within a bound).
    """
    found: list[tuple[list[str], list[str]]] = []
    place = {name: number for number, name in enumerate(lineage.datasets)}
    for name, dataset in lineage.datasets.items():
        if dataset.durable or name in chosen:
            continue
        made: list[str] = []
        read: set[str] = set()
        seen, todo, work = {name}, [(-place[name], name)], 0.0
        while todo and work <= bound:
            at = lineage.datasets[heappop(todo)[1]]  # the newest first, so that sets are of neighbours
            if at.name in chosen:
                read.add(at.name)
                continue
            work += at.reading if at.durable else at.delay
            if not at.durable:
                made.append(at.name)
                for parent in at.parents:
                    if parent not in seen:
                        seen.add(parent)
                        heappush(todo, (-place[parent], parent))
        if work > bound:
            found.append((_no_more(lineage, made, bound), []))
            continue
        needed: list[str] = []
        for other in sorted(read, key=lambda each: -lineage.datasets[each].reading):
            needed.append(other)
            work += lineage.datasets[other].reading
            if work > bound:
                found.append((made, needed))
                break
    return found


def _no_more(lineage: Lineage, made: list[str], bound: float) -> list[str]:
    """Return what is left of datasets that are too much work when none can go without the rest being little enough."""
    kept = dict.fromkeys(made)
    behind = {name: [p for p in lineage.datasets[name].parents if p in kept] for name in made}
    readers: dict[str, int] = {}
    for name in made:
        for parent in lineage.datasets[name].parents:
            if lineage.datasets[parent].durable:
                readers[parent] = readers.get(parent, 0) + 1
    spare = sum(lineage.datasets[name].delay for name in made) - bound
    spare += sum(lineage.datasets[name].reading for name in readers)
    for name in sorted(made, key=lambda each: lineage.datasets[each].delay):
        todo = [name]  # and what can go once it is gone, towards the newest
        while todo:
            at = todo.pop()
            if at not in kept or at == made[0] or any(parent in kept for parent in behind[at]):
                continue
            alone = [p for p in lineage.datasets[at].parents if readers.get(p) == 1]
            less = lineage.datasets[at].delay + sum(lineage.datasets[p].reading for p in alone)
            if less >= spare:
                continue
            spare -= less
            del kept[at]
            for parent in lineage.datasets[at].parents:
                if parent in readers:
                    readers[parent] -= 1
            todo += [other for other in kept if at in behind[other] and lineage.datasets[other].delay <= less]
    return list(kept)


def lookahead(lineage: Lineage, newest: str, bound: float, made: Sequence[LineageNode]) -> list[str] | None:
    """Return what to checkpoint so that work is within the bound, for the fewest bytes over the steps to come.

    Args:
        lineage: All datasets that can be needed; the work behind those before the newest is within the bound.
        newest: The dataset that was made last.
        bound: Recovery bound r, seconds.
        made: The datasets in the order in which they were made, the newest last; see `period`.

    Returns:
        Names; None where no period is known, or no answer that keeps the bound was found within the time.
    """
    found = period(made[-HISTORY:])
    if found is None:
        return None
    step = sum(dataset.reading if dataset.durable else dataset.delay for dataset in found.datasets)
    steps = min(max(2, ceil(REACH * bound / step) if step else 2), max(2, MOST // len(found.datasets)))
    future = continued(lineage, made, found, steps)
    ago, length = len(lineage.datasets), len(found.datasets)
    price = {name: DISCOUNT ** ((place - ago) / length) for place, name in enumerate(future.datasets)}
    plan = least(future, bound, price)
    chosen = [name for name in plan or () if name in lineage.datasets]
    if plan is None or lineage.checkpointed(chosen).work(newest) > bound:
        return None
    return _now(lineage, chosen, newest, bound)


def _now(lineage: Lineage, chosen: Sequence[str], newest: str, bound: float) -> list[str]:
    """Return what of a plan has to be written now: the rest can wait for what is known by then; the largest first."""
    kept = list(chosen)
    for name in sorted(chosen, key=lambda each: -lineage.datasets[each].size):
        others = [each for each in kept if each != name]
        if lineage.checkpointed(others).work(newest) <= bound:
            kept = others
    return kept
