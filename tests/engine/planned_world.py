"""An application that plans while it runs, in virtual time and without Spark: a stream whose phases cost what is said.

The planner, what it learns costs from, and what watches them are the real ones; cuts take what waits, and their tasks
run on the cores that there are.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import transom as tm
from transom.engine.cluster.merges import Here
from transom.engine.control import digests
from transom.engine.control.digests import Digests
from transom.engine.loop.costwatch import CostWatch
from transom.engine.loop.executors import Executors
from transom.engine.loop.planner import Planner
from transom.engine.placed.placed import ExecutorInfo
from transom.engine.streams.cuts import JobOptions
from transom.engine.streams.feed import OUTSIDE
from transom.model.phases import CutPhases, Phase, StageTasks
from transom.model.time import ManualClock
from transom.model.tuning import StreamTuning, Tuning
from transom.planning.profile import Equipment, PhaseCost, Profile, StreamProfile
from transom.windows.components import Arrangement
from transom.windows.query import LatencyTarget

SECOND = 1_000_000
PIECE = 0.1
"""Seconds from one arrival of rows to the next."""
LOOK = 0.05
LIMIT = 3.0
SHARE = 0.99
"""Of results that the limit is for."""
RATE = 2_000.0
STREAM = "s"

Says = Callable[[float], float]
"""A number at a second."""


def always(value: float) -> Says:
    return lambda second: value


STEADY, CHEAP, TWO = always(RATE), always(3e-4), always(2)


def costs(row: float = 3e-4, noise: float = 0.02) -> dict[Phase, PhaseCost]:
    """Costs of a row of 0.3 ms: 2,000 in a second keep 0.6 cores busy."""
    return {
        Phase.PLAN: PhaseCost(0.06, 0.0, noise),
        Phase.LAUNCH: PhaseCost(0.01, 0.003, noise),
        Phase.MAP: PhaseCost(0.02, row, noise, 1.0),
        Phase.EXCHANGE: PhaseCost(0.02, 0.0, noise, 1.0),
        Phase.COLLECT: PhaseCost(0.01, 0.0, noise),
        Phase.COMMIT: PhaseCost(0.01),
        Phase.CONSOLIDATE: PhaseCost(0.005),
    }


def profile(cores: int, **values: Any) -> Profile:
    one = StreamProfile(costs(**values), merged=1.0, results=1.0, piece=PIECE, regular=0.0, limit=LIMIT, cuts=64)
    return Profile("", Equipment(cores, False), {STREAM: one})


class Tuner:
    """Takes changes."""

    poll, given = 50_000, ()

    def __init__(self, tuning: Tuning, now: Callable[[], float]) -> None:
        self.tuning = self.said = tuning
        self.now = now
        self.executors: Executors | None = None
        self.changes: list[tuple[float, str]] = []

    def change(self, tuning: Tuning, reason: str, planned: bool) -> bool:
        wanted = tuning.over(self.tuning)
        if wanted == self.tuning:
            return False
        self.tuning = wanted
        self.changes.append((self.now(), reason))
        if self.executors is not None and wanted.executors is not None:
            self.executors.ask(wanted.executors)
        return True


class AtOnce:
    """Makes plans at once, or when it is told to."""

    def __init__(self) -> None:
        self.waits: list[tuple[Future[Any], Callable[[], Any]]] | None = None
        self.submitted = 0

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        self.submitted += 1
        made: Future[Any] = Future()
        if self.waits is not None:
            self.waits.append((made, partial(function, *arguments)))
            return made
        try:
            made.set_result(function(*arguments))
        except Exception as error:
            made.set_exception(error)
        return made

    def close(self, longest: float) -> None:
        """Do nothing."""


class Cluster:
    """A cluster manager in virtual time: what is asked for comes some seconds later.

    Args:
        clock: The time.
        first: Executors that there are in the beginning.
        room: So many there can be.
        takes: Whether requests are taken.
    """

    LATER = 8 * SECOND

    def __init__(self, clock: ManualClock, first: int, room: int = 1_000, takes: bool = True) -> None:
        self.clock, self.room, self.takes = clock, room, takes
        self.alive: list[str] = []
        self.asked, self.closed, self.ended = list[int](), list[str](), list[str]()
        self.tasks: dict[str, int] = {}
        self._came = 0
        self._wanted, self._since = first, 0
        self.come(first)

    def come(self, count: int) -> None:
        self.alive += [str(self._came + number) for number in range(count)]
        self._came += count

    def there(self) -> list[ExecutorInfo]:
        missing = min(self._wanted, self.room) - len(self.alive)
        if missing > 0 and self.clock.monotonic() >= self._since + self.LATER and self.asked:
            self.come(missing)
        return [ExecutorInfo(id, "host", 1, self.tasks.get(id, 0), id in self.closed) for id in self.alive]

    def ask(self, total: int) -> bool:
        if self.takes:
            self.asked.append(total)
            self._wanted, self._since = total, self.clock.monotonic()
        return self.takes

    def close(self, id: str) -> None:
        self.closed.append(id)

    def end(self, ids: Sequence[str]) -> None:
        self.ended += ids
        self.alive = [id for id in self.alive if id not in ids]


class World:
    """The application.

    Args:
        known: What it knows in the beginning.
        rate: Rows per second at a second.
        row: Seconds that a row costs, at a second.
        cores: That there are at a second.
        noise: Squared coefficient of variation of the phases.
        seed: Of what happens by chance.
        asked: Whether Spark says of each eighth cut, and of others where it is asked, what became of its tasks.
        most: As many executors of a core are asked for at most, instead of the cores that there are; None for these.
        first: Executors in the beginning.
    """

    def __init__(
        self,
        monkeypatch: Any,
        known: Profile,
        rate: Says = STEADY,
        row: Says = CHEAP,
        cores: Says = TWO,
        noise: float = 0.02,
        seed: int = 0,
        asked: bool = True,
        most: int | None = None,
        first: int = 2,
        room: int = 1_000,
    ) -> None:
        self.rate, self.row, self.cores, self.noise, self.asked = rate, row, cores, noise, asked
        self.chance, self.clock = random.Random(seed), ManualClock()
        self._began = self.clock.monotonic()
        self.cluster = Cluster(self.clock, first, room)
        if most is not None:
            self.cores = cores = lambda second: len(self.cluster.there())
        monkeypatch.setattr(digests, "_machine", lambda streams: Equipment(int(cores(self.second)), False))
        target = LatencyTarget(round(LIMIT * SECOND), SHARE)
        query = SimpleNamespace(windows=(tm.tumbling("1 second"),), target=target)
        self.state = SimpleNamespace(
            cut=0, queries={"q": None}, running=lambda: [query], stores=[], executors=Here(Path())
        )
        stream = SimpleNamespace(
            name=STREAM,
            compiler=SimpleNamespace(arrangement=Arrangement()),
            options=JobOptions(),
            state=self.state,
            definition=SimpleNamespace(queries=[query], feed=OUTSIDE),
        )
        streams: Any = {STREAM: stream}
        self.tuner = Tuner(Tuning(2, {STREAM: StreamTuning()}), lambda: self.second)
        self.digests = Digests(streams, round(LOOK * SECOND), self.clock.monotonic)
        self.notes: list[str] = []
        self.watch = CostWatch(streams, self.digests, self.clock)
        of: Any = lambda one, now: SimpleNamespace(backlog=SimpleNamespace(rate=self.seen / SECOND))  # noqa: E731
        scheduler: Any = SimpleNamespace(of=of)
        journal: Any = SimpleNamespace(note=self.notes.append)
        tuner: Any = self.tuner
        threads: Any = AtOnce()
        self.planner = Planner(streams, self.digests, scheduler, tuner, journal, self.clock, threads, self.watch)
        if most is not None:
            executors = Executors(streams, most, self.cluster, self.clock, self.notes.append, threads)
            self.planner.executors = self.tuner.executors = executors
        self.digests.begin(known)
        self.seen = rate(0.0)
        self.waiting: list[tuple[float, float]] = []
        self.results: list[tuple[float, float]] = []
        """When a window's result was there, and how long after its end."""
        self.read = 0
        self._piece = 1

    @property
    def second(self) -> float:
        return (self.clock.monotonic() - self._began) / SECOND

    def run(self, seconds: float) -> World:
        """Let so many seconds pass, and the cut that is under way then."""
        until, ready = self.second + seconds, 0.0
        while self.second < until:
            if not self.waiting or self.second < ready:
                self._pass_to(self.second + LOOK)
                continue
            began = self.second
            completes = self._cut(began)
            ready = began if completes else began + self.tuner.tuning.of(STREAM).trigger_seconds
        return self

    def _pass_to(self, second: float) -> None:
        """Let time pass: rows come every tenth of a second, and the planner looks ten times a second."""
        while self._piece * PIECE <= second + 1e-9:
            at = self._piece * PIECE
            self.clock.advance(max(0, round((at - self.second) * SECOND)))
            self._piece += 1
            rows = self.rate(at) * PIECE
            self.seen += 0.02 * (rows / PIECE - self.seen)
            self.waiting.append((at, rows))
            self.planner.look()
        self.clock.advance(max(0, round((second - self.second) * SECOND)))

    def _cut(self, began: float) -> bool:
        """Run a cut of all that waits; return whether it completes windows, so that another one follows at once."""
        pieces, self.waiting = self.waiting, []
        tuning, cores, one = self.tuner.tuning.of(STREAM), int(self.cores(began)), costs(self.row(began), self.noise)
        rows = round(sum(rows for _, rows in pieces))
        tasks = tuning.tasks(rows) or cores
        behind = 0 if tasks == 1 else tuning.partitions or cores
        self.state.cut += 1
        number = self.state.cut
        self.read += 1
        asked = self.asked and (STREAM in self.watch.closely or self.read % 8 == 1)
        plan, launch = self._drawn(one[Phase.PLAN], 0), self._drawn(one[Phase.LAUNCH], tasks + behind)
        map_, map_ran = self._stage(one[Phase.MAP], tasks, rows / tasks, cores)
        exchange, exchange_ran = self._stage(one[Phase.EXCHANGE], behind, 0, cores)
        took = {
            Phase.PLAN: plan,
            Phase.LAUNCH: launch,
            Phase.MAP: map_,
            Phase.EXCHANGE: exchange,
            Phase.COLLECT: self._drawn(one[Phase.COLLECT], 0),
        }
        job, commit = sum(took.values()), one[Phase.COMMIT].fixed
        wait = sum(rows * (began - at) for at, rows in pieces) / rows
        self._pass_to(began + job + commit)
        seconds: dict[Phase, float] = {Phase.TURN: wait, Phase.COMMIT: commit}
        ends = [at for at, _ in pieces if round(at / PIECE) % round(1 / PIECE) == 0]
        if ends:
            seconds[Phase.CONSOLIDATE] = one[Phase.CONSOLIDATE].fixed
        stages: tuple[StageTasks, ...] = ()
        if asked:
            seconds |= took if behind else {phase: each for phase, each in took.items() if phase is not Phase.EXCHANGE}
            stages = (StageTasks(tasks, map_, 0.0, map_ran, one[Phase.MAP].mean(rows / tasks) * tasks, rows),)
            stages += (StageTasks(behind, exchange, 0.0, exchange_ran, 0.0),) if behind else ()
        cut = CutPhases(
            STREAM,
            number,
            rows,
            seconds,
            job,
            tasks if asked else None,
            stages,
            partials=1,
            results=len(ends),
            windows=len(ends),
            allowed=tuning.tasks(rows) or 0,
        )
        self.results += [(self.second, self.second + one[Phase.CONSOLIDATE].fixed - at) for at in ends]
        self.digests.take(cut)
        self.planner.take(cut)
        return bool(ends)

    def _drawn(self, cost: PhaseCost, units: float) -> float:
        return self._noisy(cost.mean(units), cost.scv)

    def _noisy(self, mean: float, scv: float) -> float:
        return self.chance.gammavariate(1 / scv, mean * scv) if mean > 0 and scv > 0 else mean

    def _stage(self, cost: PhaseCost, tasks: int, units: float, cores: int) -> tuple[float, float]:
        """Return how long tasks take on the cores, each on the one that is free first; and all of them together."""
        free, took = [0.0] * cores, [self._noisy(cost.mean(units), cost.scv) for _ in range(tasks)]
        for each in took:
            heapq.heappush(free, heapq.heappop(free) + each)
        return max(free), sum(took)

    def kept(self, since: float) -> bool:
        """Return whether the limit was kept from a second on: by so many of the results as it says, and to the end."""
        latencies = [latency for at, latency in self.results if at >= since]
        late = sum(latency > LIMIT for latency in latencies)
        return self.results[-1][0] > self.second - LIMIT and late <= (1 - SHARE) * len(latencies)

    def changes(self, since: float) -> list[tuple[float, str]]:
        return [change for change in self.tuner.changes if change[0] >= since]


def at(moment: float, before: float, then: float) -> Says:
    """Return a number that changes at a moment."""
    return lambda second: before if second < moment else then


__all__ = ["LIMIT", "RATE", "World", "always", "at", "costs", "profile"]
