"""The world outside a simulated engine: rows, windows and the watermarks that complete them, in virtual time.

Nothing here depends on a policy, so policies are compared on the same arrivals, delays and durations (paired).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from transom.errors import DefinitionError
from transom.model.time import MICROS_PER_SECOND, Micros
from transom.scheduling.arrivals import Arrival, DelayMoments, LagHistory

Floats = npt.NDArray[np.float64]

SECOND = float(MICROS_PER_SECOND)
DELAY = 1_000
"""Largest network delay, milliseconds."""
STARTS = 20 * MICROS_PER_SECOND
"""Streams start at random within this time, as in the Klink paper."""
REFRESH = 10
"""Estimates of arrivals are renewed after so many sweeping watermarks, at first after each."""


def uniform(random: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Return delays up to 1 s, all as likely; microseconds."""
    return random.uniform(0, DELAY * 1e3, shape)


def zipf(random: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Return delays of 1 to 1000 ms by Zipf's law with exponent 0.99; microseconds."""
    weights = np.arange(1, DELAY + 1) ** -0.99
    places = np.searchsorted(np.cumsum(weights / weights.sum()), random.uniform(0, 1, shape))
    return np.asarray(1e3 * (1 + places), dtype=np.float64)


LAWS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Floats]] = {"uniform": uniform, "zipf": zipf}


