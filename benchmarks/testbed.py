"""Sites that run on this machine as if far apart: each in a network namespace, with a rate for each directed link.

    python -m benchmarks.testbed [--seconds N]        (or: make testbed)

Three sites with rows, one that makes windows of them, and a coordinator, each a process of the command line with TLS;
how they stand is printed until Ctrl-C. The link from A to the destination is thin. There is no delay and no loss.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.certificates import identity
from benchmarks.namespaces import Namespace, Network, network, possible, stop
from benchmarks.wide_feed import Feed
from benchmarks.wide_job import SCHEMA

PORT = 7401
MEMORY = "700m"
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of each site's Spark: it has a core of several that share two, and a small job now and then, for which compiling more
would not pay within hours."""
UNSHAPED = 1_000.0
"""Mbit/s of what is no link between sites."""
PATIENCE_SECONDS = 600
SITES, DESTINATION = ("A", "B", "C"), "D"
THIN, WIDE = 0.1, 2.0
"""Mbit/s."""
NEEDS_ROOT = "The testbed makes network namespaces: run it as root, where the programs `ip` and `tc` are."
LINKS = {
    (a, b): THIN if (a, b) == ("A", DESTINATION) else WIDE
    for a in (*SITES, DESTINATION)
    for b in (*SITES, DESTINATION)
    if a != b
}
"""Of Fig. 1 of the paper on wide areas, a tenth of its rates: Mbit/s of each directed link."""


def offset_of(place: int) -> float:
    """Return how long after a tick a site begins its cuts, seconds, by its place: not all at once."""
    return 0.1 + 0.15 * place


