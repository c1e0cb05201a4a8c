"""Checkpoints: recovery stays within the bound at every step, and the cut costs what it promises."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.errors import DefinitionError
from transom.placement.checkpoints import checkpoints, edge
from transom.placement.lineage import Lineage, LineageNode

BOUND = 10.0
STEPS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 6), st.sets(st.integers(1, 4), max_size=3)), min_size=1, max_size=9
)


def grown(steps, choose):
    """Add datasets one by one, each made from some before it; yield each lineage before and after its checkpoints."""
    lineage = Lineage()
    for number, (size, delay, back) in enumerate(steps):
        parents = tuple(f"d{number - one}" for one in sorted(back) if one <= number)
        lineage = lineage.added(LineageNode(f"d{number}", parents, size, float(delay)))
        before, lineage = lineage, lineage.checkpointed(choose(lineage, [f"d{number}"], BOUND))
        yield before, lineage


@given(STEPS, st.sampled_from([1.0, 1.5, 3.0]))
def test_no_recovery_is_ever_longer_than_the_bound(steps, relax) -> None:
    for _, lineage in grown(steps, lambda *at: checkpoints(*at, relax)):
        assert max(lineage.lengths().values()) <= BOUND


@given(STEPS)
def test_neither_is_it_with_edge(steps) -> None:
    for _, lineage in grown(steps, edge):
        assert max(lineage.lengths().values()) <= BOUND


@given(STEPS, st.sampled_from([1.0, 1.5, 3.0]))
def test_relaxed_costs_at_most_f_times_the_exact_cut_and_the_exact_cut_at_most_the_newest(steps, relax) -> None:
    for number, (before, _) in enumerate(grown(steps, lambda *at: checkpoints(*at, relax))):
        newest = [f"d{number}"]
        exact, relaxed = (
            sum(before.datasets[name].size for name in checkpoints(before, newest, BOUND, f)) for f in (1.0, relax)
        )
        assert exact <= relaxed <= relax * exact
        if exact:
            assert exact <= before.datasets[newest[0]].size


def cheapest(lineage, newest) -> int:
    """The least that keeps the bound, by trying all sets of datasets."""
    names = [name for name, dataset in lineage.datasets.items() if not dataset.durable]
    sets = (chosen for count in range(len(names) + 1) for chosen in combinations(names, count))
    return min(
        sum(lineage.datasets[name].size for name in chosen)
        for chosen in sets
        if lineage.checkpointed(chosen).lengths()[newest] <= BOUND
    )


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 6)), min_size=1, max_size=8))
def test_on_a_chain_the_exact_cut_is_the_cheapest_of_all(steps) -> None:
    chain = [(size, delay, {1}) for size, delay in steps]
    for number, (before, _) in enumerate(grown(chain, checkpoints)):
        cut = checkpoints(before, [f"d{number}"], BOUND)
        assert sum(before.datasets[name].size for name in cut) == cheapest(before, f"d{number}")


def test_the_paper_s_shape_is_cut_where_it_is_narrow() -> None:
    lineage = Lineage()
    for name, parents, size, delay in [("a", (), 5, 3), ("b", (), 4, 3), ("c", ("a", "b"), 2, 4), ("i", ("c",), 5, 6)]:
        lineage = lineage.added(LineageNode(name, parents, size, delay))
    assert checkpoints(lineage, ["i"], BOUND) == ["c"]
    assert checkpoints(lineage, ["i"], BOUND, 3) == ["i"]
    assert checkpoints(lineage, ["i"], 13.0) == []


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: checkpoints(Lineage(), [], 0),
        lambda: checkpoints(Lineage(), [], 1, 0.5),
        lambda: LineageNode("a", (), -1, 0),
        lambda: Lineage().added(LineageNode("a", ("b",), 0, 0)),
    ],
)
def test_what_makes_no_sense_is_refused(wrong) -> None:
    with pytest.raises(DefinitionError):
        wrong()
