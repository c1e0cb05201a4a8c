"""Processes of sites, which can be killed and run again, and what they say."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.certificates import identity

PATIENCE = 600
"""Seconds in which somebody says something, or nobody ever will."""
MOST_LINES = 1_000
"""Sites that have said so much while something did not come hang: each says a few lines every five seconds."""


class Processes:
    """Processes in a directory, by name.

    Args:
        root: Where they work, and where what they say is kept.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.running: dict[str, tuple[subprocess.Popen[str], threading.Thread]] = {}
        self.said: queue.SimpleQueue[str] = queue.SimpleQueue()

    def secrets(self, name: str) -> dict[str, str]:
        """Write the certificate of a name, its key and the authority's; return the files."""
        mine = identity(name)
        kinds = {"certificate": mine.chain, "key": mine.key, "authority": mine.authority}
        for kind, data in kinds.items():
            (self.root / f"{name}.{kind}").write_bytes(data)
        return {kind: f"{name}.{kind}" for kind in kinds}

    def begin(self, name: str, words: Sequence[str]) -> None:
        """Run `transom` with some words."""
        process = subprocess.Popen(
            [sys.executable, "-m", "transom_command", *words],
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

    def _listen(self, name: str, process: subprocess.Popen[str]) -> None:
        """Keep what a process says, and wake who waits at each line, and at its end."""
        assert process.stdout is not None
        with process.stdout as lines, (self.root / f"{name}.log").open("a") as log:
            for line in lines:
                log.write(line)
                log.flush()
                self.said.put(name)
        self.said.put(name)

    def end(self, name: str, number: int = signal.SIGKILL) -> None:
        """End a process, by default as a power cut does."""
        process, listening = self.running.pop(name)
        if process.poll() is None:
            os.killpg(process.pid, number)
        process.wait(PATIENCE)
        listening.join(PATIENCE)

    def end_all(self) -> None:
        """Kill all that run."""
        for name in list(self.running):
            self.end(name)

    def require_running(self) -> None:
        """Fail if one has ended by itself, with what it said."""
        for name, (process, _) in self.running.items():
            assert process.poll() is None, self.log(name)

    def log(self, name: str) -> str:
        """Return what the processes of a name have said."""
        file = self.root / f"{name}.log"
        return file.read_text() if file.exists() else ""

    def until(self, holds: Callable[[], bool]) -> None:
        """Look whenever one has said something: each says what has become of its rows."""
        for _ in range(MOST_LINES):
            if holds():
                return
            self.require_running()
            try:
                self.said.get(timeout=PATIENCE)
            except queue.Empty:
                break
        raise AssertionError([self.log(name)[-2_000:] for name in self.running])
