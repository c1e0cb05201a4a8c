"""Groups and homes of a namespace as executors, copies and datasets come and go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.errors import DefinitionError
from transom.placement.layout import Layout

EXECUTORS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True)
SIZES = st.lists(st.integers(0, 1_000), min_size=8, max_size=8)
CHANGES = st.lists(st.one_of(EXECUTORS.map(lambda found: ("executors", found)), SIZES.map(lambda s: ("dataset", s))))


def layout(groups: int = 4, executors: str = "ab") -> Layout:
    return Layout.beginning(8, groups, list(executors))


@given(st.integers(1, 8), EXECUTORS, CHANGES, st.one_of(st.none(), st.just((100.0, 900.0))))
def test_every_group_has_one_living_home_whatever_happens(
    groups: int, executors: list[str], changes: list[tuple[str, list]], elastic: tuple[float, float] | None
) -> None:
    found = Layout.beginning(8, groups, executors)
    for kind, values in changes:
        found = found.with_executors(values) if kind == "executors" else found.with_dataset(values, 3, elastic)
        assert len(found.sizes) <= 3
        for group in found.grouping.ranges:
            assert {found.homes[partition] for partition in group} == {found.home(group)}
            assert found.home(group) in found.executors
        if elastic is None:
            assert len(found.grouping) == groups
    held = found.held([])
    assert sorted(group for groups_there in held.values() for group in groups_there) == [
        each.start for each in found.grouping.ranges
    ]


def test_groups_are_even_at_first_and_follow_the_sizes_of_the_last_datasets() -> None:
    found = layout()
    assert [(each.start, each.stop) for each in found.grouping.ranges] == [(0, 2), (2, 4), (4, 6), (6, 8)]
    assert sorted(found.homes) == ["a"] * 4 + ["b"] * 4
    small = found.with_dataset([1] * 8, 2, (100, 900))
    assert len(small.grouping) == 1
    large = small.with_dataset([400] * 8, 2, (100, 900))
    assert len(large.grouping) == 4
    assert sorted(large.homes) == ["a"] * 4 + ["b"] * 4
    assert large.weights.tolist() == [401] * 8
    assert large.with_dataset([3] * 8, 2, None).weights.tolist() == [403] * 8


@given(st.lists(st.floats(1, 1e6), min_size=8, max_size=8), st.integers(1, 5))
def test_as_long_as_datasets_are_alike_groups_stay_whether_few_or_all_have_come(sizes: list[float], last: int) -> None:
    most = 1.5 * sum(sizes) * last / 4
    found = layout().with_dataset(sizes, last, (most / 2, most))
    for _ in range(last + 1):
        later = found.with_dataset(sizes, last, (most / 2, most))
        assert (later.grouping, later.homes) == (found.grouping, found.homes)
        found = later


def test_a_group_whose_home_is_gone_lives_where_it_has_a_copy() -> None:
    before = layout(executors="abc")
    lost = [each.start for each in before.grouping.ranges if before.home(each) == "a"]
    assert lost
    found = before.with_executors(["b", "c"], [(lost[0], "c"), (lost[0], "gone")])
    assert found.homes[lost[0]] == "c"
    assert set(found.homes) == {"b", "c"}
    stayed = [group.start for group in before.grouping.ranges if before.home(group) != "a"]
    assert [found.homes[start] for start in stayed] == [before.homes[start] for start in stayed]


def test_even_a_balance_does_not_take_a_group_from_its_copy() -> None:
    before = layout(executors="abc").with_dataset([9, 9, 1, 1, 1, 1, 1, 1], 1, None)
    home = before.homes[0]
    others = sorted({"a", "b", "c"} - {home})
    crowded = max(others, key=lambda one: before.homes.count(one))
    assert before.with_executors(others, [(0, crowded)]).homes[0] == crowded


def test_what_is_held_counts_copies_but_not_those_of_the_dead() -> None:
    found = layout(groups=2)
    homes = [str(found.home(each)) for each in found.grouping.ranges]
    other = next(each for each in "ab" if each != homes[0])
    held = found.held([(0, other), (4, "gone")])
    assert 0 in held[homes[0]]
    assert 0 in held[other]
    assert held.keys() == {"a", "b"}


def test_values_that_cannot_be_are_refused() -> None:
    for partitions, groups, executors in ((0, 1, "a"), (8, 9, "a"), (8, 1, "")):
        with pytest.raises(DefinitionError):
            Layout.beginning(partitions, groups, executors)
    with pytest.raises(DefinitionError, match="no executor"):
        layout().with_executors([])
    with pytest.raises(DefinitionError, match="3 sizes"):
        layout().with_dataset([1, 2, 3], 1, (0, 10))
    with pytest.raises(DefinitionError, match="3 sizes"):
        layout().with_dataset([1, 2, 3], 1, None)
