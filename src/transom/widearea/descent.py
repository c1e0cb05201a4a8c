"""Prices for links by descent on a smooth penalty, one flow after the other.

Every flow holds a mixture of columns. In turn, each moves towards its best column at the prices of that moment, as far
as is best (a Newton search on a line), and the prices of the links that it touches follow at once. A link's price is
the derivative of an exponential penalty on its use (Plotkin, Shmoys and Tardos; Bienstock), whose steepness grows. That
every flow sees what the one before it did makes some dozen passes enough, where subgradients need hundreds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transom.widearea.flows import Floats
from transom.widearea.objectives import Worth
from transom.widearea.pricing import Prices, columns_at
from transom.widearea.problem import Column

STEEPNESS = (5.0, 10.0, 20.0)
"""The price of a link grows so many e-folds from empty to full, in the phases of the descent."""
FLOOR = 0.02
"""Price of all of a link that is just full, in mean values of a flow."""
MOST = 50.0
"""E-folds above that, at most."""
SHARE = 1e-3
"""A column that has less of its flow is not worth remembering."""
NEWTON = 6
"""Steps of the search on a line."""


class _Mixed(NamedTuple):
    """The links of a column, what it takes of each as a share of the capacity, and its value."""

    links: NDArray[np.intp]
    shares: Floats
    value: float


class Descent:
    """Mixtures of columns, and the prices that follow from them."""

    def __init__(self, worth: Worth) -> None:
        self.worth, problem = worth, worth.problem
        self.mixtures: list[dict[Column, float]] = [{} for _ in problem.flows]
        self.offers = [worth.offers(flow) for flow in range(len(problem.flows))]
        capacity = problem.capacity.ravel()
        self._inverse: Floats = np.divide(1.0, capacity, out=np.zeros_like(capacity), where=capacity > 0)
        self._use = np.zeros_like(capacity)
        best = [max(float(offer.values.max()) for offer in offers) for offers in self.offers]
        self._floor = FLOOR * max(float(np.mean([value for value in best if np.isfinite(value)] or [1.0])), 1e-12)
        self._known: dict[Column, _Mixed] = {}
        self.steepness = STEEPNESS[0]
        self.price: Floats = np.zeros_like(capacity)
        self._reprice(slice(None))

    def run(self, passes: int) -> None:
        """Look at every flow so many times in each phase."""
        for self.steepness in STEEPNESS:
            self._reprice(slice(None))
            for _ in range(passes):
                for flow in range(len(self.mixtures)):
                    self._move(flow)

    def columns(self) -> list[Column]:
        """Return the columns of the mixtures, for each flow the largest share first."""
        return [
            column
            for mixture in self.mixtures
            for column, share in sorted(mixture.items(), key=lambda each: (-each[1], each[0]))
            if share >= SHARE
        ]

    def _marginal(self, use: Floats) -> Floats:
        """Return the price of all of a link at a use of it."""
        found: Floats = self._floor * np.exp(np.minimum(self.steepness * (use - 1.0), MOST))
        return found

    def _reprice(self, links: NDArray[np.intp] | slice) -> None:
        self.price[links] = self._marginal(self._use[links]) * self._inverse[links]

    def _mixed(self, column: Column) -> _Mixed:
        found = self._known.get(column)
        if found is None:
            links, rates = self.worth.problem.load(column)
            places = np.array(links, dtype=np.intp)
            found = _Mixed(places, np.array(rates) * self._inverse[places], self.worth.value(column))
            self._known[column] = found
        return found

    def _move(self, flow: int) -> None:
        """Move the mixture of a flow towards its best column."""
        problem, mixture = self.worth.problem, self.mixtures[flow]
        prices = Prices(self.price.reshape(problem.sites, -1), problem.capacity)
        columns = columns_at(problem, flow, self.offers[flow], prices)
        column = next((each for _, each in columns if problem.fits(problem.load(each), problem.capacity.ravel())), None)
        if column is None:
            return
        share = 1.0
        links, change, gain = self._difference(column, mixture)
        if mixture:
            share = self._search(self._use[links], change, gain)
            if share < SHARE:
                return
        for each in list(mixture):
            mixture[each] *= 1.0 - share
        mixture[column] = mixture.get(column, 0.0) + share
        self._use[links] += share * change
        self._reprice(links)

    def _difference(self, column: Column, mixture: dict[Column, float]) -> tuple[NDArray[np.intp], Floats, float]:
        """Return what changes when a column takes the place of a mixture: links, their use, the value."""
        links, shares, value = self._mixed(column)
        change, gain = dict(zip(links.tolist(), shares.tolist(), strict=True)), value
        for other, part in mixture.items():
            links, shares, value = self._mixed(other)
            gain -= part * value
            for link, share in zip(links.tolist(), shares.tolist(), strict=True):
                change[link] = change.get(link, 0.0) - part * share
        return np.array(list(change), dtype=np.intp), np.array(list(change.values())), gain

    def _search(self, use: Floats, change: Floats, gain: float) -> float:
        """Return how far to go: the maximum of a concave function between 0 and 1."""
        share = 0.0
        for _ in range(NEWTON):
            marginal = self._marginal(use + share * change)
            slope = gain - float(marginal @ change)
            bend = self.steepness * float(marginal @ change**2)
            new = min(1.0, max(0.0, share + slope / max(bend, 1e-300)))
            if abs(new - share) < SHARE:
                return new
            share = new
        return share
