"""A site that only passes on what others send: it has no Spark, merges what is alike, and refuses what differs."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import threading
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest
from several import SECOND, results, windows
from test_by_flight import Apart, Told

import transom as tm
from transom.checkpoint.names import FORMAT_FILE
from transom.cli.relaying import run_relay
from transom.engine.partials.contents import Origin, TableNote
from transom.engine.partials.tables import PANE, describe_table
from transom.errors import SiteError, TransomError
from transom.jobs.sitefile import load_site
from transom.model.expression import Expression
from transom.model.time import SystemClock
from transom.sites.agreement import merged_alike
from transom.sites.flight import FlightMail
from transom.sites.planning import Bounds, Planning
from transom.sites.region import Region, SiteEntry
from transom.sites.relaying import Relayed, Relaying, only_relays
from transom.widearea.bodies import from_body, to_body
from transom.widearea.carriers import Carrier
from transom.widearea.hellos import Hello
from transom.widearea.messages import Opened
from transom.widearea.parcels import Parcel, Part, Reason, Refusal
from transom.widearea.plans import Plan, Route
from transom.widearea.routes import Ends, Routes
from transom.widearea.trees import Tree
from transom.windows.aggregates.base import state_key
from transom.windows.aggregates.count import Count
from transom.windows.aggregates.sums import Sum

PARTS = {
    "stream": "rows",
    "destination": "home",
    "limit": "3000000",
    "keys": "zone",
    "windows": "4 seconds",
    "rows": "b",
}


def sites(*more: str) -> Region:
    """Return two sources, a relay and the site where windows are made."""
    entries = [SiteEntry(name, sources=("rows",)) for name in ("north", "south")]
    return Region((*entries, *(SiteEntry(name) for name in ("home", "relay", *more))), "home", tick=20_000)


HOME = Hello("home", zone="UTC", flows={"zones": PARTS})
NORTH = Hello("north", zone="UTC", flows={"zones": PARTS})


class Passing:
    """A relay and its neighbours, without connections: it has one to each site that answered."""

    def __init__(self):
        routes, peers = Routes("relay", 20_000, {}), dict.fromkeys(("home", "north", "south"), 1e6)
        self.carrier = Carrier("relay", "boot", routes, merged_alike, peers, judge=lambda *sent: self.told.judge(*sent))
        self.told = Relayed(sites(), self.carrier)

    def answers(self, hello, boot="1"):
        self.carrier.closed(hello.site)
        self.told.answered(hello)
        self.carrier.opened(hello.site, Opened(boot), 0)

    def sends(self, site="north", body=b"x"):
        """Let a site send a parcel; return why it is refused, and None if it is not."""
        there = Carrier(site, secrets.token_hex(8), Routes(site, 20_000, {}), merged_alike, {"relay": 1e6})
        self.carrier.accept(site, there.opening("relay"))
        there.opened("relay", Opened("boot"), 0)
        there._queue(Parcel("zones", 1, (Part(site, f"ck-{site}", 1, 0, 1, 1),), body), "relay", 0)
        for frame in there.frames("relay", 0):
            self.carrier.came(site, frame, 0)
        (refusal,) = [said for _, said in self.carrier.answers() if isinstance(said, Refusal)] or [None]
        return refusal and (refusal.reason, refusal.detail)

    @property
    def leaves(self):
        """What is under way to the destination."""
        return len(self.carrier.frames("home", 0))


def test_it_hears_of_flows_from_their_destinations_alone():
    relay = Passing()
    assert [name for name in ("home", "north", "relay") if only_relays(sites(), name)] == ["relay"]
    relay.answers(replace(NORTH, flows={"zones": PARTS, "mine": {**PARTS, "destination": "north"}}))
    assert relay.carrier.routes.flows == {}
    relay.answers(HOME)
    assert relay.carrier.routes.flows == {"zones": Ends(("north", "south"), "home", 3_000_000)}


def test_what_comes_before_the_destination_was_heard_comes_again():
    relay = Passing()
    relay.told.called(NORTH)
    assert relay.sends() == (Reason.FULL, "")
    relay.answers(HOME)
    assert relay.sends() is None
    assert relay.leaves == 1


@pytest.mark.parametrize(
    ("theirs", "wrong"),
    [
        (replace(NORTH, flows={"zones": {**PARTS, "keys": "kind"}}), "keys are zone at home, and kind at north"),
        (replace(NORTH, flows={"other": PARTS}), "north does not know the flow 'zones'"),
        (replace(NORTH, flows={}), "north does not know the flow 'zones'"),
        (replace(NORTH, zone="Asia/Tokyo"), "home has zone UTC, north has Asia/Tokyo"),
        (replace(NORTH, spark="4.9"), "north has 4.9"),
    ],
    ids=["keys", "another flow", "no flow", "zone", "spark"],
)
def test_what_its_destination_would_not_understand_is_refused(theirs, wrong):
    relay = Passing()
    relay.answers(HOME)
    relay.told.called(theirs)
    reason, detail = relay.sends()
    assert (reason, relay.leaves) == (Reason.FLOW, 0)
    assert wrong in detail
    relay.carrier.closed("home")
    assert relay.sends()[0] is Reason.FULL  # the next one there may understand it


@pytest.mark.parametrize("changed", [{"windows": "2 seconds"}, {"rows": "c"}, {}], ids=["windows", "rows", "zone"])
@pytest.mark.parametrize("held", ["waits", "is queued", "is on its way"])
def test_what_came_for_another_job_does_not_reach_the_one_that_runs_now(changed, held):
    """Its tables do not say of which windows, or of which zone, their panes are: nobody else would notice."""
    relay = Passing()
    relay.answers(HOME)
    if held == "waits":
        tree = Tree("home", (("north", "relay"), ("south", "relay")))
        relay.carrier.routes.adopt(Plan(1, 0, "latency", 1.0, 1.0, (Route("zones", tree, 5, 0, 0.1),), ()))
    relay.told.called(NORTH)
    assert relay.sends() is None
    relay.carrier.expired(0)
    if held == "is on its way":
        assert relay.leaves == 1
    relay.answers(replace(HOME, zone="UTC" if changed else "Asia/Tokyo", flows={"zones": {**PARTS, **changed}}), "2")
    relay.carrier.expired(10 * SECOND)
    assert (relay.leaves, relay.carrier.relay.nbytes) == (0, 0)
    assert relay.sends()[0] is Reason.FLOW


def test_what_came_for_the_same_job_goes_to_its_next_run():
    relay = Passing()
    relay.answers(HOME)
    relay.told.called(NORTH)
    assert relay.sends() is None
    assert relay.leaves == 1
    relay.answers(replace(HOME, flows={"zones": {**PARTS, "limit": "1"}}), "2")
    assert relay.leaves == 1


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


class Runs:
    """A relay that is run again, with nothing in memory, whenever so many parcels have come.

    Args:
        made: Returns it, for its next run.
        lost: How many parcels have come each time, of all runs together.
    """

    def __init__(self, made, lost):
        self.made, self.lost, self.bodies = made, lost, []
        self.ended, self.stops = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        while True:
            self.stops.clear()
            if self.ended.is_set():
                return
            relay = self.made()
            received = relay.carrier.relay.received

            def taken(parcel, *args, received=received):
                self.bodies.append(parcel.body)
                if len(self.bodies) in self.lost:
                    self.stops.set()
                return received(parcel, *args)

            relay.carrier.relay.received = taken
            relay.begin()
            relay.run(self.stops)
            relay.end()

    def end(self):
        self.ended.set()
        self.stops.set()
        self.thread.join()


@pytest.mark.usefixtures("in_memory", "compiled_once")
@pytest.mark.parametrize("lost", [(), pytest.param((2, 5), marks=pytest.mark.slow)], ids=["", "lost"])
def test_what_goes_by_it_is_exact(spark, tmp_path, monkeypatch, lost):
    site = Apart.site
    several = ByRelay(spark, tmp_path, sites(), define, away=frozenset({"relay"}))
    tree = Tree("home", (("north", "relay"), ("south", "relay")))
    plan = Plan(1, 0, "latency", 1.0, 1.0, (Route("zones", tree, 5, 0, 0.1),), ())
    monkeypatch.setattr(Apart, "site", lambda self, name: replace(site(self, name), coordinator=lambda: Told(plan)))
    others = {name: address for name, address in several.addresses.items() if name != "relay"}

    def mail(listener):
        hello, address = Hello("relay", relays=True), several.addresses["relay"]
        return FlightMail(hello, address, others, several.identities["relay"], listener)

    def planning(carrier):
        return Planning(carrier, Told(plan), Bounds(), SystemClock().now)

    runs = Runs(lambda: Relaying("relay", several.region, mail, SystemClock(), tmp_path, planning), lost)
    runs.thread.start()
    try:
        rows = []
        for place, name in enumerate(("north", "south")):
            mine = [("abc"[n % 3], "xyz"[n % 3], (n * 7919 + place) % 40 * SECOND, n) for n in range(60)]
            several.rows[name].add(mine)
            rows += mine
        several.run()
    finally:
        runs.end()
    assert results(several.sinks["zones"], "zones", ("zone",)) == windows(rows, ("zone",), 4 * SECOND)
    assert len(runs.bodies) > max(lost, default=0)
    counted = from_body(merged_alike("zones", runs.bodies)).column("_s0_count").to_pylist()
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


@pytest.mark.parametrize(
    ("checkpoint", "wrong"),
    [("s3://bucket/relay", "a store of objects"), ("used", "the checkpoint of an application"), ("file", "create")],
)
def test_a_directory_that_a_relay_cannot_have_is_refused(tmp_path, checkpoint, wrong):
    """A site whose sources are left out of the topology by mistake has rows in its checkpoint that have not left."""
    (tmp_path / "topology.toml").write_text(
        'default = "home"\n[[site]]\nname = "home"\naddress = "127.0.0.1:1"\n'
        '[[site]]\nname = "relay"\naddress = "127.0.0.1:2"\n'
    )
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / FORMAT_FILE).write_text('{"format": 1}')
    (tmp_path / "file").touch()
    checkpoint = checkpoint if "://" in checkpoint else tmp_path / checkpoint
    (tmp_path / "relay.toml").write_text(
        f'name = "relay"\ntopology = "{tmp_path}/topology.toml"\ncheckpoint = "{checkpoint}"\ninsecure = true\n'
    )
    site = load_site(tmp_path / "relay.toml")
    with pytest.raises(TransomError, match=wrong):
        run_relay(site, [site], once=False, as_json=False)
