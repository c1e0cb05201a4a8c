"""Applications of several sites in one process, on rows in memory, and what they should give."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import transom as tm
from transom.sites.here import LocalSite
from transom.sites.inprocess import Hall
from transom.sites.region import Region, SiteEntry
from transom.sites.status import read_status

Kill = Callable[[str, int], Callable[[str], None] | None]
SECOND = 1_000_000
MOST_LOOKS = 20_000
"""Of a hundredth of a second each, for one site or more: sites that take longer hang, however busy the machine is."""
SCHEMA = "zone string, kind string, at timestamp, size long"


class Killed(BaseException):
    """Ends a run as a kill does: nothing handles it, and nothing is written after it."""


def region(sources: Sequence[str], default: str, **options: Any) -> Region:
    """Return sites that have rows of `rows`, and one where windows are made."""
    names = [*sources, *({default, *options.get("destinations", {}).values()}.difference(sources))]
    entries = tuple(SiteEntry(name, sources=("rows",) if name in sources else ()) for name in names)
    return Region(entries, default, tick=options.pop("tick", 20_000), **options)


@dataclass
class Several:
    """The sites of an application; each can be run again.

    Args:
        spark: The session of all.
        root: Where their checkpoints are.
        region: The sites.
        define: Adds the queries to a stream, given the sink of each query by name.
    """

    spark: Any
    root: Path
    region: Region
    define: Callable[[Any, Callable[[str], Any]], None]
    watermark: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    outbox_bytes: int = 1 << 30
    away: frozenset[str] = frozenset()
    """Sites that do not run."""
    accept_loss: frozenset[str] = frozenset()
    """Sites that go on where something was lost."""

    def __post_init__(self) -> None:
        self.hall = Hall()
        self.sinks: dict[str, Any] = defaultdict(tm.sinks.memory)
        self.apps: dict[str, tm.App] = {}
        """The last one of each site."""
        self.kills = Counter[str]()
        """How often each was killed in the last run."""
        self.rows = {entry.name: tm.sources.memory(SCHEMA, partitions=2) for entry in self.region.sites}

    def site(self, name: str) -> LocalSite:
        """Return a site, for its next run."""
        options = {"outbox_bytes": self.outbox_bytes, "accept_loss": name in self.accept_loss}
        return LocalSite(name, self.region, lambda: self.hall.desk(name), **options)

    def app(self, name: str, define: Any = None) -> tm.App:
        """Return the application of a site, for its next run."""
        site = self.site(name)
        options = {"max_rows_per_cut": 7, "poll": "5 ms", "trigger": "1 ms", **self.settings}
        app = tm.App(self.spark, self.root / name, site=site, **options)
        stream = app.stream(
            site.source("rows", self.rows[name]),
            event_time="at",
            watermark=self.watermark or tm.watermark("1 hour", max_ahead=None),
            name="rows",
        )
        (define or self.define)(stream, lambda query: self.sinks[query])
        return app

    def run(self, kill: Kill = lambda name, tries: None, **options: Any) -> dict[str, Any]:
        """Run all sites to the end of their rows, and return the progress of each.

        Where some are killed they run without an end first, so that the others go on meanwhile, until all has arrived;
        then all to the end, and once more from the beginning if one is killed.

        Args:
            kill: Given a site and how often it was killed, returns what is called with the steps of its next run; that
                may raise `Killed`.
            options: Of the runs.
        """
        self.kills = Counter[str]()
        self._run_on(kill)
        while True:
            running = {name: self._start(name, kill, once=True, **options) for name in self._there()}
            done: dict[str, Any] = {}
            for _ in range(MOST_LOOKS):
                done.update(self._ended(running.keys() - done.keys(), running))
                if any(isinstance(each, Killed) for each in done.values()) or len(done) == len(running):
                    break
            else:
                raise AssertionError([read_status(self.root / name) for name in running])
            for name in running.keys() - done.keys():
                running[name].stop()
                done.update(self._ended([name], running, "10 minutes"))
            if not any(isinstance(each, Killed) for each in done.values()):
                return done

    def _there(self) -> list[str]:
        """Return the sites that run."""
        return [entry.name for entry in self.region.sites if entry.name not in self.away]

    def _run_on(self, kill: Kill) -> None:
        """Run all sites until all rows have arrived, those that are killed again and again."""
        there = self._there()
        if all(kill(name, 0) is None for name in there):
            return
        running = {name: self._start(name, kill) for name in there}
        for _ in range(MOST_LOOKS):
            for name in self._ended([*running], running):
                running[name] = self._start(name, kill)
            if all(map(self._arrived, running)):
                break
        else:
            raise AssertionError([read_status(self.root / name) for name in running])
        for each in running.values():
            each.stop()
        self._ended([*running], running, "10 minutes")

    def start(self, name: str, **options: Any) -> Any:
        """Start one site, and return its run."""
        return self._start(name, lambda name, tries: None, **options)

    def _start(self, name: str, kill: Kill, close_all: bool = True, **options: Any) -> Any:
        app = self.apps[name] = self.app(name)
        app._on_step = kill(name, self.kills[name]) or (lambda step: None)
        return app.start(close_all=close_all and bool(options), **options)

    def _ended(self, names: Iterable[str], running: Mapping[str, Any], timeout: str = "10 ms") -> dict[str, Any]:
        """Return which of some have ended, each with its progress, or that it was killed."""
        found: dict[str, Any] = {}
        for name in names:
            try:
                found[name] = running[name].wait(timeout)
            except TimeoutError:
                continue
            except Killed as killed:
                self.kills[name] += 1
                found[name] = killed
        return found

    def _arrived(self, name: str) -> bool:
        """Tell whether all rows of a site are where they go, as far as another thread can tell."""
        loop = self.apps[name]._loop
        if loop is None or not hasattr(loop.beside, "_loop"):
            return False
        return loop.beside.done() and all(
            stream.source.exhausted(stream.state.offset) for stream in loop.streams.values() if stream.leaves
        )


def at_step(step: str, number: int) -> Callable[[str], None]:
    """Return what kills at an occurrence of a step; "any" counts all steps."""
    counts: Counter[str] = Counter()

    def on_step(name: str) -> None:
        counts.update([name, "any"])
        if step in (name, "any") and counts[step] == number:
            raise Killed

    return on_step


def windows(rows: Sequence[tuple[Any, ...]], keys: Sequence[str], length: int, every: int | None = None) -> Counter:
    """Return how often each (start, keys..., rows, sum of sizes) is a window of some rows; times in microseconds."""
    every, places = every or length, {"zone": 0, "kind": 1}
    found: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row in rows:
        at = row[2]
        start = at - at % every
        while start > at - length:
            found[start, *(row[places[key]] for key in keys)].append(row[3])
            start -= every
    return Counter((*key, len(sizes), sum(sizes)) for key, sizes in found.items())


def results(sink: Any, query: str, keys: Sequence[str]) -> Counter:
    """Return the same of what a sink has."""
    table = sink.to_table(query)
    if table is None:
        return Counter()
    starts = table.column("window_start").cast("timestamp[us]").cast("int64").to_pylist()
    columns = [table.column(name).to_pylist() for name in (*keys, "n", "size")]
    return Counter(zip(starts, *columns, strict=True))
