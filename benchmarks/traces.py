"""Real load shapes: requests by second or minute, and the stretch of them with the highest peak over mean."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Trace:
    """A file of requests."""

    file: str
    per_point: int
    """Values that become one second."""

    def read(self, directory: Path) -> Floats:
        """Return the requests of each second or minute."""
        path = directory / self.file
        if path.suffix == ".gz":
            with gzip.open(path, "rt") as text:
                return np.array([float(row["num_request"]) for row in csv.DictReader(text)])
        with tarfile.open(fileobj=io.BytesIO(bz2.decompress(path.read_bytes()))) as archive:
            member = archive.extractfile(archive.getmembers()[0])
            assert member is not None
            return np.array(member.read().split(), np.float64)


TRACES = {
    "worldcup": Trace("worldcup98_requests_per_minute.csv.gz", 1),
    "twitter": Trace("twitter_requests_per_second.tbz2", 30),
    "nasa": Trace("nasa_requests_per_second.tbz2", 30),
}
"""Two hours of WorldCup, an hour of the others, become 120 s."""


def stretch(values: Floats, per_point: int, points: int) -> Floats:
    """Return the stretch with the highest peak over mean, as so many points whose mean is 1.

    Only stretches with at least the mean of all are looked at: in the quietest hours of the night a single request is
    many times the mean.

    >>> stretch(np.array([0.0, 1.0, 3.0, 9.0, 3.0, 3.0, 0.0]), 1, 4).round(2).tolist()
    [0.25, 0.75, 2.25, 0.75]
    """
    whole = values[: len(values) // per_point * per_point].reshape(-1, per_point).sum(axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(whole, points)
    means = windows.mean(axis=1)
    ratio = np.where(means >= whole.mean(), windows.max(axis=1) / np.maximum(means, 1e-9), 0.0)
    best = int(ratio.argmax())
    return np.asarray(windows[best] / means[best])
