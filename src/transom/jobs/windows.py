"""Windows in TOML jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transom.jobs.keys import Keys

_WINDOWS = {
    "tumbling": ("tumbling", "offset"),
    "sliding": ("sliding", "every", "offset"),
    "cumulate": ("cumulate", "every", "offset"),
    "calendar": ("calendar", "zone", "week_start", "offset"),
    "session": ("session", "at_most", "ends_when"),
    "unbounded": ("unbounded", "keys"),
}
"""Keys of each kind of window; the first is the argument, the others are named."""
_NEEDED = {"sliding": ("every",), "cumulate": ("every",)}


def check_windows(keys: Keys, windows: Sequence[Any], field: str = "windows") -> None:
    """Refuse what is no window.

    Args:
        keys: The table that holds the windows, for errors.
        windows: Durations as text, or tables.
        field: Their key.

    Raises:
        JobFileError: One of them is neither, or has unknown keys.
    """
    for window in windows:
        kinds = [kind for kind in _WINDOWS if kind in window] if isinstance(window, dict) else []
        if len(kinds) > 1:
            raise keys.error(f"{field}: {window!r} is {' and '.join(kinds)}", "Write a window of its own for each.")
        if isinstance(window, dict):
            every = tuple(sorted({key for keys in _WINDOWS.values() for key in keys}))
            inner = Keys(keys.file, f"{keys.where} {field}", window, _WINDOWS[kinds[0]] if kinds else every)
            for key in (*window, *_NEEDED.get("".join(kinds), ())):
                inner.need(key, int if key == "keys" else str)
        if not isinstance(window, (str, dict)) or (isinstance(window, dict) and not kinds):
            raise keys.error(
                f"{field}: {window!r} is not a window",
                'Write "5 minutes", {tumbling = "1 day", offset = "4 hours"}, {session = "30 minutes"}, '
                '{sliding = "1 hour", every = "1 minute"}, {cumulate = "1 day", every = "1 hour"} or '
                '{calendar = "week", zone = "Europe/Copenhagen"}, or alone {unbounded = "1 minute", keys = 1000}.',
            )


def make_window(window: Any) -> Any:
    """Return a checked window as `transom` takes it."""
    import transom as tm

    if isinstance(window, str):
        return window
    arguments = dict(window)
    kind = next(kind for kind in _WINDOWS if kind in arguments)
    make = tm.session_window if kind == "session" else getattr(tm, kind)
    return make(arguments.pop(kind), **arguments)
