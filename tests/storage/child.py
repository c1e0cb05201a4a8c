"""A server in a process of its own, which ends with its input, so that it ends with the tests however they end."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running(command: Sequence[str], directory: Path, says: str) -> Iterator[str]:
    """Run a server, and give what it says of where it is.

    Args:
        command: It ends when its input does.
        directory: Where its log is written.
        says: What it says when it is ready, as a regular expression with one group: where it is.
    """
    log = directory / "log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            found = next(filter(None, (re.search(says, line) for line in process.stdout)), None)
            assert found, log.read_text()[-2000:]
            yield found[1]
        finally:
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
