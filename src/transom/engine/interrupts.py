"""Ctrl-C while an application runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from transom.engine.loop import Loop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
            session.interruptAll()
            raise KeyboardInterrupt
        asked = True
        loop.stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
