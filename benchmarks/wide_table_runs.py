"""Table I on sites in namespaces: forms alternate while the sites stay up; when partials were there; and the results.

The processing time of an interval is from its end, at each of the two sites with rows of the query, until a parcel with
all of it is durable in the inbox of the destination, of the site that comes later. What has not come counts with its
age. Sites without rows of a query send their progress, straight.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.harness import Run
from benchmarks.testbed import PORT, Testbed, apart
from benchmarks.wide_around import widths
from benchmarks.wide_plots import draw_table
from benchmarks.wide_problems import MEGABIT, SITES, Pooled, text_of
from benchmarks.wide_raw import send_raw
from benchmarks.wide_results import shown, wrong
from benchmarks.wide_table import (
    DRAWINGS,
    MOST,
    TICK,
    Drawing,
    Workload,
    draw,
    keyed_workload,
    median,
    words_workload,
)
from benchmarks.wide_table_feed import Keyed, TableFeed, Words
from benchmarks.wide_table_job import WINDOW, schema_of
from transom.errors import SiteError
from transom.model.time import SystemClock
from transom.sites.coordinating import Coordinating
from transom.sites.secured import Identity
from transom.widearea.parcels import Parcel
from transom.widearea.plans import Plan
from transom.widearea.topology import Topology

MEGABITS = 8e-6
WARM, QUICK_WARM = 60.0, 20.0
"""Seconds in which Spark compiles what it runs often."""
HELD = 300.0
TURNS, BLOCK, QUICK_BLOCK = 4, 160.0, 40.0
"""Blocks of each form at equal intervals, and seconds of one: 32 intervals of the longest kind in all."""
WORDS_WARM, WORDS_BLOCK = 300.0, 180.0
"""Seconds of words: until links know most of them, as plans take for granted, and of a block."""
QUICK_DRAWINGS = 3
PATIENCE = 180.0
"""Seconds for the last results to come."""
SETTLE = 10
"""Ticks after a change of the form that are not measured."""
NOTICE = 5
"""Ticks until all sites have heard of a plan."""


class Dictating(Coordinating):
    """A coordinator that gives out the plans that it is told, instead of making some."""

    def follow(self, plan: Plan) -> int:
        """Let the sites follow a plan; return the first tick on which all do."""
        first = int(time.time() / TICK) + NOTICE
        self._published = replace(plan, version=self.version + 1, first_tick=first)
        return first

    def look(self) -> None:
        """Take what was reported, which changes nothing; of each site only so many reports may wait."""
        self._taken()

    @property
    def version(self) -> int:
        """Of the last plan; 0 before the first one."""
        return 0 if self._published is None else self._published.version


@dataclass
class Block:
    """Ticks in which the sites followed one form."""

    form: str
    first: int
    last: int
    sent: int
    """Bytes over all links."""
    cores: float


@dataclass
class Bed:
    """The sites as they run, and what has come."""

    run: Run
    testbed: Testbed
    drawing: Drawing
    coordinator: Dictating
    feed: TableFeed
    blocks: list[Block] = field(default_factory=list)
    came: dict[tuple[str, str], list[tuple[int, float]]] = field(default_factory=dict)
    """By flow and site with rows of it: ticks of parcels, and when they were durable at the destination."""
    around: float = 1.0
    """Bytes over links for each byte of packed rows, once some were sent."""
    _seen: set[str] = field(default_factory=set)

    def look(self) -> None:
        """Take in the parcels that have come.

        Raises:
            RuntimeError: A process has ended.
        """
        self.testbed.check()
        self.coordinator.look()
        for site in self.testbed.sites:
            for inbox in (self.testbed.work / f"{site}-checkpoint").glob("sources/*.arriving"):
                for path in self._fresh(inbox):
                    try:
                        there, parcel = os.stat(path).st_mtime, Parcel.from_bytes(Path(path).read_bytes())
                    except (FileNotFoundError, SiteError):  # not needed any more, or not there yet
                        continue
                    self._seen.add(path)
                    for part in parcel.parts:
                        self.came.setdefault((parcel.flow, part.site), []).append((parcel.tick, there))

    def _fresh(self, inbox: Path) -> list[str]:
        """Return the parcels in an inbox that were not seen yet; as paths, thousands took a fifth of a core."""
        at = f"{inbox}/"
        return [at + name for name in os.listdir(inbox) if name.endswith(".parcel") and at + name not in self._seen]

    def follow(self, form: str, seconds: float) -> Block:
        """Let the sites follow a form, and measure it for some seconds."""
        return self.measured(form, self.coordinator.follow(self.drawing.forms[form]) + SETTLE, seconds)

    def measured(self, form: str, first: int, seconds: float) -> Block:
        """Measure the form that the sites follow for some seconds from a tick on."""
        self._until(first * TICK)
        psutil.cpu_percent()
        before = sum(self.testbed.sent().values())
        self._until(first * TICK + seconds)
        cores, sent = psutil.cpu_percent() / 100, sum(self.testbed.sent().values()) - before
        block = Block(form, first, int(first + seconds / TICK), sent, cores)
        self.blocks.append(block)
        behind = {site: self.testbed.status(site).get("plan") for site in self.testbed.sites}
        if set(behind.values()) != {self.coordinator.version}:
            raise RuntimeError(f"sites follow plans {behind}, not {self.coordinator.version}")
        self.run.say(f"{form} for {seconds:.0f} s: {cores:.0%} of the cores, {sent / 1e6:.2f} MB over links")
        return block

    def _until(self, moment: float) -> None:
        while time.time() < moment:
            self.look()
            time.sleep(0.5)

    def times(self, block: Block, flow: str, since: int | None = None) -> list[float]:
        """Return the processing times of a flow's intervals that ended in a block; or since a tick before it."""
        route = next((each for each in self.drawing.forms[block.form].routes if each.flow == flow), None)
        interval, phase = (
            (self.drawing.interval(block.form, flow), 0) if route is None else (route.interval, route.phase)
        )
        sources = next(each.sources for each in self.drawing.problem.flows if each.name == flow)
        ends = [tick for tick in range(block.first if since is None else since, block.last) if tick % interval == phase]
        return [max(self._took(flow, site, tick) for site in sources) for tick in ends]

    def _took(self, flow: str, site: str, tick: int) -> float:
        end = tick * TICK + self.testbed.offset(site)
        return min((at for there, at in self.came.get((flow, site), ()) if there >= tick), default=time.time()) - end

    def kept(self, block: Block, flow: str, since: int | None = None) -> bool:
        """Tell whether a flow keeps up: no queue grows.

        The intervals in the second half take no longer, but for one tick, than those in the first, or than an interval
        lasts.

        Args:
            block: Where sites follow the form.
            flow: The flow.
            since: A tick before it, from which on they did so, too: long intervals are few in a block.
        """
        took, lasts = self.times(block, flow, since), self.drawing.interval(block.form, flow) * TICK
        half = len(took) // 2
        return bool(took) and float(np.median(took[half:])) <= max(lasts, float(np.median(took[:half] or took))) + TICK

    def ratio(self, blocks: Sequence[Block]) -> float:
        """Return how many bytes all rows of some blocks, packed, take for each byte that went over links in them.

        Those of links are with frames, TLS, receipts and what the system adds; so are those of the rows after
        `send_raw`. A plan for frequencies uses what is saved to leave more often, so that its own ratio is that of the
        links; at equal intervals it is that of partials.
        """
        ticks = {tick for block in blocks for tick in range(block.first, block.last)}
        return self.feed.raw(ticks) * self.around / sum(block.sent for block in blocks)

    def send_raw(self) -> None:
        """End the sites, and send all rows of a tick over their links instead."""
        for site in self.testbed.sites:
            self.testbed.stop(site)
        flows, sites = self.drawing.problem.flows, self.testbed.sites
        rows = self.feed.packed_rows(self.feed.newest // self.feed.tick).items()
        given = {(flows[q].name, sites[place], flows[q].destination): data for (q, place), data in rows}
        self.around = send_raw(self.testbed, given)
        self.run.say(f"all rows as they are take {self.around:.3f} bytes over links for each of theirs, packed")

    def finish(self) -> bool:
        """Let no more rows come, and the last windows close; tell whether their results came."""
        self.coordinator.follow(self.drawing.forms["plan"])
        self.feed.end(2 * WINDOW)
        end = time.time() + PATIENCE
        while not self.come() and time.time() < end:
            self.look()
            time.sleep(1.0)
        return self.come()

    def come(self) -> bool:
        """Tell whether the results of the last windows with rows are there, of all queries."""
        last = (self.feed.newest - 1) // (WINDOW * 1_000_000) * WINDOW * 1_000_000
        found = {path.parent.name for path in _files(self.testbed.work) if _newest(path) >= last}
        return found >= {flow.name for flow in self.drawing.problem.flows}


def _files(work: Path) -> list[Path]:
    return shown((work / "results").glob("*/*.parquet"))


@cache
def _newest(path: Path) -> int:
    """Return the newest beginning of a window in a file, microseconds."""
    starts = pq.read_table(path, columns=["window_start"]).column(0).cast(pa.timestamp("us", "UTC"))
    return int(pc.max(starts.cast(pa.int64())).as_py())


@contextmanager
def sites(run: Run, workload: Workload, drawing: Drawing) -> Iterator[Bed]:
    """Let the sites of a drawing run, by the plan, until the block ends."""
    problem = drawing.problem
    names, work = problem.topology.sites, run.fresh(workload.name)
    queries = [flow.name for flow in problem.flows]
    (work / "table.json").write_text(json.dumps({"workload": workload.name, "queries": queries}))
    links = {link: rate * MEGABITS for link, rate in widths(problem.topology.links).items()}
    schema = schema_of(workload.name)
    with apart(
        work,
        Path(__file__).with_name("wide_table_job.py").absolute(),
        names,
        names[-1],
        links,
        TICK,
        destinations={flow.name: flow.destination for flow in problem.flows},
        rows=f'files = "{{site}}/*.parquet"\nschema = "{schema}"',
        most=MOST,
    ) as bed:
        coordinator = _coordinator(bed, problem.topology)
        try:
            for site in bed.sites:
                bed.start(site)
            bed.await_all()
            run.say(f"{workload.name}: {len(names)} sites with {len(queries)} queries are there")
            _await(bed, coordinator, coordinator.follow(drawing.forms["plan"]))
            feed = _feed(run, bed, workload, drawing)
            with feed:
                yield Bed(run, bed, drawing, coordinator, feed)
        finally:
            coordinator.end()


def _await(bed: Testbed, coordinator: Dictating, first: int) -> None:
    """Wait until all sites follow a plan, from its first tick on: straight paths would leave queues behind for minutes.

    Raises:
        TimeoutError: They do not.
    """
    end = time.monotonic() + PATIENCE
    while time.time() < first * TICK or {bed.status(site).get("plan") for site in bed.sites} != {coordinator.version}:
        bed.check()
        coordinator.look()
        if time.monotonic() > end:
            raise TimeoutError("Sites do not hear of the plan.")
        time.sleep(0.2)


def _coordinator(bed: Testbed, topology: Topology) -> Dictating:
    secrets = Identity.read(*[bed.work / f"coordinator.{kind}" for kind in ("pem", "key", "authority")])
    state, listen = bed.work / "plan.json", f"{bed.net.host}:{PORT}"
    found = Dictating(topology, "frequencies", state, listen, secrets, SystemClock(), lambda text: None)
    found.begin()
    return found


def _feed(run: Run, bed: Testbed, workload: Workload, drawing: Drawing) -> TableFeed:
    places = {site: place for place, site in enumerate(bed.sites)}
    rates = {
        (number, places[site]): workload.rate * rate
        for number, flow in enumerate(drawing.problem.flows)
        for site, rate in cast("Pooled", flow.sizes).rates.items()
    }
    rows = (
        Words(text_of(run.data), rates, TICK)
        if workload.name == "words"
        else Keyed({key: rate / MEGABIT for key, rate in rates.items()}, TICK)
    )
    kinds = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64()}
    columns = [column.split() for column in schema_of(workload.name).split(", ")]
    schema = pa.schema({name: kinds[kind] for name, kind in columns})
    return TableFeed({site: bed.work / site for site in bed.sources}, rates, rows, schema, TICK)


