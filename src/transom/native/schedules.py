"""Rows that are due at a steady rate: their numbers and times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.model.time import MICROS_PER_SECOND, Micros
from transom.native.values import UncertainError

ID, EVENT_TIME = "id", "event_time"
_KIND = pa.timestamp("us", "UTC")
_MOST = (1 << 63) - 1


@dataclass(frozen=True)
class Schedule:
    """When rows are due: row i at start + i / rate, in whole microseconds, rounded down."""

    start: Micros
    rows: int
    seconds: int
    """The rate as a fraction without a common divisor: so many rows in so many seconds."""

    def due(self, row: int) -> Micros:
        """Return when a row is due, whatever its number."""
        return self.start + row * MICROS_PER_SECOND * self.seconds // self.rows

    def between(self, first: int, last: int) -> pa.RecordBatch:
        """Return the numbers and times of rows `first` to `last` - 1.

        Raises:
            UncertainError: A time that no bigint of microseconds holds: what Spark does depends on its settings.
        """
        if last > first and not (self.due(last - 1) <= _MOST and self.due(last - 1) - self.start <= _MOST):
            raise UncertainError("the time of a row that is too far")
        row = np.arange(first, last, dtype=np.int64)
        whole, rest = np.divmod(row, self.rows)
        period = MICROS_PER_SECOND * self.seconds
        times = self.start + (whole * period + rest * period // self.rows)
        return pa.RecordBatch.from_arrays([pa.array(row), pa.array(times).cast(_KIND)], names=[ID, EVENT_TIME])
