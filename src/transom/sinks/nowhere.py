"""The sink of a query whose results only other queries read."""

from __future__ import annotations

from transom.sinks.base import WindowResults
from transom.sinks.owner import Claim


class Nowhere:
    """Takes results and forgets them."""

    key = "nowhere"
    """For checkpoints."""

    def describe(self) -> str:
        """Return what it is, in one line for people."""
        return "no sink; other queries read it"

    def open(self, query: str) -> None:
        """Do nothing."""

    def claim(self, claim: Claim) -> None:
        """Do nothing: there is no place."""

    def recover(self, query: str, next_cut: int) -> None:
        """Do nothing: there is nothing to remove."""

    def write(self, results: WindowResults) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
