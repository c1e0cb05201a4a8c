"""Ctrl-C, and other signals that ask for the end, while an application runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from transom.engine.loop.loop import Loop
from transom.engine.loop.progress import Progress
from transom.engine.spark.pulse import Pulse
from transom.engine.spark.session import cancel_jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT_ONCE = (signal.SIGINT, signal.SIGTERM)
HANGUP = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()


@contextmanager
def interrupts(loop: Loop, session: SparkSession) -> Iterator[None]:
    """Let the first SIGINT, SIGTERM or SIGHUP stop the loop gently, the second SIGINT or SIGTERM at once.

    A terminal that is closed can send several SIGHUP. A signal that is ignored, as SIGHUP under `nohup`, stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked, ended = False, threading.Event()

    def handle(number: int, frame: object) -> None:
        nonlocal asked
        if asked and number in AT_ONCE:
            loop.abandon()
            cancel_jobs(session, ended)
            raise KeyboardInterrupt(number)
        asked = True
        loop.stop()

    before = {number: signal.getsignal(number) for number in (*AT_ONCE, *HANGUP)}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        ended.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def run_until_told(loop: Loop, session: SparkSession, pulse: Pulse, once: bool, close_all: bool) -> Progress:
    """Run a loop, which signals can stop; that Spark ends while it stops is no error.

    Whoever tells all processes to end tells Java, too, which does so first.
    """
    with interrupts(loop, session):
        try:
            return loop.run(once, close_all)
        except Exception as error:
            if not loop.stopping or (reason := pulse.reason(error)) is None:
                raise
            return loop.left(reason)
