"""Joins in TOML jobs: `[[join]]` tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from transom.jobs.keys import Keys, Table
from transom.jobs.selections import InputSpec, parse_input
from transom.jobs.windows import check_windows, make_window

if TYPE_CHECKING:
    from transom.api.app import App

_JOIN = ("name", "left", "right", "on", "window", "between", "how", "event_time")


@dataclass(frozen=True)
class JoinSpec:
    """One `[[join]]` table."""

    kind: ClassVar[str] = "join"
    name: str
    left: InputSpec
    right: InputSpec
    on: tuple[str, ...]
    window: Any = None
    """A duration as text, or a table as in the file; None with `between`."""
    between: tuple[str, ...] | None = None
    """How much later the rows of the right side are: from, to."""
    how: str = "inner"
    event_time: str | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of what it reads."""
        return self.left.source, self.right.source

    def add(self, app: App, rows: Mapping[str, Any]) -> Any:
        """Return the joined rows."""
        left, right = self.left.of(rows), self.right.of(rows)
        window = None if self.window is None else make_window(self.window)
        between: Any = self.between
        kind, time = self.how, self.event_time
        return app.join(
            left, right, on=self.on, window=window, between=between, how=kind, event_time=time, name=self.name
        )


def parse_join(file: str, table: Table, known: Sequence[str]) -> JoinSpec:
    """Return the join that a table describes.

    Args:
        file: Name of the file, for errors.
        table: The table.
        known: Names of what may be read.

    Raises:
        JobFileError: A key is unknown, missing or of the wrong type, or a source is unknown.
    """
    name = table.get("name")
    keys = Keys(file, f"[[join]] {name!r}" if name else "[[join]]", table, _JOIN)
    window = keys.get("window", (str, dict))
    if window is not None:
        check_windows(keys, [window], "window")
    left, right = (parse_input(keys, side, known) for side in ("left", "right"))
    return JoinSpec(
        name=keys.need("name", str),
        left=left,
        right=right,
        on=keys.texts("on", needed=True),
        window=window,
        between=keys.texts("between") if "between" in table else None,
        how=keys.get("how", str, "inner"),
        event_time=keys.get("event_time", str),
    )
