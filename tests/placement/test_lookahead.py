"""Checkpoints for steps to come: the best on small graphs, never past the bound, fewer bytes than cuts."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.placement.checkpoints import checkpoints
from transom.placement.lineage import Lineage, LineageNode
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
    ("kv", [], 800, 3.0),
    ("cnt", ["kv"], 4, 0.2),
    ("ctt", ["kv"], 300, 4.0),
    ("ccnt", ["cnt", "dec-"], 6, 0.2),
    ("dec", ["ccnt"], 5, 0.2),
    ("cctt", ["ctt", "res-"], 360, 2.0),
    ("acnt", ["ccnt"], 1, 0.2),
    ("jall", ["cctt", "acnt"], 280, 1.0),
    ("res", ["jall"], 120, 1.0),
]
"""Kind, parents (of the step before with -), size, delay of Stark's Figure 16."""


def graph(parts) -> Lineage:
    lineage = Lineage()
    for number, (size, delay, back, reading, held) in enumerate(parts):
        parents = tuple(f"d{number - one}" for one in sorted(back) if one <= number)
        lineage = lineage.added(
            LineageNode(f"d{number}", parents, size, float(delay), not parents, float(reading), held=held)
        )
    return lineage


def fits(lineage: Lineage) -> bool:
    return all(each.durable or lineage.work(name) <= BOUND for name, each in lineage.datasets.items())


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


FORMS = {"f1": ("cut", 1.0), "f3": ("cut", 3.0), "edge": ("edge", 1.0), "lookahead": ("lookahead", 3.0)}


def application(form: str, steps: int, bound: float, noise: float) -> tuple[int, float]:
    """Make the paper's datasets step after step; return the bytes written and the most work ever left."""
    chance, (policy, relax) = random.Random(0), FORMS[form]
    lineage, made, written, most = Lineage(), [], 0, 0.0
    for step in range(steps):
        for kind, parents, size, delay in PAPER:
            names = [f"{each[:-1]}{step - 1}" if each.endswith("-") else f"{each}{step}" for each in parents]
            size, delay = int(size * chance.uniform(1, 1 + noise)), delay * chance.uniform(1, 1 + noise)
            known = tuple(name for name in names if name in lineage.datasets)
            made.append(LineageNode(f"{kind}{step}", known, size, delay, not parents, 0.2 if parents else delay, kind))
            lineage = lineage.added(made[-1])
            if parents:
                chosen = due(lineage, made[-1].name, bound, made, policy, relax)
                written += sum(lineage.datasets[name].size for name in chosen)
                lineage = lineage.checkpointed(chosen)
                most = max(most, lineage.work(made[-1].name))
        lineage = lineage.needed([each.name for each in made[-4 * len(PAPER) :]])
    return written, most


@pytest.mark.parametrize(
    ("bound", "noise"),
    [pytest.param(24.0, 0.1, marks=pytest.mark.slow), (30.0, 0.1), pytest.param(36.0, 0.2, marks=pytest.mark.slow)],
)
def test_in_the_long_run_it_writes_less_than_all_that_look_back_and_half_of_edge(bound: float, noise: float) -> None:
    found = {form: application(form, 16, bound, noise) for form in FORMS}
    assert all(most <= bound for _, most in found.values())
    written = {form: total for form, (total, _) in found.items()}
    assert written["lookahead"] < min(written["f1"], written["f3"]), written
    assert 2 * written["lookahead"] <= written["edge"], written


@settings(deadline=None, max_examples=25)
@given(GRAPH, st.integers(1, 4), st.floats(0, 1), st.integers(0, 99))
def test_the_bound_holds_whatever_comes(parts, repeats: int, noise: float, seed: int) -> None:
    chance = random.Random(seed)
    lineage, made = Lineage(), []
    for number, (size, delay, back, reading, _) in enumerate(parts * repeats):
        parents = tuple(f"d{number - one}" for one in sorted(back) if one <= number)
        delay *= chance.uniform(1, 1 + noise)
        made.append(
            LineageNode(f"d{number}", parents, size, delay, not parents, reading, kind=f"k{number % len(parts)}")
        )
        lineage = lineage.added(made[-1])
        lineage = lineage.checkpointed(due(lineage, f"d{number}", BOUND, made, "lookahead", 3.0))
        assert lineage.work(f"d{number}") <= max(BOUND, lineage.checkpointed([f"d{number}"]).work(f"d{number}"))


def test_a_period_is_what_repeats_the_longest() -> None:
    def made(kinds: str) -> list[LineageNode]:
        return [LineageNode(f"{n}", (f"{n - 1}",) if n else (), 10 * n, 1.0, kind=kind) for n, kind in enumerate(kinds)]

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
        made.append(LineageNode(f"d{number}", (f"d{number - 1}",) if number else (), size, 3.0, kind=f"k{number}"))
        lineage = lineage.added(made[-1])
    assert lookahead(lineage, "d3", BOUND, made) is None
    assert due(lineage, "d3", BOUND, made, "lookahead", 1.0) == checkpoints(lineage, ["d3"], BOUND) == ["d1"]


def test_the_work_behind_a_dataset_is_within_the_bound_where_branches_meet() -> None:
    lineage = Lineage()
    for name, parents in [("s", ()), ("a", ("s",)), ("b", ("s",)), ("c", ("a", "b"))]:
        lineage = lineage.added(LineageNode(name, parents, 10, 4.0, not parents, 1.0))
    assert lineage.lengths()["c"] == 9.0
    assert lineage.work("c") == 13.0
    assert due(lineage, "c", 13.0, (), "cut", 1.0) == []
    for policy in ("cut", "edge", "lookahead"):
        chosen = due(lineage, "c", 10.0, tuple(lineage.datasets.values()), policy, 1.0)
        assert lineage.checkpointed(chosen).work("c") <= 10.0
    assert due(lineage, "c", 0.5, (), "cut", 1.0) == ["c"], "the best that can be done"


@given(GRAPH)
def test_in_series_the_longest_path_is_the_work(parts) -> None:
    lineage = graph(parts)
    lengths = lineage.in_series().lengths()
    for name in lineage.datasets:
        assert lengths[name] == pytest.approx(max(lineage.work(name), lineage.lengths()[name]))


def test_what_is_not_there_or_slow_to_read_is_not_chosen() -> None:
    lineage = Lineage()
    for number, size in enumerate([5, 1, 2, 4]):
        lineage = lineage.added(LineageNode(f"d{number}", (f"d{number - 1}",) if number else (), size, 3.0))
    for change, chosen in [({}, "d1"), ({"held": False}, "d2"), ({"reading": 9.0}, "d2")]:
        changed = Lineage({**lineage.datasets, "d1": replace(lineage.datasets["d1"], **change)})
        assert checkpoints(changed, ["d3"], BOUND) == least(changed, BOUND) == [chosen]