@dataclass(frozen=True)
class StreamTruth:
    """A stream as it is; the simulated scheduler only sees what its runs show.

    Raises:
        DefinitionError: A number is not positive, or the delay law unknown.
    """

    rate: float
    """Rows per second, on average."""
    slide: Micros
    """Time between two ends of windows."""
    length: Micros
    """Of a window, microseconds."""
    limit: Micros
    """Latency limit."""
    job: float
    """Seconds of a job without rows."""
    row: float
    """Seconds of a job per row."""
    partials: float
    """Rows of the partials that make one window."""
    partial: float = 1e-6
    """Seconds of the driver per row of a partial."""
    results: float = 100.0
    """Rows of results per window."""
    delay: str = "uniform"
    """Law of the network delay."""
    watermark_every: Micros | None = None
    """Event time between injected watermarks; None when the watermark is derived from the rows."""
    burst: float = 0.0
    """Standard deviation of the rate over its mean, from one burst to another."""
    inputs: int = 1
    """Streams like this one that are joined: so many neighbours complete a window together."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, int | float) and not 0 <= value < math.inf:
                raise DefinitionError(f"simulated stream: {one.name} is {value}.", "Give 0 or more.")
        if min(self.rate, self.slide, self.length, self.job, self.inputs) <= 0 or self.watermark_every == 0:
            raise DefinitionError(
                "simulated stream: rate, times, job and inputs must be positive.", "Give more than 0."
            )
        if self.watermark_every is not None and self.slide % self.watermark_every:
            raise DefinitionError(
                "simulated stream: windows end between watermarks.", "Let the period divide the slide."
            )
        if self.delay not in LAWS:
            raise DefinitionError(f"simulated stream: there is no delay law {self.delay!r}.", f"{', '.join(LAWS)}.")

    @property
    def injected(self) -> bool:
        """Whether the source injects watermarks."""
        return self.watermark_every is not None

    @property
    def work(self) -> float:
        """Cores that it needs when each window gets one job: the least that keeps up with every window by itself."""
        return self.job * MICROS_PER_SECOND / self.slide + self.row * self.rate


def load(streams: Sequence[StreamTruth], cores: int) -> float:
    """Return offered work over capacity: the cores that the streams need, one job per window, over the cores."""
    return sum(stream.work for stream in streams) / cores


@dataclass(frozen=True)
class World:
    """Runs of streams with different seeds; arrays of shape (runs, streams, ...), times in microseconds."""

    streams: tuple[tuple[StreamTruth, ...], ...]
    """Of each run; runs with fewer streams than others have places where nothing happens."""
    ends: Floats
    """First end of a window, (runs, streams)."""
    swept: Floats
    """Arrival of the sweeping watermark of each window, (runs, streams, windows); infinite past the last one."""
    rates: Floats
    """Rows per microsecond in each second, (runs, streams, seconds)."""
    lag: Floats
    """Expected lag of window k after k sweeping watermarks, (runs, streams, windows)."""
    sigma: Floats
    """Its predictive standard deviation."""
    noise: Floats
    """Duration of the j-th job of a stream over its expectation, (runs, streams, jobs)."""
    duration: float
    """Length of the runs."""

    @property
    def inputs(self) -> int:
        """Streams that complete a window together."""
        return self.streams[0][0].inputs

    @property
    def alive(self) -> npt.NDArray[np.bool_]:
        """The places that hold a stream, (runs, streams)."""
        counts = np.array([len(each) for each in self.streams])
        return np.arange(self.ends.shape[1]) < counts[:, None]

    def column(self, name: str) -> Floats:
        """Return a field of the streams, (runs, streams); where there is no stream, that of the last one."""
        width = self.ends.shape[1]
        padded = ([*each, *[each[-1]] * (width - len(each))] for each in self.streams)
        return np.array([[getattr(stream, name) for stream in each] for each in padded], dtype=np.float64)


def together(worlds: Sequence[World]) -> World:
    """Return the runs of several worlds of the same length as one, in this order.

    Raises:
        DefinitionError: The worlds differ in length, or in how many streams are joined.
    """
    if len({(world.duration, world.inputs) for world in worlds}) != 1:
        raise DefinitionError("simulation: worlds differ in length or joins.", "Put together what is alike.")
    width, windows = (max(world.swept.shape[axis] for world in worlds) for axis in (1, 2))

    def padded(name: str, value: float) -> Floats:
        parts = []
        for world in worlds:
            part = getattr(world, name)
            longer = windows - part.shape[2] if name in ("swept", "lag", "sigma") else 0
            widths = [(0, 0), (0, width - part.shape[1]), (0, longer)][: part.ndim]
            parts.append(np.pad(part, widths, constant_values=value))
        return np.concatenate(parts)

    return World(
        streams=tuple(each for world in worlds for each in world.streams),
        ends=padded("ends", 0.0),
        swept=padded("swept", np.inf),
        rates=padded("rates", 0.0),
        lag=padded("lag", 0.0),
        sigma=padded("sigma", 0.0),
        noise=padded("noise", 1.0),
        duration=worlds[0].duration,
    )


def make_world(streams: Sequence[StreamTruth], seeds: Sequence[int], seconds: int) -> World:
    """Return runs of `seconds` of virtual time, one per seed.

    Raises:
        DefinitionError: There is no stream or no seed, or joined streams are not whole groups of neighbours.
    """
    if not streams or not seeds or seconds <= 0:
        raise DefinitionError("simulation: no streams, seeds or time.", "Give at least one of each.")
    for place in range(0, len(streams), streams[0].inputs):
        group = streams[place : place + streams[0].inputs]
        if len(group) != streams[0].inputs or len(set(group)) != 1:
            raise DefinitionError("simulation: inputs of a join must be equal neighbours.", "Put them side by side.")
    made = [_one_run(streams, np.random.default_rng(seed), seconds) for seed in seeds]
    ends, swept, rates, lag, sigma, noise = (np.stack(parts) for parts in zip(*made, strict=True))
    return World((tuple(streams),) * len(seeds), ends, swept, rates, lag, sigma, noise, seconds * SECOND)


def _one_run(streams: Sequence[StreamTruth], random: np.random.Generator, seconds: int) -> tuple[Floats, ...]:
    count, joined = len(streams), streams[0].inputs
    windows = max(math.ceil(seconds * SECOND / stream.slide) for stream in streams) + 1
    swept = np.full((count, windows), np.inf)
    lag, sigma = np.zeros((count, windows)), np.zeros((count, windows))
    starts = np.repeat(random.uniform(0, STARTS, count // joined), joined)
    ends = starts + [stream.slide for stream in streams]
    for place, stream in enumerate(streams):
        lags = _lags(stream, random, windows)
        swept[place] = ends[place] + stream.slide * np.arange(windows) + lags
        swept[place][swept[place] > seconds * SECOND] = np.inf
        lag[place], sigma[place] = _foretold(stream, lags, random)
    return ends, swept, _rates(streams, starts, random, seconds), lag, sigma, _noise(random, count)


def _lags(stream: StreamTruth, random: np.random.Generator, windows: int) -> Floats:
    """Return the lags of the sweeping watermarks: of the first watermark at or behind each end to arrive."""
    law = LAWS[stream.delay]
    if stream.watermark_every is not None:
        each = stream.slide // stream.watermark_every
        ahead = stream.watermark_every * np.arange(windows * each)
        arrivals = ahead + law(random, (windows * each,))
        first = np.minimum.accumulate(arrivals[::-1])[::-1][::each]
        return np.asarray(first - stream.slide * np.arange(windows))
    # Rows behind the end come at `rate`; the first of them to arrive has lag x with probability
    # 1 - exp(-rate * integral of the delays' distribution up to x), which is inverted on a grid.
    sample = np.sort(law(np.random.default_rng(0), (100_000,)))
    grid = np.concatenate([np.geomspace(1, 2e6, 2_000), [1e9]])
    below = np.searchsorted(sample, grid) / len(sample)
    hazard = stream.rate / SECOND * np.concatenate([[0], np.cumsum((below[1:] + below[:-1]) / 2 * np.diff(grid))])
    lags = np.interp(random.exponential(1, windows), hazard, grid)
    at = stream.slide * np.arange(windows) + lags
    return np.asarray(np.minimum.accumulate(at[::-1])[::-1] - stream.slide * np.arange(windows))


def _foretold(stream: StreamTruth, lags: Floats, random: np.random.Generator) -> tuple[Floats, Floats]:
    """Return what an engine that has seen k sweeping watermarks expects of the lag of the next one."""
    delays = LAWS[stream.delay](random, (1_000,))
    cold = DelayMoments.of(delays)
    history = LagHistory()
    means, sigmas, arrival = np.empty(len(lags)), np.empty(len(lags)), Arrival(cold.mean, cold.mean)
    for place, lag in enumerate(lags):
        if place <= 2 * REFRESH or place % REFRESH == 0:
            arrival = history.arrival(0, cold) or arrival
        means[place], sigmas[place] = arrival.mean, arrival.sigma
        history.seen(round(lag), DelayMoments())
    return means, sigmas


def _rates(streams: Sequence[StreamTruth], starts: Floats, random: np.random.Generator, seconds: int) -> Floats:
    """Return rows per microsecond, second by second: gamma distributed bursts of 5 s around the mean."""
    rates = np.empty((len(streams), seconds))
    for place, stream in enumerate(streams):
        rates[place] = stream.rate / SECOND
        if stream.burst:
            shape = stream.burst**-2
            rates[place] *= np.repeat(random.gamma(shape, 1 / shape, math.ceil(seconds / 5)), 5)[:seconds]
    return np.asarray(rates * (np.arange(seconds) >= starts[:, None] // SECOND))


def _noise(random: np.random.Generator, streams: int, jobs: int = 509) -> Floats:
    """Return durations over their expectation: a little spread, and one in a hundred held up by a collection."""
    spread = random.lognormal(-0.005, 0.1, (streams, jobs))
    return np.where(random.uniform(0, 1, (streams, jobs)) < 0.01, 2 * spread, spread)
