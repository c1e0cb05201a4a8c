"""Events of the Yahoo streaming benchmark, made with numpy, and the queries over them as data.

An event is a JSON line of about 256 bytes. 1,000 ads belong to 100 campaigns; there are 100 pages, so
10,000 keys (campaign, page). A third of the events are views. Everything follows from the seed and the
number of the file.

Source: S. Chintapalli et al., Benchmarking Streaming Computation Engines at Yahoo!, 2015; the windows and
the second key are ours.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

VERSION = 1
"""Changes whenever other bytes are generated, so that old caches are not read."""
SEED = 20_151_218
BASE_MS = 1_700_000_100_000
"""Event time of the first event, milliseconds since the epoch; a multiple of five minutes."""
CLOSING_MS = 15 * 60 * 1_000
"""How far the closing file lies behind the last event; longer than any window, so that it closes them all."""
CAMPAIGNS, ADS, PAGES, USERS = 100, 1_000, 100, 10_000
AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")
EVENT_TYPES = ("view", "click", "purchase")
SCHEMA = (
    "user_id string, page_id string, ad_id string, ad_type string, event_type string, event_time bigint, "
    "ip_address string"
)
"""The columns of an event in Spark's notation; `event_time` is milliseconds since the epoch."""
USED_SCHEMA = "page_id string, ad_id string, event_type string, event_time bigint"
"""The columns that the queries use. Stock Spark finds them by itself; Transom checks every column that is declared, so
there the user declares what is used."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Events:
    """A stream of events in files, in order of event time.

    Args:
        rate: Events per second of event time.
        per_file: Events in each file.
    """

    rate: int
    per_file: int

    @property
    def name(self) -> str:
        """Name of the directory in the cache."""
        return f"ysb-v{VERSION}-{self.rate}ps-{self.per_file}"

    def end_ms(self, files: int) -> int:
        """Return where the event time of the first `files` files ends, milliseconds since the epoch."""
        return BASE_MS + files * self.per_file * 1_000 // self.rate


@dataclass(frozen=True)
class Columns:
    """The events of one file as numbers, each of shape (events,)."""

    user: Ints
    page: Ints
    ad: Ints
    ad_type: Ints
    event_type: Ints
    time_ms: Ints
    ip: Ints

    @property
    def views(self) -> npt.NDArray[np.bool_]:
        """Which events are views, shape (events,)."""
        return np.equal(self.event_type, 0)


def columns(events: Events, index: int) -> Columns:
    """Return file number `index` (from 0) as numbers."""
    random = np.random.default_rng([SEED, index])
    count = events.per_file
    numbers = np.arange(index * count, (index + 1) * count, dtype=np.int64)

    def draw(high: int) -> Ints:
        return random.integers(0, high, count, dtype=np.int64)

    return Columns(
        user=draw(USERS),
        page=draw(PAGES),
        ad=draw(ADS),
        ad_type=draw(len(AD_TYPES)),
        event_type=draw(len(EVENT_TYPES)),
        time_ms=BASE_MS + numbers * 1_000 // events.rate,
        ip=draw(1 << 32),
    )


def closing(events: Events, files: int) -> Columns:
    """Return the closing file: 100 views far behind the last of `files` files."""
    count = 100
    zeros = np.zeros(count, np.int64)
    each = np.arange(count, dtype=np.int64)
    times = np.full(count, events.end_ms(files) + CLOSING_MS, np.int64)
    return Columns(user=each, page=each, ad=each * 10, ad_type=zeros, event_type=zeros, time_ms=times, ip=each)


@cache
def names(kind: str, count: int) -> pa.StringArray:
    """Return `count` identifiers in the form of UUIDs, always the same for one kind."""
    raw = np.random.default_rng([SEED, *kind.encode()]).bytes(16 * count).hex()
    texts = [raw[i : i + 32] for i in range(0, 32 * count, 32)]
    return pa.array([f"{t[:8]}-{t[8:12]}-{t[12:16]}-{t[16:20]}-{t[20:]}" for t in texts])


def ads() -> pa.Table:
    """Return the table ad_id, campaign_id; ten ads for each campaign."""
    campaign = names("campaign", CAMPAIGNS).take(pa.array(np.arange(ADS) // (ADS // CAMPAIGNS)))
    return pa.table({"ad_id": names("ad", ADS), "campaign_id": campaign})


def encode(values: Columns) -> pa.Buffer:
    """Return the JSON lines of a file."""
    octets = pa.array([str(i) for i in range(256)])

    def pick(texts: pa.Array, index: Ints) -> pa.Array:
        return texts.take(pa.array(index))

    parts = [
        '{"user_id":"',
        pick(names("user", USERS), values.user),
        '","page_id":"',
        pick(names("page", PAGES), values.page),
        '","ad_id":"',
        pick(names("ad", ADS), values.ad),
        '","ad_type":"',
        pick(pa.array(AD_TYPES), values.ad_type),
        '","event_type":"',
        pick(pa.array(EVENT_TYPES), values.event_type),
        '","event_time":',
        pa.array(values.time_ms).cast(pa.string()),
        ',"ip_address":"',
        pick(octets, values.ip >> 24),
        ".",
        pick(octets, (values.ip >> 16) & 255),
        ".",
        pick(octets, (values.ip >> 8) & 255),
        ".",
        pick(octets, values.ip & 255),
        '"}\n',
    ]
    lines = pc.binary_join_element_wise(*[pa.scalar(p) if isinstance(p, str) else p for p in parts], "")
    end = np.frombuffer(lines.buffers()[1], np.int32)[len(lines)]
    return lines.buffers()[2].slice(0, int(end))


def default_cache() -> Path:
    """Return where generated events are kept between runs."""
    return Path(tempfile.gettempdir()) / "transom-benchmarks"


def generate(cache_dir: Path, events: Events, files: int) -> Path:
    """Make sure that the first `files` files exist and return their directory.

    File times increase by a second with the number of the file, because stock Spark reads files in order of
    time.
    """
    directory = cache_dir / events.name
    directory.mkdir(parents=True, exist_ok=True)
    for index in range(files):
        _write(directory / f"events-{index:06}.json", events, index, columns(events, index))
    return directory


def _write(path: Path, events: Events, index: int, values: Columns | None = None) -> None:
    if path.exists():
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(encode(columns(events, index) if values is None else values))
    moment = BASE_MS // 1_000 + index
    os.utime(draft, (moment, moment))
    draft.rename(path)


def prefix(cache_dir: Path, events: Events, files: int, start: int = 0, close: bool = True) -> Path:
    """Return a directory with files `start` to `files`, as hard links, and the closing file."""
    full = generate(cache_dir, events, files)
    directory = full / f"from-{start}-to-{files}{'-closed' if close else ''}"
    directory.mkdir(exist_ok=True)
    for index in range(start, files):
        name = f"events-{index:06}.json"
        if not (directory / name).exists():
            try:
                os.link(full / name, directory / name)
            except OSError:
                shutil.copy2(full / name, directory / name)
    if close:
        _write(directory / "events-closing.json", events, files, closing(events, files))
    return directory


@dataclass(frozen=True)
class Query:
    """A windowed query over the views, joined with their campaigns; times in seconds."""

    name: str
    window: int
    slide: int
    by_page: bool
    values: tuple[str, ...] = ("n",)
    """What it computes: `n`, and perhaps `last` and `first` (milliseconds since the epoch)."""
    pages: tuple[int, int] | None = None
    """The views that it has: those of the pages between two places in the order of their names; all if None."""

    @property
    def condition(self) -> str | None:
        """The condition on the views in Spark's notation; None if there is none."""
        if self.pages is None:
            return None
        ordered = sorted(names("page", PAGES).to_pylist())
        first, last = ordered[self.pages[0]], ordered[self.pages[1] - 1]
        return f"page_id >= '{first}' and page_id <= '{last}'"

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns it groups by."""
        return ("campaign_id", "page_id") if self.by_page else ("campaign_id",)

    @property
    def last(self) -> bool:
        """Whether it asks for the last event time."""
        return "last" in self.values

    def describe(self) -> str:
        """Return the query in one line."""
        every = f" by {self.slide} s" if self.slide != self.window else ""
        some = f" of pages {self.pages[0]} to {self.pages[1] - 1}" if self.pages else ""
        return f"{self.window} s{every} per {' and '.join(self.keys)}{some}: {', '.join(self.values)}"


WINDOWS = ((10, 10), (60, 60), (300, 300), (300, 10))
PANE = 10
"""Seconds; every edge of every window is a multiple of it."""
QUERIES = tuple(
    Query(
        name=f"q{i:02}",
        window=WINDOWS[i % 4][0],
        slide=WINDOWS[i % 4][1],
        by_page=(i + i // 4) % 2 == 1,
        values=("n", "last") if i >= 8 else ("n",),
    )
    for i in range(16)
)
"""Four windows x two keys x two lists of aggregates; the first four have all windows and both keys."""
MORE_WINDOWS = (*WINDOWS, (20, 20), (30, 30), (120, 120), (60, 10))
MANY_QUERIES = QUERIES + tuple(
    Query(f"q{i:02}", *shape)
    for i, shape in enumerate(
        (
            (window, slide, by_page, values)
            for values in (("n",), ("n", "last"), ("n", "first"), ("n", "first", "last"))
            for window, slide in MORE_WINDOWS
            for by_page in (False, True)
            if (window, slide) not in WINDOWS or "first" in values
        ),
        start=len(QUERIES),
    )
)
"""Eight windows x two keys x four lists of aggregates; the first 16 are `QUERIES`."""
ONE_QUERY = Query("one", PANE, PANE, True, ("n", "first", "last"))
"""One query with the panes, the keys and the partial aggregates of all of `MANY_QUERIES`."""


@dataclass(frozen=True)
class _Panes:
    """Counts, first and last times of the views in each pane, shape (panes, campaigns x pages)."""

    first_pane: int
    """Since the epoch."""
    counts: Ints
    last: Ints
    first: Ints

    def of(self, query: Query) -> tuple[Ints, Ints, Ints]:
        """Return counts, last and first times of the views and keys of a query, shape (panes, keys)."""
        shape = len(self.counts), CAMPAIGNS, PAGES
        chosen = [each.reshape(shape) for each in (self.counts, self.last, self.first)]
        if query.pages is not None:
            places = pc.rank(names("page", PAGES)).to_numpy() - 1
            chosen[0] = np.where((places >= query.pages[0]) & (places < query.pages[1]), chosen[0], 0)
            chosen[1] = np.where(chosen[0] > 0, chosen[1], -1)
            chosen[2] = np.where(chosen[0] > 0, chosen[2], np.iinfo(np.int64).max)
        counts, last, first = chosen
        if query.by_page:
            return counts.reshape(len(counts), -1), last.reshape(len(last), -1), first.reshape(len(first), -1)
        return counts.sum(axis=2), last.max(axis=2), first.min(axis=2)


def oracle(events: Events, files: int, queries: tuple[Query, ...] = QUERIES, start: int = 0) -> dict[str, pa.Table]:
    """Compute the results over the files `start` to `files` with numpy alone, in the form of `results.canonical`.

    Dense arrays (panes, campaigns x pages) of counts, first and last times; a window is a sum over its panes. It
    shares no code with any engine that is compared.
    """
    base = BASE_MS // 1_000 // PANE
    panes = -(-(events.end_ms(files) // 1_000) // PANE) - base
    counts = np.zeros((panes, CAMPAIGNS * PAGES), np.int64)
    last = np.full((panes, CAMPAIGNS * PAGES), -1, np.int64)
    first = np.full((panes, CAMPAIGNS * PAGES), np.iinfo(np.int64).max, np.int64)
    for index in range(start, files):
        values = columns(events, index)
        views = values.views
        key = values.ad[views] // (ADS // CAMPAIGNS) * PAGES + values.page[views]
        pane = values.time_ms[views] // (PANE * 1_000) - base
        np.add.at(counts, (pane, key), 1)
        np.maximum.at(last, (pane, key), values.time_ms[views])
        np.minimum.at(first, (pane, key), values.time_ms[views])
    found = _Panes(base, counts, last, first)
    return {query.name: _windows(query, found) for query in queries}


def _windows(query: Query, found: _Panes) -> pa.Table:
    counts, last, first_times = found.of(query)
    base, length, step, panes = found.first_pane, query.window // PANE, query.slide // PANE, len(counts)
    pieces = []
    first = -(-(base - length + 1) // step) * step - base
    for start in range(first, panes, step):
        inside = slice(max(start, 0), start + length)
        n = counts[inside].sum(axis=0)
        key = np.flatnonzero(n)
        edge = np.full(len(key), (start + base) * PANE * 1_000_000, np.int64)
        times = last[inside].max(axis=0)[key], first_times[inside].min(axis=0)[key]
        pieces.append(np.stack([edge, key, n[key], *times]))
    edge, key, n, latest, earliest = np.concatenate(pieces, axis=1)
    campaign = key // PAGES if query.by_page else key
    table = {
        "window_start": pa.array(edge),
        "window_end": pa.array(edge + query.window * 1_000_000),
        "campaign_id": names("campaign", CAMPAIGNS).take(pa.array(campaign)),
    }
    if query.by_page:
        table["page_id"] = names("page", PAGES).take(pa.array(key % PAGES))
    columns = {"n": n, "last": latest, "first": earliest}
    table.update({name: pa.array(columns[name]) for name in query.values})
    return pa.table(table).sort_by([(name, "ascending") for name in ("window_start", *query.keys)])
