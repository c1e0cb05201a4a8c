"""Rows that appear at several sites, tick by tick, as files of JSON lines; what there was can be counted afterwards."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

ROWS, KEYS = 7_500, 10_000
"""Rows of a site and tick, each with another key, and how many keys there are in a tick."""


def scattered(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return other numbers for numbers, each its own, of 63 bits, in no order: no codec makes them smaller."""
    mixed = numbers.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return (mixed >> np.uint64(1)).astype(np.int64)


class Feed:
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
        self._directories, self._tick, self._rows, self._keys = directories, round(tick * 1e6), rows, keys
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.counts: dict[int, Counter[int]] = {}
        """For the end of each tick, microseconds, how often each key came."""
        self.behind = 0.0
        """The longest that a file came after its moment, seconds."""
        self.failure: BaseException | None = None

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *ignored: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Let no more files appear.

        Raises:
            RuntimeError: Files had stopped to appear.
        """
        self._stopped.set()
        self._thread.join()
        if self.failure is not None:
            raise RuntimeError("the feed ended early") from self.failure

    def _run(self) -> None:
        try:
            number = time.time_ns() // 1_000 // self._tick + 2
            while not self._stopped.is_set():
                drafts = self._write(number)
                if self._stopped.wait(max(0.0, number * self._tick / 1e6 - time.time())):
                    return
                for draft, path, keys in drafts:
                    self._count(number * self._tick, keys)
                    draft.rename(path)
                self.behind = max(self.behind, time.time() - number * self._tick / 1e6)
                number += 1
        except BaseException as error:
            self.failure = error

    def _write(self, number: int) -> list[tuple[Path, Path, list[int]]]:
        """Write the files of a tick where nobody looks; return where they are, where they will be, and their keys."""
        end, found = number * self._tick, []
        for place, (site, directory) in enumerate(self._directories.items()):
            rng = np.random.default_rng([number, place])
            keys = scattered(rng.choice(self._keys, self._rows, replace=False) + number * self._keys)
            times = end - self._tick + np.sort(rng.integers(0, self._tick, self._rows))
            lines = [f'{{"key":{keys[0]},"at":{end}}}']
            lines += [f'{{"key":{key},"at":{at}}}' for key, at in zip(keys.tolist(), times.tolist(), strict=True)]
            draft = directory.parent / f"{site}-draft-{number}"
            draft.write_text("\n".join(lines) + "\n")
            found.append((draft, directory / f"{number:012d}.json", keys.tolist()))
        return found

    def _count(self, end: int, keys: list[int]) -> None:
        self.counts.setdefault(end, Counter()).update(keys)
        self.counts.setdefault(end + self._tick, Counter()).update(keys[:1])

    def expected(self, ends: set[int]) -> pa.Table:
        """Return the counts of windows that end at some moments: window_end, key, rows."""
        rows = [(end, key, n) for end in sorted(ends) for key, n in sorted(self.counts[end].items())]
        columns = list(zip(*rows, strict=True)) or [(), (), ()]
        names = ("window_end", "key", "rows")
        return pa.table({name: pa.array(values, pa.int64()) for name, values in zip(names, columns, strict=True)})
