"""What plans say at one site."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest
from tests.widearea.made import S

from transom.errors import DefinitionError
from transom.widearea.plans import LeftOut, Plan, Route
from transom.widearea.relays import Expected
from transom.widearea.routes import Ends, Routes
from transom.widearea.trees import Tree


def test_a_site_follows_the_newest_plan_that_holds() -> None:
    routes = Routes("c", S, {"f": Ends(("a", "b", "c"), "d")})
    assert (routes.parent("f", 5), routes.departs("f", 5), routes.expected("f", 5)) == ("d", True, None)
    tree = Tree("d", (("a", "c"), ("b", "c"), ("c", "d")))
    plan = Plan(3, 100, "latency", 1.0, 1.0, (Route("f", tree, 4, 1, 2.5),), ())
    assert routes.adopt(plan)
    assert not routes.adopt(replace(plan, version=2))
    assert routes.expected("f", 99) is None
    assert routes.expected("f", 101) == Expected(frozenset("abc"), 4 * S, 4 * S)
    assert [tick for tick in range(100, 110) if routes.departs("f", tick)] == [101, 105, 109]
    assert Routes("d", S, routes.flows).parent("f", 3) == "d"
    longer = Routes("c", S, {"f": replace(routes.flows["f"], limit=3 * S)})
    assert longer.adopt(replace(plan, routes=(replace(plan.routes[0], latency=3.0, gather=1.5),)))
    assert longer.expected("f", 101) == Expected(frozenset("abc"), 4 * S, S // 2, 3 * S // 2)
    assert routes.adopt(Plan(4, 200, "latency", 1.0, 1.0, (), (), (LeftOut("f", ("c", "d"), 1.0),)))
    assert routes.parent("f", 240) == "d"
    assert [tick for tick in range(240, 301) if routes.departs("f", tick)] == [240, 300]
    assert routes.adopt(Plan(5, 300, "latency", 1.0, 1.0, (), ()))  # which does not know it
    assert routes.parent("f", 340) == "d"
    assert all(routes.departs("f", tick) for tick in range(340, 350))
    assert routes.expected("f", 150) is not None


def test_a_flow_leaves_at_least_as_often_as_the_topology_says() -> None:
    """Who waits for a site that is silent counts with that (`absent_after`), whatever a coordinator plans."""
    routes = Routes("c", S, {"f": Ends(("c",), "d")}, most=4)
    tree = Tree("d", (("c", "d"),))
    assert routes.adopt(Plan(1, 0, "latency", 1.0, 1.0, (Route("f", tree, 60, 59, 2.5),), ()))
    assert [tick for tick in range(20) if routes.departs("f", tick)] == [3, 7, 11, 15, 19]


@pytest.mark.parametrize(
    "change",
    [
        *({"interval": value} for value in (0, -1, 7, 120, 1.5, inf, "2")),
        *({"phase": value} for value in (4, -1, 0.5, inf)),
        *({name: value} for name in ("latency", "gather") for value in (-1, nan, inf, 1e12)),
        {"flow": 5},
        {"parents": [["a", 7]]},
        {"parents": [["a", "a"]]},
        {"destination": None},
    ],
)
def test_a_plan_that_cannot_be_followed_is_none(change) -> None:
    good = Plan(3, 100, "latency", 1.0, 1.0, (Route("f", Tree("d", (("a", "d"),)), 4, 3, 2.5),), ())
    assert Plan.from_json(good.to_json()) == good
    (route,) = good.to_json()["routes"]
    before = {name: value for name, value in route.items() if name != "gather"}
    assert Plan.from_json({**good.to_json(), "routes": [before]}) == good
    with pytest.raises(DefinitionError):
        Plan.from_json({**good.to_json(), "routes": [{**route, **change}]})
    for name, value in (("version", inf), ("version", -1), ("first_tick", 1 << 60), ("routes", 5)):
        with pytest.raises(DefinitionError):
            Plan.from_json({**good.to_json(), name: value})
