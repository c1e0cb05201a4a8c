"""How much of a busy link is parcels: two sites without Spark in network namespaces, one that has always more to send.

    python -m benchmarks.wide_link [--quick]

Parcels of random bytes, which no codec makes smaller, go over links of 0.2 to 10 Mbit/s with TLS, for some seconds
each. `link.share`: bytes of parcels that came, of what the link carries in that time; that of the worst rate.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from benchmarks.certificates import identity
from benchmarks.harness import Run, benchmark
from benchmarks.namespaces import Namespace, network, possible
from benchmarks.testbed import NEEDS_ROOT, PORT
from transom.engine.loop.wakeups import Wakeups
from transom.model.time import MICROS_PER_SECOND, SystemClock
from transom.sites.flight import FlightMail
from transom.sites.secured import Identity
from transom.sites.shipping import LOOK
from transom.widearea.carriers import Carrier
from transom.widearea.hellos import Hello
from transom.widearea.parcels import Parcel, Part
from transom.widearea.routes import Ends, Routes

RATES = (0.2, 1.0, 3.0, 10.0)
"""Mbit/s."""
SECONDS, QUICK_SECONDS, BEFORE = 30.0, 10.0, 8.0
"""That are counted of each rate, and those before them, in which sites connect and learn the rate."""
PARCEL_SECONDS = 0.5
"""Of a link, that a parcel takes."""
REDUCED = f"{QUICK_SECONDS:g} s of each rate instead of {SECONDS:g} s"


def run_end(work: Path, here: str, there: str, listen: str, address: str, megabits: float, seconds: float) -> None:
    """Run one end until the time is over; the one that takes parcels prints their bytes and the seconds."""
    files = [work / f"{here}.{kind}" for kind in ("pem", "key", "authority")]
    mail = FlightMail(Hello(here, relays=True), listen, {there: address}, Identity.read(*files))
    rate, clock = megabits * 125_000, SystemClock()
    routes = Routes(here, MICROS_PER_SECOND, {"flow": Ends(("from",), "to")})
    carrier = Carrier(here, here, routes, lambda flow, bodies: b"".join(bodies), {there: rate})
    wakeups = Wakeups(clock)
    mail.begin(carrier, lambda: (), wakeups.wake_soon, {})
    begun, number, came, first, last = time.monotonic(), 0, 0, 0.0, 0.0
    while (now := time.monotonic() - begun) < BEFORE + seconds + 2:
        mail.look(clock.monotonic())
        if here == "from" and there in carrier.open and carrier.link(there).queued < 4 * PARCEL_SECONDS * rate:
            number += 1
            part = Part(here, "0" * 16, 1, number - 1, number, number)
            carrier._queue(Parcel("flow", number, (part,), os.urandom(int(PARCEL_SECONDS * rate))), there, 0)
        arrivals, carrier.arrivals = carrier.arrivals, []
        for parcel, _ in arrivals:
            if first:
                came, last = came + len(parcel.body), now
            elif now >= BEFORE:
                first = now
        wakeups.wait(LOOK, busy=True)  # as the loop of a site does
    mail.end()
    if here == "to":
        print(json.dumps([came, last - first]), flush=True)


def share(work: Path, megabits: float, seconds: float) -> float:
    """Return the share of a link that parcels get."""
    with network() as net:
        ends = {"from": net.namespace(0), "to": net.namespace(1)}
        shape(ends["from"], megabits)
        running, path = [], os.pathsep.join(str(Path(each).absolute()) for each in ["", *sys.path])
        for here, there in (("to", "from"), ("from", "to")):
            mine = identity(here)
            for kind, text in (("pem", mine.chain), ("key", mine.key), ("authority", mine.authority)):
                (work / f"{here}.{kind}").write_bytes(text)
            addresses = [f"{ends[each].address}:{PORT}" for each in (here, there)]
            words = [sys.executable, "-m", "benchmarks.wide_link", "--end", str(work), here, there, *addresses]
            words += [str(megabits), str(seconds)]
            running.append(net.start(words, work / f"{here}.log", {"PYTHONPATH": path}, ends[here]))
        for process in running:
            process.wait(BEFORE + seconds + 60)
        said = (work / "to.log").read_text().strip().splitlines()
        came, took = json.loads(said[-1])
        return float(came) * 8e-6 / took / megabits if took else 0.0


def shape(space: Namespace, megabits: float) -> None:
    """Give a namespace's link a rate."""
    rate = f"{round(megabits * 1e6)}bit"
    space.call(*["tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "1"])
    space.call(*f"tc class add dev eth0 parent 1: classid 1:1 htb rate {rate} ceil {rate}".split())


def links(run: Run) -> None:
    """Measure links of several rates."""
    found = {rate: share(run.fresh("link"), rate, QUICK_SECONDS if run.quick else SECONDS) for rate in RATES}
    run.table("links", ["Mbit/s", "share that is parcels"], [[rate, each] for rate, each in found.items()])
    run.figure("link.share", min(found.values()))


def main() -> None:
    """Run the benchmark, or one end of a link."""
    if "--end" in sys.argv:
        work, here, there, listen, address, megabits, seconds = sys.argv[2:]
        run_end(Path(work), here, there, listen, address, float(megabits), float(seconds))
        return
    with benchmark("wide_link", REDUCED) as run:
        if not possible():
            raise SystemExit(NEEDS_ROOT)
        links(run)
        run.check([])


if __name__ == "__main__":
    main()
