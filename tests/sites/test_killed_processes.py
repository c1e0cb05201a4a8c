"""A relay and a coordinator that are killed while rows pass: processes of their own, without Spark."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from processes import Processes
from several import MOST_LOOKS, SECOND, results, windows
from test_by_flight import addresses, define
from test_relaying import ByRelay

from transom.jobs.regionfile import load_region
from transom.sites.coordinating import Asking, read_plan
from transom.sites.status import read_status

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_memory", "compiled_once")]
SITES = ("north", "south", "relay", "home")


class Outside(Processes):
    """The relay of a topology, and its coordinator."""

    def __init__(self, root):
        super().__init__(root)
        self.addresses = addresses([*SITES, "coordinator"])
        lines = ['tick = "100 ms"\nmost_interval = "400 ms"\ndefault = "home"']
        for name in SITES:
            sources = 'sources = ["rows"]\n' if name in ("north", "south") else ""
            lines.append(f'[[site]]\nname = "{name}"\naddress = "{self.addresses[name]}"\n{sources}')
        links = [
            f'[[link]]\nbetween = ["{name}", "relay"]\nbandwidth = "100 Mbit/s"' for name in SITES if name != "relay"
        ]
        (root / "topology.toml").write_text("\n".join([*lines, *links]))
        self.region = load_region(root / "topology.toml")
        secrets = "\n".join(f'{kind} = "{file}"' for kind, file in self.secrets("relay").items())
        (root / "relay.toml").write_text(
            f'name = "relay"\ntopology = "topology.toml"\ncheckpoint = "relay-ckpt"\n'
            f'coordinator = "{self.addresses["coordinator"]}"\n{secrets}\n'
        )
        options = [word for kind, file in self.secrets("coordinator").items() for word in (f"--{kind}", file)]
        self.words = {
            "relay": ["site", "relay.toml"],
            "coordinator": ["coordinate", "topology.toml", "--listen", self.addresses["coordinator"], *options],
        }

    def start(self, name):
        self.begin(name, self.words[name])


class Planned(ByRelay):
    """Sites in this process that reach none but the relay, and ask the coordinator."""

    outside: Outside

    def site(self, name):
        coordinator = self.outside.addresses["coordinator"]
        asking = Asking(name, coordinator, "coordinator", self.identities[name])
        return replace(super().site(name), coordinator=lambda: asking)


class Flow:
    """Rows for the sites, a few at each look."""

    def __init__(self, several, outside):
        self.several, self.outside, self.rows = several, outside, []

    def go_on(self, looks, holds=lambda: False):
        """Add rows until something holds, so many looks long at most; return whether it does."""
        home = self.running["home"]
        for _ in range(looks):
            if holds():
                return True
            self.outside.require_running()
            for place, name in enumerate(("north", "south")):
                number = len(self.rows)
                row = ("abc"[number % 3], "x", (number * 7919 + place) % 40 * SECOND, number)
                self.several.rows[name].add([row])
                self.rows.append(row)
            with pytest.raises(TimeoutError):
                home.wait("20 ms")
        return holds()


def test_a_relay_and_a_coordinator_that_are_killed_cost_nothing_but_time(spark, tmp_path):
    outside = Outside(tmp_path)
    several = Planned(spark, tmp_path, outside.region, define, away=frozenset({"relay"}))
    several.outside, several.addresses = outside, {name: outside.addresses[name] for name in SITES}
    flow, chance = Flow(several, outside), random.Random(18)
    try:
        for name in outside.words:
            outside.start(name)
        flow.running = {name: several.start(name) for name in ("north", "south", "home")}
        plan = tmp_path / "plan.json"
        assert flow.go_on(MOST_LOOKS, plan.exists), read_status(tmp_path / "north")
        versions = [read_plan(plan).version]
        for victim in ("relay", "coordinator", "relay", "relay", "coordinator", "relay"):
            flow.go_on(chance.randrange(1, 200))
            outside.end(victim)
            flow.go_on(chance.randrange(1, 100))
            outside.start(victim)
            versions.append(read_plan(plan).version)
        for each in flow.running.values():
            each.stop()
            each.wait("10 minutes")
        several.run()
        outside.require_running()
    finally:
        outside.end_all()
    assert results(several.sinks["zones"], "zones", ("zone",)) == windows(flow.rows, ("zone",), 4 * SECOND)
    assert versions == sorted(versions)
