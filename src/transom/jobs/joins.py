"""Joins in TOML jobs: `[[join]]` tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from transom.jobs.keys import Keys
from transom.jobs.rowspec import RowsSpec
from transom.jobs.selections import InputSpec, parse_input
from transom.jobs.windows import check_windows, make_window

if TYPE_CHECKING:
    from transom.api.app import App


@dataclass(frozen=True)
class JoinSpec(RowsSpec):
    """One `[[join]]` table."""

    kind: ClassVar[str] = "join"
    known: ClassVar[tuple[str, ...]] = ("name", "left", "right", "on", "window", "between", "how", "event_time")
    left: InputSpec
    right: InputSpec
    on: tuple[str, ...]
    window: Any = None
    """A duration as text, or a table as in the file; None with `between`."""
    between: tuple[str, ...] | None = None
    """How much later the rows of the right side are: from, to."""
    how: str = "inner"
    event_time: str | None = None

    @classmethod
    def parse(cls, keys: Keys, sources: Sequence[str]) -> Self:
        """Return the join that a table describes."""
        window = keys.get("window", (str, dict))
        if window is not None:
            check_windows(keys, [window], "window")
        left, right = (parse_input(keys, side, sources) for side in ("left", "right"))
        return cls(
            name=keys.need("name", str),
            left=left,
            right=right,
            on=keys.texts("on", needed=True),
            window=window,
            between=keys.texts("between") if "between" in keys.table else None,
            how=keys.get("how", str, "inner"),
            event_time=keys.get("event_time", str),
        )

    @property
    def reads(self) -> tuple[str, ...]:
        """Both sides."""
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
