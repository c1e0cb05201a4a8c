"""One thing after another, several at a time: for files in stores of objects, where each takes a while to answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def each_of(items: Sequence[T], act: Callable[[T], R], at_once: int) -> list[R]:
    """Return what a function gives for each of some items; where no thread can start, this one does it all.

    Args:
        items: The items.
        act: The function; may be called from several threads, and again for an item where a thread cannot start.
        at_once: So many calls at a time.

    Raises:
        Exception: What the function raised for the first item for which it did.
    """
    if len(items) < 2 or at_once < 2:
        return [act(item) for item in items]
    with ThreadPoolExecutor(min(at_once, len(items))) as threads:
        begun: list[Future[R]] = []
        try:
            for item in items:
                begun.append(threads.submit(act, item))
            return [future.result() for future in begun]
        except BaseException as error:
            for future in begun:
                future.cancel()
            if len(begun) == len(items) or not isinstance(error, RuntimeError):
                raise
    return [act(item) for item in items]
