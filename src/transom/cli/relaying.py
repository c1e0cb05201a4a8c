"""`transom site` of a site that only passes on what others send: a process without Spark."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from transom import __version__
from transom.checkpoint.files import checkpoint_at
from transom.checkpoint.lock import take_lock
from transom.checkpoint.names import FORMAT_FILE, LOCK_FILE
from transom.engine.loop.interrupts import interrupts
from transom.errors import JobFileError
from transom.jobs.sitefile import SiteFile
from transom.model.time import SystemClock
from transom.sites.flight import FlightMail
from transom.sites.mail import Listener
from transom.sites.planning import Bounds, Planning
from transom.sites.relaying import Relaying
from transom.storage.durable import make_directory
from transom.storage.translated import translated
from transom.widearea.carriers import Carrier
from transom.widearea.hellos import Hello


def run_relay(site: SiteFile, together: Sequence[SiteFile], once: bool, as_json: bool) -> None:
    """Pass on what comes until interrupted.

    Args:
        site: The relay.
        together: All sites that were given.
        once: Whether the run is to end with the rows.
        as_json: Whether notes are JSON lines.

    Raises:
        TransomError: It cannot run in that way, runs already, or lacks a certificate or an address of its own.
    """
    if len(together) > 1:
        raise JobFileError(
            f"{site.file}: {site.name!r} has no rows, and no query ends there: it only passes on what others send, and "
            "does so in a process of its own.",
            f"Leave it out here, and run transom site {site.file}; or give it a source or a query in the topology.",
        )
    if once:
        raise JobFileError(
            f"{site.file}: {site.name!r} has no rows that could end (--once): it only passes on what others send.",
            "Run it without --once, and stop it when the others have ended.",
        )
    hello = Hello(site.name, transom=".".join(__version__.split(".")[:2]), relays=True)
    made = site.asking()
    bounds = Bounds(site.region.least, site.region.most)
    clock = SystemClock()

    def planning(carrier: Carrier) -> Planning:
        assert made is not None
        return Planning(carrier, made, bounds, clock.now)

    def mail(listener: Listener) -> FlightMail:
        return site.mail(hello, listener)

    def say(text: str) -> None:
        print(json.dumps({"site": site.name, "note": text}) if as_json else text, flush=True)

    directory = _directory(site) / "sites"
    with translated(directory, "create"):
        make_directory(directory)
    with ExitStack() as ends:
        ends.callback(take_lock(directory.parent / LOCK_FILE, clock.now()).release)
        relay = Relaying(site.name, site.region, mail, clock, directory, None if made is None else planning, say)
        relay.begin()
        ends.callback(relay.end)
        stopped = threading.Event()
        with interrupts(stopped.set, stopped.set):
            say(f"{site.name} only passes on what others send.")
            relay.run(stopped)


def _directory(site: SiteFile) -> Path:
    """Return where a relay writes how things stand.

    Raises:
        JobFileError: It is no directory of this machine, or the checkpoint of a site that has more to do.
    """
    root = checkpoint_at(site.checkpoint)
    if not isinstance(root, Path):
        raise JobFileError(
            f"{site.file}: checkpoint = {site.checkpoint!r} is in a store of objects, and {site.name!r}, which only "
            "passes on what others send, keeps nothing but a lock and a file of how things stand.",
            "Give a directory of this machine.",
        )
    if (root / FORMAT_FILE).exists():
        raise JobFileError(
            f"{site.file}: {site.checkpoint!r} is the checkpoint of an application, and {site.name!r} would only pass "
            "on what others send: what is in it would never leave.",
            "Give the site its sources and queries back in the topology; or another directory, if the checkpoint is "
            "not needed any more.",
        )
    return root
