"""How large the parcels of a flow are at one site, and how much of longer intervals would be the same: for plans.

Bytes as sent, by the ticks that a parcel gathered. What longer intervals and merges over sites would give follows from
theta sketches of (pane, key), which is what a row of partials is: one of each parcel, and unions of the last ones.
"""

from __future__ import annotations

from collections import deque

import pyarrow as pa
from datasketches import compact_theta_sketch, theta_union, update_theta_sketch

from transom.engine.partials.tables import PANE
from transom.widearea.sizes import NOMINAL
from transom.widearea.topology import INTERVALS

SPANS = (6, 20, INTERVALS[-1])
"""Ticks over which the last parcels are united."""
SMOOTH = 0.2
"""The share of a new size in what is known."""


class FlowSizes:
    """What was measured of one flow."""

    def __init__(self) -> None:
        self.sent: dict[int, float] = {}
        """Bytes of parcels by the ticks that they gathered; smoothed."""
        self._last: int | None = None
        self._ticks: dict[int, int] = {}
        """By tick of a parcel, the ticks that it gathered."""
        self._sketches: deque[tuple[int, compact_theta_sketch]] = deque()

    def fixed(self, tick: int, table: pa.Table) -> None:
        """Take note of the partials of a parcel; O(rows).

        Args:
            tick: That on which it leaves.
            table: Its partials.
        """
        gathered = 0 if self._last is None else tick - self._last
        self._last = tick
        if not 1 <= gathered <= SPANS[-1]:  # the first one, or after a link was down
            return
        self._ticks[tick] = gathered
        while len(self._ticks) > SPANS[-1]:
            del self._ticks[next(iter(self._ticks))]
        self._sketches.append((gathered, sketch_of(table)))
        while sum(ticks for ticks, _ in self._sketches) > SPANS[-1]:
            self._sketches.popleft()

    def sent_as(self, tick: int, size: int) -> None:
        """Take note of the bytes of a parcel on its link.

        Args:
            tick: That on which it left.
            size: Bytes.
        """
        gathered = self._ticks.pop(tick, None)
        if gathered is not None:
            known = self.sent.get(gathered, float(size))
            self.sent[gathered] = known + SMOOTH * (size - known)

    def sketches(self) -> dict[int, bytes]:
        """Return sketches of the last parcels together, by the ticks that they gathered."""
        found, union, total = {}, theta_union(NOMINAL), 0
        wanted = list(SPANS)
        for gathered, sketch in reversed(self._sketches):
            union.update(sketch)
            total += gathered
            if total == gathered or (wanted and total >= wanted[0]):
                found[total] = union.get_result().serialize()
                wanted = [span for span in wanted if span > total]
        return found


def sketch_of(table: pa.Table) -> compact_theta_sketch:
    """Return a sketch of the panes and keys of partials."""
    from pandas.util import hash_pandas_object

    names = [name for name in table.column_names if name == PANE or not name.startswith("_s")]
    sketch = update_theta_sketch(NOMINAL)
    for entry in hash_pandas_object(table.select(names).to_pandas(), index=False).tolist():
        sketch.update(entry)
    return sketch.compact()
