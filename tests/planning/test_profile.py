"""Profiles as JSON, and what is refused of them."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planning.profiles import costs_of_streams, profile, stream

from transom.errors import DefinitionError
from transom.model.phases import Phase
from transom.planning.keys import KeyCurve
from transom.planning.moments import Residuals
from transom.planning.phases import CUT
from transom.planning.profile import PhaseCost, Profile


@given(costs_of_streams)
def test_a_profile_is_the_same_after_json(one):
    known = profile(a=one, b=stream(after="a", residuals=Residuals((0.5, -1.0))))
    assert Profile.from_json(known.to_json(), "p.json") == known


def test_all_costs_are_higher_but_what_is_no_cost_is_not():
    known = profile(s=stream())
    dearer = known.dearer(1.5).streams["s"]
    assert dearer.cost(Phase.LOOK) == known.streams["s"].cost(Phase.LOOK)
    assert replace(dearer, costs=known.streams["s"].costs) == known.streams["s"]
    for phase in CUT:
        before, after = known.streams["s"].cost(phase), dearer.cost(phase)
        assert after.mean(1_000) == pytest.approx(1.5 * before.mean(1_000))
        assert after.scv == before.scv


def changed(path: list, value) -> str:
    made = json.loads(profile().to_json())
    place = made
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(made)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "damaged"),
        ("[1]", "damaged"),
        ('{"format": 99}', "format 99"),
        ('{"format": 1}', "damaged"),
        (changed(["streams", "s", "costs", "map", "each"], -1.0), "cost: each is -1"),
        (changed(["streams", "s", "costs", "map", "each"], "much"), "cost: each is much"),
        (changed(["streams", "s", "costs", "reduce"], {}), "reduce"),
        (changed(["streams", "s", "closing"], 0), "closing"),
        (changed(["streams", "s", "keys"], [[10, 20]]), "curve"),
        (changed(["streams", "s", "unknown"], 1), "unknown"),
    ],
)
def test_what_is_damaged_is_refused_with_a_remedy(text: str, message: str):
    with pytest.raises(DefinitionError, match=message) as raised:
        Profile.from_json(text, "p.json")
    assert "transom profile" in raised.value.remedy


def test_a_profile_of_another_job_or_machine_is_refused_with_the_differences():
    known = profile()
    known.require("job", {}, "p.json")
    with pytest.raises(DefinitionError, match="another job"):
        known.require("other", {}, "p.json")
    with pytest.raises(DefinitionError, match="Spark unknown, here 4"):
        known.require("job", {"Spark": "4.3.0"}, "p.json")


@given(st.floats(1, 1e9), st.floats(1.01, 10))
def test_more_rows_have_more_keys_but_never_more_than_rows(rows: float, factor: float):
    curve = KeyCurve(((100.0, 60.0), (10_000.0, 900.0), (1_000_000.0, 4_000.0)))
    assert curve.keys(rows) <= curve.keys(rows * factor) + 0.01
    assert curve.keys(rows) <= rows + 0.01
    assert KeyCurve().keys(rows) == rows


def test_keys_are_those_that_were_measured_and_between_them_by_logarithms():
    curve = KeyCurve(((100.0, 10.0), (10_000.0, 100.0)))
    assert curve.keys(100) == pytest.approx(10)
    assert curve.keys(1_000) == pytest.approx(31.62, abs=0.01)
    assert curve.keys(40_000) == pytest.approx(200)
    assert curve.keys(10) == pytest.approx(math.sqrt(10))
    assert curve.keys(0.5) == 0.5
    assert KeyCurve(((50.0, 1.0),)).keys(1e6) == 1
    assert KeyCurve(((1.0, 1.0), (50.0, 50.0))).keys(1e6) == 1e6
    assert KeyCurve(((50.0, 50.0),)).keys(1e6) == pytest.approx(1e6)
    assert KeyCurve(((50.0, 1.0), (60.0, 60.0))).keys(1e6) == 1e6
    with pytest.raises(DefinitionError):
        PhaseCost(float("nan"))


def test_keys_of_cuts_that_hardly_differ_are_not_taken_for_a_steep_line():
    """Two bins of cuts lie about a power of two, and one has a tenth more keys, by chance."""
    curve = KeyCurve(((2_047.99, 500.0), (2_048.01, 550.0)))
    assert curve.keys(20_480.1) == pytest.approx(5_500)
    assert curve.keys(1e9) == pytest.approx(550 * 1e9 / 2_048.01)


@pytest.mark.parametrize("values", [{"span": 0.0}, {"span": 10.0, "fanout": 0.0}])
def test_results_of_which_is_not_said_how_they_grow_stay_as_many(values):
    assert stream(rows=100.0, **values).at(5_000.0).results == stream().results
