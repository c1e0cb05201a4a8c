"""Ctrl-C, and other signals that ask for the end, while an application runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from transom.engine.loop.loop import Loop
from transom.engine.loop.progress import Progress
from transom.engine.spark.pulse import Pulse
from transom.engine.spark.session import cancel_jobs
from transom.engine.spark.silence import silence_interrupted_calls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT_ONCE = (signal.SIGINT, signal.SIGTERM)
HANGUP = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()


@contextmanager
def interrupts(stop: Callable[[], None], stop_at_once: Callable[[], None]) -> Iterator[None]:
    """Let the first SIGINT, SIGTERM or SIGHUP stop a run gently, the second SIGINT or SIGTERM at once.

    A terminal that is closed can send several SIGHUP. A signal that is ignored, as SIGHUP under `nohup`, stays so.
    On another thread than the main one nothing happens.

    Args:
        stop: Called at the first.
        stop_at_once: Called at the second, before `KeyboardInterrupt` is raised.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def handle(number: int, frame: object) -> None:
        nonlocal asked
        if asked and number in AT_ONCE:
            stop_at_once()
            raise KeyboardInterrupt(number)
        asked = True
        silence_interrupted_calls()  # Java may end first, as may the call that goes on here
        stop()

    before = {number: signal.getsignal(number) for number in (*AT_ONCE, *HANGUP)}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_until_told(loop: Loop, session: SparkSession, pulse: Pulse, once: bool) -> Progress:
    """Run a loop, which signals can stop; that Spark ends while it stops is no error.

    Whoever tells all processes to end tells Java, too, which does so first.
    """
    ended = threading.Event()

    def stop_at_once() -> None:
        loop.ending.abandon()
        cancel_jobs(session, ended)

    with ExitStack() as ending, interrupts(loop.ending.stop, stop_at_once):
        ending.callback(ended.set)
        ending.callback(loop.let_go)
        try:
            return loop.run(once)
        except Exception as error:
            if not loop.ending.stopping or (reason := pulse.reason(error)) is None:
                raise
            return loop.reporter.left(reason)
    raise AssertionError
