"""Policies of watermarks: how far a stream's event time has come."""

from __future__ import annotations

from dataclasses import dataclass

from transom.errors import DefinitionError
from transom.model.signatures import checked
from transom.model.time import Duration, Micros, format_duration, parse_duration

_SPANS = ("idle_after", "max_ahead", "close_on_idle", "absent_after")


@dataclass(frozen=True)
class WatermarkPolicy:
    """When the watermark moves; all in microseconds."""

    delay: Micros
    """Derived watermarks: how far behind the largest event time of a source partition the watermark stays."""
    idle_after: Micros | None = None
    """Partitions that were found empty for so long no longer hold the watermark back."""
    max_ahead: Micros | None = None
    """Rows whose event time is further ahead of the wall clock are dead letters."""
    close_on_idle: Micros | None = None
    """When the source was found empty for so long, time itself moves the watermark on."""
    from_source: bool = False
    """The source injects the watermarks; `delay` is subtracted from them all the same."""
    absent_after: Micros | None = None
    """Where several sites have the rows: one of which nothing was heard for so long is left out of windows."""

    def __post_init__(self) -> None:
        if self.delay < 0:
            raise DefinitionError(f"watermark: the delay is {format_duration(self.delay)}.", "Give 0 or more.")
        for name in _SPANS:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise DefinitionError(f"watermark: {name} is {format_duration(value)}.", "Give more than 0, or None.")
        if self.from_source and self.absent_after is not None:
            raise DefinitionError(
                "watermark: absent_after does not go with from_source, whose watermarks do not say how far the rows of "
                "each site are there.",
                "Leave out one of them.",
            )

    def ahead_limit(self, now: Micros) -> Micros | None:
        """Return the largest event time that is believed at wall time `now`; None when there is no bound.

        The bound is rounded up to a sixteenth of `max_ahead`, so that it seldom changes: it is a constant in the
        generated code of the job, and each new constant costs a compilation.
        """
        if self.max_ahead is None:
            return None
        step = max(1, self.max_ahead // 16)
        return -(-(now + self.max_ahead) // step) * step

    def __str__(self) -> str:
        parts = [f"{'source, ' if self.from_source else ''}{format_duration(self.delay)} behind"]
        for name in _SPANS:
            value = getattr(self, name)
            if value is not None:
                parts.append(f"{name.replace('_', ' ')} {format_duration(value)}")
        return ", ".join(parts)


@checked
def watermark(
    delay: Duration = 0,
    *,
    idle_after: Duration | None = None,
    max_ahead: Duration | None = "1 day",
    close_on_idle: Duration | None = None,
    from_source: bool = False,
    absent_after: Duration | None = None,
) -> WatermarkPolicy:
    """Say when a window is complete.

    Args:
        delay: The watermark stays so far behind the largest event time read, per source partition.
        idle_after: A source partition that was found empty for so long no longer holds the others back. Rows that wait
            to be read are none of silence, nor is the time for which the application does not run.
        max_ahead: Rows further ahead of the wall clock than this go to the dead letters and do not move the
            watermark, so that one record of the year 2099 cannot close every window. None: no bound.
        close_on_idle: When all of the source was found empty for so long, time itself moves the watermark on, so that
            the last windows appear. None: they wait for the next row.
        from_source: Take the watermarks that the source itself injects.
        absent_after: Where several sites have the rows, windows wait no longer for one of which nothing was heard for
            so long; results have a column `missing`, the names of such sites. None: they wait.
    """
    optional = {
        "idle_after": idle_after,
        "max_ahead": max_ahead,
        "close_on_idle": close_on_idle,
        "absent_after": absent_after,
    }
    return WatermarkPolicy(
        parse_duration(delay, "watermark delay"),
        from_source=from_source,
        **{
            name: None if value is None else parse_duration(value, f"watermark {name}")
            for name, value in optional.items()
        },
    )
