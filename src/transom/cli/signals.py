"""Signals that end the command line: the first one interrupts it, the next ends the process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""The signals that ask a program to end."""
RECEIVED: list[int] = []
"""Those that came since the program began to answer them."""


def interrupt(number: int, frame: object) -> None:
    """Answer the first such signal with `KeyboardInterrupt`; the next ends the process, and nothing more is said."""
    RECEIVED.append(number)
    signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt(number)


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Return the exit code of a program that a signal ended, as shells have it."""
    return 128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Answer the signals meanwhile; those that were ignored before, as under nohup, stay so."""
    RECEIVED.clear()
    before = {number: signal.getsignal(number) for number in ENDING}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if handler is signal.SIG_IGN else signal.SIG_DFL)
