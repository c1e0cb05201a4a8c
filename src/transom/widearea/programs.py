"""Columns as linear and integer programs for HiGHS, which SciPy has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transom.widearea.flows import Floats
from transom.widearea.objectives import Worth
from transom.widearea.problem import Column, Load


class Columns:
    """Columns with their values and loads; each once, in the order in which they came."""

    def __init__(self, worth: Worth) -> None:
        self.worth = worth
        self.all: list[Column] = []
        self.values: list[float] = []
        self.loads: list[Load] = []
        self._known: set[Column] = set()

    def add(self, column: Column) -> bool:
        """Add a column unless a link is too thin for it alone, or it is here already; tell whether it is new.

        With columns that exceed a link alone, the linear program promised 1.38 times the optimum on tight links, else
        1.12 times.
        """
        problem = self.worth.problem
        if column in self._known:
            return False
        self._known.add(column)
        load = problem.load(column)
        if not problem.fits(load, problem.capacity.ravel()):
            return False
        self.all.append(column)
        self.loads.append(load)
        self.values.append(self.worth.value(column))
        return True


class Relaxed(NamedTuple):
    """The answer of a linear program."""

    value: float
    shares: Floats
    """Of each column."""
    price: Floats
    """Of a byte per second of each link; shape (sites * sites,)."""


class Chosen(NamedTuple):
    """The answer of an integer program."""

    columns: list[Column]
    bound: float
    """No choice of the columns that it had is better."""


class _Matrix(NamedTuple):
    """Rows are links and flows; columns are columns, and then one for each flow that leaves it out."""

    uses: Any
    links: NDArray[np.intp]
    room: Floats
    choice: Any
    cost: Floats


def _matrix(columns: Columns, places: Sequence[int], flows: Sequence[int], penalties: Floats, room: Floats) -> _Matrix:
    from scipy.sparse import csc_array  # only here, as it takes half a second

    count, row_of = len(places), {flow: row for row, flow in enumerate(flows)}
    loads = [columns.loads[place] for place in places]
    at = np.repeat(np.arange(count, dtype=np.int32), [len(load.links) for load in loads])
    link = np.array([each for load in loads for each in load.links], dtype=np.intp)
    rate = np.array([each for load in loads for each in load.rates])
    links, row = np.unique(link, return_inverse=True)
    scale = columns.worth.problem.capacity.ravel()[links]
    uses = csc_array((rate / scale[row], (row.astype(np.int32), at)), shape=(len(links), count + len(flows)))
    flow = np.array([row_of[columns.all[place].flow] for place in places] + list(range(len(flows))), dtype=np.int32)
    every = np.arange(count + len(flows), dtype=np.int32)  # wider ones the solver of SciPy 1.11 refuses
    choice = csc_array((np.ones(len(every)), (flow, every)), shape=(len(flows), len(every)))
    cost = np.concatenate([[-columns.values[place] for place in places], penalties[list(flows)]])
    return _Matrix(uses, links, np.maximum(room[links], 0.0) / scale, choice, cost)


def relaxed(columns: Columns, penalties: Floats, seconds: float) -> Relaxed | None:
    """Solve the linear program over all columns, where a flow may be divided; None if it takes too long."""
    from scipy.optimize import linprog

    problem, count = columns.worth.problem, len(columns.all)
    capacity, flows = problem.capacity.ravel(), range(len(problem.flows))
    matrix = _matrix(columns, range(count), flows, penalties, capacity)
    found = linprog(
        matrix.cost,
        A_ub=matrix.uses,
        b_ub=matrix.room,
        A_eq=matrix.choice,
        b_eq=np.ones(len(flows)),
        bounds=(0, None),
        method="highs",
        options={"time_limit": seconds},
    )
    if found.status != 0:
        return None
    price = np.zeros_like(capacity)
    price[matrix.links] = np.maximum(-found.ineqlin.marginals, 0.0) / capacity[matrix.links]
    return Relaxed(-float(found.fun), found.x[:count], price)


def whole(
    columns: Columns,
    places: Sequence[int],
    flows: Sequence[int],
    penalties: Floats,
    room: Floats,
    seconds: float,
    gap: float,
) -> Chosen | None:
    """Solve the integer program: one column for each flow, or none, within the room of links.

    Args:
        columns: What there is to choose from.
        places: Of those columns that the program has.
        flows: Their flows.
        penalties: What leaving out costs, by flow.
        room: Bytes per second by link.
        seconds: Limit for the solver, half as much again if flows are left out; then the best answer so far counts,
            with the bound so far.
        gap: The answer may be worse than the best by this share of the values of its columns.

    Returns:
        None if nothing was found in the time.
    """
    matrix = _matrix(columns, places, flows, penalties, room)
    found = _solved(matrix, seconds, gap)
    if found.x is None:
        return None
    picked, bound = found.x[: len(places)] > 0.5, -float(found.mip_dual_bound)
    if picked.sum() < len(flows):
        # HiGHS takes its gap as a share of all, penalties included, beside which the values may be next to nothing.
        share = -float(matrix.cost[: len(places)][picked].sum()) / max(abs(float(found.fun)), 1e-300)
        closer = _solved(matrix, seconds / 2, gap * min(share, 1.0))
        if closer.x is not None:
            bound = min(bound, -float(closer.mip_dual_bound))
            picked = closer.x[: len(places)] > 0.5 if closer.fun <= found.fun else picked
    return Chosen([columns.all[place] for place, taken in zip(places, picked, strict=True) if taken], bound)


def _solved(matrix: _Matrix, seconds: float, gap: float) -> Any:
    """Return the answer of HiGHS; the gap is a share of the values less the penalties."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    return milp(
        matrix.cost,
        integrality=np.ones(len(matrix.cost)),
        bounds=Bounds(0, 1),
        constraints=[
            *([LinearConstraint(matrix.uses, -np.inf, matrix.room)] if len(matrix.links) else []),
            LinearConstraint(matrix.choice, 1.0, 1.0),
        ],
        options={"time_limit": seconds, "mip_rel_gap": gap},
    )
