"""Rows that appear at several sites, tick by tick, as files of JSON lines; what there was can be counted afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.ticking import Ticking

ROWS, KEYS = 7_500, 10_000
"""Rows of a site and tick, each with another key, and how many keys there are in a tick."""


def scattered(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return other numbers for numbers, each its own, of 63 bits, in no order: no codec makes them smaller."""
    mixed = numbers.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return (mixed >> np.uint64(1)).astype(np.int64)


class Feed(Ticking):
    """Writes a file for each site when a tick is over, on a thread; those of it begin in the tick.

    Keys of one tick do not come in another, look like random numbers of 8 bytes, and sites share most of theirs. The
    first row of a file is at the very end of its tick, and so belongs to the next one: it tells that the tick is over.

    Args:
        directories: Where the files of each site appear.
        tick: Seconds.
        rows: Of a file.
        keys: That there are in a tick.
    """

    def __init__(self, directories: Mapping[str, Path], tick: float, rows: int = ROWS, keys: int = KEYS) -> None:
        super().__init__(tick)
        self._directories, self._rows, self._keys = directories, rows, keys
        self._drawn: list[list[int]] = []
        """The keys of each file of the tick that was written last."""
        self.counts: dict[int, Counter[int]] = {}
        """For the end of each tick, microseconds, how often each key came."""

    def drafts(self, number: int) -> list[tuple[Path, Path]]:
        """Write the files of a tick where nobody looks; return where they are, and where they will be."""
        end, found = number * self.tick, []
        self._drawn = []
        for place, (site, directory) in enumerate(self._directories.items()):
            rng = np.random.default_rng([number, place])
            keys = scattered(rng.choice(self._keys, self._rows, replace=False) + number * self._keys).tolist()
            times = end - self.tick + np.sort(rng.integers(0, self.tick, self._rows))
            lines = [f'{{"key":{keys[0]},"at":{end}}}']
            lines += [f'{{"key":{key},"at":{at}}}' for key, at in zip(keys, times.tolist(), strict=True)]
            draft = directory.parent / f"{site}-draft-{number}"
            draft.write_text("\n".join(lines) + "\n")
            found.append((draft, directory / f"{number:012d}.json"))
            self._drawn.append(keys)
        return found

    def over(self, number: int) -> None:
        """Count the keys of a tick."""
        end = number * self.tick
        for keys in self._drawn:
            self.counts.setdefault(end, Counter()).update(keys)
            self.counts.setdefault(end + self.tick, Counter()).update(keys[:1])

    def expected(self, ends: set[int]) -> pa.Table:
        """Return the counts of windows that end at some moments: window_end, key, rows."""
        rows = [(end, key, n) for end in sorted(ends) for key, n in sorted(self.counts[end].items())]
        columns = list(zip(*rows, strict=True)) or [(), (), ()]
        names = ("window_end", "key", "rows")
        return pa.table({name: pa.array(values, pa.int64()) for name, values in zip(names, columns, strict=True)})
