"""The watermark of a stream: pure arithmetic over what committed cuts brought and the wall time passed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from transom.model.time import MIN_TIME, Micros
from transom.model.watermark import WatermarkPolicy


@dataclass(frozen=True)
class WatermarkState:
    """What is known about event time after some commits; all in microseconds. JSON-able by `to_json`."""

    newest: tuple[Micros | None, ...]
    """Largest event time of each source partition; None before its first row."""
    active_at: tuple[Micros | None, ...]
    """Wall time of the last cut with a row of the partition; the stream's start before the first one."""
    injected: Micros | None = None
    """Last watermark that the source injected."""
    value: Micros = MIN_TIME
    """The watermark; never goes backwards."""

    @classmethod
    def start(cls, partitions: int, now: Micros) -> WatermarkState:
        """Return the state of a stream that starts now."""
        return cls((None,) * partitions, (now,) * partitions)

    def grown(self, partitions: int, now: Micros) -> WatermarkState:
        """Return the state with more source partitions, which count as active from now on."""
        more = max(0, partitions - len(self.newest))
        return replace(self, newest=self.newest + (None,) * more, active_at=self.active_at + (now,) * more)

    def committed(self, newest: Sequence[Micros | None], injected: Micros | None, now: Micros) -> WatermarkState:
        """Return the state after a cut.

        Args:
            newest: Largest believed event time of the cut per source partition; None where it had no such row.
            injected: Watermark from the source at the end of the cut, if it injects any.
            now: Wall time at the cut, from the log.
        """
        state = self.grown(len(newest), now)
        merged, active = [], []
        for i, old in enumerate(state.newest):
            new = newest[i] if i < len(newest) else None
            merged.append(old if new is None else new if old is None else max(old, new))
            active.append(state.active_at[i] if new is None else now)
        known = [w for w in (self.injected, injected) if w is not None]
        return replace(state, newest=tuple(merged), active_at=tuple(active), injected=max(known) if known else None)

    def advanced(self, policy: WatermarkPolicy, now: Micros) -> WatermarkState:
        """Return the state with the watermark in force at wall time `now`.

        The minimum over the source partitions of (largest event time - delay), without those that have been silent
        for `idle_after`. A partition without any row yet holds the watermark back until it counts as idle. When all
        are silent, those with rows count again, so that the watermark rests where the data ended. After
        `close_on_idle` without any row it goes on at the pace of the wall clock.
        """
        if policy.from_source:
            target = None if self.injected is None else self.injected - policy.delay
        else:
            target = self._derived(policy, now)
        last = max((at for at in self.active_at if at is not None), default=now)
        if policy.close_on_idle is not None and target is not None and now - last >= policy.close_on_idle:
            seen = [t for t in self.newest if t is not None]
            if seen:
                target = max(target, max(seen) - policy.delay + (now - last))
        if target is None or target <= self.value:
            return self
        return replace(self, value=target)

    def _derived(self, policy: WatermarkPolicy, now: Micros) -> Micros | None:
        pairs = list(zip(self.newest, self.active_at, strict=True))
        counted = pairs
        if policy.idle_after is not None:
            counted = [(t, at) for t, at in pairs if at is not None and now - at < policy.idle_after]
            if not counted:
                counted = [(t, at) for t, at in pairs if t is not None]
        if not counted or any(t is None for t, _ in counted):
            return None
        return min(t for t, _ in counted if t is not None) - policy.delay

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return {
            "newest": list(self.newest),
            "active_at": list(self.active_at),
            "injected": self.injected,
            "value": self.value,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> WatermarkState:
        """Return what `to_json` wrote."""
        return cls(tuple(value["newest"]), tuple(value["active_at"]), value["injected"], value["value"])
