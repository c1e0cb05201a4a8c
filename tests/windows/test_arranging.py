"""Decisions on how key sets are computed, from measured flows and costs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from transom.model.expression import Expression
from transom.model.window import WindowSpec
from transom.windows.aggregates import functions as tm
from transom.windows.arranging import Flow, Review
from transom.windows.components import Arrangement, Component, key_sets_of, plan_components
from transom.windows.query import Fill, Key, LatencyTarget, WindowedQuery
from transom.windows.splitting import UnitCosts

SECOND = 1_000_000
SLIDING = WindowSpec(60 * SECOND, 10 * SECOND, 0)
DEAR_ROWS, DEAR_MERGES = UnitCosts(row=1e-5, merge=1e-9), UnitCosts(row=1e-9, merge=1e-5)


def query(name: str, *keys: str, window: WindowSpec = SLIDING, **more: object) -> WindowedQuery:
    named = tuple(Key(key, Expression(key)) for key in keys)
    return WindowedQuery(name, 0, named, (window,), (("n", tm.count()),), **more)  # type: ignore[arg-type]


USERS, AREAS, GLOBAL = query("users", "area", "user"), query("areas", "area"), query("all")


def names(queries: Sequence[WindowedQuery]) -> list[str]:
    return [key_set.name for key_set in key_sets_of(queries)]


def keys_of(components: Sequence[Component]) -> list[list[int]]:
    return sorted(sorted(len(key_set.keys) for key_set in component.key_sets) for component in components)


def test_by_the_rule_coarser_key_sets_are_derived():
    assert keys_of(plan_components([AREAS, USERS, GLOBAL])) == [[0, 1, 2]]


def test_hosts_move_key_sets_and_what_is_impossible_is_passed_over():
    users, areas, everything = names([USERS, AREAS, GLOBAL])

    def planned(*hosts: tuple[str, str]) -> list[list[int]]:
        return keys_of(plan_components([USERS, AREAS, GLOBAL], arrangement=Arrangement(frozenset(hosts))))

    assert planned((areas, areas)) == [[0, 2], [1]]
    assert planned((areas, areas), (everything, areas)) == [[0, 1], [2]]
    assert planned((users, areas), (everything, "gone")) == [[0, 1, 2]]


def test_sharing_off_leaves_every_query_alone():
    assert keys_of(plan_components([AREAS, USERS, query("more", "area")], share=False)) == [[1], [1], [2]]


def test_an_arrangement_survives_as_json():
    users, areas, _ = names([USERS, AREAS, GLOBAL])
    arrangement = Arrangement(frozenset({(areas, users)}), frozenset({areas}))
    assert Arrangement.from_json(arrangement.to_json()) == arrangement


def test_only_fixed_windows_of_different_lengths_are_computed_directly():
    able = {
        "sliding": query("a"),
        "uneven": query("b", window=WindowSpec(10 * SECOND, 4 * SECOND)),
        "filled": query("c", fill=Fill(zero=True)),
    }
    assert {n: key_sets_of([q])[0].can_be_direct for n, q in able.items()} == {
        "sliding": True,
        "uneven": False,
        "filled": True,
    }
    same_length = [query("a"), query("d", window=WindowSpec(60 * SECOND, 20 * SECOND))]
    assert not key_sets_of(same_length)[0].can_be_direct


def review(
    costs: UnitCosts, queries: Sequence[WindowedQuery], flows: dict[str, Flow], before: Review | None = None
) -> Review:
    start = Review.start(Arrangement()) if before is None else before
    components = plan_components(queries, arrangement=start.arrangement)
    return start.again(components, flows, 60 * SECOND, 600 * SECOND, costs)


@pytest.mark.parametrize(("costs", "alone"), [(DEAR_ROWS, False), (DEAR_MERGES, True)])
def test_a_key_set_moves_out_when_merging_finer_partials_costs_more_than_the_rows_once_more(
    costs: UnitCosts, alone: bool
):
    users, areas = names([USERS, AREAS])
    flows = {
        users: Flow(rows=100_000, cuts=10, fed=90_000, kept=90_000, spans=60),
        areas: Flow(rows=100_000, cuts=10, fed=90_000, kept=600, spans=60),
    }
    found = review(costs, [USERS, AREAS], flows)
    assert ((areas, areas) in found.arrangement.hosts) is alone
    assert (users, users) not in found.arrangement.hosts


def test_a_key_set_moves_back_when_rows_are_dear():
    users, areas = names([USERS, AREAS])
    flows = {
        users: Flow(rows=100_000, cuts=10, fed=90_000, kept=90_000, spans=60),
        areas: Flow(rows=100_000, cuts=10, fed=600, kept=600, spans=60),
    }
    before = Review.start(Arrangement(frozenset({(areas, areas)})))
    assert review(DEAR_ROWS, [USERS, AREAS], flows, before).arrangement.hosts == {(areas, users)}
    assert review(DEAR_MERGES, [USERS, AREAS], flows, before).arrangement.hosts == {(areas, areas)}


def test_a_key_set_moves_to_the_component_that_hands_over_fewest_partials():
    devices = query("devices", "area", "device")
    users, by_device, areas = names([USERS, devices, AREAS])
    flows = {
        users: Flow(rows=100_000, cuts=10, fed=90_000, kept=90_000, spans=60),
        by_device: Flow(rows=100_000, cuts=10, fed=6_000, kept=6_000, spans=60),
        areas: Flow(rows=100_000, cuts=10, fed=90_000, kept=600, spans=60),
    }
    moved = review(DEAR_ROWS, [USERS, devices, AREAS], flows)
    assert moved.arrangement.hosts == {(areas, by_device)}
    assert keys_of(plan_components([USERS, devices, AREAS], arrangement=moved.arrangement)) == [[1, 2], [2]]
    settled = {**flows, areas: Flow(rows=100_000, cuts=10, fed=6_000, kept=600, spans=60)}
    assert review(DEAR_ROWS, [USERS, devices, AREAS], settled, moved).arrangement == moved.arrangement
    alike = {**flows, by_device: Flow(rows=100_000, cuts=10, fed=80_000, kept=80_000, spans=60)}
    assert review(DEAR_ROWS, [USERS, devices, AREAS], alike).arrangement.hosts == frozenset(), "not worth a new plan"


@pytest.mark.parametrize(("costs", "direct"), [(DEAR_ROWS, False), (DEAR_MERGES, True)])
def test_both_sides_of_the_crossover_between_panes_and_windows(costs: UnitCosts, direct: bool):
    """Nearly every row has a key of its own: panes are no smaller than their rows."""
    (users,) = names([USERS])
    flow = Flow(rows=60_000, cuts=6, fed=59_000, kept=59_000, spans=6, windows=6, window_rows=300_000, inputs=36)
    found = review(costs, [USERS], {users: flow})
    assert (users in found.arrangement.direct) is direct
    again = review(costs, [USERS], {users: flow}, found)
    assert again.arrangement == found.arrangement, "a decision stands for the longest window"


def test_a_latency_target_decides_before_the_cost():
    """Merging at the close would take 3 seconds; the job of a cut takes less even with six times the work."""
    one = query("one", "user", target=LatencyTarget(SECOND, 0.99))
    (name,) = names([one])
    flow = Flow(rows=60_000, cuts=60, fed=59_000, kept=59_000, spans=6, windows=6, window_rows=300_000, inputs=36)
    costs = UnitCosts(row=1e-4, merge=5e-5)
    assert name in review(costs, [one], {name: flow}).arrangement.direct
    relaxed = query("one", "user", target=LatencyTarget(60 * SECOND, 0.99))
    assert name not in review(costs, [relaxed], {name: flow}).arrangement.direct


def test_what_was_not_measured_stays():
    before = Review.start(Arrangement(direct=frozenset(names([USERS]))))
    assert review(DEAR_ROWS, [USERS], {}, before).arrangement == before.arrangement
