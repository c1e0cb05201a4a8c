"""Windows that are computed directly: rows aggregated per window and key by the job, without panes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from transom.model.time import Micros
from transom.windows.aggregates.base import Primitive, Slots, State, Types
from transom.windows.panes import Times
from transom.windows.partials import Partial, concatenated, renumbered
from transom.windows.reusable import PanedWindows, Span, is_window


class WindowPartials:
    """Partials by window and key (Enorm, section 5.1, the combined form).

    A record is in the accumulators of all its windows or in one pane, never in both: so windows of records from cuts in
    either form are the merge of the two, and the form can change with any cut.
    """

    def __init__(self) -> None:
        self._parts: dict[Span, list[Partial]] = {}

    def add(self, span: Span, part: Partial) -> list[Partial]:
        """Add rows to a window; return its partials, which the caller may merge into one with `settle`."""
        parts = self._parts.setdefault(span, [])
        parts.append(part)
        return parts

    def settle(self, span: Span, part: Partial) -> None:
        """Put one partial in the place of a window's partials, of which it is the merge."""
        self._parts[span] = [part]

    def of(self, span: Span) -> Sequence[Partial]:
        """Return the partials of a window."""
        return self._parts.get(span, ())

    def ending(self, kind: PanedWindows, after: Micros, until: Micros) -> list[Span]:
        """Return the windows of a kind that hold rows and end in (after, until]; O(windows held)."""
        return [span for span in self._parts if after < span[1] <= until and is_window(kind, span)]

    def drop(self, moment: Micros, ended: Micros) -> None:
        """Forget the windows that start before the moment or end by `ended`."""
        for span in [span for span in self._parts if span[0] < moment or span[1] <= ended]:
            del self._parts[span]

    def rows(self, primitives: Mapping[Primitive, Types]) -> tuple[Times, Times, Slots, dict[Primitive, State]]:
        """Return starts, lengths, key ids and states of all rows, a window's partials one after the other."""
        if not self._parts:
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), {}
        parts = [(span, part) for span in sorted(self._parts) for part in self._parts[span]]
        counts = [len(part) for _, part in parts]
        starts, ends = (np.repeat(np.array([span[side] for span, _ in parts], np.int64), counts) for side in (0, 1))
        ids, states = concatenated([part for _, part in parts], primitives)
        return starts, ends - starts, ids, states

    def items(self) -> Iterable[tuple[Span, Sequence[Partial]]]:
        """Return the windows with their partials."""
        return self._parts.items()

    def partials(self) -> list[Partial]:
        """Return all partials."""
        return [part for parts in self._parts.values() for part in parts]

    def renumber(self, numbers: Slots) -> None:
        """Change the key ids, as `partials.renumbered` does."""
        for span, parts in self._parts.items():
            self._parts[span] = [renumbered(part, numbers) for part in parts]
