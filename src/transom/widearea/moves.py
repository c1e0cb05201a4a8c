"""Local moves: flow by flow to the best way that the others leave room for; no link is ever exceeded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from transom.widearea.flows import Floats
from transom.widearea.objectives import Worth
from transom.widearea.pricing import Prices, columns_at
from transom.widearea.problem import Column

LEAST_GAIN = 1e-9
FALLING = (1.0, 0.5, 0.25, 0.0, 0.0)
"""Parts of the prices that moves go by, one after the other: first scarce links are spared, in the end none is."""


class Placement:
    """Columns that fit together, at most one of each flow, and the room that they leave."""

    def __init__(self, worth: Worth, columns: Iterable[Column] = ()) -> None:
        self.worth = worth
        self.columns: dict[int, Column] = {}
        self.room = worth.problem.capacity.ravel().copy()
        for column in columns:
            self.put(column)

    def put(self, column: Column) -> bool:
        """Add a column if there is room for it, and its flow has none yet; tell whether it is here now."""
        load = self.worth.problem.load(column)
        if column.flow in self.columns or not self.worth.problem.fits(load, self.room):
            return False
        self.room[list(load.links)] -= load.rates
        self.columns[column.flow] = column
        return True

    def take(self, flow: int) -> Column | None:
        """Remove the column of a flow, if it has one."""
        column = self.columns.pop(flow, None)
        if column is not None:
            load = self.worth.problem.load(column)
            self.room[list(load.links)] += load.rates
        return column

    def move(self, flow: int, price: Floats) -> bool:
        """Give a flow the column that gains most at prices, of those that fit; tell whether it changed."""
        problem, old = self.worth.problem, self.take(flow)
        prices = Prices(price.reshape(problem.sites, -1), self.room.reshape(problem.sites, -1))
        for _, new in columns_at(problem, flow, self.worth.offers(flow), prices):
            if not problem.fits(problem.load(new), self.room):
                continue
            if old is None or self._gain(new, price) > self._gain(old, price) + LEAST_GAIN:
                return self.put(new)
            break
        if old is not None:
            self.put(old)
        return False

    def settle(self, flows: Sequence[int], price: Floats, parts: Sequence[float] = FALLING) -> None:
        """Move flows, at prices that fall."""
        for part in parts:
            at = price * max(part, 1e-6)  # of ways that are worth the same, one whose links are cheap
            for flow in flows:
                self.move(flow, at)

    def _gain(self, column: Column, price: Floats) -> float:
        links, rates = self.worth.problem.load(column)
        return self.worth.value(column) - sum(rate * float(price[at]) for at, rate in zip(links, rates, strict=True))

    def value(self) -> float:
        """Return the value of all columns."""
        return sum(self.worth.value(column) for column in self.columns.values())
