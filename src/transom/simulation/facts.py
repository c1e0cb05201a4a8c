"""Facts of the streams of simulated runs: all that never changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from transom.simulation.world import SECOND, World

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PARTIAL_BYTES = 100.0
GOLDEN = 0.6180339887
"""Multiples of it are spread evenly over [0, 1), however many there are."""


@dataclass(frozen=True)
class Facts:
    """The streams of all runs that go side by side; arrays of shape (runs, streams) unless said otherwise."""

    world_run: Ints
    """(runs,): for each run, which of the world's runs it is."""
    job: Floats
    """Fixed part of a job, microseconds."""
    row: Floats
    """Part of a job per row, microseconds."""
    slide: Floats
    """Time between the ends of two windows, microseconds."""
    limit: Floats
    """Latency limit of results, microseconds."""
    partials: Floats
    """Partials of a window."""
    partial: Floats
    """Merging one of them, microseconds."""
    selectivity: Floats
    """Results per row."""
    alive: npt.NDArray[np.bool_]
    """Streams that are streams and no filling."""
    open_bytes: Floats
    """Bytes of open windows."""
    injected: npt.NDArray[np.bool_]
    """Whether the source injects watermarks."""
    ends: Floats
    """End of the first window."""
    query_swept: Floats
    """(runs of the world, queries, windows): arrival of the last sweeping watermark over the query's inputs."""
    rank: Floats
    """(streams,): evenly spread over [-1, 1); those of a query are equal."""

    @classmethod
    def of(cls, world: World, times: int) -> Facts:
        """Return the facts of a world's runs, so many times one after the other."""
        each, streams = world.ends.shape
        world_run = np.arange(each * times) % each

        def column(name: str) -> Floats:
            return np.asarray(world.column(name)[world_run])

        slide, partials = column("slide"), column("partials")
        query = np.arange(streams) // world.inputs
        return cls(
            world_run=world_run,
            job=SECOND * column("job"),
            row=SECOND * column("row"),
            slide=slide,
            limit=column("limit"),
            partials=partials,
            partial=SECOND * column("partial"),
            selectivity=np.minimum(1.0, column("results") / (column("rate") * slide / SECOND)),
            alive=world.alive[world_run],
            open_bytes=partials * np.maximum(1.0, column("length") / slide) * PARTIAL_BYTES,
            injected=column("injected") > 0,
            ends=world.ends[world_run],
            query_swept=world.swept.reshape(each, streams // world.inputs, world.inputs, -1).max(axis=2),
            rank=np.asarray(2 * (query * GOLDEN % 1) - 1, np.float64),
        )
