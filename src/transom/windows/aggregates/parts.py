"""States that are merged late: each slot holds a tuple of immutable parts, combined when the value is needed.

Most slots are merged once and read once, and a pane that several windows share must not change. So a merge
only concatenates tuples; bytes are looked into by `result`, by `encode`, or when a slot has gathered
`MOST_PARTS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from transom.windows.aggregates.base import State, Types, Where
from transom.windows.aggregates.values import Mask, Values, to_values

MOST_PARTS = 64
"""Parts of a slot before they are combined; bounds memory, and keeps the copying of tuples cheap."""


def no_parts(slots: int) -> Values:
    """Return a column of slots without parts."""
    column = np.empty(slots, dtype=object)
    column.fill(())
    return column


def single_parts(values: list[Any] | Values, valid: Mask) -> Values:
    """Return a column with one part in each valid row and none elsewhere."""
    column = no_parts(len(values))
    for row in np.flatnonzero(valid):
        column[row] = (values[row],)
    return column


class PartsPrimitive(ABC):
    """A primitive whose state is one column of parts; it says what a part is and how parts are combined."""

    column: ClassVar[str]
    """The state's column."""

    @property
    def small(self) -> bool:
        """It can be kilobytes, or anything."""
        return False

    @abstractmethod
    def combine(self, parts: tuple[Any, ...]) -> Any:
        """Return one part made of at least two; the parts stay as they are."""

    def decode(self, columns: Mapping[str, pa.Array]) -> State:
        """Return the parts, unread."""
        return {self.column: single_parts(*to_values(columns[self.column]))}

    def encode(self, state: State, types: Types) -> dict[str, pa.Array]:
        """Return one part per slot."""
        return {self.column: pa.array(self.combined(state), type=types[self.column])}

    def empty(self, slots: int, types: Types) -> State:
        """Return slots without parts."""
        return {self.column: no_parts(slots)}

    def merge_into(self, into: State, slots: Where, other: State) -> None:
        """Gather the parts of each row of `other` in its slot."""
        gathered = into[self.column]
        places = range(len(gathered)) if isinstance(slots, slice) else slots.tolist()
        for slot, parts in zip(places, other[self.column], strict=True):
            if parts:
                joined = gathered[slot] + parts
                gathered[slot] = (self.combine(joined),) if len(joined) > MOST_PARTS else joined

    def flaw(self, columns: Mapping[str, pa.Array]) -> str:
        """Return what `check` says of the first part that is none."""
        for parts in self.decode(columns)[self.column]:
            for part in parts:
                try:
                    self.check(part)
                except Exception as error:  # libraries raise what they like
                    return str(error) or type(error).__name__
        return ""

    def check(self, part: Any) -> None:
        """Refuse what is no part, whatever made it.

        Raises:
            Exception: It is none.
        """
        self.combine((part,))

    def combined(self, state: State) -> list[Any]:
        """Return the one part of each slot, None where there is none."""
        column = state[self.column]
        return [None if not parts else parts[0] if len(parts) == 1 else self.combine(parts) for parts in column]
