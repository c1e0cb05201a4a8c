"""Problems over a wide area: those of the paper, the same with sizes as measured, and large ones."""

from __future__ import annotations

import bz2
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa

from transom.widearea.flows import Floats, Flow, Sizes
from transom.widearea.problem import Column, Problem
from transom.widearea.topology import INTERVALS, Topology

MEGABIT = 125_000.0
"""Bytes."""
SITES = tuple("ABCDEFG")
TABLE_1 = (
    *((1, 4), (2, 2), (5, 1), (2, 4), (2, 1), (2, 4), (4, 3), (4, 2), (2, 1), (2, 3)),
    *((2, 2), (5, 2), (1, 4), (2, 2), (1, 2), (2, 3), (1, 2), (5, 2), (1, 4), (2, 4)),
)
"""Mbit/s of the two sources of each query of the paper."""
PRINTED = (0.40, 0.43e6)
"""The paper's U: bytes for a byte of text, and for each batch."""
KEYS, ROWS, KEYED_BYTES = 1_000, 500.0, 12.0
"""Keys that repeat, rows per second for each Mbit/s, bytes of a key's partial on the wire."""
PARCEL_BYTES = 300.0
SAMPLED = ((1e3, 1.2e3), (1e4, 5.6e3), (1e5, 44e3), (1e6, 321e3), (3e6, 875e3))
"""Bytes of text and of its word counts in the sample of Wikipedia, for where that is not at hand."""
SAMPLE = Path("wikipedia_articles_sample.xml.bz2")


@dataclass(frozen=True, eq=False)
class Pooled:
    """Sizes that follow the input of all sources together."""

    rates: Mapping[str, float]
    """Bytes per second."""
    tick: float
    size: Callable[[Floats], Floats]

    def of(self, sources: frozenset[str]) -> Floats:
        """Return bytes after each interval."""
        return self.size(sum(self.rates[site] for site in sources) * self.tick * np.array(INTERVALS))


def printed(bytes_in: Floats) -> Floats:
    """Return the paper's U."""
    return PRINTED[0] * bytes_in + PRINTED[1]


def keyed(bytes_in: Floats) -> Floats:
    """Return the bytes of partials by keys that repeat, drawn evenly."""
    rows = bytes_in / MEGABIT * ROWS
    return KEYED_BYTES * KEYS * -np.expm1(-rows / KEYS) + PARCEL_BYTES


@cache
def text_of(directory: Path) -> tuple[str, ...]:
    """Return what stands between white space in the sample of Wikipedia; without the file, words by Zipf's law."""
    path = directory / SAMPLE
    if path.is_file():
        return tuple(bz2.decompress(path.read_bytes()).decode("utf-8", "replace").split())
    drawn = np.random.default_rng(7).zipf(1.25, 1_200_000)
    return tuple(f"w{word % 10_000_000:x}" for word in drawn.tolist())


def partials(words: Sequence[str]) -> bytes:
    """Return word counts as they are sent: Arrow IPC with zstd."""
    counts = Counter(words)
    table = pa.table({"word": list(counts), "count": pa.array(counts.values(), pa.int64())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@cache
def measured_words(directory: Path) -> Callable[[Floats], Floats]:
    """Return U of word counts over text: measured in the sample, else as it was there; beyond, by the last slope."""
    known = list(SAMPLED)
    if (directory / SAMPLE).is_file():
        words = text_of(directory)
        letters = np.cumsum([len(word.encode()) + 1 for word in words])
        ends = [max(int(np.searchsorted(letters, size)), 1) for size in np.geomspace(500, letters[-1], 24)]
        known = [(float(letters[end - 1]), float(len(partials(words[:end])))) for end in ends]
    logs, sizes = np.log(known).T
    far = len(known) // 6 + 1
    slope = (sizes[-1] - sizes[-1 - far]) / (logs[-1] - logs[-1 - far])

    def size(bytes_in: Floats) -> Floats:
        at = np.log(np.maximum(bytes_in, 1.0))
        found = np.interp(at, logs, sizes) + np.maximum(at - logs[-1], 0.0) * slope
        return np.exp(found - np.maximum(logs[0] - at, 0.0))

    return size


def paper(
    seed: int,
    size: Callable[[Floats], Floats],
    tick: float,
    low: float = 5,
    high: float = 35,
    names: Sequence[str] = SITES,
    queries: int = len(TABLE_1),
) -> Problem:
    """Draw the paper's network: seven sites, 20 queries of two sources with the rates of Table I; or fewer of both."""
    rng = np.random.default_rng(seed)
    links = {(a, b): float(rng.uniform(low, high)) * MEGABIT for a, b in product(names, names) if a != b}
    flows = []
    for number, rates in enumerate(TABLE_1[:queries]):
        first, second, destination = (names[place] for place in rng.choice(len(names), 3, replace=False))
        given = {first: rates[0] * MEGABIT, second: rates[1] * MEGABIT}
        flows.append(_flow(f"q{number + 1}", given, destination, size, tick))
    return Problem(Topology(tuple(names), links, tick), tuple(flows))


def large(seed: int, size: Callable[[Floats], Floats], tick: float, factor: float, sites: int = 100) -> Problem:
    """Draw many sites, ten destinations, ten flows a site of 2 to 5 sources; links are `factor` times direct's need."""
    rng = np.random.default_rng(seed)
    names = tuple(f"s{number:02}" for number in range(sites))
    links = {(a, b): float(rng.uniform(5, 35)) * MEGABIT for a, b in product(names, names) if a != b}
    destinations, flows = rng.choice(sites, 10, replace=False), []
    for number in range(10 * sites):
        destination = int(rng.choice(destinations))
        others = [place for place in range(sites) if place != destination]
        sources = rng.choice(others, int(rng.integers(2, 6)), replace=False)
        rates = {names[place]: float(rng.integers(1, 6)) * MEGABIT for place in sources}
        flows.append(_flow(f"f{number}", rates, names[destination], size, tick))
    return scaled(Problem(Topology(names, links, tick), tuple(flows)), factor)


def _flow(
    name: str, rates: Mapping[str, float], destination: str, size: Callable[[Floats], Floats], tick: float
) -> Flow:
    sizes: Sizes = Pooled(rates, tick, size)
    return Flow(name, tuple(rates), destination, sizes, limit=10 * tick, job=0.15 * tick, merging=0.01)


def direct_columns(problem: Problem) -> list[Column]:
    """Return the direct trees at the longest intervals."""
    shapes = enumerate(problem.shapes)
    return [Column(flow, (shape.destination,) * len(shape.sources), shape.allowed[-1]) for flow, shape in shapes]


def scaled(problem: Problem, factor: float) -> Problem:
    """Return the problem with all links multiplied so that direct at the longest intervals fits `factor` times."""
    use = problem.use(direct_columns(problem))
    need = float((use / np.where(problem.capacity > 0, problem.capacity, np.inf)).max())
    return with_links(problem, need * factor)


def with_links(problem: Problem, factor: float) -> Problem:
    """Return the problem with all links multiplied."""
    links = {link: rate * factor for link, rate in problem.topology.links.items()}
    return Problem(replace(problem.topology, links=links), problem.flows)
