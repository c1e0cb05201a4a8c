"""Results handed to a function of the user."""

from __future__ import annotations

from collections.abc import Callable

from transom.errors import DefinitionError
from transom.sinks.base import WindowResults
from transom.sinks.owner import Claim


def foreach(function: Callable[[WindowResults], object]) -> ForeachSink:
    """Call a function with the results of every cut that closed windows.

    Args:
        function: Gets a `WindowResults`: `query`, `cut` and the Arrow `table`. It runs in the driver, in one thread
            at a time per query. What it raises, also `SystemExit`, makes the engine call it again later. After a
            crash, or a stop that waited for it no longer (setting `stop_timeout`), it may be called again for the
            same (query, cut), with the same rows: use the two as an idempotence key.

    Raises:
        DefinitionError: It cannot be called.
    """
    if not callable(function):
        raise DefinitionError(f"foreach: {function!r} is no function.", "Give a function of one argument.")
    return ForeachSink(function)


class ForeachSink:
    """See `foreach`, which makes it."""

    def __init__(self, function: Callable[[WindowResults], object]) -> None:
        self._function = function

    def describe(self) -> str:
        """Return what it calls, in one line for people."""
        return f"function {getattr(self._function, '__qualname__', type(self._function).__name__)}"

    def open(self, query: str) -> None:
        """Do nothing: there is nothing to prepare."""

    def claim(self, claim: Claim) -> None:
        """Do nothing: where the function writes is not known here."""

    def recover(self, query: str, next_cut: int) -> None:
        """Do nothing: what the function did cannot be undone here."""

    def write(self, results: WindowResults) -> None:
        """Call the function."""
        self._function(results)

    def close(self) -> None:
        """Do nothing."""
