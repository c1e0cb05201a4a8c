"""The counts of a cut over rows that are in memory, as its Spark job observes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transom.engine.spark.cutstats import CutStats
from transom.model.time import FIRST_EVENT, LAST_EVENT, Micros
from transom.scheduling.arrivals import DelayMoments

Ints = npt.NDArray[Any]


def counted(
    times: pa.Array, ahead: Micros | None, partitions: int, of: int | Ints | None, arrived: int | Ints | None
) -> tuple[CutStats, npt.NDArray[np.bool_]]:
    """Return the counts over rows, and which of them the queries see: those with a time that can be used.

    Args:
        times: Event times in microseconds, null where there is none.
        ahead: Largest event time that is believed; None for no bound.
        partitions: Number of source partitions.
        of: Source partition of all rows or of each; None where rows do not say, and each is of all of them.
        arrived: When all rows or each arrived in the source; None where nobody asks.
    """
    known = times.is_valid().to_numpy(zero_copy_only=False)
    micros = times.fill_null(0).to_numpy()
    last = LAST_EVENT if ahead is None else min(ahead, LAST_EVENT)
    before, beyond = known & (micros < FIRST_EVENT), known & (micros > last)
    good: npt.NDArray[np.bool_] = known & ~before & ~beyond
    usable = micros[good]
    stats = CutStats(
        rows=len(times),
        newest=tuple(_newest(usable, _mine(of, good, number)) for number in range(partitions)),
        null_time=times.null_count,
        ahead=0 if ahead is None else int(beyond.sum()),
        out_of_range=int(before.sum()) + (int(beyond.sum()) if ahead is None else 0),
        delays=_delays(usable, arrived[good] if isinstance(arrived, np.ndarray) else arrived),
    )
    return stats, good


def _mine(of: int | Ints | None, good: npt.NDArray[np.bool_], number: int) -> Any:
    """Return what chooses the rows of a source partition among those that are good."""
    if isinstance(of, np.ndarray):
        return of[good] == number
    return slice(None) if of is None or of == number else slice(0)


def _newest(times: Ints, mine: Any) -> Micros | None:
    chosen = times[mine]
    return int(chosen.max()) if len(chosen) else None


def _delays(times: Ints, arrived: int | Ints | None) -> DelayMoments:
    if arrived is None or not len(times):
        return DelayMoments()
    return DelayMoments.of((arrived - times).astype(np.float64))
