"""When it is time for another plan: phases that are a fifth off over twenty cuts, rates that were not planned for."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.model.phases import WAITS, Phase
from transom.planning.drift import BETWEEN, CUTS, GAIN, Basis, Drift, pays

PHASES = {Phase.TURN: 0.1, Phase.MAP: 0.2, Phase.COMMIT: 0.01}
RATES = {"clicks": 1_000.0}
LATER = BETWEEN


def planned() -> Drift:
    drift = Drift()
    drift.planned(Basis(0, RATES, {"clicks": PHASES}))
    return drift


def test_without_a_plan_it_is_time_for_one() -> None:
    drift = Drift()
    drift.took("clicks", PHASES)
    assert drift.reason(RATES, 0) == "nothing was planned so far"


@pytest.mark.parametrize("rate, off", [(1_000, False), (1_200, False), (800, False), (1_201, True), (799, True)])
def test_a_rate_that_was_not_planned_for(rate: float, off: bool) -> None:
    reason = planned().reason({"clicks": rate}, LATER)
    assert (reason == f"clicks has {rate:,.0f} rows/s, and 1,000 were planned for") == off
    assert (reason is None) != off


def test_a_stream_that_was_not_there() -> None:
    assert planned().reason({**RATES, "more": 1.0}, LATER) is not None


def test_not_within_a_minute() -> None:
    assert planned().reason({"clicks": 9_000}, LATER - 1) is None
    assert planned().reason({"clicks": 9_000}, LATER) is not None


@pytest.mark.parametrize("cuts", [CUTS - 1, CUTS])
@pytest.mark.parametrize("took, off", [(0.24, False), (0.241, True), (0.16, False), (0.159, True)])
def test_a_phase_that_is_off_over_twenty_cuts(cuts: int, took: float, off: bool) -> None:
    drift = planned()
    for _ in range(cuts):
        drift.took("clicks", {Phase.MAP: took})
    reason = drift.reason(RATES, LATER)
    if off and cuts == CUTS:
        assert reason == f"map of clicks takes {1e3 * took:,.0f} ms, and 200 ms were expected"
    else:
        assert reason is None


def test_what_is_short_does_not_count() -> None:
    drift = planned()
    for _ in range(CUTS):
        drift.took("clicks", {Phase.COMMIT: 0.0149})
    assert drift.reason(RATES, LATER) is None
    for _ in range(CUTS):
        drift.took("clicks", {Phase.COMMIT: 0.0151})
    assert drift.reason(RATES, LATER) is not None


def test_all_phases_together_may_be_off_when_none_is_by_itself() -> None:
    drift = Drift()
    many = dict.fromkeys(Phase, 0.004)
    drift.planned(Basis(0, RATES, {"clicks": many}))
    for _ in range(CUTS):
        drift.took("clicks", dict.fromkeys((*WAITS, Phase.COMMIT), 0.006), job=0.03)
    assert drift.reason(RATES, LATER) == "latency of clicks takes 54 ms, and 36 ms were expected"


def test_the_latency_is_known_of_cuts_of_whose_jobs_no_phases_are() -> None:
    drift = planned()
    for _ in range(CUTS):
        drift.took("clicks", {Phase.TURN: 0.1, Phase.COMMIT: 0.01}, job=0.2)
    assert drift.reason(RATES, LATER) is None
    for _ in range(CUTS):
        drift.took("clicks", {Phase.TURN: 0.1, Phase.COMMIT: 0.01}, job=0.4)
    assert drift.reason(RATES, LATER) == "latency of clicks takes 510 ms, and 310 ms were expected"


def test_a_cut_of_which_not_all_is_known_says_nothing_of_the_whole() -> None:
    drift = planned()
    for _ in range(CUTS):
        drift.took("clicks", {Phase.TURN: 0.1})
    assert drift.reason(RATES, LATER) is None


def test_what_is_off_as_before_is_no_reason_again_where_another_plan_was_no_better() -> None:
    drift = planned()

    def cuts(took: float) -> str | None:
        for _ in range(CUTS):
            drift.took("clicks", {Phase.MAP: took})
        return drift.reason(RATES, 9 * LATER)

    assert cuts(0.3) is not None
    drift.planned(Basis(0, RATES, {"clicks": PHASES}), changed=False)
    assert cuts(0.3) is None
    drift.planned(Basis(0, RATES, {"clicks": PHASES}), changed=False)
    assert cuts(0.3) is None
    assert cuts(0.5) is not None
    drift.planned(Basis(0, RATES, {"clicks": PHASES}), changed=True)
    assert cuts(0.3) is not None


def test_one_wild_cut_does_not_make_up_for_what_is_off() -> None:
    drift = planned()
    for took in (9.0, *[0.3] * (CUTS - 1)):
        drift.took("clicks", {Phase.MAP: took})
    drift.planned(Basis(0, RATES, {"clicks": PHASES}), changed=False)
    for _ in range(CUTS):
        drift.took("clicks", {Phase.MAP: 0.3})
    assert drift.reason(RATES, LATER) is None


def test_something_else_that_was_found_is_a_reason_until_there_is_another_plan() -> None:
    drift = planned()
    drift.found("all is new")
    drift.found("and more")
    assert drift.reason(RATES, LATER - 1) is None
    assert drift.reason(RATES, LATER) == "all is new"
    drift.planned(Basis(LATER, RATES, {"clicks": PHASES}))
    assert drift.reason(RATES, 3 * LATER) is None


@pytest.mark.parametrize("before, now, off", [(4, 3, True), (4, 4, False), (None, 4, False), (4, None, False)])
def test_other_cores_than_were_planned_for(before: int | None, now: int | None, off: bool) -> None:
    drift = Drift()
    drift.planned(Basis(0, RATES, {"clicks": PHASES}, before))
    assert drift.moved(RATES, now) == ("there are 3 cores, and 4 were planned for" if off else None)
    assert drift.reason(RATES, LATER, now) == drift.moved(RATES, now)


def test_before_the_first_plan_nothing_has_moved() -> None:
    assert Drift().moved(RATES, 4) is None
    assert not Drift().may_pass(RATES, 4)


@pytest.mark.parametrize("took, rate, passes", [(0.2, 1_000, False), (0.4, 1_000, True), (0.2, 2_000, True)])
@pytest.mark.parametrize("found", [False, True])
def test_what_was_found_does_not_pass_while_rates_do_and_phases_that_are_off(
    took: float, rate: float, passes: bool, found: bool
) -> None:
    drift = planned()
    for _ in range(CUTS):
        drift.took("clicks", {Phase.MAP: took})
    if found:
        drift.found("all is new")
    assert drift.may_pass({"clicks": rate}) == (passes and not (found and rate == 1_000))


def test_cuts_that_are_forgotten_say_nothing() -> None:
    drift = planned()
    for _ in range(CUTS):
        drift.took("clicks", {Phase.MAP: 0.4})
    drift.forget()
    drift.took("clicks", {Phase.MAP: 0.4})
    assert drift.reason(RATES, LATER) is None


def test_one_wild_cut_and_what_is_long_ago_do_not_count() -> None:
    drift = planned()
    for took in (9.0, *[0.2] * (CUTS - 1)):
        drift.took("clicks", {Phase.MAP: took})
    assert drift.reason(RATES, LATER) is None
    for took in (*[9.0] * CUTS, *[0.2] * CUTS):
        drift.took("clicks", {Phase.MAP: took})
    assert drift.reason(RATES, LATER) is None


def test_another_plan_begins_anew() -> None:
    drift = planned()
    for _ in range(CUTS):
        drift.took("clicks", {Phase.MAP: 0.4})
    drift.planned(Basis(LATER, RATES, {"clicks": {**PHASES, Phase.MAP: 0.4}}))
    assert drift.reason(RATES, 2 * LATER) is None


def test_of_what_was_not_expected_nothing_is_said() -> None:
    drift = planned()
    for _ in range(CUTS):
        drift.took("clicks", {Phase.EXCHANGE: 9.0})
        drift.took("other", {Phase.MAP: 9.0})
    assert drift.reason(RATES, LATER) is None


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_only_a_plan_that_is_better_by_a_twentieth_pays(now: float, then: float) -> None:
    assert pays(now, then) == (then <= (1 - GAIN) * now)
    assert pays(math.inf, then)
    assert not pays(now, math.inf)
    assert not pays(math.inf, math.inf)
