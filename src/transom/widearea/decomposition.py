"""The solver that scales: prices on links, and each flow chooses its ways by itself.

The prices come from a descent (`descent`), whose columns a master program (Dantzig and Wolfe) chooses from; by its
prices flows offer more of them. For any prices, what each flow could gain and what all links are worth is together a
bound on every plan (Lagrange). Columns are then placed one by one at the prices that were best, and improved by integer
programs over the flows of some destinations at a time, and by local moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from transom.widearea.descent import Descent
from transom.widearea.flows import Floats
from transom.widearea.moves import Placement
from transom.widearea.objectives import Worth
from transom.widearea.pricing import Prices, columns_at, gain_bound
from transom.widearea.problem import Column
from transom.widearea.programs import Columns, relaxed, whole

PASSES = 6
"""Times that a descent looks at every flow, in each of its phases."""
ROUNDS, SOLVED = 12, 30_000
"""Master programs, at most, and the columns that they have in all."""
OFFERS = 3
"""Columns that a flow offers in a round."""
MIXING = 0.5
"""Part of the prices that were best so far in those that are asked for next (Wentges)."""
ENOUGH = 0.01
"""Gap to the bound that ends the search, as a share of what plans differ in of the value without penalties."""
TOGETHER = 60
"""Flows of an integer program."""


class Answer(NamedTuple):
    """Columns, at most one of each flow, and what no plan is better than."""

    columns: list[Column]
    bound: float
    """Of the value less the penalties for flows that are left out."""
    price: Floats
    """Of a byte per second of each link; shape (sites * sites,)."""


def bound_at(worth: Worth, price: Floats, penalties: Floats) -> float:
    """Return the bound on all plans that follows from prices."""
    problem = worth.problem
    prices = Prices(price.reshape(problem.sites, -1), problem.capacity)
    gains = (
        max(gain_bound(problem, flow, worth.offers(flow), prices), -float(penalties[flow]))
        for flow in range(len(problem.flows))
    )
    return float(price @ problem.capacity.ravel()) + sum(gains)


class Decomposition:
    """One search."""

    def __init__(self, worth: Worth, penalties: Floats, seconds: float) -> None:
        self.worth, self.penalties, self.seconds = worth, penalties, seconds
        self.enough = ENOUGH * worth.differs
        self.columns = Columns(worth)
        self.price: Floats = np.zeros(worth.problem.sites**2)
        self.bound = np.inf
        self.flows = range(len(worth.problem.flows))

    def solve(self) -> Answer:
        """Return a plan from nothing."""
        descent = Descent(self.worth)
        descent.run(PASSES)
        self._add(descent.columns())
        self._try(descent.price)
        shares = self._master()
        order = sorted(self.flows, key=lambda flow: -self._best(flow))
        found = Placement(self.worth)
        for flow in order:
            found.move(flow, self.price)
        found.settle(self.flows, self.price)
        if shares is not None:
            rounded = Placement(self.worth, [self.columns.all[at] for at in np.argsort(-shares, kind="stable")])
            rounded.settle(self.flows, self.price)
            if self._total(rounded) > self._total(found):
                found = rounded
        self._improve(found)
        return self._answer(found)

    def again(self, last: Iterable[Column], price: Floats) -> Answer:
        """Return a plan from the last one and its prices; quick where little has changed."""
        self._try(price)
        found = Placement(self.worth, last)
        missing = [flow for flow in self.flows if flow not in found.columns]
        found.settle(missing, self.price, (1.0,))
        found.settle(self.flows, self.price, (0.0,))
        return self._answer(found)

    def _answer(self, found: Placement) -> Answer:
        return Answer([found.columns[flow] for flow in sorted(found.columns)], self.bound, self.price)

    def _total(self, found: Placement) -> float:
        return found.value() - sum(float(self.penalties[flow]) for flow in self.flows if flow not in found.columns)

    def _best(self, flow: int) -> float:
        return max(float(offer.values.max()) for offer in self.worth.offers(flow))

    def _add(self, columns: Iterable[Column]) -> int:
        return sum([self.columns.add(column) for column in columns])

    def _try(self, price: Floats) -> None:
        """Take prices if their bound is better."""
        bound = bound_at(self.worth, price, self.penalties)
        if bound < self.bound:
            self.bound, self.price = bound, price.copy()

    def _master(self) -> Floats | None:
        """Solve master programs until their value meets the bound; return the shares of the last one."""
        problem, shares, solved = self.worth.problem, None, 0
        for _ in range(ROUNDS):
            solved += len(self.columns.all)
            if solved > SOLVED:
                break
            found = relaxed(self.columns, self.penalties, self.seconds / 16)
            if found is None:
                break
            shares = found.shares
            price = MIXING * self.price + (1 - MIXING) * found.price
            self._try(price)
            if self.bound - found.value <= self.enough / 4 * float(shares @ self.columns.values):
                break
            prices = Prices(price.reshape(problem.sites, -1), problem.capacity)
            offered = (columns_at(problem, flow, self.worth.offers(flow), prices)[:OFFERS] for flow in self.flows)
            if not self._add(column for each in offered for _, column in each):
                break
        return shares

    def _improve(self, found: Placement) -> None:
        """Choose again for the flows of some destinations at a time, while the others stay."""
        problem = self.worth.problem
        order = sorted(self.flows, key=lambda flow: (problem.shapes[flow].destination, flow))
        parts = [order[at : at + TOGETHER] for at in range(0, len(order), TOGETHER)]
        for part in parts:
            if self.bound - self._total(found) <= self.enough * found.value():
                return
            self._choose(found, part, self.seconds / 4 / len(parts))
        found.settle(self.flows, np.zeros_like(self.price))

    def _choose(self, found: Placement, flows: Sequence[int], seconds: float) -> None:
        """Solve the integer program over the known columns of flows, and what they could do in the room they have."""
        problem, before = self.worth.problem, self._total(found)
        old = [column for flow in flows if (column := found.take(flow)) is not None]
        prices = Prices(self.price.reshape(problem.sites, -1), found.room.reshape(problem.sites, -1))
        for flow in flows:
            self._add(column for _, column in columns_at(problem, flow, self.worth.offers(flow), prices))
        self._add(old)
        chosen, inside = set(flows), self.columns
        places = [
            place
            for place, column in enumerate(inside.all)
            if column.flow in chosen and problem.fits(inside.loads[place], found.room)
        ]
        new = whole(inside, places, flows, self.penalties, found.room, seconds, self.enough / 4)
        for column in new.columns if new is not None else old:
            found.put(column)
        if self._total(found) < before:
            for flow in flows:
                found.take(flow)
            for column in old:
                found.put(column)
