"""What two sites tell each other of their flows, and how they are told of what differs."""

from __future__ import annotations

import pytest

from transom.widearea.hellos import Hello

PLANS = {"rows": "1a", "plan": "Filter (zone = Bronx)\n" + "Project " * 100}
FARES = {"keys": "zone", "windows": "1 minute", "aggregates": "count, sum(fare)", **PLANS}


def differs(here, there):
    return Hello("north", flows=here).differs(Hello("home", flows=there))


def test_flows_that_are_alike_go() -> None:
    assert differs({"fares": FARES}, {"fares": FARES}) == {}
    other_numbers = {**FARES, "plan": "another text of equal rows"}
    assert differs({"fares": FARES}, {"fares": other_numbers}) == {}


def test_who_knows_less_of_a_flow_passes_it_on() -> None:
    assert differs({"fares": {"keys": "zone"}}, {"fares": FARES}) == {}
    assert differs({}, {"fares": FARES}) == {}
    assert differs({"fares": FARES}, {"all": FARES}).keys() == {"fares", "all"}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"keys": "zone, kind"}, "keys are zone at north, and zone, kind at home."),
        ({"windows": ""}, "windows are 1 minute at north, and none at home."),
        (
            {"keys": "kind", "aggregates": "count"},
            "keys are zone at north, and kind at home; aggregates are count, sum(fare) at north, and count at home.",
        ),
    ],
)
def test_the_difference_is_named(changed, says) -> None:
    found = differs({"fares": FARES, "all": FARES}, {"fares": {**FARES, **changed}, "all": FARES})
    assert found == {"fares": f"The flow 'fares' differs: {says}"}


def test_of_rows_the_plans_are_shown_where_they_differ() -> None:
    plan = FARES["plan"].replace("Bronx", "Queens")
    (said,) = differs({"fares": FARES}, {"fares": {**FARES, "rows": "2b", "plan": plan}}).values()
    assert "Bronx" in said
    assert "Queens" in said
    assert len(said) < 400


def test_it_goes_as_json() -> None:
    hello = Hello("north", flows={"fares": FARES})
    assert Hello.from_json(hello.to_json()) == hello
