"""The cheapest cover against a search over all paths."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.windows.cover import CoverPart, cheapest_cover


def shortest_path(costs, parts):
    best = [0] + [float("inf")] * (len(costs) - 1)
    edges = [(i, i + 1, costs[i + 1] - costs[i]) for i in range(len(costs) - 1)]
    edges += [(part.start, part.end, part.cost) for part in parts]
    for start, end, cost in sorted(edges):
        best[end] = min(best[end], best[start] + cost)
    return best[-1]


@st.composite
def problems(draw):
    weights = draw(st.lists(st.integers(0, 20), min_size=1, max_size=12))
    costs = list(itertools.accumulate(weights, initial=0))
    ends = st.tuples(st.integers(0, len(weights)), st.integers(0, len(weights))).filter(lambda se: se[0] < se[1])
    parts = draw(st.lists(st.builds(lambda se, c: CoverPart(se[1], se[0], c), ends, st.integers(0, 60)), max_size=12))
    return costs, parts


@settings(deadline=None)
@given(problems())
def test_the_cover_is_a_shortest_path(problem):
    costs, parts = problem
    chosen = cheapest_cover(costs, parts)
    assert all(left.end <= right.start for left, right in itertools.pairwise(chosen))
    assert set(chosen) <= set(parts)
    replaced = sum(costs[part.end] - costs[part.start] - part.cost for part in chosen)
    assert costs[-1] - replaced == shortest_path(costs, parts)


def test_of_two_covers_the_one_with_fewer_keys_is_taken():
    minutes = [100 * i for i in range(21)]
    tens = [CoverPart(10, 0, 300), CoverPart(20, 10, 300)]
    assert cheapest_cover(minutes, [*tens, CoverPart(5, 0, 150), CoverPart(20, 5, 400)]) == (
        CoverPart(5, 0, 150),
        CoverPart(20, 5, 400),
    )
    assert cheapest_cover(minutes, [*tens, CoverPart(5, 0, 250), CoverPart(20, 5, 400)]) == tuple(tens)


def test_nothing_is_used_that_saves_nothing():
    assert cheapest_cover([0, 5, 10], [CoverPart(2, 0, 10)]) == ()


def test_a_part_holds_at_least_one_pane():
    with pytest.raises(ValueError, match="no part"):
        CoverPart(3, 3, 1)
