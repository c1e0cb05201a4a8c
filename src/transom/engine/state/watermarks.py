"""The watermark of a stream: pure arithmetic over what committed cuts brought and for how long there was nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transom.model.time import MIN_TIME, Micros
from transom.model.watermark import WatermarkPolicy
from transom.sources.base import Waiting


@dataclass(frozen=True)
class Idleness:
    """Since when each source partition has been found empty; in this run only, as nobody looks while none runs.

    A partition with rows that are known and unread is active, and so it is until the first look after they were read: a
    stream does not look while a cut is under way.
    """

    at: Micros = 0
    """Monotonic time of the last look."""
    since: tuple[Micros | None, ...] = ()
    """The first of the latest looks that all found the partition empty; None where rows wait."""

    def looked(self, waiting: Waiting, partitions: int) -> Idleness:
        """Return the state after a look at a source with so many partitions, or more where rows wait in others."""
        count = max([partitions, *(index + 1 for index in waiting.partitions)])
        before = self.since + (None,) * count
        now = max(self.at, waiting.at)
        return Idleness(
            now,
            tuple(
                None if index in waiting.partitions else now if before[index] is None else before[index]
                for index in range(count)
            ),
        )

    @property
    def lengths(self) -> tuple[Micros | None, ...]:
        """For how long each partition has been found empty; None where rows wait."""
        return tuple(None if since is None else self.at - since for since in self.since)


@dataclass(frozen=True)
class WatermarkState:
    """Event time as known after some commits; all in microseconds. JSON-able by `to_json`."""

    newest: tuple[Micros | None, ...]
    """Largest event time of each source partition; None before its first row."""
    injected: Micros | None = None
    """Last watermark that the source injected."""
    value: Micros = MIN_TIME
    """The watermark; never goes backwards."""

    @classmethod
    def start(cls, partitions: int) -> WatermarkState:
        """Return the state of a stream that starts now."""
        return cls((None,) * partitions)

    def committed(self, newest: Sequence[Micros | None], injected: Micros | None) -> WatermarkState:
        """Return the state after a cut.

        Args:
            newest: Largest believed event time of the cut per source partition; None where it had no such row.
            injected: Watermark from the source at the end of the cut, if it injects any.
        """
        count = max(len(newest), len(self.newest))
        pairs = zip(_grown(self.newest, count), _grown(newest, count), strict=True)
        merged = tuple(old if new is None else new if old is None else max(old, new) for old, new in pairs)
        known = [w for w in (self.injected, injected) if w is not None]
        return replace(self, newest=merged, injected=max(known) if known else None)

    def advanced(
        self, policy: WatermarkPolicy, idle: Sequence[Micros | None], without: Collection[int] = ()
    ) -> WatermarkState:
        """Return the state with the watermark in force now.

        The minimum over the source partitions of (largest event time - delay), without those that have been empty for
        `idle_after`. A partition without any row yet holds the watermark back until it counts as idle. When all are
        idle, those with rows count again, so that the watermark rests where the data ended. When all have been empty
        for `close_on_idle` it goes on as time does.

        Args:
            policy: What the user asked for.
            idle: For how long each source partition has been found empty; None where rows wait (`Idleness`).
            without: Source partitions that are as if they were not there; if all are, the watermark rests.
        """
        if without:
            kept = [index for index in range(max(len(idle), len(self.newest))) if index not in without]
            some, lengths = self.narrowed(idle, kept)
            return replace(self, value=some.advanced(policy, lengths).value) if kept else self
        if policy.from_source:
            target = None if self.injected is None else self.injected - policy.delay
        else:
            target = self.derived(policy, idle)
        seen = [t for t in self.newest if t is not None]
        empty = min((-1 if length is None else length for length in idle), default=-1)
        if policy.close_on_idle is not None and seen and empty >= policy.close_on_idle:
            target = max(MIN_TIME if target is None else target, max(seen) - policy.delay + empty)
        if target is None or target <= self.value:
            return self
        return replace(self, value=target)

    def narrowed(
        self, idle: Sequence[Micros | None], partitions: Sequence[int]
    ) -> tuple[WatermarkState, tuple[Micros | None, ...]]:
        """Return the state as if some source partitions were all there are, and for how long these were empty."""
        count = max([len(idle), len(self.newest), *(index + 1 for index in partitions)])
        newest, lengths = _grown(self.newest, count), _grown(tuple(idle), count)
        some = replace(self, newest=tuple(newest[index] for index in partitions))
        return some, tuple(lengths[index] for index in partitions)

    def waits(self, policy: WatermarkPolicy, idle: Sequence[Micros | None]) -> bool:
        """Tell whether the watermark, where it is, is further than what a source partition has come to."""
        after = policy.idle_after
        counted = [
            t for t, length in zip(self.newest, idle, strict=True) if after is None or length is None or length < after
        ]
        return any(t is None or t - policy.delay < self.value for t in counted)

    def derived(self, policy: WatermarkPolicy, idle: Sequence[Micros | None]) -> Micros | None:
        """Return the watermark that follows from the rows of all source partitions; None while there is none."""
        pairs = list(zip(_grown(self.newest, len(idle)), idle, strict=True))
        counted = pairs
        if policy.idle_after is not None:
            counted = [(t, length) for t, length in pairs if length is None or length < policy.idle_after]
            if not counted:
                counted = [(t, length) for t, length in pairs if t is not None]
        if not counted or any(t is None for t, _ in counted):
            return None
        return min(t for t, _ in counted if t is not None) - policy.delay

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return {"newest": list(self.newest), "injected": self.injected, "value": self.value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> WatermarkState:
        """Return what `to_json` wrote."""
        return cls(tuple(value["newest"]), value["injected"], value["value"])


def _grown(newest: Sequence[Micros | None], count: int) -> tuple[Micros | None, ...]:
    """Return the times of so many source partitions; there is none of those that are new."""
    return (*newest[:count], *(None,) * (count - len(newest)))