@dataclass
class Testbed:
    """Sites that run, and the links between them."""

    __test__ = False

    net: Network
    work: Path
    job: Path
    sources: Sequence[str]
    """Sites with rows."""
    destination: str
    links: dict[tuple[str, str], float]
    """Mbit/s of each directed link, as it is now."""
    tick: float
    """Seconds."""
    destinations: Mapping[str, str] = field(default_factory=dict)
    """Of queries whose windows are made elsewhere."""
    rows: str = f'files = "{{site}}/*.json"\nschema = "{SCHEMA}"'
    """Where a site's rows are, as in its file."""
    most: int = 1
    """Ticks of the longest interval."""
    spaces: dict[str, Namespace] = field(default_factory=dict)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def sites(self) -> tuple[str, ...]:
        """All sites."""
        return tuple(dict.fromkeys((*self.sources, self.destination)))

    def build(self) -> None:
        """Make namespaces and links, and write the files of the sites."""
        for place, site in enumerate(self.sites):
            self.spaces[site] = self.net.namespace(place)
        for site, space in self.spaces.items():
            space.call(*["tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "1"])
            self._class(space, "add", 1, UNSHAPED)
            for there in self.sites:
                if there != site:
                    self._class(space, "add", self._number(there), self.links[site, there])
                    match = f"u32 match ip dst {self.spaces[there].address}/32 flowid 1:{self._number(there)}"
                    space.call(*f"tc filter add dev eth0 protocol ip parent 1: {match}".split())
        self._write()

    def _number(self, site: str) -> int:
        return 10 + self.sites.index(site)

    def _class(self, space: Namespace, verb: str, number: int, megabits: float) -> None:
        rate = f"{round(megabits * 1e6)}bit"
        space.call(*f"tc class {verb} dev eth0 parent 1: classid 1:{number} htb rate {rate} ceil {rate}".split())

    def set_rate(self, source: str, target: str, megabits: float) -> None:
        """Give a link another rate, Mbit/s."""
        self.links[source, target] = megabits
        self._class(self.spaces[source], "change", self._number(target), megabits)

    def sent(self) -> dict[tuple[str, str], int]:
        """Return the bytes that went over each link since the beginning, with all that is around them."""
        found = {}
        for site, space in self.spaces.items():
            said = space.call("tc", "-s", "class", "show", "dev", "eth0")
            sent = {
                int(number): int(count) for number, count in re.findall(r"htb 1:(\d+) .*?Sent (\d+)", said, re.DOTALL)
            }
            found |= {(site, there): sent[self._number(there)] for there in self.sites if there != site}
        return found

    def cut_off(self, site: str, away: bool) -> None:
        """Take a site's link to all others away, or give it back."""
        self.spaces[site].call("ip", "link", "set", "eth0", "down" if away else "up")

    def offset(self, site: str) -> float:
        """Return how long after a tick a site begins its cuts, seconds: not all at once."""
        return offset_of(self.sites.index(site))

    def _write(self) -> None:
        topology = [f'default = "{self.destination}"']
        lengths = {"tick": 1, "least_interval": 1, "most_interval": self.most}
        topology += [f'{key} = "{ticks * self.tick} seconds"' for key, ticks in lengths.items()]
        topology += ["[destinations]", *(f'{query} = "{site}"' for query, site in self.destinations.items())]
        for site in self.sites:
            topology += ["[[site]]", f'name = "{site}"', f'address = "{self.spaces[site].address}:{PORT}"']
            if site in self.sources:
                topology += ['sources = ["rows"]', f'offset = "{self.offset(site) * 1000:.0f} ms"']
        for (source, target), rate in self.links.items():
            topology += ["[[link]]", f'from = "{source}"', f'to = "{target}"', f'bandwidth = "{rate:g} Mbit/s"']
        (self.work / "topology.toml").write_text("\n".join(topology) + "\n")
        for site in (*self.sites, "coordinator"):
            mine = identity(site)
            for kind, text in (("pem", mine.chain), ("key", mine.key), ("authority", mine.authority)):
                (self.work / f"{site}.{kind}").write_bytes(text)
        for site in self.sites:
            lines = [f'name = "{site}"', f'job = "{self.job}"', 'topology = "topology.toml"']
            lines += [f'checkpoint = "{site}-checkpoint"', f'certificate = "{site}.pem"', f'key = "{site}.key"']
            lines += [f'authority = "{site}.authority"', f'coordinator = "{self.net.host}:{PORT}"']
            if site in self.sources:
                lines += ["[sources.rows]", self.rows.format(site=site)]
            (self.work / site).mkdir()
            (self.work / f"{site}.toml").write_text("\n".join(lines) + "\n")

    def start(self, site: str) -> None:
        """Start a site's process."""
        words = ["site", f"{site}.toml", "--json", "--master", "local[1]", "--conf", f"spark.driver.memory={MEMORY}"]
        words += ["--conf", f"spark.driver.extraJavaOptions={JAVA}"]
        self.running[site] = self._transom(words, site, self.spaces[site])

    def coordinate(self) -> None:
        """Start the coordinator, at the bridge."""
        secrets = [f"--{name}" for name in ("certificate", "key", "authority")]
        files = [f"coordinator.{kind}" for kind in ("pem", "key", "authority")]
        given = [word for pair in zip(secrets, files, strict=True) for word in pair]
        listen = ["--listen", f"{self.net.host}:{PORT}", "--state", "plan.json"]
        self.running["coordinator"] = self._transom(
            ["coordinate", "topology.toml", *listen, *given], "coordinator", None
        )

    def _transom(self, words: Sequence[str], name: str, inside: Namespace | None) -> subprocess.Popen[bytes]:
        paths = [str(Path(path).absolute()) for path in sys.path if path] + [str(Path.cwd())]
        environment = {
            "PYTHONPATH": os.pathsep.join(paths),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TESTBED": str(self.work),
            "PYTHONUNBUFFERED": "1",
        }
        command = ["env", "-C", str(self.work), sys.executable, "-m", "transom_command", *words]
        return self.net.start(command, self.work / f"{name}.log", environment, inside)

    def stop(self, site: str, hard: bool = False) -> None:
        """Let a process end, or end it at once."""
        process = self.running.pop(site)
        if hard:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        else:
            stop(process)

    def check(self) -> None:
        """See that all still run.

        Raises:
            RuntimeError: One has ended; with the last lines that it printed.
        """
        for name, process in self.running.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} has ended: {(self.work / f'{name}.log').read_text()[-2_000:]}")

    def status(self, site: str) -> dict[str, Any]:
        """Return how a site stands; empty while nothing is known."""
        try:
            found: dict[str, Any] = json.loads((self.work / f"{site}-checkpoint/sites/status.json").read_bytes())
        except FileNotFoundError:
            return {}
        return found

    def await_all(self) -> None:
        """Wait until every site is there, and connected to its neighbours.

        Raises:
            TimeoutError: They do not come.
        """
        end = time.monotonic() + PATIENCE_SECONDS
        while not all(any(link["open"] for link in self.status(site).get("links", ())) for site in self.sites):
            self.check()
            if time.monotonic() > end:
                said = [f"{name}: {(self.work / f'{name}.log').read_text()[-1_000:]}" for name in self.running]
                raise TimeoutError("\n".join(["Sites do not come up.", *said]))
            time.sleep(0.2)


@contextmanager
def apart(
    work: Path,
    job: Path,
    sources: Sequence[str] = SITES,
    destination: str = DESTINATION,
    links: Mapping[tuple[str, str], float] = LINKS,
    tick: float = 2.0,
    **more: Any,
) -> Iterator[Testbed]:
    """Make a testbed whose sites do not run yet; processes, links and namespaces go with the block.

    Args:
        work: An empty directory for its files.
        job: The job, a Python file.
        sources: Sites with rows.
        destination: The site that makes the windows.
        links: Mbit/s of each directed link.
        tick: Seconds.
        more: Other fields of `Testbed`.

    Raises:
        PermissionError: This process may not make namespaces.
    """
    if not possible():
        raise PermissionError(NEEDS_ROOT)
    with network() as net:
        made = Testbed(net, work, job, sources, destination, dict(links), tick, **more)
        made.build()
        yield made


def main() -> None:
    """Run sites until Ctrl-C, or for some seconds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.testbed")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so long")
    options = parser.parse_args()
    if not possible():
        sys.exit(NEEDS_ROOT)
    job = Path(__file__).with_name("wide_job.py").absolute()
    with (
        suppress(KeyboardInterrupt),
        tempfile.TemporaryDirectory(prefix="transom-testbed-") as work,
        apart(Path(work), job) as bed,
    ):
        for name in bed.sites:
            bed.start(name)
        bed.coordinate()
        print(f"Sites {', '.join(bed.sites)} start; their files and logs are in {work}. Ctrl-C ends them.")
        bed.await_all()
        began = time.monotonic()
        with Feed({site: bed.work / site for site in bed.sources}, bed.tick):
            while time.monotonic() - began < options.seconds:
                bed.check()
                subprocess.run(
                    [sys.executable, "-m", "transom_command", "sites", f"{bed.destination}.toml"],
                    cwd=bed.work,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                    check=False,
                )
                time.sleep(5)


if __name__ == "__main__":
    main()
