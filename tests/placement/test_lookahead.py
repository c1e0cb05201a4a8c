"""Checkpoints for steps to come: the best on small graphs, never past the bound, fewer bytes than cuts."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.placement.checkpoints import checkpoints, edge
from transom.placement.lineage import Dataset, Lineage
from transom.placement.lookahead import continued, least, lookahead, period
from transom.placement.recovery import due

BOUND = 10.0
GRAPH = st.lists(
    st.tuples(
        st.integers(0, 9), st.integers(0, 6), st.sets(st.integers(1, 3), max_size=2), st.integers(0, 4), st.booleans()
    ),
    min_size=1,
    max_size=8,
)
PAPER = [
    ("kv", [], 800, 0.0),
    ("cnt", ["kv"], 20, 3.0),
    ("ctt", ["kv"], 300, 4.0),
    ("ccnt", ["cnt", "dec-"], 40, 3.0),
    ("acnt", ["ccnt"], 8, 1.0),
    ("dec", ["ccnt"], 38, 1.0),
    ("cctt", ["ctt", "res-"], 420, 4.0),
    ("jall", ["cctt", "acnt"], 150, 3.0),
    ("res", ["jall"], 90, 1.0),
]
"""Kind, parents (of the step before with -), size, delay of Stark's Figure 16."""


def graph(parts) -> Lineage:
    lineage = Lineage()
    for number, (size, delay, back, reading, held) in enumerate(parts):
        parents = tuple(f"d{number - one}" for one in sorted(back) if one <= number)
        lineage = lineage.added(
            Dataset(f"d{number}", parents, size, float(delay), not parents, float(reading), held=held)
        )
    return lineage


def fits(lineage: Lineage) -> bool:
    lengths = lineage.lengths()
    return all(each.durable or lengths[name] <= BOUND for name, each in lineage.datasets.items())


@settings(deadline=None)
@given(GRAPH)
def test_the_plan_is_the_cheapest_of_all_that_keep_the_bound(parts) -> None:
    lineage = graph(parts)
    names = [name for name, each in lineage.datasets.items() if not each.durable and each.held]
    sets = (chosen for count in range(len(names) + 1) for chosen in combinations(names, count))
    costs = [
        sum(lineage.datasets[name].size for name in chosen) for chosen in sets if fits(lineage.checkpointed(chosen))
    ]
    plan = least(lineage, BOUND)
    if not costs:
        assert plan is None
    else:
        assert plan is not None
        assert fits(lineage.checkpointed(plan))
        assert sum(lineage.datasets[name].size for name in plan) == min(costs)


def application(choose, steps: int, bound: float, seed: int = 0, noise: float = 0.0) -> tuple[int, float]:
    """Make the paper's datasets step after step; return the bytes written and the longest path ever left."""
    chance = random.Random(seed)
    lineage, made, written, longest = Lineage(), [], 0, 0.0
    for kind in ("dec", "res"):
        made.append(Dataset(f"{kind}-1", (), 1, 0.0, durable=True))
        lineage = lineage.added(made[-1])
    for step in range(steps):
        for kind, parents, size, delay in PAPER:
            names = tuple(f"{each[:-1]}{step - 1}" if each.endswith("-") else f"{each}{step}" for each in parents)
            size, delay = (int(size * chance.uniform(1, 1 + noise)), delay * chance.uniform(1, 1 + noise))
            made.append(Dataset(f"{kind}{step}", names, size, delay, not parents, 0.5, kind))
            lineage = lineage.added(made[-1])
            chosen = choose(lineage, made, bound)
            written += sum(lineage.datasets[name].size for name in chosen)
            lineage = lineage.checkpointed(chosen)
            longest = max(longest, *lineage.lengths().values())
        lineage = lineage.needed([each.name for each in made[-3 * len(PAPER) :]])
    return written, longest


def exact(lineage, made, bound):
    return checkpoints(lineage, [made[-1].name], bound)


def relaxed(lineage, made, bound):
    return checkpoints(lineage, [made[-1].name], bound, 3.0)


def leaves(lineage, made, bound):
    return edge(lineage, [made[-1].name], bound)


def ahead(lineage, made, bound):
    return lookahead(lineage, [made[-1].name], bound, made, 3.0)


