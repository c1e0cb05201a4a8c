"""All rows as they are, packed, over the links of a testbed, straight to where they are counted: what partials replace.

The rows of one tick go in parcels over the same links, frames and TLS as partials do, between processes without Spark
that take the places of the sites. The bytes over the links for each byte of packed rows hold for all ticks.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.testbed import Testbed
from transom.model.time import MICROS_PER_SECOND, SystemClock
from transom.sites.flight import FlightMail
from transom.sites.secured import Identity
from transom.widearea.carriers import Carrier
from transom.widearea.hellos import Hello
from transom.widearea.parcels import Parcel, Part
from transom.widearea.routes import Ends, Routes

RAW_PORT = 7402
PATIENCE = 300.0
"""Seconds for all rows to come."""


def send_raw(bed: Testbed, rows: Mapping[tuple[str, str, str], bytes]) -> float:
    """Send packed rows; return the bytes over all links for each of theirs.

    Args:
        bed: Its sites do not run any more.
        rows: By flow, site and destination.

    Raises:
        TimeoutError: They do not come.
    """
    work = bed.work / "raw"
    work.mkdir()
    for (flow, site, destination), data in rows.items():
        (work / f"{flow}.{site}.{destination}").write_bytes(data)
    addresses = {site: f"{bed.spaces[site].address}:{RAW_PORT}" for site in bed.sites}
    links = [[source, target, rate] for (source, target), rate in bed.links.items()]
    (work / "links.json").write_text(json.dumps([addresses, links]))
    path = os.pathsep.join(str(Path(each).absolute()) for each in ["", *sys.path])
    for site in bed.sites:
        words = [sys.executable, "-m", "benchmarks.wide_raw", str(bed.work), site]
        bed.running[f"{site}-raw"] = bed.net.start(
            words, bed.work / f"{site}-raw.log", {"PYTHONPATH": path}, bed.spaces[site]
        )
    _until(bed, lambda: all((work / f"{site}-open").exists() for site in bed.sites), "do not connect")
    before = sum(bed.sent().values())
    (work / "go").touch()
    _until(bed, lambda: all((work / f"{site}-done").exists() for site in bed.sites), "do not have all rows")
    sent = sum(bed.sent().values()) - before
    (work / "end").touch()
    return sent / sum(map(len, rows.values()))


def _until(bed: Testbed, holds: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        bed.check()
        if time.monotonic() > end:
            raise TimeoutError(f"Sites {otherwise}.")
        time.sleep(0.1)


def run_end(beside: Path, here: str) -> None:
    """Run one end until all have all rows."""
    work, clock = beside / "raw", SystemClock()
    addresses, links = json.loads((work / "links.json").read_text())
    there = [path.name.split(".") for path in work.glob("*.*.*")]
    sources: dict[str, tuple[str, ...]] = {}
    for flow, site, _ in there:
        sources[flow] = tuple(sorted({*sources.get(flow, ()), site}))
    flows = {flow: Ends(sources[flow], destination) for flow, _, destination in there}
    rates = {target: rate * 125_000 for source, target, rate in links if source == here}
    files = [beside / f"{here}.{kind}" for kind in ("pem", "key", "authority")]
    others = {site: address for site, address in addresses.items() if site != here}
    mail = FlightMail(Hello(here, relays=True), addresses[here], others, Identity.read(*files))
    carrier = Carrier(here, here, Routes(here, MICROS_PER_SECOND, flows), lambda flow, bodies: b"".join(bodies), rates)
    mail.begin(carrier, lambda: (), lambda: None, {})
    given, left = False, {(flow, site) for flow, site, destination in there if destination == here}
    while not (work / "end").exists():
        mail.look(clock.monotonic())
        if set(carrier.open) == set(others):
            (work / f"{here}-open").touch()
        if not given and (work / "go").exists():
            given = True
            for flow, site, destination in there:
                if site == here:
                    body = (work / f"{flow}.{site}.{destination}").read_bytes()
                    carrier._queue(Parcel(flow, 1, (Part(site, "0" * 16, 1, 0, 1, 1),), body), destination, 0)
        for parcel, _ in carrier.arrivals:
            expected = (work / f"{parcel.flow}.{parcel.part.site}.{here}").read_bytes()
            if parcel.body == expected:
                left.discard((parcel.flow, parcel.part.site))
        carrier.arrivals.clear()
        if given and not left:
            (work / f"{here}-done").touch()
        time.sleep(0.01)
    mail.end()


if __name__ == "__main__":
    run_end(Path(sys.argv[1]), sys.argv[2])
