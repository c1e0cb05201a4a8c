"""An application that plans while it runs: when settings change, what stays, and what is said of limits."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.engine.planned_world import AtOnce

from transom.engine.control.digests import Known
from transom.engine.loop import planner
from transom.engine.loop.planner import AGAIN, CORES, EVERY, SETTLED, Planner
from transom.model.phases import CutPhases, Phase
from transom.model.time import ManualClock
from transom.model.tuning import StreamTuning, Tuning
from transom.planning import search
from transom.planning.drift import BETWEEN, CUTS
from transom.planning.fleet import Fleet
from transom.planning.goals import Goal, Settable
from transom.planning.model import Machine
from transom.planning.profile import Equipment, PhaseCost, Profile, StreamProfile
from transom.planning.search import Search
from transom.windows.query import LatencyTarget

sys.path.insert(0, str(Path(__file__).parent.parent / "planning"))
from profiles import profile, stream

SECOND = 1_000_000


class Tuner:
    """Takes changes."""

    poll = 50_000

    def __init__(self, tuning: Tuning, given: tuple[str, ...]) -> None:
        self.tuning = self.said = tuning
        self.given = given
        self.changes: list[tuple[Tuning, str]] = []

    def change(self, tuning: Tuning, reason: str, planned: bool) -> bool:
        assert planned
        self.changes.append((tuning, reason))
        self.tuning = tuning.over(self.tuning)
        return True


class Running:
    """A planner, and what it sees."""

    def __init__(self, known: Profile | None, rate: float = 5_000, said: tuple[str, ...] = (), **tuning: Any) -> None:
        self.clock = ManualClock()
        self.known, self.rates, self.notes, self.cores = known, {"s": rate}, list[str](), 2
        query = SimpleNamespace(target=LatencyTarget(2 * SECOND, 0.9))
        streams: Any = {"s": SimpleNamespace(name="s", state=SimpleNamespace(running=lambda: [query]))}
        each = StreamTuning(tuning.pop("trigger", 1_500_000), 1_000_000, **tuning)
        self.tuner, self.threads = Tuner(Tuning(2, {"s": each}), said), AtOnce()
        of: Any = lambda one, now: SimpleNamespace(backlog=SimpleNamespace(rate=self.rates[one.name] / 1e6))  # noqa: E731
        unknown = {} if known is not None else {"s": "too little"}
        digests: Any = SimpleNamespace(
            known=lambda: Known(self.known or Profile("", profile().equipment, {}), unknown), cores=lambda: self.cores
        )
        scheduler: Any = SimpleNamespace(of=of)
        journal: Any = SimpleNamespace(note=self.notes.append)
        self.planner = Planner(streams, digests, scheduler, self.tuner, journal, self.clock, self.threads)  # type: ignore[arg-type]

    def pass_seconds(self, seconds: int) -> Running:
        for _ in range(seconds):
            self.clock.advance(SECOND)
            self.planner.look()
        return self

    def cut(self, seconds: dict[Phase, float]) -> None:
        self.planner.take(CutPhases("s", 1, 100, seconds))


def test_settings_that_are_far_from_the_best_are_changed_at_once_and_then_stay() -> None:
    running = Running(profile()).pass_seconds(600)
    ((tuning, reason),) = running.tuner.changes
    assert reason == "as nothing was planned so far"
    assert tuning.of("s").trigger < 1_500_000
    assert tuning.of("s").trigger % running.tuner.poll == 0
    assert tuning.of("s").rows_per_cut == 1_000_000
    assert running.notes == []
    basis = running.planner.drift._basis
    assert basis is not None
    assert running.planner.expected == {"s": pytest.approx(1e6 * sum(basis.phases["s"].values()), abs=1)}


def test_what_the_user_has_set_stays() -> None:
    running = Running(profile(), said=("trigger", "slots")).pass_seconds(60)
    for tuning, _ in running.tuner.changes:
        assert tuning.of("s").trigger == 1_500_000
        assert tuning.slots == 2


def test_nothing_changes_before_costs_are_known() -> None:
    running = Running(None).pass_seconds(60)
    assert running.tuner.changes == []
    running.planner.digests = Running(profile()).planner.digests
    running.pass_seconds(AGAIN // SECOND + 1)
    assert len(running.tuner.changes) == 1


def test_nothing_is_planned_for_rates_that_are_not_known_or_nearly_none() -> None:
    assert Running(profile()).pass_seconds(9).tuner.changes == []
    running = Running(profile(), rate=0.5).pass_seconds(60)
    assert running.tuner.changes == []
    running.rates["s"] = 5_000
    assert len(running.pass_seconds(30).tuner.changes) == 1


def test_a_task_has_a_thousand_rows_at_least() -> None:
    running = Running(profile(), rate=50).pass_seconds(60)
    assert all(tuning.of("s").rows_per_task >= 1_000 for tuning, _ in running.tuner.changes)


def test_a_rate_that_was_not_planned_for_is_planned_for_a_minute_later() -> None:
    running = Running(profile(), rate=2_000).pass_seconds(60)
    running.rates["s"] = 60_000
    running.pass_seconds(2 * BETWEEN // SECOND)
    reasons = [reason for _, reason in running.tuner.changes]
    assert 1 <= len(reasons) <= 3
    assert any("rows/s, and 2,000 were planned for" in reason for reason in reasons[1:]) or len(reasons) == 1


def test_costs_that_doubled_are_planned_for() -> None:
    running = Running(profile()).pass_seconds(12)
    running.known = profile(s=stream(row=1e-4))
    expected = running.planner.drift._basis
    assert expected is not None
    for _ in range(20):
        running.cut({**expected.phases["s"], Phase.MAP: 2 * expected.phases["s"][Phase.MAP]})
    assert "map of s takes" in str(
        running.planner.drift.reason(running.planner._rates, running.clock.monotonic() + BETWEEN)
    )
    before = len(running.tuner.changes)
    running.pass_seconds(60)
    assert len(running.tuner.changes) <= before + 1
    assert running.planner.drift._basis is not expected


@pytest.mark.parametrize("found", [True, False])
def test_phases_that_are_off_are_planned_for_when_it_is_known_why_or_after_ten_seconds(found: bool) -> None:
    """A rate that rises makes cuts longer before it is seen, and a plan must do for a minute."""
    running = Running(profile()).pass_seconds(100)
    basis = running.planner.drift._basis
    assert basis is not None
    for _ in range(CUTS):
        running.cut({**basis.phases["s"], Phase.MAP: 2 * basis.phases["s"][Phase.MAP]})
    if found:
        running.planner.drift.found("cuts of s take 1.5 times what they took")
    before = running.threads.submitted
    running.pass_seconds(SETTLED - 1)
    assert running.threads.submitted - before == found
    running.pass_seconds(1)
    assert running.threads.submitted - before == 1


@pytest.mark.parametrize("cores", [2, 1])
def test_cuts_on_cores_that_went_and_came_back_say_nothing_of_the_plan(cores: int) -> None:
    running = Running(profile()).pass_seconds(30)
    basis = running.planner.drift._basis
    assert basis is not None
    running.cores = cores
    for _ in range(CUTS):
        running.cut({**basis.phases["s"], Phase.MAP: 2 * basis.phases["s"][Phase.MAP]})
    running.pass_seconds(CORES).cores = 2
    running.pass_seconds(CORES)
    assert running.planner.drift._basis is basis
    reason = running.planner.drift.reason(running.rates, running.clock.monotonic() + BETWEEN, 2)
    assert (reason is None) == (cores != 2)


def test_a_limit_that_cannot_be_kept_is_said_once_and_so_is_that_it_can_again() -> None:
    running = Running(profile(), rate=5_000_000).pass_seconds(200)
    (note,) = running.notes
    said = "s cannot keep its limit of 2 seconds with 5,000,000 rows/s here: with the best settings a backlog grows."
    assert note.startswith(said)
    running.rates["s"] = 1_000
    running.pass_seconds(200)
    assert running.notes[1:] == ["All limits can be kept again, by the plan."]


def test_streams_without_limits_have_nothing_to_plan_for() -> None:
    assert Running(profile(s=stream(limit=None))).pass_seconds(60).tuner.changes == []


@pytest.mark.parametrize("seconds", [1, 5])
def test_rates_are_smoothed_and_looked_at_once_a_second(seconds: int) -> None:
    running = Running(profile(), rate=1_000).pass_seconds(10)
    running.rates["s"] = 2_000
    for _ in range(10 * seconds):
        running.clock.advance(EVERY // 10)
        running.planner.look()
    assert running.planner._rates["s"] == pytest.approx(2_000 - 1_000 * 0.9**seconds)


@pytest.mark.parametrize("by", [-3_600, 3_600])
def test_a_wall_clock_that_is_set_changes_no_settings(by: int) -> None:
    running = Running(profile()).pass_seconds(60)
    before = list(running.tuner.changes)
    running.clock.step(by * SECOND)
    running.pass_seconds(120)
    assert running.tuner.changes == before
    assert running.planner._rates["s"] == pytest.approx(5_000)


def test_the_loop_does_not_wait_for_a_plan() -> None:
    running = Running(profile())
    running.threads.waits = []
    running.pass_seconds(120)
    assert running.tuner.changes == []
    ((made, plan),) = running.threads.waits
    made.set_result(plan())
    running.pass_seconds(1)
    assert len(running.tuner.changes) == 1


def test_a_plan_that_cannot_be_made_is_told_once_changes_nothing_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any) -> None:
        raise OverflowError("math range error")

    with monkeypatch.context() as patched:
        patched.setattr(planner, "decide", broken)
        running = Running(profile()).pass_seconds(30)
        running.rates["s"] = 9_000
        running.pass_seconds(200)
    assert running.notes == ["No plan can be made, so settings stay: OverflowError: math range error."]
    assert running.threads.submitted > 1
    assert running.tuner.changes == []
    running.rates["s"] = 20_000
    assert len(running.pass_seconds(200).tuner.changes) >= 1


def test_what_the_user_has_set_is_seen_by_the_search() -> None:
    """Rows of a task are those of the trigger that is given, not of one that the search would like better."""
    known = profile(s=stream(row=2e-5))
    goal, now = Goal({"s": 40_000}, {"s": 4.0}, None), Tuning(2, {"s": StreamTuning(1_000_000)})
    found = planner.decide(known, goal, now, now, ("trigger", "slots"), 50_000).choice.tuning
    assert (found.slots, found.of("s").trigger) == (2, 1_000_000)
    tasks = found.of("s").tasks(40_000)
    assert tasks is not None
    assert found.of("s").rows_per_task == math.ceil(40_000 / (tasks - 0.5))


def test_nothing_is_left_to_predict_for_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    known, goal, now = profile(), Goal({"s": 5_000}, {"s": 2.0}, None), Tuning(2, {"s": StreamTuning()})
    choice = planner.decide(known, goal, now, now, (), 50_000).choice
    monkeypatch.setattr(search, "Model", None)
    assert choice.latencies["s"] == choice.prediction.streams["s"].result.mean


def test_an_application_that_is_nearly_overloaded_gets_the_settings_that_are_best_without_the_margin() -> None:
    known, goal = profile(s=stream(row=2e-5, scv=0.0)), Goal({"s": 92_000}, {"s": 2.0}, None)
    now = Tuning(1, {"s": StreamTuning(200_000, rows_per_task=5_000)})
    found = planner.decide(known, goal, now, now, (), 50_000)
    assert math.isinf(found.choice.ratio)
    assert found.choice.prediction.keeps_up
    assert found.changes
    assert not planner.decide(known, goal, found.choice.tuning, now, (), 50_000).changes


def taking_turns(executors: int) -> Profile:
    """Return two streams that have all the cores in turn, while the other is planned."""
    costs = {Phase.PLAN: PhaseCost(0.35), Phase.MAP: PhaseCost(0.0, 1.35e-4), Phase.COMMIT: PhaseCost(0.01)}
    one = StreamProfile(costs, merged=0.0, results=0.0, piece=0.05, regular=0.0, cuts=64)
    return Profile("", Equipment(executors, False), {"a": one, "b": one})


def test_no_executors_are_asked_for_where_streams_hold_each_other_up_by_the_closed_form_only() -> None:
    known, rates = taking_turns(6), {"a": 20_000.0, "b": 20_000.0}
    goal, now = Goal(rates, dict.fromkeys(rates, 2.0), None), Tuning(2, dict.fromkeys(rates, StreamTuning(1_600_000)))
    said = Search(known, Machine(6, False), Settable(least_task=planner.LEAST_TASK)).best(goal)
    found = planner.decide(known, goal, now, now, (), 50_000, Fleet(6, 2, 12, 1, False))
    assert said.ratio > 1.2
    assert found.choice.ratio < 0.8
    assert found.choice.tuning.executors == 6
    assert found.changes


@pytest.mark.parametrize(("room", "cores"), [(None, 8), (3, 3)])
def test_settings_are_for_the_executors_that_the_cluster_has(room: int | None, cores: int) -> None:
    known, rates = taking_turns(2), {"a": 20_000.0, "b": 20_000.0}
    goal, now = Goal(rates, dict.fromkeys(rates, 2.0), None), Tuning(2, dict.fromkeys(rates, StreamTuning(1_600_000)))
    found = planner.decide(known, goal, now, now, (), 50_000, Fleet(4, 2, 12, 1, False, room))
    assert (found.choice.tuning.executors, found.cores) == (8, cores)
    assert found.choice.kept == (room is None)


@pytest.mark.parametrize(("near", "plays"), [(3.0, 0), (1.5, 1)])
def test_streams_are_looked_at_event_by_event_where_the_limit_is_near_or_something_changes(
    monkeypatch: pytest.MonkeyPatch, near: float, plays: int
) -> None:
    known, rates = taking_turns(8), {"a": 20_000.0, "b": 20_000.0}
    goal = Goal(rates, dict.fromkeys(rates, near), None)
    best = Search(known, Machine(8, False), Settable(least_task=planner.LEAST_TASK)).best(goal).tuning
    played: list[Tuning] = []

    def note(profile: Profile, machine: Machine, tuning: Tuning, rates: Any, said: Any) -> Any:
        played.append(tuning)
        return said

    monkeypatch.setattr(search, "checked", note)
    assert not planner.decide(known, goal, best, best, (), 50_000).changes
    assert (best in played) == bool(plays)
    assert bool(played) == bool(plays)
