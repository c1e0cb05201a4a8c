"""Network namespaces on this machine that hang on one bridge, and processes in them; all of it goes with the block.

Needs root and the programs `ip` and `tc`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

PATIENCE_SECONDS = 10
"""For a process that was asked to end."""


def possible() -> bool:
    """Return whether this process may make namespaces."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        return False
    name = f"trprobe{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return False
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return True


def call(*words: str) -> str:
    """Run a program to its end, and return what it printed.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@dataclass(frozen=True)
class Namespace:
    """One end of a link to the bridge, with a network stack of its own."""

    name: str
    address: str
    outside: str
    """The end at the bridge."""

    def call(self, *words: str) -> str:
        """Run a program inside to its end; see `call`."""
        return call("ip", "netns", "exec", self.name, *words)


@dataclass
class Network:
    """A bridge, this machine's address on it, and what hangs on it."""

    stack: ExitStack
    number: int = field(default_factory=os.getpid)
    """In the names of all that is made: the process that has to remove it."""

    @property
    def prefix(self) -> str:
        """The first three numbers of all addresses."""
        return f"10.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"

    @property
    def host(self) -> str:
        """The address of this machine."""
        return f"{self.prefix}.1"

    @property
    def bridge(self) -> str:
        """The name of the bridge."""
        return f"trb{self.number}"

    def namespace(self, place: int) -> Namespace:
        """Make a namespace, and join it to the bridge; inside, its link is `eth0`.

        Args:
            place: From 0 on, once each.
        """
        made = Namespace(f"tr{self.number}n{place}", f"{self.prefix}.{10 + place}", f"trv{self.number}e{place}")
        call("ip", "netns", "add", made.name)
        self.stack.callback(call, "ip", "netns", "del", made.name)
        ends = ["type", "veth", "peer", "name", "eth0", "netns", made.name]
        call("ip", "link", "add", made.outside, *ends)
        # With its namespace it would go only some time later, and the next network needs the name.
        self.stack.callback(call, "ip", "link", "del", made.outside)
        call("ip", "link", "set", made.outside, "master", self.bridge)
        call("ip", "link", "set", made.outside, "up")
        made.call("ip", "addr", "add", f"{made.address}/24", "dev", "eth0")
        made.call("ip", "link", "set", "eth0", "up")
        made.call("ip", "link", "set", "lo", "up")
        return made

    def start(
        self, words: Sequence[str], log: Path, environment: Mapping[str, str], inside: Namespace | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program in a process group of its own, which ends with the block; what it prints goes to a file."""
        file = self.stack.enter_context(log.open("ab"))
        where = ["ip", "netns", "exec", inside.name] if inside else []
        process = subprocess.Popen(
            [*where, *words],
            env={**os.environ, **environment},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.stack.callback(stop, process)
        return process


@contextmanager
def network() -> Iterator[Network]:
    """Make a bridge; it goes with the block, after all that hangs on it, also when this process is told to end.

    What is left of processes that were killed goes first.

    Raises:
        subprocess.CalledProcessError: The system refuses it.
    """
    clear()
    with ExitStack() as stack, ending():
        made = Network(stack)
        call("ip", "link", "add", made.bridge, "type", "bridge")
        stack.callback(call, "ip", "link", "del", made.bridge)
        call("ip", "addr", "add", f"{made.host}/24", "dev", made.bridge)
        call("ip", "link", "set", made.bridge, "up")
        yield made


@contextmanager
def ending() -> Iterator[None]:
    """Let the signals that ask a process to end leave the block as an exception, as Ctrl-C does."""
    before = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def clear() -> None:
    """Remove the namespaces and bridges of processes that are gone, and end what runs in them."""
    for line in call("ip", "netns", "list").splitlines():
        name = line.split()[0]
        made = re.fullmatch(r"tr(\d+)n\d+", name)
        if made and not _runs(int(made[1])):
            for number in call("ip", "netns", "pids", name).split():
                with suppress(ProcessLookupError):
                    os.kill(int(number), signal.SIGKILL)
            call("ip", "netns", "del", name)
    for line in call("ip", "-br", "link", "show", "type", "bridge").splitlines():
        made = re.fullmatch(r"trb(\d+)", line.split()[0])
        if made and not _runs(int(made[1])):
            call("ip", "link", "del", made[0])


def _runs(number: int) -> bool:
    return Path(f"/proc/{number}").exists()


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask a process group to end, then make it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_SECONDS)
            return
