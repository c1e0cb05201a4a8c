"""What plans say at one site."""

from __future__ import annotations

from dataclasses import replace

from tests.widearea.made import S

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
    assert routes.adopt(Plan(4, 200, "latency", 1.0, 1.0, (), (), (LeftOut("f", ("c", "d"), 1.0),)))
    assert routes.parent("f", 240) == "d"
    assert [tick for tick in range(240, 301) if routes.departs("f", tick)] == [240, 300]
    assert routes.adopt(Plan(5, 300, "latency", 1.0, 1.0, (), ()))  # which does not know it
    assert routes.parent("f", 340) == "d"
    assert all(routes.departs("f", tick) for tick in range(340, 350))
    assert routes.expected("f", 150) is not None