def table1(run: Run) -> list[Block]:
    """Run keyed queries: the plan's intervals, then both ways at equal intervals, in turns."""
    workload = keyed_workload()
    drawing = _drawing(run, workload, "table1.frequency_ratio")
    names = [flow.name for flow in drawing.problem.flows]
    with sites(run, workload, drawing) as bed:
        warm = bed.follow("plan", QUICK_WARM if run.quick else WARM)
        held = bed.measured("plan", warm.last, QUICK_BLOCK if run.quick else HELD)
        equal: dict[str, list[Block]] = {"direct": [], "equal": []}
        for turn in range(1 if run.quick else TURNS):
            for form in ("direct", "equal")[:: 1 if turn % 2 == 0 else -1]:
                equal[form].append(bed.follow(form, QUICK_BLOCK if run.quick else BLOCK))
        came = bed.finish()
        bed.send_raw()
    growing = [name for name in names if not bed.kept(held, name, warm.first)]
    run.say(f"plan: queues grow of {', '.join(growing) or 'none'}")
    run.figure("table1.held", float(len(names) - len(growing)))
    took = {
        form: {name: [s for b in blocks for s in bed.times(b, name)] for name in names}
        for form, blocks in equal.items()
    }
    _compare(run, drawing, took)
    run.figure("table1.bytes_ratio", bed.ratio([held]))
    for form in equal:
        run.figure(f"table1.{form}_bytes_ratio", bed.ratio(equal[form]))
    _finish(run, bed, came, "keyed")
    draw_table(run, drawing, took)
    return bed.blocks