@pytest.mark.parametrize(("bound", "noise", "share"), [(25.0, 0.0, 0.95), (30.0, 0.1, 1.0), (36.0, 0.2, 0.9)])
def test_in_the_long_run_it_writes_no_more_than_all_that_look_back(bound: float, noise: float, share: float) -> None:
    found = {each: application(each, 24, bound, noise=noise) for each in (exact, relaxed, leaves, ahead)}
    assert all(longest <= bound for _, longest in found.values())
    assert found[ahead][0] <= share * min(found[exact][0], found[relaxed][0])
    assert found[ahead][0] < 0.9 * found[leaves][0]


@settings(deadline=None, max_examples=25)
@given(GRAPH, st.integers(1, 4), st.floats(0, 1), st.integers(0, 99))
def test_the_bound_holds_whatever_comes(parts, repeats: int, noise: float, seed: int) -> None:
    chance = random.Random(seed)
    lineage, made = Lineage(), []
    for number, (size, delay, back, reading, _) in enumerate(parts * repeats):
        parents = tuple(f"d{number - one}" for one in sorted(back) if one <= number)
        delay *= chance.uniform(1, 1 + noise)
        made.append(Dataset(f"d{number}", parents, size, delay, not parents, reading, kind=f"k{number % len(parts)}"))
        lineage = lineage.added(made[-1])
        lineage = lineage.checkpointed(lookahead(lineage, [f"d{number}"], BOUND, made))
        assert fits(lineage)


def test_a_period_is_what_repeats_the_longest() -> None:
    def made(kinds: str) -> list[Dataset]:
        return [Dataset(f"{n}", (f"{n - 1}",) if n else (), 10 * n, 1.0, kind=kind) for n, kind in enumerate(kinds)]

    assert period(made("abc")) is None
    found = period(made("aabaabaa"))
    assert found is not None
    assert [each.kind for each in found.datasets] == ["b", "a", "a"]
    assert found.back == ((1,), (1,), (1,))
    assert [each.size for each in found.datasets] == [35, 45, 55], "means of the steps"
    more = continued(Lineage({each.name: each for each in made("aabaabaa")}), made("aabaabaa"), found, 2)
    assert [each.kind for each in more.datasets.values()] == list("aabaabaabaabaa")
    assert list(more.datasets.values())[8].parents == ("7",)


def test_without_a_period_it_is_the_minimum_cut() -> None:
    lineage, made = Lineage(), []
    for number, size in enumerate([5, 3, 9, 4]):
        made.append(Dataset(f"d{number}", (f"d{number - 1}",) if number else (), size, 3.0, kind=f"k{number}"))
        lineage = lineage.added(made[-1])
    assert lookahead(lineage, ["d3"], BOUND, made) == checkpoints(lineage, ["d3"], BOUND) == ["d1"]


def test_the_work_behind_a_dataset_is_within_the_bound_where_branches_meet() -> None:
    lineage = Lineage()
    for name, parents in [("s", ()), ("a", ("s",)), ("b", ("s",)), ("c", ("a", "b"))]:
        lineage = lineage.added(Dataset(name, parents, 10, 4.0, not parents, 1.0))
    assert lineage.lengths()["c"] == 9.0
    assert lineage.work("c") == 13.0
    assert due(lineage, "c", 13.0, (), "cut", 1.0) == []
    for policy in ("cut", "edge", "lookahead"):
        chosen = due(lineage, "c", 10.0, tuple(lineage.datasets.values()), policy, 1.0)
        assert lineage.checkpointed(chosen).work("c") <= 10.0
    assert due(lineage, "c", 0.5, (), "cut", 1.0) == ["c"], "the best that can be done"


def test_what_is_not_there_or_slow_to_read_is_not_chosen() -> None:
    lineage = Lineage()
    for number, size in enumerate([5, 1, 2, 4]):
        lineage = lineage.added(Dataset(f"d{number}", (f"d{number - 1}",) if number else (), size, 3.0))
    for change, chosen in [({}, "d1"), ({"held": False}, "d2"), ({"reading": 9.0}, "d2")]:
        changed = Lineage({**lineage.datasets, "d1": replace(lineage.datasets["d1"], **change)})
        assert checkpoints(changed, ["d3"], BOUND) == least(changed, BOUND) == [chosen]
