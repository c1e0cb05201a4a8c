"""How large the parcels of a flow are at one site, and how much of longer intervals would be the same: for plans.

Bytes as sent, by the ticks that a parcel gathered. What longer intervals and merges over sites would give follows from
theta sketches of (pane, key), which is what a row of partials is: one of each parcel, and unions of the last ones.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from datasketches import compact_theta_sketch, theta_union, update_theta_sketch
from numpy.typing import NDArray

from transom.engine.partials.tables import PANE
from transom.widearea.sizes import NOMINAL
from transom.widearea.topology import INTERVALS
from transom.windows.keys import is_hashed, value_hashes

SPANS = (6, 20, INTERVALS[-1])
"""Ticks over which the last parcels are united."""
SMOOTH = 0.2
"""The share of a new size in what is known."""


_Words = NDArray[np.uint64]
_NULL = np.uint64(0x61C8864680B583EB)
"""What stands for the hash of null."""
_HEAD = struct.Struct("<BBBxxB2sI4x")
"""Longs before the entries, version, family, flags, checksum of the seed, entries."""
_VERSION, _FAMILY, _ORDERED = 3, 3, 0x1A


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
    """Return a sketch of the panes and keys of partials; O(rows log rows)."""
    names = [name for name in table.column_names if name == PANE or not name.startswith("_s")]
    return theta_of(hashes_of([table.column(name) for name in names]))


def hashes_of(columns: Sequence[pa.ChunkedArray]) -> _Words:
    """Return a hash of each row of some columns, at least one: all sites make the same of equal rows."""
    hashes, factor = np.full(len(columns[0]), 0x345678, np.uint64), 1_000_003
    for number, column in enumerate(columns):
        hashed = np.full(len(column), _NULL)
        hashed[column.is_valid().to_numpy()] = _of_valid(column.drop_null())
        hashes = (hashes ^ hashed) * np.uint64(factor)
        factor += 82_520 + 2 * (len(columns) - number)
    return np.asarray(hashes + np.uint64(97_531))


def _of_valid(column: pa.ChunkedArray) -> _Words:
    """Return a hash of each value of a column without nulls."""
    if is_hashed(column.type):
        hashed = [value_hashes(piece) for piece in column.chunks]
        return _mixed(np.concatenate([*hashed, np.empty(0, np.int64)]).view(np.uint64))
    from pandas.util import hash_pandas_object

    return np.asarray(hash_pandas_object(column.to_pandas(), index=False).to_numpy())


def theta_of(values: _Words) -> compact_theta_sketch:
    """Return the sketch that `update_theta_sketch` makes of some values, with no more entries than it has to keep."""
    empty = update_theta_sketch(NOMINAL).compact()
    entries, most = np.unique(_hashed(values)), 1 << NOMINAL
    entries = entries[np.searchsorted(entries, 1) :]  # as there, 0 is no hash
    if not len(entries):
        return empty
    theta = b"" if len(entries) <= most else entries[most].tobytes()
    seed = empty.serialize()[6:8]
    head = _HEAD.pack(3 if theta else 2, _VERSION, _FAMILY, _ORDERED, seed, min(most, len(entries)))
    return compact_theta_sketch.deserialize(head + theta + entries[:most].tobytes())


def _hashed(values: _Words) -> _Words:
    """Return what `update_theta_sketch` keeps of values: half of MurmurHash3 (x64, 128 bits, seed 9001), without a bit.

    As there, values of 64 bits are hashed as floats.
    """
    wide = values >= np.uint64(1 << 63)
    words = np.where(wide, values.astype(np.float64).view(np.uint64), values) * np.uint64(0x87C37B91114253D5)
    words = ((words << np.uint64(31)) | (words >> np.uint64(33))) * np.uint64(0x4CF5AD432745937F)
    first = (words ^ np.uint64(9001 ^ 8)) + np.uint64(9001 ^ 8)
    return np.asarray((_mixed(first) + _mixed(first + np.uint64(9001 ^ 8))) >> np.uint64(1))


def _mixed(words: _Words) -> _Words:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        words = (words ^ (words >> np.uint64(33))) * np.uint64(factor)
    return np.asarray(words ^ (words >> np.uint64(33)))
