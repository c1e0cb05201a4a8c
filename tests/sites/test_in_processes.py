"""Sites as processes of the command line that talk with TLS."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter

import pytest
from benchmarks.certificates import identity
from test_by_flight import addresses

pytestmark = pytest.mark.slow

PATIENCE = 600
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


class Sites:
    """Processes of sites in a directory, and what they say."""

    def __init__(self, root, names, destination):
        self.root, self.running, self.said = root, {}, queue.SimpleQueue()
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
            ]
            mine = identity(name)
            for kind, data in (("certificate", mine.chain), ("key", mine.key), ("authority", mine.authority)):
                (root / f"{name}.{kind}").write_bytes(data)
                lines.append(f'{kind} = "{name}.{kind}"')
            if sources:
                lines.append(f'[sources.trips]\nfiles = "{name}/*.json"')
            (root / f"{name}.toml").write_text("\n".join(lines))
            (root / name).mkdir()
        (root / "topology.toml").write_text("\n".join(topology))
        (root / "job.toml").write_text(JOB)

    def start(self, name, *options):
        words = [sys.executable, "-m", "transom_command", "site", f"{name}.toml", "--master", "local[1]", *options]
        process = subprocess.Popen(
            words,
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
            start_new_session=True,
            text=True,
        )
        listening = threading.Thread(target=self._listen, args=[name, process], daemon=True)
        listening.start()
        self.running[name] = process, listening

    def _listen(self, name, process):
        """Keep what a site says, and wake who waits at each line, and at its end."""
        with process.stdout as lines, (self.root / f"{name}.log").open("a") as log:
            for line in lines:
                log.write(line)
                log.flush()
                self.said.put(name)
        self.said.put(name)

    def end(self, name, number=signal.SIGKILL):
        process, listening = self.running.pop(name)
        if process.poll() is None:
            os.killpg(process.pid, number)
        process.wait(PATIENCE)
        listening.join(PATIENCE)

    def log(self, name):
        return (self.root / f"{name}.log").read_text()

    def results(self):
        """Return what is given of each window and zone."""
        files = [path for path in (self.root / "out/fares").glob("*.json") if not path.name.startswith((".", "_"))]
        rows = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        return [((row["window_start"][14:16], row["zone"]), (row["n"], row["fare"])) for row in rows]

    def until(self, holds):
        """Look whenever a site has said something: each says what has become of its rows."""
        while not holds():
            for name, (process, _) in self.running.items():
                assert process.poll() is None, self.log(name)
            try:
                self.said.get(timeout=PATIENCE)
            except queue.Empty:
                raise AssertionError([self.log(name)[-2_000:] for name in self.running]) from None


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
        for name in list(sites.running):
            sites.end(name)
    found = sites.results()
    assert len(found) == len(dict(found))
    for (minute, zone), values in found:
        assert values == (rows[minute, zone, "n"], rows[minute, zone, "fare"])
