"""Work of threads of their own that is done where it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


def at_once(work: Callable[[], Any], name: str) -> Future[Any]:
    """Do some work here instead of on a thread with a name."""
    future = Future[Any]()
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)
    return future
