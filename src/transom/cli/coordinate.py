"""`transom coordinate`: planning for sites, as a process."""

from __future__ import annotations

import threading
from pathlib import Path

from transom.engine.loop.interrupts import interrupts
from transom.errors import JobFileError
from transom.jobs.regionfile import load_region
from transom.model.time import MICROS_PER_SECOND, SystemClock
from transom.sites.coordinating import Coordinating, described, read_plan
from transom.sites.region import Region
from transom.sites.secured import Identity
from transom.widearea.topology import Topology


def coordinate(
    file: Path, *, listen: str, state: Path, secrets: tuple[Path | None, ...], insecure: bool, dry_run: bool
) -> None:
    """Take reports and make plans until interrupted; or say what is known, and end.

    Raises:
        TransomError: The topology or the plan cannot be read, or the address not be taken.
    """
    region = load_region(file)
    topology = topology_of(region)
    last = read_plan(state)
    if dry_run:
        for (source, target), rate in sorted(topology.links.items()):
            planned = topology.capacity((source, target))
            print(f"{source} to {target}: {rate / 125_000:g} Mbit/s stated, {planned / 125_000:g} planned for")
        print("No plan was made yet." if last is None else f"Plan {last.version}: {described(last)}")
        return
    machine = Coordinating(topology, region.objective, state, listen, _identity(secrets, insecure), SystemClock(), _say)
    machine.begin()
    _say(f"The coordinator of {len(topology.sites)} sites listens at {listen}; its plans are in {state}.")
    stopped = threading.Event()
    try:
        with interrupts(stopped.set, stopped.set):
            machine.run(stopped)
    finally:
        machine.end()


def topology_of(region: Region) -> Topology:
    """Return the sites and links that plans are made for."""
    links = {(entry.name, there): rate for entry in region.sites for there, rate in region.rates(entry.name).items()}
    return Topology(tuple(entry.name for entry in region.sites), links, region.tick / MICROS_PER_SECOND)


def _identity(secrets: tuple[Path | None, ...], insecure: bool) -> Identity | None:
    given = [path for path in secrets if path is not None]
    if insecure and not given:
        return None
    if insecure or len(given) < len(secrets):
        raise JobFileError(
            "The coordinator needs a certificate, its key, and the certificate of the authority.",
            "Give --certificate, --key and --authority; or --insecure alone, where all is one machine.",
        )
    return Identity.read(*given)


def _say(text: str) -> None:
    print(text, flush=True)
