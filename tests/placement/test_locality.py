"""Assignments: what is remembered, what moves when executors come and go, which one holds for a cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.errors import DefinitionError
from transom.placement.locality import Assignment

WEIGHTS = st.lists(st.floats(0, 1e9), min_size=1, max_size=30)
EXECUTORS = st.sets(st.sampled_from("abcdef"), min_size=1)


@given(WEIGHTS, EXECUTORS)
def test_new_partitions_are_spread_by_weight_within_graham_s_bound(weights, executors) -> None:
    placed = Assignment.nowhere(len(weights)).settled(executors, weights)
    loads = placed.loads(weights, executors)
    assert set(placed.homes) <= executors
    lightest = sum(weights) / len(executors)
    assert max(loads.values()) <= lightest + max(weights) * 1.001 + 1e-6


@given(st.integers(1, 40), EXECUTORS)
def test_partitions_of_unknown_size_are_spread_evenly(partitions, executors) -> None:
    counts = Assignment.nowhere(partitions).settled(executors, [0.0] * partitions).loads([1.0] * partitions, executors)
    assert max(counts.values()) - min(counts.values()) <= 1


@given(WEIGHTS, EXECUTORS, EXECUTORS)
def test_what_has_a_living_executor_stays(weights, before, after) -> None:
    placed = Assignment.nowhere(len(weights)).settled(before, weights)
    later = placed.settled(after, weights)
    assert set(later.homes) <= after
    assert all(old == new for old, new in zip(placed.homes, later.homes, strict=True) if old in after)
    assert later.settled(after, weights) is later


def test_busy_executors_get_less() -> None:
    placed = Assignment.nowhere(4).settled({"a", "b"}, [1.0] * 4, busy={"a": 10.0})
    assert placed.homes == ("b",) * 4


def test_units_stay_together_where_most_of_them_is() -> None:
    assignment = Assignment(("a", "b", "b", "a"))
    settled = assignment.settled({"a", "b"}, [5.0, 1.0, 2.0, 1.0], units=[range(2), range(2, 4)])
    assert settled.homes == ("a", "a", "b", "b")
    assert settled.differs(assignment) == [1, 3]


def test_without_executors_there_is_an_error_that_helps() -> None:
    with pytest.raises(DefinitionError, match="no executor"):
        Assignment.nowhere(2).settled(set(), [1.0, 1.0])
    with pytest.raises(DefinitionError, match="at least 1"):
        Assignment.nowhere(0)


def test_versions_count_changes_only() -> None:
    first = Assignment(("a", "b"))
    assert first.moved({0: "a"}) is first
    moved = first.moved({0: "b"})
    assert (moved.homes, moved.version, first.differs(moved)) == (("b", "b"), 1, [0])
    assert moved.of("b") == [0, 1]
