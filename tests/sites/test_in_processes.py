"""Processes of sites that talk with TLS."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter

import pytest
from processes import MOST_LINES, Processes
from test_by_flight import addresses

pytestmark = pytest.mark.slow

JOB = """
[source]
name = "trips"
files = "none/*.json"
schema = "zone string, fare bigint, at timestamp"
event_time = "at"
watermark = "0 seconds"

[[query]]
name = "fares"
group_by = ["zone"]
windows = ["1 minute"]
aggregates = ["count(*) as n", "sum(fare) as fare"]
sink = {json = "out/fares"}
"""


class Sites(Processes):
    """Processes of sites in a directory, and what they say."""

    def __init__(self, root, names, destination):
        super().__init__(root)
        found = addresses(names)
        topology = [f'tick = "200 ms"\ndefault = "{destination}"']
        for name in names:
            sources = "" if name == destination else 'sources = ["trips"]\n'
            topology.append(f'[[site]]\nname = "{name}"\naddress = "{found[name]}"\n{sources}')
            lines = [
                f'name = "{name}"',
                'job = "job.toml"',
                'topology = "topology.toml"',
                f'checkpoint = "{name}-ckpt"',
                *(f'{kind} = "{file}"' for kind, file in self.secrets(name).items()),
            ]
            if sources:
                lines.append(f'[sources.trips]\nfiles = "{name}/*.json"')
            (root / f"{name}.toml").write_text("\n".join(lines))
            (root / name).mkdir()
        (root / "topology.toml").write_text("\n".join(topology))
        (root / "job.toml").write_text(JOB)

    def start(self, name, *options):
        self.begin(name, ["site", f"{name}.toml", "--master", "local[1]", *options])

    def results(self):
        """Return what is given of each window and zone."""
        files = [path for path in (self.root / "out/fares").glob("*.json") if not path.name.startswith((".", "_"))]
        rows = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        return [((row["window_start"][14:16], row["zone"]), (row["n"], row["fare"])) for row in rows]


def add(root, site, minutes):
    """Give a site three rows in each minute; return their counts and sums by minute and zone."""
    found: Counter = Counter()
    for minute in minutes:
        fares = [(zone, 10 * minute + place) for place, zone in enumerate("aab")]
        rows = [{"zone": zone, "fare": fare, "at": f"2026-03-01T12:{minute:02}:10Z"} for zone, fare in fares]
        draft = root / f"{site}-{minute}"
        draft.write_text("\n".join(map(json.dumps, rows)) + "\n")
        draft.rename(root / site / f"{minute:03}.json")
        for zone, fare in fares:
            found[f"{minute:02}", zone, "n"] += 1
            found[f"{minute:02}", zone, "fare"] += fare
    return found


def test_a_lost_checkpoint_is_refused_and_accepted_with_whole_windows_alone(tmp_path):
    sites = Sites(tmp_path, ["north", "south", "home"], "home")
    try:
        for name in ("north", "south", "home"):
            sites.start(name)
        rows = add(tmp_path, "north", range(4)) + add(tmp_path, "south", range(4))
        sites.until(lambda: {minute for (minute, _), _ in sites.results()} >= {"00", "01", "02"})
        sites.end("north")
        shutil.rmtree(tmp_path / "north-ckpt")
        rows += add(tmp_path, "north", range(4, 7)) + add(tmp_path, "south", range(4, 7))
        sites.start("north")
        sites.until(lambda: "north has another checkpoint than before" in sites.log("north"))
        assert "--accept-loss" in sites.log("north")
        assert all(minute < "04" for (minute, _), _ in sites.results())
        sites.end("home", signal.SIGTERM)
        sites.start("home", "--accept-loss")
        sites.until(lambda: "begins anew" in sites.log("home"))
        sites.until(lambda: "watermark 2026-03-01 12:06:10" in sites.log("home"))  # whole windows are those behind this
        rows += add(tmp_path, "north", range(7, 12)) + add(tmp_path, "south", range(7, 12))
        sites.until(lambda: any(minute == "10" for (minute, _), _ in sites.results()))
    finally:
        sites.end_all()
    found = sites.results()
    assert len(found) == len(dict(found))
    for (minute, zone), values in found:
        assert values == (rows[minute, zone, "n"], rows[minute, zone, "fare"])


def test_what_never_comes_is_a_failure_though_sites_go_on_to_talk(tmp_path):
    sites = Processes(tmp_path)
    for _ in range(MOST_LINES + 1):
        sites.said.put("north")
    with pytest.raises(AssertionError):
        sites.until(lambda: False)
    assert not sites.said.empty()
