"""Windows whose partials are at the executors of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.slow


def test_results_stay_exact_when_an_executor_is_killed(together: dict[str, Any]) -> None:
    found = together["tier"]
    assert found["same"]
    assert found["rows"] > 2_000
    assert found["lost"], "the application tells which executor was lost"
    assert 0 < found["recovery_s"] < 10, "within the bound that the setting has if none is given"
    assert 0 < found["estimate_s"] < 10, "what the loss of another one would cost"
    assert sum(found["groups"].values()) == 6


def test_executors_that_come_are_used_and_those_that_will_go_are_emptied(seen: dict[str, Any]) -> None:
    found = seen["elastic"]
    assert found["same"]
    assert found["groups"].keys().isdisjoint(found["gone"])
    assert len(found["groups"].keys() - set(found["began"])) == 1, "the new one has groups"
    assert sum(found["groups"].values()) == 6
    assert found["moved"] >= 3
    assert found["lost"] == [], "it was empty when it went, or is still there: no window had to wait"


def test_executors_are_asked_for_and_given_back_while_windows_are_open(grown: dict[str, Any]) -> None:
    found = grown
    assert found["same"]
    assert len(found["grown"]) == 3
    assert found["began"] in found["grown"]
    assert len(found["groups"]) == 3, "the new ones have groups"
    assert len(found["left"]) == 2
    assert found["emptied"]
    assert found["lost"] == [], "groups had moved before it went"
    assert found["moved"] >= 4
    assert len(found["ended"]) == 1, "the end of the run gives back what it was given"


def test_groups_move_by_each_strategy_while_windows_are_open(seen: dict[str, Any]) -> None:
    found = seen["migrating"]
    assert found["same"]
    nothing = {"moved": True, "again": 0}
    assert found["steps"]["instant"] == nothing, "the new home has read all before it is used"
    assert found["steps"]["disruptive"] == nothing, "the old home's memory went to the new one"
    assert found["steps"]["smooth"]["moved"]
    assert found["moved"] == 3


def test_windows_and_sessions_stay_exact_while_executors_are_killed(kills: dict[str, Any]) -> None:
    found = kills["window_kills"]
    assert found["kills"] >= 12
    assert all(found["same"])
    assert found["results"] > 6_000
