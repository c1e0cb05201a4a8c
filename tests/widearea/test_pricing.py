import numpy as np
import pytest
from hypothesis import given, settings
from tests.widearea.worlds import MEGABIT, columns_of, flow, problem_of, seeds, world

from transom.widearea.objectives import Worth
from transom.widearea.pricing import EXACT, Prices, columns_at, gain_bound
from transom.widearea.topology import Topology


def gain(worth, price, column):
    links, rates = worth.problem.load(column)
    return worth.value(column) - sum(rate * price[link] for link, rate in zip(links, rates, strict=True))


@given(seeds)
@settings(max_examples=25, deadline=None)
def test_pricing_finds_the_best_of_all_columns(seed):
    topology, flows = world(seed, sites=5, flows=2, most=40, several=3)
    rng = np.random.default_rng(seed)
    for objective in ("frequencies", "goodput", "latency"):
        worth = Worth(problem_of(topology, flows), objective)
        price = rng.exponential(3e-6, 25)
        prices = Prices(price.reshape(5, 5), worth.problem.capacity)
        for number, columns in enumerate(columns_of(worth)):
            offers = worth.offers(number)
            best = max((gain(worth, price, each) for each in columns), default=-np.inf)
            bound = gain_bound(worth.problem, number, offers, prices)
            assert bound >= best - 1e-9
            if objective != "latency" and columns:
                assert columns_at(worth.problem, number, offers, prices)[0][0] == pytest.approx(bound)


def test_many_sources_have_trees_and_a_bound_below_them():
    names = tuple(f"s{number}" for number in range(EXACT + 5))
    rng = np.random.default_rng(1)
    links = {(a, b): rng.uniform(5, 35) * MEGABIT for a in names for b in names if a != b}
    spec = flow("f", dict.fromkeys(names[2:], MEGABIT), names[0], power=0.8)
    for objective in ("frequencies", "latency"):
        worth = Worth(problem_of(Topology(names, links, tick=0.2), (spec,)), objective)
        price = rng.exponential(1e-6, len(names) ** 2)
        prices = Prices(price.reshape(len(names), -1), worth.problem.capacity)
        columns = columns_at(worth.problem, 0, worth.offers(0), prices)
        bound = gain_bound(worth.problem, 0, worth.offers(0), prices)
        assert columns
        assert all(gain(worth, price, column) <= bound + 1e-9 for _, column in columns)
