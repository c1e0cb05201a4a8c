"""The partials of one store that are in files: which they are, and which panes and windows they hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from transom.engine.cluster.merges import StoreFiles
from transom.model.time import MIN_TIME, Micros
from transom.model.window import WindowKind
from transom.windows.panes import Times, closing_windows
from transom.windows.reusable import PanedWindows, Span, is_window


class FileParts:
    """Parts in files, and what of them is not needed any more."""

    def __init__(self) -> None:
        self.parts: list[StoreFiles] = []
        self.floor = self.ended = self.begun = MIN_TIME
        """No window that starts before `floor`, no directly computed window that ends by `ended` and no session that
        begins before `begun` will be asked for."""
        self._starts: Times | None = None
        self._all: tuple[Times, list[Micros], Times] | None = None
        """Starts of all panes, with those that are elsewhere and of which they were made."""

    def put(self, parts: Iterable[StoreFiles]) -> None:
        """Put parts in the place of all."""
        self.parts = list(parts)
        self._starts = self._all = None

    def attach(self, part: StoreFiles) -> None:
        """Take in one more."""
        self.put([*self.parts, part])

    def drop_before(self, moment: Micros, ended: Micros, begun: Micros) -> None:
        """Forget the parts that no window and no session needs; the times are those of `floor`, `ended`, `begun`."""
        self.floor, self.ended, self.begun = max(self.floor, moment), max(self.ended, ended), begun
        if self.parts:
            self.put(part for part in self.parts if part.needed(self.floor, self.ended, self.begun))

    def hold(self, span: Span) -> bool:
        """Tell whether a part has rows of a window."""
        return any(part.holds(span) for part in self.parts)

    @property
    def nbytes(self) -> int:
        """Bytes of the files; those that are shared with other stores count in each."""
        return sum(part.files.nbytes for part in self.parts)

    def starts(self) -> Times:
        """Return the starts of the panes that have rows in files and may be asked for, ascending."""
        if self._starts is None:
            some = [part.starts[part.starts >= self.floor] for part in self.parts]
            self._starts = np.unique(np.concatenate([np.empty(0, np.int64), *some]))
        return self._starts

    def starts_with(self, others: Times) -> tuple[Sequence[Micros], Times]:
        """Return these starts and others, ascending, as a list and as an array."""
        if self._all is None or self._all[0] is not others:
            times = np.unique(np.concatenate([others, self.starts()]))
            self._all = others, times.tolist(), times
        return self._all[1:]

    def due(self, kind: WindowKind, after: Micros, until: Micros) -> set[Span]:
        """Return the windows of a kind that have rows in files and end in (after, until]."""
        windows = (span for span in self._windows() if after < span[1] <= until and is_window(kind, span))
        return {*closing_windows(kind, self.starts(), after, until), *windows}

    def last_end(self, kinds: Sequence[PanedWindows]) -> Micros:
        """Return the end of the last window of some kinds that has rows in files; MIN_TIME if none has."""
        starts = self.starts()
        ends = [kind.last_end(int(starts[-1])) for kind in kinds] if len(starts) else []
        ends += [end for kind in kinds for start, end in self._windows() if is_window(kind, (start, end))]
        return max(ends, default=MIN_TIME)

    def _windows(self) -> set[Span]:
        return {span for part in self.parts for span in part.windows}
