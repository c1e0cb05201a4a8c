"""Ctrl-C while an application runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from transom.engine.loop import Loop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LONGEST = 2.0
"""Seconds that the second Ctrl-C waits for Spark to cancel its jobs; the process ends in any case."""


@contextmanager
def interrupts(loop: Loop, session: SparkSession) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM stop the loop gently, the second at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def handle(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            loop.abandon()
            # This thread may be in the middle of a call to the JVM, whose connection no other call may use.
            thread = threading.Thread(target=_interrupt, args=[session], name="transom-interrupt", daemon=True)
            thread.start()
            thread.join(LONGEST)
            raise KeyboardInterrupt
        asked = True
        loop.stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(session: SparkSession) -> None:
    with suppress(Exception):  # Spark may be gone already
        session.interruptAll()
