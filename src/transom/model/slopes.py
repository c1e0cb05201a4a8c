"""Straight lines through points of which some may be wild: costs over what they grow with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SPREAD = 0.2
"""Rows must differ by so much of their median for a slope to be seen."""


def line(rows: Floats, seconds: Floats, believed: Floats | float = 0.0) -> tuple[Floats, Floats]:
    """Return intercept and slope of lines through points, both at least 0.

    Theil's abbreviated method (Theil 1950): the points are paired across the median of `rows`, the slope is the median
    of the slopes of the pairs, the intercept the median of what is left. A quarter of the points may be wild. Where
    nearly all points have the same rows, as under overload, there is no slope to see, and it stays what it was.

    Args:
        rows: (..., points); an even number of points.
        seconds: (..., points).
        believed: Slope where the rows do not differ by a fifth across the median, (...).

    O(points log points) for each line.

    >>> fixed, slope = line(np.array([0.0, 100.0, 200.0, 300.0]), np.array([1.0, 2.0, 3.0, 4.0]))
    >>> float(fixed), float(slope)
    (1.0, 0.01)
    """
    order = np.argsort(rows, axis=-1, kind="stable")
    x, y = np.take_along_axis(rows, order, -1), np.take_along_axis(seconds, order, -1)
    half = x.shape[-1] // 2
    across, up = x[..., half:] - x[..., :half], y[..., half:] - y[..., :half]
    slopes = np.where(across > 0, up / np.where(across > 0, across, 1.0), 0.0)
    middle = np.maximum(median(x), 1.0)
    slope = np.where(median(across) >= SPREAD * middle, median(slopes), believed)
    slope = np.clip(slope, 0.0, median(y) / middle)  # at most a line through the origin: the fixed part is not negative
    return np.maximum(0.0, median(y - slope[..., None] * x)), slope


def median(values: Floats) -> Floats:
    """Return the medians over the last axis."""
    ordered, middle = np.sort(values, axis=-1), values.shape[-1] // 2
    return np.asarray((ordered[..., middle] + ordered[..., (values.shape[-1] - 1) // 2]) / 2)
