"""Sources that bring partials instead of rows: other sites have aggregated those."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard

import pyarrow as pa

from transom.engine.spark.cutstats import CutStats
from transom.engine.state.absence import Heard
from transom.model.time import Micros
from transom.sources.base import Offset, Source


@dataclass(frozen=True)
class Brought:
    """Partials that came together, and the cuts of which sites are merged in them."""

    cuts: tuple[tuple[str, str, int, int], ...]
    """Site, incarnation of its checkpoint, and its cuts (after, upto]."""
    stats: CutStats
    """Counts of their rows; the newest event time for each partition of the source that brings them."""
    table: pa.Table | None = None
    """The partials, as `store_table` makes them; None for progress alone."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Queries that have failed at a site, with the reason."""
    anew: bool = False
    """Whether rows were lost before it, none of which happened after the newest that is known with it."""


class PartialSource(Source, Protocol):
    """A source of partials. Its partitions are those of the sources at all sites."""

    brings_partials: bool

    def partials(self, start: Offset, end: Offset) -> Sequence[Brought]:
        """Return what came in [start, end), in order; the same every time. Called from the threads of jobs.

        Raises:
            SourceLostError: Something of it is gone.
        """

    def newest(self) -> Sequence[Micros | None]:
        """Return the newest event time of each partition in all that came; None before the first."""

    def idle(self, offset: Offset) -> Sequence[Micros | None]:
        """Return for how long each partition has been empty, as its site says.

        None for a partition of which something lies behind the offset, or of whose site nothing has been heard.
        """

    def rests(self, offset: Offset) -> bool:
        """Tell whether what lies behind an offset completes nothing, and may wait a little for more to come."""

    def heard(self, offset: Offset) -> Heard:
        """Return what is known of the sites, given up to where the source was read."""

    def leave_out(self, sites: Collection[str]) -> None:
        """Take note of the sites that are left out and silent in this run: the source ends without them."""


def brings_partials(source: Source) -> TypeGuard[PartialSource]:
    """Tell whether a source brings partials instead of rows."""
    return getattr(source, "brings_partials", False)


@dataclass(frozen=True)
class Taken:
    """The cuts of other sites that a cut has taken, and which of their rows were late."""

    cuts: tuple[tuple[str, str, int, int], ...]
    """As `Brought` has them."""
    late: Mapping[str, int] = field(default_factory=dict)
    """Rows by query."""

    def to_json(self) -> list[Any]:
        """Return it as JSON."""
        return [[list(each) for each in self.cuts], dict(self.late)]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> Taken:
        """Return what `to_json` wrote."""
        cuts, late = value
        return cls(tuple((site, incarnation, after, upto) for site, incarnation, after, upto in cuts), late)
