"""How soon everything has come after a relay was lost again and again, in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.widearea.network import World
from tests.widearea.simulated_site import FLOWS, MS, SITES

from transom.widearea.parcels import Reason
from transom.widearea.plans import Plan, Route
from transom.widearea.trees import Tree

RELAY = "c"
PLAN = Plan(
    100,
    0,
    "latency",
    1.0,
    1.0,
    (
        Route("f", Tree("d", (("a", RELAY), ("b", RELAY), (RELAY, "d"))), 2, 0, 1.3),
        Route("g", Tree(RELAY, (("a", RELAY), ("b", RELAY))), 2, 0, 1.3),
    ),
    (),
)


class ByRelay(World):
    """Good links and a plan by way of a relay, and nothing goes wrong but that it is lost.

    Args:
        seed: Of what happens when.
        alone: Whether sites reach none but the relay.
    """

    def __init__(self, seed: int, alone: bool) -> None:
        super().__init__(seed)
        self.alone = alone
        self.crash_between, self.padding, self.memory, self.held_bytes = 0.0, 0, 1 << 20, 1 << 20
        self.skew = dict.fromkeys(SITES, 0)
        self.rate = dict.fromkeys(self.rate, 50_000)
        for node in self.nodes.values():
            assert node is not None
            node.carrier.routes.adopt(PLAN)

    def connect(self, source: str, target: str) -> None:
        if not self.alone or RELAY in (source, target):
            super().connect(source, target)

    def start(self, site: str) -> None:
        """A relay takes nothing of a flow before it has heard its destination."""
        super().start(site)
        node = self.nodes[site]
        assert node is not None
        carrier = node.carrier
        carrier.routes.adopt(replace(PLAN, version=101))
        carrier._judge = lambda peer, flow: None if FLOWS[flow].destination in (site, *carrier.open) else FULL

    def lose(self, times: int, up: int, away: int) -> int:
        """Lose the relay some times; return how long it takes from its return until all is there."""
        for place, site in enumerate(SITES):
            self.at(self.now + place * 10 * MS, lambda site=site: self.turn(site))  # type: ignore[misc]
        for _ in range(times):
            self.run(self.now + self.random.randrange(200, up) * MS)
            if self.nodes[RELAY] is not None:
                self.crash(RELAY, (100, away))
        while self.nodes[RELAY] is None:
            self.run(self.now + 100 * MS)
        self.calm, back = True, self.now
        while not self.everything_is_there() and self.now < back + 300_000 * MS:
            self.run(self.now + 100 * MS)
        return self.now - back


FULL = Reason.FULL, ""


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(("times", "up", "away"), [(6, 4_000, 3_000), (12, 1_500, 1_000), (3, 20_000, 20_000)])
def test_all_is_there_soon_after_the_last_return(alone: bool, times: int, up: int, away: int) -> None:
    """However often it was lost: most of it is the time in which sites find each other again."""
    for seed in range(8):
        world = ByRelay(seed, alone)
        assert world.lose(times, up, away) < 10_000 * MS, seed
        world.check()
