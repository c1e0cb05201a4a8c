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
AGAIN = 0.1
"""Seconds until jobs that have started meanwhile are cancelled, too."""


@contextmanager
def interrupts(loop: Loop, session: SparkSession) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM stop the loop gently, the second at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked, cancelled, ended = False, threading.Event(), threading.Event()

    def handle(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            loop.abandon()
            # This thread may be in the middle of a call to the JVM, whose connection no other call may use.
            arguments = (session, cancelled, ended)
            threading.Thread(target=_interrupt, args=arguments, name="transom-interrupt", daemon=True).start()
            cancelled.wait(LONGEST)
            raise KeyboardInterrupt
        asked = True
        loop.stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        ended.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(session: SparkSession, cancelled: threading.Event, ended: threading.Event) -> None:
    """Cancel Spark's jobs until the run has ended: a micro-batch may be planned, and start its job only then."""
    try:
        with suppress(Exception):  # Spark may be gone already
            session.interruptAll()
            cancelled.set()
            while not ended.wait(AGAIN):
                session.interruptAll()
    finally:
        cancelled.set()
