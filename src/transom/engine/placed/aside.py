"""Work on a thread of its own, for who looks later what came of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def aside(work: Callable[[], Result], name: str) -> Future[Result]:
    """Do some work on a thread of its own, which does not keep the interpreter from ending.

    Whatever it raises is the future's; so is that no thread can start, as there are too many or the interpreter ends.

    Args:
        work: The work.
        name: Names the thread.
    """
    future = Future[Result]()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as error:
        future.set_exception(error)
    return future
