"""Plans: within the limit by the model, on the smallest machine, and why not where there is none."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.planning.profiles import costs_of_streams, profile, stream

from transom.errors import DefinitionError
from transom.model.tuning import Tuning
from transom.planning import search as search_module
from transom.planning.goals import Choice, Goal, Settable
from transom.planning.model import Machine, Model
from transom.planning.moments import NORMAL, Residuals, cantelli
from transom.planning.profile import Profile
from transom.planning.search import EXACT, Division, Search
from transom.planning.solve import Plan, Size, solve, suffices, told

cluster = partial(Machine, shared=False)
RATES, LIMITS = {"a": 5_000.0, "b": 5_000.0}, {"a": 2.0, "b": 4.0}


def planned(known: Profile, rate: float, limit: float = 2.0, most: int = 2, **values) -> Plan:
    goal = Goal(dict.fromkeys(known.streams, rate), dict.fromkeys(known.streams, limit), **{"share": None, **values})
    return solve(known, goal, cluster, most)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(costs_of_streams, st.floats(100, 2e5), st.floats(0.5, 10), st.sampled_from([None, 0.9, 0.99]))
def test_a_plan_meets_its_limit_and_one_executor_less_does_not(one, rate: float, limit: float, share: float | None):
    known = profile(s=one)
    plan = planned(known, rate, limit, share=share)
    again = Model(known.dearer(1.1), cluster(plan.sizes[-1].cores), plan.choice.tuning, plan.goal.rates).predict()
    assume(plan.kept)
    result = again.streams["s"].result
    assert (result.mean if share is None else one.residuals.quantile(result, share)) <= limit
    if len(plan.sizes) > 1:
        less = Search(known, cluster(plan.sizes[-2].cores)).best(plan.goal)
        assert not less.kept
        assert plan.sizes[-2].factor < 1 <= plan.sizes[-1].factor


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@example(stream(row=5e-5, fixed=3.6168, scv=0.0, piece=0.0, regular=0.0, closing=50.0, groups=1), 28_800.0)  # it leaps
@given(costs_of_streams, st.floats(100, 2e5))
def test_the_largest_rate_is_within_the_limit_and_a_little_more_is_not(one, rate: float):
    known = profile(s=one)
    size = planned(known, rate, 3.0, most=1).sizes[-1]
    goal = Goal({"s": rate}, {"s": 3.0}, None)
    if size.factor:
        assert size.choice.kept
        assert not Search(known, cluster(size.cores)).best(goal.times(size.factor * (1 + 4 * EXACT))).kept


def test_it_finds_settings_as_good_as_any_that_are_tried_one_by_one():
    known, goal = profile(s=stream(row=2e-5)), Goal({"s": 40_000}, {"s": 3.0}, None)
    search = Search(known, cluster(4))
    every = [
        search._choice(goal, Division(1, tasks, share / 100)).ratio for tasks in range(1, 9) for share in range(1, 100)
    ]
    assert search.best(goal).ratio <= 1.01 * min(every)


def test_the_smallest_machine_that_keeps_the_limit_is_found():
    known, rate = profile(s=stream(row=2e-5)), 60_000.0
    plan = planned(known, rate)
    assert plan.kept
    assert [size.factor >= 1 for size in plan.sizes] == [False, True]
    again = Model(known.dearer(1.1), cluster(2), plan.choice.tuning, plan.goal.rates).predict()
    assert again.streams["s"].result.mean <= 2.0


def test_the_smallest_of_many_machines_is_found_in_few_steps(monkeypatch: pytest.MonkeyPatch):
    asked = []
    monkeypatch.setattr("transom.planning.solve._size", lambda *given: Size(given[3], 0, 1.0, given[0].best(given[1])))
    known, rate = profile(s=stream(row=2e-5)), 900_000.0

    def machine(executors: int) -> Machine:
        asked.append(executors)
        return cluster(executors)

    goal = Goal({"s": rate}, {"s": 2.0}, None)
    plan = solve(known, goal, machine, 100)
    found = plan.sizes[-1].executors
    assert plan.kept
    assert not Search(known, cluster(found - 1)).best(goal).kept
    assert [size.executors for size in plan.sizes] == told(found)
    assert len(set(asked) - set(told(found))) <= 8


def test_what_cannot_be_met_says_the_nearest_rate_and_limit():
    plan = planned(profile(s=stream(row=2e-5)), 400_000, 1.0, most=3)
    assert not plan.kept
    assert len(plan.sizes) == 3
    assert 0 < plan.sizes[-1].factor < 1
    assert plan.nearest > 1
    below = planned(profile(), 10.0, 0.1, most=2)
    assert below.sizes[-1].factor == 0
    assert math.isfinite(below.nearest)


@pytest.mark.slow
def test_streams_share_the_least_margin():
    plan = planned(profile(a=stream(), b=stream(row=1e-5)), 5_000, 4.0)
    assert plan.kept
    assert max(plan.choice.latencies.values()) < max(plan.choice.longest.values()) <= 4.0


def test_the_limit_of_a_chain_is_divided_in_the_shares_that_its_streams_take():
    known = profile(a=stream(limit=None), b=stream(fixed=0.5, after="a"))
    goal = Goal({"a": 1_000.0, "b": 100.0}, {"b": 2.0}, None)
    plan = solve(known, goal, cluster, 1)
    assert plan.kept
    assert sum(plan.division.values()) == pytest.approx(2.0)
    first, whole = (plan.choice.prediction.streams[name].result.mean for name in "ab")
    assert plan.division["a"] == pytest.approx(2.0 * first / whole)


def test_where_nothing_keeps_up_with_the_margin_settings_are_the_best_without_it():
    search, goal = Search(profile(s=stream(row=2e-5)), cluster(1)), Goal({"s": 46_000.0}, {"s": 2.0}, None)
    found = search.best(goal)
    assert math.isinf(found.ratio)
    assert found.prediction.keeps_up
    assert found.expected_ratio == search.best(replace(goal, margin=0.0)).ratio
    plan = solve(search.profile, goal, cluster, 1)
    assert not plan.kept
    assert 0 < plan.sizes[-1].factor < 1


def test_a_plan_keeps_its_limit_near_the_largest_rate_if_costs_are_a_tenth_higher():
    """A tenth of the latency was no margin there: the longer a cut takes, the more rows has the next one."""
    known = profile(s=stream(row=2e-5, scv=0.0))
    factor, found = Search(known, cluster(2)).largest(Goal({"s": 1_000.0}, {"s": 1.0}, None), 0.0, 1.0)
    assert found is not None
    means = [
        Model(known.dearer(times), cluster(2), found.tuning, {"s": 1_000 * factor}).predict().streams["s"].result.mean
        for times in (1.0, 1.1)
    ]
    assert means[0] == pytest.approx(found.latencies["s"])
    assert means[1] <= 1.0
    assert means[1] > 1.15 * means[0]


@pytest.mark.parametrize("low", [0.0, 1.0])
def test_the_largest_rate_is_the_one_at_which_costs_higher_by_the_margin_use_up_the_limit(low: float):
    search, goal = Search(profile(s=stream(row=2e-5)), cluster(2)), Goal({"s": 1_000.0}, {"s": 2.0}, None)
    factor, within = search.largest(goal, low, 100.0 if low == 0 else 1.25)
    assert within is not None
    assert within.ratio == pytest.approx(within.longest["s"] / 2)
    assert 0.9 <= within.ratio <= 1  # the latency rises five times as fast as the rate there
    assert within.expected_ratio < 0.9
    assert within.prediction.streams["s"].rows == pytest.approx(
        1_000 * factor * within.prediction.streams["s"].cycle, rel=1e-6
    )
    assert not search.best(goal.times(1.02 * factor)).kept


def test_the_ratio_is_that_of_the_stream_with_the_least_margin():
    known = profile(a=stream(), b=stream(row=1e-5, residuals=Residuals((-1.0, 1.0))))
    choice = Search(known, cluster(2)).best(Goal({"a": 1e3, "b": 1e3}, {"a": 9.0, "b": 3.0}, 0.9, 0.2))
    for said, latencies in ((choice.prediction, choice.latencies), (choice.careful, choice.longest)):
        result = said.streams["b"].result
        assert latencies["b"] == pytest.approx(result.mean + NORMAL.inv_cdf(0.9) * result.sigma)
        assert latencies["a"] == pytest.approx(cantelli(said.streams["a"].result, 0.9))
    assert choice.ratio == pytest.approx(max(choice.longest["a"] / 9, choice.longest["b"] / 3))
    assert choice.expected_ratio < choice.ratio


def test_a_trigger_is_a_share_of_the_limit_that_a_stream_or_its_readers_have():
    known = profile(a=stream(), b=stream(after="a"), c=stream())
    tuning = (
        Search(known, cluster(2))
        ._choice(Goal(dict.fromkeys("abc", 1e3), {"b": 2.0, "c": 8.0}), Division(2, 4, 0.1))
        .tuning
    )
    assert [tuning.of(name).trigger for name in "abc"] == [200_000, 200_000, 800_000]
    assert [tuning.of(name).rows_per_task for name in "abc"] == [58, 58, 229]  # trigger x rate in 3.5 tasks
    assert (tuning.slots, tuning.of("a").partitions) == (2, 2)


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Goal, Tuning, bool]]:
    """What is predicted, in order, and whether it was given up."""
    seen, predicted = [], Search._predicted

    def noted(search: Search, goal: Goal, tuning: Tuning, most: float) -> Choice:
        choice = predicted(search, goal, tuning, most)
        seen.append((goal, tuning, choice.careful.given_up))
        return choice

    monkeypatch.setattr(Search, "_predicted", noted)
    return seen


def test_a_rate_far_below_what_a_machine_can_do_takes_few_steps(looked_at):
    known, goal = profile(), Goal({"s": 1.0}, {"s": 2.0}, None)
    factor, within = Search(known, cluster(1)).largest(goal, 1.0, 1.25)
    assert factor > 10_000
    assert within is not None
    assert within.kept
    assert len(looked_at) < 150


def test_no_settings_are_predicted_twice(looked_at):
    search = Search(profile(s=stream(row=2e-5)), cluster(2))
    search.largest(Goal({"s": 20_000}, {"s": 1.0}, None), 0.0, 1.25)
    whole = [(tuple(goal.rates.items()), tuning) for goal, tuning, given_up in looked_at if not given_up]
    assert 20 < len(whole) == len(set(whole))
    search.forget()
    assert not search._known


@settings(max_examples=6, deadline=None)
@given(costs_of_streams, costs_of_streams, st.floats(100, 2e4), st.sampled_from([None, 0.4, 0.99]))
def test_giving_up_what_is_worse_changes_nothing_that_is_found(one, other, rate: float, share: float | None):
    known, goal = profile(s=one, t=other), Goal({"s": rate, "t": rate / 2}, {"s": 2.0, "t": 1.0}, share)
    found = Search(known, cluster(4)).best(goal)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(search_module, "WORSE", math.inf)
        assert found.ratio == pytest.approx(Search(known, cluster(4)).best(goal).ratio, rel=0.01)
    assert not found.careful.given_up


def test_what_was_given_up_is_predicted_when_it_is_wanted(looked_at):
    search, goal = Search(profile(s=stream(row=2e-5)), cluster(2)), Goal({"s": 20_000}, {"s": 1.0}, None)
    whole = search._choice(goal, Division(1, 2, 0.8))
    search.forget()
    least = search._choice(goal, Division(1, 2, 0.8), whole.ratio / 3)
    assert least.careful.given_up
    assert whole.ratio / 3 < least.ratio <= whole.ratio
    assert search._choice(goal, Division(1, 2, 0.8), least.ratio / 2) is least
    assert search._choice(goal, Division(1, 2, 0.8)).ratio == whole.ratio
    assert len(looked_at) == 3


def test_the_search_sees_the_rows_that_a_task_has_at_least():
    """Rows that cost much: with few of them in a task, others settings are better than with a thousand."""
    known, goal = profile(s=stream(row=1e-3)), Goal({"s": 1_400}, {"s": 4.0}, None)
    search, free = Search(known, cluster(8), Settable(least_task=1_000)), Search(known, cluster(8)).best(goal).tuning
    assert free.of("s").rows_per_task < 1_000
    raised = Tuning(free.slots, {"s": replace(free.of("s"), rows_per_task=1_000)})
    assert search.best(goal).tuning.of("s").rows_per_task >= 1_000
    assert search.best(goal).ratio < 0.95 * search.with_settings(goal, raised).ratio


def test_what_is_given_stays_and_the_rest_follows_from_it():
    known, goal = profile(s=stream(row=2e-5), t=stream()), Goal({"s": 40_000, "t": 100}, {"s": 4.0, "t": 4.0}, None)
    settable = Settable(30_000, slots=2, triggers={"s": 1_000_000}, rows_per_cut={"t": 5_000})
    tuning = Search(known, cluster(4), settable).best(goal).tuning
    assert (tuning.slots, tuning.of("s").trigger, tuning.of("t").rows_per_cut) == (2, 1_020_000, 5_000)
    tasks = tuning.of("s").tasks(40_800)
    assert tasks > 1
    assert tuning.of("s").rows_per_task == math.ceil(40_800 / (tasks - 0.5)), "the rows of a task follow from it"
    assert tuning.of("t").trigger % 30_000 == 0


def test_all_settings_are_looked_at_once_for_a_machine_and_not_once_for_each_rate(looked_at):
    search, goal = Search(profile(a=stream(row=2e-5), b=stream()), cluster(8)), Goal(RATES, LIMITS, None)
    search.best(goal)
    once = len(looked_at)
    factor, within = search.largest(goal, 1.0, 1.25)
    assert within is not None
    assert len(looked_at) <= 5 * once
    assert not search.keeps(goal.times(1.02 * factor))


def test_whether_a_limit_is_kept_takes_few_looks_where_it_is(looked_at):
    goal = Goal(RATES, LIMITS, None)
    search = Search(profile(a=stream(row=2e-5), b=stream()), cluster(8))
    assert search.keeps(goal)
    assert len(looked_at) < 10
    assert not search.keeps(goal.times(1_000))
    assert Search(search.profile, cluster(8)).best(goal).kept


def test_a_rate_that_was_within_on_a_smaller_machine_need_not_be():
    """Then there is a smaller one, not one that is said to be within with settings that are not."""
    search, goal = Search(profile(s=stream(row=2e-5)), cluster(2)), Goal({"s": 20_000.0}, {"s": 1.0}, None)
    factor, within = search.largest(goal, 50.0, 60.0)
    assert 1 < factor < 50
    assert within is not None
    assert within.kept
    assert factor == pytest.approx(search.largest(goal, 0.0, 1.25)[0], rel=3 * EXACT)


def test_scipy_is_an_extra(monkeypatch: pytest.MonkeyPatch):
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "scipy" else found(name))
    with pytest.raises(DefinitionError, match=r'scipy, not installed here\. Run: pip install "transom\[planning\]"'):
        planned(profile(), 100.0)


@pytest.mark.parametrize(
    "values",
    [
        {"rates": {"s": 0.0}},
        {"rates": {"s": math.nan}},
        {"limits": {"s": -1.0}},
        {"limits": {}},
        {"share": 1.0},
        {"margin": 1.0},
        {"margin": math.nan},
    ],
)
def test_goals_that_no_plan_can_keep_are_refused(values):
    with pytest.raises(DefinitionError, match="plan:"):
        Goal(**{"rates": {"s": 1.0}, "limits": {"s": 1.0}, **values})


class Said:
    """A search by which so many executors suffice, while event by event it is another number."""

    def __init__(self, executors: int, said: int, really: int) -> None:
        self.executors, self.said, self.really = executors, said, really

    def keeps(self, goal: Goal) -> bool:
        return self.executors >= self.said

    def checked(self, goal: Goal) -> SimpleNamespace:
        return SimpleNamespace(kept=self.executors >= self.really, executors=self.executors)


@pytest.mark.parametrize(
    ("said", "really", "found"),
    [(5, 5, 5), (5, 6, 6), (5, 9, 9), (5, 3, 3), (5, 1, 1), (21, 20, 20), (21, 21, None), (20, 21, None), (21, 17, 17)],
)
def test_machines_near_the_one_that_is_said_to_suffice_are_checked(said: int, really: int, found: int | None):
    goal = Goal(RATES, LIMITS, None)
    number, choices = suffices(goal, lambda executors: Said(executors, said, really), 20)  # type: ignore[arg-type]
    assert number == found
    assert (number or 20) in choices
    assert found in (None, 1) or not choices[found - 1].kept


def test_what_is_said_of_machines_follows_from_what_was_checked():
    known = profile(a=stream(row=2e-4, scv=0.0), b=stream(row=2e-4, scv=0.0))
    goal = Goal(RATES, {"a": 1.0, "b": 1.0}, None)
    plan = solve(known, goal, cluster, 12)
    assert plan.kept
    *_, before, last = plan.sizes
    assert before.factor < 1 <= last.factor
    assert plan.choice == Search(known, cluster(last.cores)).checked(goal)
    assert not Search(known, cluster(before.cores)).checked(goal).kept
