"""The state of simulated runs: backlogs, jobs, windows; arrays over all runs that go side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from transom.simulation.world import World

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass
class State:
    """Everything that changes; arrays of shape (runs, streams) unless said otherwise."""

    arrived: Floats
    """Rows that have arrived."""
    read: Floats
    """Rows that committed jobs have read."""
    newest: Floats
    """Arrival of the newest row read."""
    cut: Floats
    """Rows read when the running job is committed."""
    cut_newest: Floats
    left: Floats
    """Work left in the running job, microseconds; infinite without job."""
    took: Floats
    """Work of the running job."""
    started: Floats
    done: Ints
    """Windows whose sweeping watermark was read."""
    swept: Floats
    """Arrival of the next sweeping watermark."""
    mean: Floats
    """Expected arrival of it, by those before alone."""
    sigma: Floats
    """Predictive standard deviation of that."""
    expected: Floats
    """Expected arrival of it, given that it was not read."""
    jobs: Ints
    held: npt.NDArray[np.bool_]
    running: Ints
    """(runs,): jobs that run."""
    complete: Ints
    """(runs, queries): windows that all inputs have completed."""
    latency: npt.NDArray[np.float32]
    """(runs, queries, windows): seconds from the arrival of the sweeping watermark until the result was there."""
    driver: Floats
    """(runs,): when the driver has merged all that it was given."""

    @classmethod
    def begin(cls, world: World, world_run: Ints) -> State:
        """Return the state before anything has arrived.

        Args:
            world: The streams.
            world_run: For each run, which of the world's runs it is; (runs,).
        """
        shape = (len(world_run), world.ends.shape[1])
        queries = (shape[0], shape[1] // world.inputs)
        lag, sigma, swept = (part[world_run, :, 0] for part in (world.lag, world.sigma, world.swept))
        return cls(
            arrived=np.zeros(shape),
            read=np.zeros(shape),
            newest=np.zeros(shape),
            cut=np.zeros(shape),
            cut_newest=np.zeros(shape),
            left=np.full(shape, np.inf),
            took=np.zeros(shape),
            started=np.full(shape, -1e12),
            done=np.zeros(shape, dtype=np.int64),
            swept=swept,
            mean=world.ends[world_run] + lag,
            sigma=sigma,
            expected=world.ends[world_run] + lag,
            jobs=np.zeros(shape, dtype=np.int64),
            held=np.zeros(shape, dtype=bool),
            running=np.zeros(shape[0], dtype=np.int64),
            complete=np.zeros(queries, dtype=np.int64),
            latency=np.full((*queries, world.swept.shape[2]), np.inf, dtype=np.float32),
            driver=np.zeros(shape[0]),
        )
