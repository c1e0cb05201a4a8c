"""Groups of partitions: bounds are kept, the largest is near the best, nothing changes without a reason."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.errors import DefinitionError
from transom.placement.grouping import TOLERANCE, Grouping, smallest_largest

SIZES = st.lists(st.integers(0, 1000), min_size=1, max_size=40)


def brute_force(sizes, groups) -> float:
    """Return the least largest group over all divisions."""
    best = np.inf
    for inner in combinations(range(1, len(sizes)), groups - 1):
        borders = (0, *inner, len(sizes))
        best = min(best, max(sum(sizes[a:b]) for a, b in pairwise(borders)))
    return best


@given(st.lists(st.integers(0, 100), min_size=1, max_size=8), st.data())
def test_the_best_largest_group_is_that_of_all_divisions(sizes, data) -> None:
    groups = data.draw(st.integers(1, len(sizes)))
    assert smallest_largest(sizes, groups) == pytest.approx(brute_force(sizes, groups), rel=1e-6, abs=1e-6)


@given(SIZES, st.data())
def test_groups_keep_the_bounds_and_are_even(sizes, data) -> None:
    start = Grouping.even(len(sizes), data.draw(st.integers(1, len(sizes))))
    most = data.draw(st.integers(1, 2000))
    least = data.draw(st.integers(0, most))
    found = start.adapted(sizes, least, most)
    assert found.partitions == len(sizes)
    groups = found.sizes(sizes)
    assert groups.sum() == sum(sizes)
    assert groups.max() <= TOLERANCE * smallest_largest(sizes, len(found)) * (1 + 1e-6) or found == start
    assert [p for one in found.ranges for p in one] == list(range(len(sizes)))
    assert found.adapted(sizes, least, most) is found
    assert [found.group_of(p) for p in found.ranges[-1]] == [len(found) - 1] * len(found.ranges[-1])


@given(SIZES, st.integers(1, 500))
def test_groups_that_fit_are_left_alone(sizes, most) -> None:
    found = Grouping.even(len(sizes), 1).adapted(sizes, 0, most)
    assert found.adapted(sizes, 0, found.sizes(sizes).max()) == found


def test_a_split_is_where_the_halves_are_most_alike_and_others_do_not_move() -> None:
    start = Grouping((0, 4, 8))
    found = start.adapted([1, 1, 1, 1, 1, 1, 1, 9], 0, 8)
    assert found.borders == (0, 4, 7, 8)


def test_neighbours_merge_whoever_their_siblings_are() -> None:
    assert Grouping((0, 1, 2, 3)).adapted([5, 1, 1], 3, 10).borders == (0, 1, 3)
    assert Grouping((0, 2, 3, 7)).adapted([2, 2, 1, 0, 1, 1, 1], 5, 10).borders == (0, 2, 7)


def test_one_partition_is_not_divided() -> None:
    assert Grouping.even(1, 1).adapted([100.0], 0, 10).borders == (0, 1)


@pytest.mark.parametrize("borders", [(), (0,), (1, 2), (0, 0, 2), (0, 3, 2)])
def test_borders_that_are_none_are_refused(borders) -> None:
    with pytest.raises(DefinitionError, match="borders"):
        Grouping(borders)


def test_wrong_bounds_and_sizes_are_refused() -> None:
    grouping = Grouping.even(4, 2)
    with pytest.raises(DefinitionError, match="smaller bound"):
        grouping.adapted([1] * 4, 5, 2)
    with pytest.raises(DefinitionError, match="one for each of 4"):
        grouping.adapted([1] * 3, 0, 2)
    with pytest.raises(DefinitionError, match="Give 1 to 4"):
        Grouping.even(4, 5)
