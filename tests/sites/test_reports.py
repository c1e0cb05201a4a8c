"""What a site tells the coordinator of what leaves it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from transom.engine.partials.tables import PANE, state_name
from transom.sites.planning import TELL, Bounds, Planning
from transom.widearea.carriers import Carrier
from transom.widearea.routes import Ends, Routes

SECOND = 1_000_000


class Heard:
    """Takes reports, and has no plan (`transom.sites.coordinating.Asking`)."""

    refused = ""

    def __init__(self) -> None:
        self.reports = []

    def plans(self):
        return ()

    def tell(self, report) -> None:
        self.reports.append(report)


def test_a_site_tells_how_long_after_a_tick_its_parcels_can_leave() -> None:
    """With the site's offset: who merges parcels of several sites waits for the one that begins last."""
    wall, asking = [0], Heard()
    routes = Routes("a", 2 * SECOND, {"f": Ends(("a", "b"), "c", 10 * SECOND)})
    carrier = Carrier("a", "boot", routes, lambda flow, bodies: b"", {"c": 1e6})
    planning = Planning(carrier, asking, Bounds(), lambda: wall[0])
    table = pa.table({PANE: [0, 0], "key": ["x", "y"], state_name(0, "count"): [1, 2]})
    for tick in range(5, 45):
        wall[0] = tick * 2 * SECOND + SECOND // 2 + (SECOND // 4 if tick > 5 else 0)
        planning.departs("f", tick)
        planning.fixed("f", tick, table)
        carrier.sizes.append(("f", tick, 1_000))
        planning.look(tick * TELL, ["f"])
    first, last = asking.reports[1].flows["f"], asking.reports[-1].flows["f"]
    assert first.job == pytest.approx(0.55)
    assert last.job == pytest.approx(0.75, abs=0.001)
    assert last.sent == {1: 1_000.0}