def _compare(run: Run, drawing: Drawing, took: dict[str, dict[str, list[float]]]) -> None:
    """Compare the processing times of both ways at equal intervals."""
    rows, better, worse = [], 0, 0
    for name, straight in took["direct"].items():
        before, after = (float(np.quantile(each, 0.95)) for each in (straight, took["equal"][name]))
        better += after <= 0.7 * before
        worse += after > 1.1 * before and after > before + 0.1
        intervals = [drawing.interval(form, name) * TICK for form in ("direct", "plan")]
        means = [float(np.mean(each)) for each in (straight, took["equal"][name])]
        rows.append([name, *intervals, len(straight), *means, before, after])
    titles = "query; interval, s; the plan's; measured; mean, direct; mean, plan; p95, direct; p95, plan"
    run.table("processing time at equal intervals, seconds", titles.split("; "), rows)
    run.figure("table1.better30", float(better))
    run.figure("table1.worse10", float(worse))


def words(run: Run) -> list[Block]:
    """Run word counts on half of the bandwidth that direct paths need."""
    workload = words_workload(run.data)
    drawing = _drawing(run, workload, "words.frequency_ratio")
    names = [flow.name for flow in drawing.problem.flows]
    with sites(run, workload, drawing) as bed:
        bed.follow("plan", QUICK_WARM if run.quick else WORDS_WARM)
        blocks = [bed.follow(form, QUICK_BLOCK if run.quick else WORDS_BLOCK) for form in ("plan", "direct", "plan")]
        came = bed.finish()
    kept = [sum(bed.kept(block, name) for name in names) for block in blocks]
    run.say(f"words: {kept} of {len(names)} queries keep up with plan, direct, plan")
    run.figure("words.kept", float(kept[0]))
    run.figure("words.direct_kept", float(kept[1]))
    run.figure("words.bytes_ratio", bed.ratio(blocks[:1]))
    _finish(run, bed, came, "words")
    return bed.blocks


def _drawing(run: Run, workload: Workload, figure: str) -> Drawing:
    """Draw links; keep the median of how much oftener plans ship than direct ways do, and return that drawing."""
    drawings = []
    for seed in range(QUICK_DRAWINGS if run.quick else DRAWINGS):
        made = draw(seed, workload, *((SITES[:4], 8) if run.quick else ()))
        if made is not None:
            drawings.append(made)
            placed = {form: len(found.routes) for form, found in made.forms.items()}
            run.say(f"{workload.name}, drawing {seed}: {made.ratio:.2f} times direct; queries that have room: {placed}")
    run.figure(figure, float(np.median([each.ratio for each in drawings])))
    return median(drawings)


def _finish(run: Run, bed: Bed, came: bool, workload: str) -> None:
    run.say(f"{workload}: {bed.feed.rows:,} rows; files came at most {bed.feed.behind:.2f} s after their moment")
    work, queries = bed.testbed.work, [flow.name for flow in bed.drawing.problem.flows]
    run.check(
        [*([] if came else ["the last results did not come"]), *wrong(work, bed.testbed.sources, queries, workload)]
    )
