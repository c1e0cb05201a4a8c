"""An engine in virtual time: streams, backlogs, cores and a driver, for the policies that the real one has.

Time goes in ticks. Rows are a fluid that flows in at each second's rate; a stream has one job at a time, which takes a
core for the fixed part and the part per row of its duration, rounded to whole ticks; without a bound on the jobs they
share the cores evenly. A window's result is there when a job has read its sweeping watermark and the one thread of the
driver has merged its partials. Many runs go side by side as the first axis of every array.

The scheduler sees what the engine would see: backlogs, the times of runs, watermarks that were read, what
`scheduling.arrivals` foretells from those before, and the costs that `scheduling.costs` learns. It does not know
whether a watermark waits in a backlog.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from transom.engine.simworld import SECOND, World
from transom.errors import DefinitionError
from transom.model.time import Micros
from transom.scheduling.arrivals import inverse_mills
from transom.scheduling.costs import CostHistory
from transom.scheduling.memory import MemoryMode
from transom.scheduling.policies import Columns, Policy, freeing

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_GRID = np.arange(-9.0, 30.0, 0.01)
_MILLS = np.array([inverse_mills(a) for a in _GRID.tolist()])
LOOK = 0.2 * SECOND
"""Virtual time between two measurements of memory and rates."""
TAIL = 5 * SECOND
"""Windows completed so shortly before the end are not counted: there was no time to be late."""
ROW_BYTES, PARTIAL_BYTES = 250.0, 100.0


@dataclass(frozen=True)
class Machine:
    """What the streams run on, and the scheduler's settings.

    Raises:
        DefinitionError: A number is not positive.
    """

    cores: int = 24
    tick: Micros = 10_000
    """Grid of virtual time: decisions are made, and jobs end, on it."""
    cycle: float = 10.0
    """Length of a cycle r over the fixed cost of a job: a run takes no more rows than fit into it."""
    trigger: Micros = 200_000
    """Least time between two starts of a stream."""
    memory: float | None = None
    """Bytes for rows and partials; None for no memory mode."""

    def __post_init__(self) -> None:
        if min(self.cores, self.tick, self.cycle, self.memory or 1) <= 0 or self.trigger < 0:
            raise DefinitionError("simulated machine: numbers must be positive.", "Give more than 0.")


@dataclass(frozen=True)
class Outcome:
    """What runs gave; one entry per run unless said otherwise."""

    latency: Floats
    """Of each window's result after its sweeping watermark arrived, seconds, (runs, queries, windows); NaN where it did
    not arrive between warm-up and the last seconds. A result that is missing at the end counts with the time until
    then, which is less than it took."""
    limit: Floats
    """Latency limit of each query, seconds."""
    throughput: Floats
    """Rows per second that were processed."""
    memory: Floats
    """Mean bytes of rows and partials."""
    peak: Floats
    """Most bytes."""
    busy: Floats
    """Share of the cores that was in use."""
    jobs: Floats
    """Jobs per window that was due."""
    missing: Floats
    """Share of the windows without result at the end."""

    def mean(self) -> Floats:
        """Return the mean latency of each run, seconds."""
        return np.asarray(np.nanmean(self.latency, axis=(1, 2)))

    def quantile(self, share: float) -> Floats:
        """Return a quantile of the latencies of each run, seconds."""
        return np.asarray(np.nanquantile(self.latency, share, axis=(1, 2)))

    def within(self) -> Floats:
        """Return the share of the windows of each run whose result came within its limit."""
        known = ~np.isnan(self.latency)
        return np.asarray((known & (self.latency <= self.limit[:, None])).sum((1, 2)) / known.sum((1, 2)))


@dataclass
class _State:
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
    expected: Floats
    """Expected arrival of the next sweeping watermark, given that it was not read."""
    jobs: Ints
    held: npt.NDArray[np.bool_]
    complete: Ints
    """(runs, queries): windows that all inputs have completed."""
    results: Floats
    """(runs, queries, windows): when the result was there."""
    driver: Floats
    """(runs,): when the driver has merged all that it was given."""


@dataclass
class Simulation:
    """Runs of one world under one policy.

    Args:
        world: Arrivals and truths.
        policy: Which stream runs next.
        machine: Cores and settings.
    """

    world: World
    policy: Policy
    machine: Machine = field(default_factory=Machine)

    def __post_init__(self) -> None:
        world, shape = self.world, self.world.ends.shape
        self._job, self._row = SECOND * world.column("job"), SECOND * world.column("row")
        self._slide, self._limit = world.column("slide"), world.column("limit")
        self._partials, self._partial = world.column("partials"), SECOND * world.column("partial")
        selectivity = world.column("results") / (world.column("rate") * self._slide / SECOND)
        self._selectivity = np.minimum(1.0, selectivity)
        self._open = self._partials * np.maximum(1.0, world.column("length") / self._slide) * PARTIAL_BYTES
        self._injected = np.array([each.watermark_every is not None for each in world.streams])
        self._inputs = world.streams[0].inputs
        self._costs = CostHistory(shape)
        self._rate, self._counted = np.zeros(shape), np.zeros(shape)
        self._cycle = self.machine.cycle * self._costs.costs.fixed
        self._modes = [MemoryMode() for _ in range(shape[0])]
        windows = world.swept.shape[2]
        queries = (shape[0], shape[1] // self._inputs)
        self._state = _State(
            arrived=np.zeros(shape),
            read=np.zeros(shape),
            newest=np.zeros(shape),
            cut=np.zeros(shape),
            cut_newest=np.zeros(shape),
            left=np.full(shape, np.inf),
            took=np.zeros(shape),
            started=np.full(shape, -1e12),
            done=np.zeros(shape, dtype=np.int64),
            expected=world.ends + world.lag[:, :, 0],
            jobs=np.zeros(shape, dtype=np.int64),
            held=np.zeros(shape, dtype=bool),
            complete=np.zeros(queries, dtype=np.int64),
            results=np.full((*queries, windows), np.inf),
            driver=np.zeros(shape[0]),
        )

    def run(self, warm_up: Micros = 0) -> Outcome:
        """Go through the whole time; O(ticks x runs x streams).

        Args:
            warm_up: Windows whose sweeping watermark arrives before are not counted.
        """
        state, tick, cores = self._state, float(self.machine.tick), self.machine.cores
        runs = len(state.driver)
        busy, held, peak, samples = np.zeros(runs), np.zeros(runs), np.zeros(runs), 0
        look = max(1, round(LOOK / tick))
        per_second, rates = round(SECOND / tick), self.world.rates * tick
        for step in range(round(self.world.duration / tick)):
            now = step * tick
            running = np.isfinite(state.left).sum(axis=1)
            share = np.minimum(1.0, cores / np.maximum(running, 1))
            busy += running * share
            state.left -= (tick * share)[:, None]
            ended = state.left < tick / 2
            if ended.any():
                self._commit(now, *np.nonzero(ended))
            state.arrived += rates[:, :, step // per_second]
            free = (len(self.world.streams) if self.policy.at_once else cores) - np.isfinite(state.left).sum(axis=1)
            if free.any():
                self._decide(now, free)
            if step % look == 0:
                self._look_around()
                used = self._memory_used()
                held, peak, samples = held + used, np.maximum(peak, used), samples + 1
                if self.machine.memory is not None:
                    shares = (used / self.machine.memory).tolist()
                    observed = zip(self._modes, shares, strict=True)
                    self._modes = [mode.observed(each, round(now)) for mode, each in observed]
        return self._outcome(busy * tick / self.world.duration / cores, held / samples, peak, warm_up)

    def _memory_used(self) -> Floats:
        """Return the bytes of rows that are not committed, in the backlog or in a job, and of open windows."""
        rows = (self._state.arrived - self._state.read).sum(axis=1)
        return np.asarray(rows * ROW_BYTES + self._open.sum())

    # ---- jobs

    def _decide(self, now: float, free: Ints) -> None:
        """Start jobs on the free cores, the streams of least priority first."""
        state = self._state
        backlog = state.arrived - state.read
        ready = np.isinf(state.left) & (backlog >= 1) & (state.started + self.machine.trigger <= now)
        wanted = ready.sum(axis=1)
        if not wanted.any():
            return
        columns = self._columns(now, backlog)
        priority = np.broadcast_to(self.policy.priority(columns, now), backlog.shape)
        short = [place for place, mode in enumerate(self._modes) if mode.active]
        if short:
            priority = priority.copy()
            priority[short] = freeing(columns, now)[short]
        order = np.argsort(np.where(ready, priority, np.inf), axis=1, kind="stable")
        count = np.minimum(free, (ready & np.isfinite(priority)).sum(axis=1))
        run, place = np.nonzero(np.arange(order.shape[1]) < count[:, None])
        self._start(now, backlog, run, order[run, place])

    def _columns(self, now: float, backlog: Floats) -> Columns:
        """Return what the policy may know."""
        state, costs = self._state, self._costs.costs
        expected = self._foretold(now)
        ahead = np.maximum(0.0, expected - now)
        due = 1.0 + np.maximum(0.0, np.floor((now - expected) / self._slide))
        cost = SECOND * costs.run(backlog, due * self._partials)
        total = cost + SECOND * costs.row * self._rate * ahead
        return Columns(
            waiting_since=state.newest,
            ran_at=state.started,
            cost=cost,
            run=SECOND * np.minimum(cost / SECOND, self._cycle),
            fixed=SECOND * costs.fixed,
            total=total,
            slack=expected + self._limit - now - total,
            expected=expected,
            limit=np.broadcast_to(self._limit, cost.shape),
            deadline=self.world.ends + state.done * self._slide,
            rate=self._selectivity / np.maximum(costs.row, 1e-12),
            freed=np.minimum(backlog, costs.fitting(self._cycle)) * (1 - self._selectivity),
            held=state.held,
        )

    def _foretold(self, now: float) -> Floats:
        """Return when the next sweeping watermark comes, as far as it is known.

        A source that injects watermarks says which is the newest to have come (`Source.watermark(Source.latest())`);
        of derived ones nothing is known before the rows are read.
        """
        state, world = self._state, self.world
        if not self._injected.any():
            return state.expected
        following = state.done[:, :, None]
        swept = np.take_along_axis(world.swept, following, 2)[:, :, 0]
        lag = np.take_along_axis(world.lag, following, 2)[:, :, 0]
        sigma = np.take_along_axis(world.sigma, following, 2)[:, :, 0]
        mean = world.ends + state.done * self._slide + lag
        seen = np.where(swept <= now, swept, _truncated(mean, sigma, np.full_like(mean, now)))
        return np.where(self._injected, seen, state.expected)

    def _look_around(self) -> None:
        """Measure what changes slowly: the rates at which rows come, and the length of a cycle."""
        state = self._state
        self._rate += 0.3 * ((state.arrived - self._counted) / LOOK - self._rate)
        self._counted = state.arrived.copy()
        self._cycle = self.machine.cycle * np.maximum(0.01, np.median(self._costs.costs.fixed, axis=1))[:, None]

    def _start(self, now: float, backlog: Floats, run: Ints, stream: Ints) -> None:
        at = (run, stream)
        rows, state = backlog[at], self._state
        if not self.policy.at_once:
            rows = np.minimum(rows, self._costs.costs.fitting(self._cycle)[at])
        behind = backlog[at] - rows
        rate = self.world.rates[run, stream, int(now // SECOND)]
        state.cut[at] = state.read[at] + rows
        newest = np.maximum(state.newest[at], now - behind / np.maximum(rate, 1e-12))
        state.cut_newest[at] = np.where(behind < 1, now, newest)
        noise = self.world.noise[run, stream, state.jobs[at] % self.world.noise.shape[2]]
        state.left[at] = state.took[at] = (self._job[stream] + self._row[stream] * rows) * noise
        state.started[at] = now
        state.jobs[at] += 1
        state.held[at] = True

    def _commit(self, now: float, run: Ints, stream: Ints) -> None:
        """Take in jobs that have ended: learn their cost, close the windows whose watermark they read."""
        at = (run, stream)
        state, world = self._state, self.world
        rows = state.cut[at] - state.read[at]
        self._costs.ran(rows, state.took[at] / SECOND, at)
        state.read[at], state.newest[at], state.left[at] = state.cut[at], state.cut_newest[at], np.inf
        before = state.done[at]
        done = before.copy()
        last = world.swept.shape[2] - 1
        while (more := (world.swept[run, stream, done] <= state.newest[at]) & (done < last)).any():
            done += more
        state.done[at] = done
        closed = done > before
        if closed.any():
            state.held[at] &= ~closed
            self._consolidate(now, run[closed], stream[closed], (done - before)[closed])
        mean = world.ends[at] + done * self._slide[stream] + world.lag[run, stream, done]
        state.expected[at] = _truncated(mean, world.sigma[run, stream, done], state.newest[at])

    def _consolidate(self, now: float, run: Ints, stream: Ints, windows: Ints) -> None:
        """Give the driver the partials of closed windows, and note when the results are there."""
        state = self._state
        partials = windows * self._partials[stream]
        seconds = partials * self._partial[stream]
        self._costs.merged(np.maximum(partials, 1.0), seconds / SECOND, (run, stream))
        added = np.bincount(run, seconds, len(state.driver))
        state.driver = np.where(added > 0, np.maximum(state.driver, now) + added, state.driver)
        query = stream // self._inputs
        while True:
            inputs = state.done.reshape(*state.complete.shape, self._inputs)[run, query].min(axis=1)
            more = state.complete[run, query] < inputs
            if not more.any():
                return
            run, query = run[more], query[more]
            state.results[run, query, state.complete[run, query]] = state.driver[run]
            state.complete[run, query] = state.complete[run, query] + 1

    def _outcome(self, busy: Floats, memory: Floats, peak: Floats, warm_up: Micros) -> Outcome:
        state, world = self._state, self.world
        swept = world.swept.reshape(*state.complete.shape, self._inputs, -1).max(axis=2)
        came = (swept >= warm_up) & (swept < world.duration - TAIL)
        missing = came & ~(state.results <= world.duration)
        latency = (np.minimum(state.results, world.duration) - np.where(came, swept, 0)) / SECOND
        return Outcome(
            latency=np.where(came, latency, np.nan),
            limit=self._limit[:: self._inputs] / SECOND,
            throughput=state.read.sum(axis=1) / (world.duration / SECOND),
            memory=memory,
            peak=peak,
            busy=busy,
            jobs=state.jobs.sum(axis=1) / np.isfinite(world.swept).sum(axis=(1, 2)),
            missing=missing.sum(axis=(1, 2)) / came.sum(axis=(1, 2)),
        )


def _truncated(mean: Floats, sigma: Floats, after: Floats) -> Floats:
    """Return `Arrival.expected` of many: the mean of normal distributions truncated below."""
    spread = np.maximum(sigma, 1.0)
    a = (after - mean) / spread
    mills = np.where(a < _GRID[-1], np.interp(a, _GRID, _MILLS), a + 1 / np.maximum(a, 1.0))
    return np.asarray(mean + spread * mills)
