"""Applications of several sites that talk over loopback with TLS, and what comes of their rows."""

from __future__ import annotations

import socket
from dataclasses import replace

import pyarrow as pa
import pytest
from benchmarks.certificates import identity
from datasketches import compact_theta_sketch
from several import MOST_LOOKS, SECOND, Killed, Several, at_step, region, results, windows

import transom as tm
from transom.sites import shipping
from transom.sites.flight import FlightMail
from transom.sites.here import LocalSite
from transom.sites.measuring import FlowSizes
from transom.widearea.hellos import Hello
from transom.widearea.plans import Plan, Route
from transom.widearea.trees import Tree

pytestmark = pytest.mark.usefixtures("in_memory", "compiled_once")


def addresses(names):
    """Return a free port for each site."""
    held = {name: socket.create_server(("127.0.0.1", 0)) for name in names}
    found = {name: f"127.0.0.1:{each.getsockname()[1]}" for name, each in held.items()}
    for each in held.values():
        each.close()
    return found


class Apart(Several):
    """Sites as they are in processes of their own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.addresses = addresses([entry.name for entry in self.region.sites])
        self.mails = {}
        self.identities = {name: identity(name) for name in self.addresses}

    def way(self, name):
        others = {site: address for site, address in self.addresses.items() if site != name}
        if name in self.mails:  # what was killed in this process goes on to listen
            self.mails[name].end()
        self.mails[name] = FlightMail(Hello(name), self.addresses[name], others, self.identities[name])
        return self.mails[name]

    def site(self, name):
        return LocalSite(name, self.region, lambda: self.way(name))


def define(stream, sink):
    stream.group_by("zone").window("4 seconds").agg(n=tm.count(), size=tm.sum("size")).to(sink("zones"), "zones")


@pytest.mark.parametrize("kills", [{}, {"home": "stored"}])
def test_what_comes_over_connections_is_exact(spark, tmp_path, kills):
    """Where one is killed, the others are stopped, and all are run again."""
    several = Apart(spark, tmp_path, region(["north", "south"], "home"), define)
    rows = []
    for place, name in enumerate(("north", "south")):
        mine = [("abc"[n % 3], "x", (n * 7919 + place) % 40 * SECOND, n) for n in range(30)]
        several.rows[name].add(mine)
        rows += mine
    for name, step in kills.items():
        apps = {each: several.app(each) for each in several.addresses}
        apps[name]._on_step = at_step(step, 1)
        running = {each: app.start(once=True, close_all=True) for each, app in apps.items()}
        with pytest.raises(Killed):
            running.pop(name).wait()
        for each in running.values():
            each.stop()
            each.wait()
    several.run()
    assert results(several.sinks["zones"], "zones", ("zone",)) == windows(rows, ("zone",), 4 * SECOND)


class Told:
    """A coordinator that has made its plan (`transom.sites.coordinating.Asking`)."""

    refused = ""

    def __init__(self, plan):
        self.plan, self.reports = [plan], []

    def begin(self, wake):
        pass

    def end(self):
        pass

    def tell(self, report):
        self.reports.append(report)

    def plans(self):
        plans, self.plan = self.plan, []
        return plans


class Planned(Several):
    """Sites of one process that follow a plan."""

    tree = Tree("home", (("north", "south"), ("south", "home")))

    def site(self, name):
        plan = Plan(1, 0, "latency", 1.0, 1.0, (Route("zones", self.tree, 20, 0, 0.1),), ())
        self.told = getattr(self, "told", {})
        self.told[name] = Told(plan)
        return replace(super().site(name), coordinator=lambda: self.told[name])


def test_a_relay_merges_and_results_do_not_depend_on_the_plan(spark, tmp_path, monkeypatch):
    merged = []
    one = shipping.merged
    monkeypatch.setattr(shipping, "merged", lambda flow, bodies: merged.append(len(bodies)) or one(flow, bodies))
    several = Planned(spark, tmp_path, region(["north", "south"], "home"), define)
    running = [several.start(name) for name in several.rows]
    rows = []
    for n in range(MOST_LOOKS):  # both leave on the same tick now and then, however busy the machine is
        if merged:
            break
        for place, name in enumerate(("north", "south")):
            mine = [("abc"[n % 3], "x", (n * 7919 + place) % 40 * SECOND, n)]
            several.rows[name].add(mine)
            rows += mine
        with pytest.raises(TimeoutError):
            running[-1].wait("10 ms")
    for each in running:
        each.stop()
        each.wait()
    several.run()
    assert results(several.sinks["zones"], "zones", ("zone",)) == windows(rows, ("zone",), 4 * SECOND)
    assert {report.version for report in several.told["north"].reports} == {1}
    assert merged
    assert set(merged) == {2}


def test_what_is_told_of_sizes():
    table = pa.table({"_pane": [0] * 50 + [1] * 50, "zone": [f"z{n % 50}" for n in range(100)], "_s0_count": [1] * 100})
    sizes = FlowSizes()
    for tick in (10, 12, 14, 16, 18, 100, 200):
        sizes.fixed(tick, table)
        sizes.sent_as(tick, 1_000 + tick)
    assert set(sizes.sent) == {2}  # a link was down before the others
    assert 1_012 <= sizes.sent[2] <= 1_018
    sketches = sizes.sketches()
    assert set(sketches) == {2, 6}
    assert all(compact_theta_sketch.deserialize(each).get_estimate() == 100 for each in sketches.values())
