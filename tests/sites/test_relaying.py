"""A site that only passes on what others send: it has no Spark, merges what is alike, and refuses what differs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest
from several import SECOND, results, windows
from test_by_flight import Apart, Told

import transom as tm
from transom.engine.partials.contents import Origin, TableNote
from transom.engine.partials.tables import PANE, describe_table
from transom.errors import SiteError
from transom.model.expression import Expression
from transom.model.time import SystemClock
from transom.sites.agreement import merged_alike
from transom.sites.flight import FlightMail
from transom.sites.planning import Bounds, Planning
from transom.sites.region import Region, SiteEntry
from transom.sites.relaying import Relayed, Relaying, only_relays
from transom.widearea.bodies import from_body, to_body
from transom.widearea.hellos import Hello
from transom.widearea.plans import Plan, Route
from transom.widearea.routes import Ends, Routes
from transom.widearea.trees import Tree
from transom.windows.aggregates.base import state_key
from transom.windows.aggregates.count import Count
from transom.windows.aggregates.sums import Sum

PARTS = {"stream": "rows", "destination": "home", "keys": "zone", "rows": "b", "limit": "3000000"}


def sites(*more: str) -> Region:
    """Return two sources, a relay and the site where windows are made."""
    entries = [SiteEntry(name, sources=("rows",)) for name in ("north", "south")]
    return Region((*entries, *(SiteEntry(name) for name in ("home", "relay", *more))), "home", tick=20_000)


def test_it_hears_of_flows_from_their_destinations_alone():
    routes = Routes("relay", 20_000, {})
    relayed = Relayed(sites(), routes)
    assert [name for name in ("home", "north", "relay") if only_relays(sites(), name)] == ["relay"]
    assert relayed.heard(Hello("north", flows={"zones": PARTS, "mine": {**PARTS, "destination": "north"}})) == {}
    assert routes.flows == {}
    assert relayed.heard(Hello("home", flows={"zones": PARTS})) == {}
    assert routes.flows["zones"] == Ends(("north", "south"), "home", 3_000_000)


@pytest.mark.parametrize(
    "theirs",
    [
        Hello("north", zone="UTC", flows={"zones": {**PARTS, "keys": "kind"}}),
        Hello("north", zone="Asia/Tokyo", flows={"zones": PARTS}),
        Hello("north", zone="UTC", spark="4.9", flows={"zones": PARTS}),
    ],
)
@pytest.mark.parametrize("first", ["home", "north"])
def test_what_its_destination_would_not_understand_is_refused(theirs, first):
    home = Hello("home", zone="UTC", flows={"zones": PARTS})
    relayed = Relayed(sites(), Routes("relay", 20_000, {}))
    for hello in sorted((home, theirs), key=lambda each: each.site != first):
        relayed.heard(hello)
    assert list(relayed.refused("north")) == ["zones"]
    assert relayed.refused("home") == {}
    relayed.heard(Hello("north", zone="UTC", flows={"zones": {**PARTS, "limit": "5"}}))
    assert relayed.refused("north") == {}


def test_a_relay_agrees_with_everybody_but_on_the_protocol():
    relay = Hello("relay", relays=True)
    relay.check(Hello("home", zone="UTC", spark="4.3"))
    Hello("home", zone="UTC", spark="4.3").check(Hello.from_json(relay.to_json()))
    with pytest.raises(SiteError, match="protocol"):
        relay.check(Hello("home", protocol=9))


def define(stream, sink):
    stream.group_by("zone").window("4 seconds").agg(n=tm.count(), size=tm.sum("size")).to(sink("zones"), "zones")


class ByRelay(Apart):
    """Sites that reach none but the relay."""

    def way(self, name):
        mail = super().way(name)
        mail.addresses = {"relay": self.addresses["relay"]}
        return mail


@pytest.mark.usefixtures("in_memory", "compiled_once")
def test_what_goes_by_it_is_exact(spark, tmp_path, monkeypatch):
    site = Apart.site
    several = ByRelay(spark, tmp_path, sites(), define, away=frozenset({"relay"}))
    tree = Tree("home", (("north", "relay"), ("south", "relay")))
    plan = Plan(1, 0, "latency", 1.0, 1.0, (Route("zones", tree, 5, 0, 0.1),), ())
    monkeypatch.setattr(Apart, "site", lambda self, name: replace(site(self, name), coordinator=lambda: Told(plan)))
    others = {name: address for name, address in several.addresses.items() if name != "relay"}
    bodies = []

    def mail(judge):
        hello, address = Hello("relay", relays=True), several.addresses["relay"]
        return FlightMail(hello, address, others, several.identities["relay"], judge)

    def planning(carrier):
        return Planning(carrier, Told(plan), Bounds(), SystemClock().now)

    relay = Relaying("relay", several.region, mail, SystemClock(), tmp_path, planning)
    received = relay.carrier.relay.received
    relay.carrier.relay.received = lambda parcel, *args: (bodies.append(parcel.body), received(parcel, *args))[1]
    relay.begin()
    stopped = threading.Event()
    thread = threading.Thread(target=relay.run, args=(stopped,))
    thread.start()
    try:
        rows = []
        for place, name in enumerate(("north", "south")):
            mine = [("abc"[n % 3], "xyz"[n % 3], (n * 7919 + place) % 40 * SECOND, n) for n in range(60)]
            several.rows[name].add(mine)
            rows += mine
        several.run()
    finally:
        stopped.set()
        thread.join()
        relay.end()
    assert results(several.sinks["zones"], "zones", ("zone",)) == windows(rows, ("zone",), 4 * SECOND)
    counted = from_body(merged_alike("zones", bodies)).column("_s0_count").to_pylist()
    assert sum(counted) >= len(rows)  # some may come twice
    status = read_status_of(tmp_path)
    assert (status["plan"], status["arriving"]) == (1, [])


def read_status_of(directory):
    """Return what a relay wrote."""
    return json.loads((directory / "status.json").read_text())


def body(primitives, columns, rows=2):
    """Return a body of partials whose states have some columns."""
    origin = Origin("b", ("zone",))
    given = {PANE: pa.array([0] * rows, pa.int64()), "zone": pa.array(["a"] * rows), **columns}
    return to_body(describe_table(pa.table(given), TableNote(origin, primitives, ("",), (origin,))))


COUNTED = body((Count(),), {"_s0_count": pa.array([1, 2], pa.int64())})


def test_partials_are_merged_by_what_they_say_they_are():
    (row,) = from_body(merged_alike("zones", [COUNTED, COUNTED])).to_pylist()
    assert row == {PANE: 0, "zone": "a", "_s0_count": 6}


@pytest.mark.parametrize(
    "other",
    [
        body((Sum(Expression("size")),), {"_s0_sum": pa.array([1, 2], pa.int64())}),
        body((Count(),), {"_s0_count": pa.array([1, 2], pa.int32())}),
        to_body(pa.table({"zone": ["a"]})),
        to_body(pa.table({PANE: ["a"]}).replace_schema_metadata({b"transom": b"{"})),
    ],
)
def test_what_is_not_alike_is_not_merged(other):
    with pytest.raises(SiteError):
        merged_alike("zones", [COUNTED, other])


def test_states_of_a_users_own_are_not_merged_without_the_job():
    with pytest.raises(SiteError, match="without the job"):
        merged_alike("zones", [mine(), mine()])


def mine():
    """Return a body of states whose functions are a user's."""

    @dataclass(frozen=True)
    class Own(Count):
        @property
        def key(self):
            return state_key("user.1", "mine", "a long")

    return body((Own(),), {"_s0_a": pa.array([1, 2], pa.int64())})


def test_it_imports_no_spark():
    code = "import sys, transom.cli.relaying; print([name for name in sys.modules if name.split('.')[0] == 'pyspark'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
