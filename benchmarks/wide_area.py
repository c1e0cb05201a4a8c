"""Sites on thin links: straight paths against a plan, a link that thins, a site that is cut off; all of it exact.

    python -m benchmarks.wide_area [--quick] [--only PART ...]

Four sites in network namespaces of this machine, each with its own Spark, and the coordinator (`testbed.py`; needs
root). Each of three sources has 7,500 rows in every tick of 2 s; their partials go to the fourth, whose windows are as
long as a tick and due 2 s after it. The processing time is from the end of a window until its results are there, with
the job at the source, links, relays, merging and the sink.

`table1` and `words`: Table I of the paper on seven sites, by keys and by words (`wide_table_runs.py`). `wire`: bytes of
parcels, and how much of a busy link is parcels.

`fig1`: without coordinator, so that partials go straight, then with it: the straight link from A to the destination is
too thin for what A has to send. `drop`: the link that then carries most falls to a third. `outage`: a source is cut off
from all others for a time. Each result is compared with a count of all rows.

Beyond 70 % of the cores a run measures this machine and not the links: it says `void`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import wire
from benchmarks.harness import Run, benchmark
from benchmarks.namespaces import possible
from benchmarks.testbed import NEEDS_ROOT, THIN, Testbed, apart
from benchmarks.wide_feed import Feed
from benchmarks.wide_link import links
from benchmarks.wide_table_runs import table1, words

PARTS = ("fig1", "drop", "outage", "table1", "words", "wire")
QUICK_PARTS = ("fig1", "drop", "table1")
SECONDS, QUICK_SECONDS = 120.0, 40.0
"""That are measured of each part."""
AWAY, QUICK_AWAY = 60.0, 20.0
"""For how long a source is cut off."""
PATIENCE = 90.0
"""For the plan, for what was late to come, and for the last results."""
LIMIT = 2.0
"""Seconds from the end of a window until its results are there."""
MOST_CORES = 0.7
VOID = f": VOID, as with more than {MOST_CORES:.0%} it is the cores that were measured"
REDUCED = f"{QUICK_SECONDS:g} s of each part instead of {SECONDS:g} s, cut off for {QUICK_AWAY:g} s instead of {AWAY:g}"


class Watched:
    """The results of a testbed, and when they were there."""

    def __init__(self, bed: Testbed, feed: Feed) -> None:
        self.bed, self.feed = bed, feed
        self._read: set[Path] = set()
        self.seconds: dict[int, float] = {}
        """The processing time of each window, by its end in microseconds."""
        self.tables: list[pa.Table] = []

    def look(self) -> None:
        """Take in what has come.

        Raises:
            RuntimeError: A process has ended.
        """
        self.bed.check()
        for path in sorted((self.bed.work / "results").glob("*.parquet")):
            if path not in self._read:
                self._read.add(path)
                there = path.stat().st_mtime
                table = pq.read_table(path)
                for end in pc.unique(table.column("window_end").cast(pa.int64())).to_pylist():
                    self.seconds[end] = there - end / 1e6
                self.tables.append(table)

    def after(self, begin: float, seconds: float) -> list[float]:
        """Wait, and return the processing times of the windows that end in so many seconds from a moment on.

        What has not come when that time is over counts with its age.
        """
        while time.time() < begin + seconds:
            self.look()
            time.sleep(0.2)
        self.look()
        now, ends = time.time(), [end for end in self.feed.counts if begin <= end / 1e6 < begin + seconds]
        return [self.seconds.get(end, now - end / 1e6) for end in ends if end / 1e6 < now - LIMIT]

    def until(self, holds: Callable[[], bool], seconds: float = PATIENCE) -> float:
        """Wait until something holds; return how long that took, infinite if it never did."""
        began = time.time()
        while time.time() < began + seconds:
            self.look()
            if holds():
                return time.time() - began
            time.sleep(0.2)
        return math.inf

    def in_time(self) -> bool:
        """Tell whether the two newest windows that are due were in time."""
        due = sorted(end for end in self.feed.counts if end / 1e6 < time.time() - LIMIT)[-2:]
        return len(due) == 2 and all(self.seconds.get(end, math.inf) <= LIMIT for end in due)

    def wrong(self, since: int) -> list[str]:
        """Return what differs from a count of all rows, of windows that ended after a moment."""
        if not self.tables:
            return ["there are no results"]
        found = pa.concat_tables(self.tables)
        found = pa.table({name: found.column(name).cast(pa.int64()) for name in ("window_end", "key", "rows")})
        found = found.filter(pc.greater_equal(found.column("window_end"), since))
        order = [("window_end", "ascending"), ("key", "ascending")]
        ends = {end for end in self.seconds if end >= since}
        expected = [end for end in self.feed.counts if since <= end <= max(ends, default=0)]
        wrong = [f"window {end} did not come" for end in expected if end not in ends]
        if not found.sort_by(order).equals(self.feed.expected(ends)):
            wrong.append("counts differ from those of all rows")
        return wrong if ends else ["there are no results"]


def version(bed: Testbed) -> int:
    """Return the plan that all sites follow by now."""
    return min(int(bed.status(site).get("plan") or 0) for site in bed.sites)


def share_of_links(bed: Testbed, before: dict[tuple[str, str], int], seconds: float) -> dict[tuple[str, str], float]:
    """Return how much of each link was used since a look at its bytes."""
    return {link: (n - before[link]) * 8e-6 / seconds / bed.links[link] for link, n in bed.sent().items()}


def measure(run: Run, bed: Testbed, watched: Watched) -> None:
    """Run the parts one after the other on the sites as they are."""
    seconds = QUICK_SECONDS if run.quick else SECONDS
    before, began = bed.sent(), time.time()
    straight = watched.after(began, seconds)
    used = share_of_links(bed, before, seconds)
    bed.coordinate()
    planned = watched.until(lambda: version(bed) >= 1 and watched.in_time())
    run.say(f"with a plan, and caught up, after {planned:.0f} s")
    before, began = bed.sent(), time.time()
    took = watched.after(began, seconds)
    after = share_of_links(bed, before, seconds)
    run.table(
        "share of each link that is used",
        ("link", "Mbit/s", "straight", "plan"),
        [
            (f"{a} to {b}", bed.links[a, b], used[a, b], after[a, b])
            for a, b in used
            if max(used[a, b], after[a, b]) > 0.01
        ],
    )
    run.say(f"seconds of {len(took)} windows with the plan: {' '.join(f'{each:.2f}' for each in took)}")
    run.figure("fig1.direct_s", float(np.quantile(straight, 0.95)))
    run.figure("fig1.transom_s", float(np.quantile(took, 0.95)))
    if "drop" in run.parts:
        drop(run, bed, watched, after, seconds)
    if "outage" in run.parts:
        outage(run, bed, watched)


def drop(run: Run, bed: Testbed, watched: Watched, used: dict[tuple[str, str], float], seconds: float) -> None:
    """Let the link that carries most fall to a third."""
    link = max((link for link in used if bed.links[link] > THIN), key=lambda link: used[link] * bed.links[link])
    last, rate = version(bed), bed.links[link]
    began = time.time()
    bed.set_rate(*link, rate / 3)
    replanned = watched.until(lambda: version(bed) > last)
    recovered = watched.until(watched.in_time)
    after = watched.after(max(time.time(), began + 30), seconds / 2)
    run.say(f"{link[0]} to {link[1]} falls to {rate / 3:.2f} Mbit/s: a new plan after {replanned:.1f} s")
    run.figure("drop.replan_s", replanned)
    run.figure("drop.recover_s", replanned + recovered)
    run.figure("drop.transom_s", float(np.quantile(after, 0.95)))
    bed.set_rate(*link, rate)
    watched.until(watched.in_time)


def outage(run: Run, bed: Testbed, watched: Watched) -> None:
    """Cut a source off for a time."""
    away = QUICK_AWAY if run.quick else AWAY
    bed.cut_off("C", away=True)
    watched.after(time.time(), away)
    bed.cut_off("C", away=False)
    run.figure("outage.catch_up_s", watched.until(watched.in_time))


def figure1(run: Run) -> float:
    """Run the sites of Fig. 1; return the share of the cores that was used."""
    job = Path(__file__).with_name("wide_job.py").absolute()
    with apart(run.fresh("sites"), job) as bed:
        for site in bed.sites:
            bed.start(site)
        bed.await_all()
        run.say("all sites are there")
        feed = Feed({site: bed.work / site for site in bed.sources}, bed.tick)
        watched = Watched(bed, feed)
        with feed:
            watched.until(lambda: len(watched.seconds) >= 5)  # compiled by then
            psutil.cpu_percent()
            measure(run, bed, watched)
            cores = psutil.cpu_percent() / 100
            feed.stop()
        last = max(end for end in feed.counts if feed.counts[end].total() > 3)
        watched.until(lambda: last in watched.seconds)
        run.check(watched.wrong(min(feed.counts)))
        run.say(f"files came at most {feed.behind:.2f} s after their moment")
        return cores


def wire_figures(run: Run) -> None:
    """Measure bytes of parcels, processor time of both ends and shares of links; see `wire` and `wide_link`."""
    wire.words(run)
    wire.keyed(run)
    links(run)


def main() -> None:
    """Run the benchmark."""
    with benchmark("wide_area", REDUCED, figures=True, parts=PARTS) as run:
        if not possible():
            raise SystemExit(NEEDS_ROOT)
        if run.quick and run.parts == PARTS:
            run.parts = QUICK_PARTS
        used: dict[str, float] = {}
        if {"fig1", "drop", "outage"} & set(run.parts):
            used["fig1"] = figure1(run)
        for name, part in (("table1", table1), ("words", words)):
            if name in run.parts:
                used |= {f"{name}, {block.form} at tick {block.first}": block.cores for block in part(run)[1:]}
        if "wire" in run.parts:
            wire_figures(run)
        if used:
            run.figure("cores", max(used.values()))
        for name, cores in used.items():
            run.say(f"{name}: {cores:.0%} of the cores" + (VOID if cores > MOST_CORES else ""))


if __name__ == "__main__":
    main()
