"""What a query fills in where keys have no rows, and totals, checked when they are written."""

from __future__ import annotations

from collections.abc import Sequence

from transom.errors import DefinitionError, did_you_mean
from transom.model.time import Duration, format_duration, parse_duration
from transom.model.unbounded import Unbounded
from transom.model.window import Window, WindowKind, WindowSpec, tumbling, windows_text
from transom.windows.query import Fill, Key, Total


def fill_of(value: str, for_at_most: Duration | None, windows: Sequence[WindowKind]) -> Fill:
    """Return what is filled in.

    Args:
        value: What the user wrote.
        for_at_most: As well.
        windows: Of the query.

    Raises:
        DefinitionError: They make no sense, or do not go together.
    """
    if value not in ("zero", "previous"):
        remedy = did_you_mean(str(value), ["zero", "previous"], 'Write fill("zero"), or fill("previous", "1 day").')
        raise DefinitionError(f"fill: {value!r} is unknown.", remedy)
    if value == "previous" and for_at_most is None:
        raise DefinitionError(
            'fill: "previous" lacks for_at_most, how long a key goes on after its last window with rows.',
            'Add for example for_at_most="1 day"; then keys are forgotten, until they have rows again.',
        )
    if value == "previous" and len(windows) > 1:
        raise DefinitionError(
            f'fill: "previous" goes with one kind of window; of these, none is clearly the one before: '
            f"{', '.join(windows_text(windows))}.",
            "Write a query for each of them; they share what they compute.",
        )
    most = None if for_at_most is None else parse_duration(for_at_most, "for_at_most")
    slides = [window.slide for window in windows if isinstance(window, WindowSpec)]
    if most is not None and most < min(slides, default=1):
        raise DefinitionError(
            f"fill: for_at_most is {format_duration(most)}, but the next window ends "
            f"{format_duration(min(slides, default=1))} later, so that nothing would be filled in.",
            "Give a longer time.",
        )
    return Fill(value == "zero", most)


def total_of(windows: Sequence[Window], keys: Sequence[Key], updates: bool) -> tuple[Sequence[Window], Total | None]:
    """Return the windows that totals are made of, and the totals; or what was given, where it has none.

    Args:
        windows: What the user wrote.
        keys: Of the query.
        updates: Whether there are early results or lateness.

    Raises:
        DefinitionError: They do not go together.
    """
    given = next((window for window in windows if isinstance(window, Unbounded)), None)
    if given is None or len(windows) > 1:
        return windows, None  # with others it is refused as no window
    if updates:
        raise DefinitionError(
            "unbounded: it does not go with early results or lateness: each correction would change all later totals.",
            "Leave them out: every says how often there are results; a watermark that waits longer makes fewer late.",
        )
    if keys and given.keys is None:
        raise DefinitionError(
            "unbounded: a total for each key is kept for ever, and keys does not say how many there may be.",
            'Write for example tm.unbounded("1 minute", keys=10_000), or use windows that end.',
        )
    return [tumbling(given.every)], Total(given.keys if keys else None)
