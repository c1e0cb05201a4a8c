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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from transom.errors import DefinitionError
from transom.model.time import Micros
from transom.scheduling.arrivals import expected_arrivals
from transom.scheduling.costs import CostHistory, RunCosts, cycle_seconds, offered
from transom.scheduling.memory import MemoryMode
from transom.scheduling.policies import Columns, Policy, freeing
from transom.simulation.facts import Facts
from transom.simulation.outcome import Outcome
from transom.simulation.state import State
from transom.simulation.world import SECOND, World

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LOOK = 0.2 * SECOND
"""Virtual time between two measurements of memory and rates."""
TAIL = 5 * SECOND
"""Windows completed so shortly before the end are not counted: there was no time to be late."""
ROW_BYTES = 250.0
BOUND_BY_MEMORY = ("klink", "least_slack")
"""Policies that have a memory mode."""


@dataclass(frozen=True)
class Machine:
    """The machine that the streams run on, and the scheduler's settings.

    Raises:
        DefinitionError: A number is not positive.
    """

    cores: int = 24
    tick: Micros = 10_000
    """Grid of virtual time: decisions are made, and jobs end, on it."""
    cycle: float | None = None
    """Length of a cycle r, seconds: a run takes no more rows than fit into it; None ties it to what is measured."""
    trigger: Micros = 200_000
    """Least time between two starts of a stream."""
    memory: float | None = None
    """Bytes for rows and partials; None for no memory mode."""

    def __post_init__(self) -> None:
        if min(self.cores, self.tick, self.cycle or 1, self.memory or 1) <= 0 or self.trigger < 0:
            raise DefinitionError("simulated machine: numbers must be positive.", "Give more than 0.")

    def cycle_of(self, fixed: Floats, busy: Floats) -> Floats:
        """Return the length of a cycle, seconds; see `scheduling.costs.cycle_seconds`."""
        return cycle_seconds(fixed, busy) if self.cycle is None else np.array([self.cycle] * len(fixed))


class Simulation:
    """All runs of a world under each of several policies.

    Policies times runs go side by side, the runs of the first policy first.

    Args:
        world: Arrivals and truths.
        policies: Which stream runs next.
        machine: Cores and settings.
    """

    def __init__(self, world: World, policies: Sequence[Policy], machine: Machine | None = None) -> None:
        self.world, self.policies, self.machine = world, tuple(policies), machine or Machine()
        self._facts = Facts.of(world, len(self.policies))
        shape = self._facts.slide.shape
        runs, each = shape[0], len(world.ends)
        self._costs = CostHistory(shape)
        self._rate, self._counted = np.zeros(shape), np.zeros(shape)
        self._cycle = np.ones((runs, 1))
        self._load = np.zeros((runs, 1))
        self._modes = [MemoryMode() for _ in range(runs)]
        self._at_once = np.repeat([policy.at_once for policy in self.policies], each)
        self._memory_bound = np.repeat([policy.name in BOUND_BY_MEMORY for policy in self.policies], each)
        self._state = State.begin(world, self._facts.world_run)

    def run(self, warm_up: Micros = 0) -> list[Outcome]:
        """Go through the whole time; return what each policy gave. O(ticks x runs x streams).

        Args:
            warm_up: Windows whose sweeping watermark arrives before are not counted.
        """
        state, tick, cores = self._state, float(self.machine.tick), self.machine.cores
        busy, held, used = np.zeros(len(state.driver)), [], []
        look = max(1, round(LOOK / tick))
        per_second = round(SECOND / tick)
        rates = np.zeros_like(state.arrived)
        for step in range(round(self.world.duration / tick)):
            now = step * tick
            if step % per_second == 0:
                self._rates = self.world.rates[self._facts.world_run, :, step // per_second]
                rates = self._rates * tick
            share = np.minimum(1.0, cores / np.maximum(state.running, 1))
            busy += state.running * share
            state.left -= (tick * share)[:, None]
            ended = np.nonzero(state.left < tick / 2)
            if len(ended[0]):
                self._commit(now, *ended)
            state.arrived += rates
            free = np.where(self._at_once, len(state.arrived[0]), cores) - state.running
            some = np.flatnonzero(free)
            if len(some):
                self._decide(now, some, free[some])
            if step % look == 0:
                self._look_around()
                held.append(self._memory_used())
                used.append(state.running * np.minimum(1.0, cores / np.maximum(state.running, 1)) / cores)
                self._observe_memory(now, held[-1])
        timelines = np.stack(held, axis=1), np.stack(used, axis=1)
        return self._outcomes(busy * tick / self.world.duration / cores, *timelines, warm_up)

    def _memory_used(self) -> Floats:
        """Return the bytes of rows that are not committed, in the backlog or in a job, and of open windows."""
        rows = (self._state.arrived - self._state.read).sum(axis=1)
        return np.asarray(rows * ROW_BYTES + (self._facts.open_bytes * self._facts.alive).sum(axis=1))

    def _observe_memory(self, now: float, used: Floats) -> None:
        if self.machine.memory is None:
            return
        for run in np.flatnonzero(self._memory_bound):
            self._modes[run] = self._modes[run].observed(float(used[run]) / self.machine.memory, round(now))

    # ---- jobs

    def _decide(self, now: float, some: Ints, free: Ints) -> None:
        """Start jobs on the free cores of some runs, the streams of least priority first."""
        state = self._state
        backlog = state.arrived[some] - state.read[some]
        ready = np.isinf(state.left[some]) & (backlog >= 1) & (state.started[some] + self.machine.trigger <= now)
        wanted = ready.any(axis=1)
        if not wanted.all():
            some, free, backlog, ready = some[wanted], free[wanted], backlog[wanted], ready[wanted]
        if not len(some):
            return
        columns = self._columns(now, some, backlog)
        priority = np.empty(backlog.shape)
        each = len(self.world.streams)
        bounds = np.searchsorted(some, np.arange(len(self.policies) + 1) * each)
        for policy, start, stop in zip(self.policies, bounds[:-1], bounds[1:], strict=True):
            priority[start:stop] = policy.priority(columns.part(start, stop), now)
        for short in [place for place, run in enumerate(some) if self._modes[run].active]:
            priority[short] = freeing(columns.part(short, short + 1), now)[0]
        priority[~ready] = np.inf
        order = np.argsort(priority, axis=1, kind="stable")
        count = np.minimum(free, np.isfinite(priority).sum(axis=1))
        row, place = np.nonzero(np.arange(order.shape[1]) < count[:, None])
        if len(row):
            stream = order[row, place]
            self._start(now, backlog[row, stream], some[row], stream)

    def _columns(self, now: float, some: Ints, backlog: Floats) -> Columns:
        """Return what the policies may know in some runs."""
        state, known = self._state, self._costs.costs
        costs = RunCosts(known.fixed[some], known.row[some], known.partial[some])
        slide, partials, limit = self._facts.slide[some], self._facts.partials[some], self._facts.limit[some]
        expected = self._foretold(now, some)
        late = np.maximum(0.0, np.floor((now - expected) / slide))
        due = np.where(expected <= now, 1.0 + late, 0.0)
        cost = SECOND * costs.run(backlog, (1.0 + late) * partials)
        total = cost + SECOND * costs.row * self._rate[some] * np.maximum(0.0, expected - now)
        selectivity, cycle = self._facts.selectivity[some], self._cycle[some]
        return Columns(
            waiting_since=state.newest[some],
            ran_at=state.started[some],
            trigger=np.broadcast_to(float(self.machine.trigger), cost.shape),
            cost=cost,
            run=np.minimum(cost, SECOND * cycle),
            fixed=SECOND * costs.fixed,
            total=total,
            slack=expected + limit - now - total,
            expected=expected,
            limit=limit,
            deadline=self._facts.ends[some] + state.done[some] * slide,
            rate=selectivity / np.maximum(costs.row, 1e-12),
            freed=np.minimum(backlog, costs.fitting(cycle)) * (1 - selectivity),
            held=state.held[some],
            due=due,
            period=slide,
            cycle=np.broadcast_to(SECOND * cycle, cost.shape),
            load=np.broadcast_to(self._load[some], cost.shape),
            rank=np.broadcast_to(self._facts.rank, cost.shape),
        )

    def _foretold(self, now: float, some: Ints) -> Floats:
        """Return when the next sweeping watermark comes, as far as it is known.

        A source that injects watermarks says which is the newest to have come (`Source.watermark(Source.latest())`);
        of derived ones nothing is known before the rows are read.
        """
        state = self._state
        expected = state.expected[some]
        injected = self._facts.injected[some]
        if not injected.any():
            return self._joint(expected, some)
        swept, mean, sigma = state.swept[some], state.mean[some], state.sigma[some]
        expected = np.where(injected, np.where(swept <= now, swept, mean), expected)
        near = injected & (swept > now) & (now - mean > -4 * np.maximum(sigma, 1.0))
        expected[near] = expected_arrivals(mean[near], sigma[near], np.full(near.sum(), now))
        return self._joint(expected, some)

    def _joint(self, expected: Floats, some: Ints) -> Floats:
        """Let the inputs of a join wait for the last watermark of the window that the join needs next."""
        inputs = self.world.inputs
        if inputs == 1:
            return expected
        grouped = expected.reshape(len(some), -1, inputs)
        done = self._state.done[some].reshape(grouped.shape)
        behind = done == done.min(axis=2, keepdims=True)
        last = np.where(behind, grouped, -np.inf).max(axis=2, keepdims=True)
        return np.where(behind, last, grouped).reshape(expected.shape)

    def _look_around(self) -> None:
        """Measure what changes slowly: the rates at which rows come, and the length of a cycle."""
        state, costs = self._state, self._costs.costs
        self._rate += 0.3 * ((state.arrived - self._counted) / LOOK - self._rate)
        self._counted = state.arrived.copy()
        fixed = np.nanmedian(np.where(self._facts.alive, costs.fixed, np.nan), axis=1)
        busy = (self._rate * SECOND * costs.row).sum(axis=1) / self.machine.cores
        self._cycle = self.machine.cycle_of(fixed, busy)[:, None]
        period = np.where(self._facts.alive, self._facts.slide / SECOND, np.inf)
        self._load = offered(costs, self._rate * SECOND, period, self.machine.cores)[:, None]

    def _start(self, now: float, backlog: Floats, run: Ints, stream: Ints) -> None:
        at, state, costs = (run, stream), self._state, self._costs.costs
        cycle = np.where(self._at_once[run], np.inf, self._cycle[run, 0])
        rows = np.minimum(backlog, RunCosts(costs.fixed[at], costs.row[at], costs.partial[at]).fitting(cycle))
        behind = backlog - rows
        state.cut[at] = state.read[at] + rows
        newest = np.maximum(state.newest[at], now - behind / np.maximum(self._rates[at], 1e-12))
        state.cut_newest[at] = np.where(behind < 1, now, newest)
        noise = self.world.noise[self._facts.world_run[run], stream, state.jobs[at] % self.world.noise.shape[2]]
        state.left[at] = state.took[at] = (self._facts.job[at] + self._facts.row[at] * rows) * noise
        state.started[at] = now
        state.jobs[at] += 1
        state.held[at] = True
        state.running += np.bincount(run, minlength=len(state.running))

    def _commit(self, now: float, run: Ints, stream: Ints) -> None:
        """Take in jobs that have ended: learn their cost, close the windows whose watermark they read."""
        at = (run, stream)
        state, world = self._state, self.world
        rows = state.cut[at] - state.read[at]
        self._costs.ran(rows, state.took[at] / SECOND, at)
        state.read[at], state.newest[at], state.left[at] = state.cut[at], state.cut_newest[at], np.inf
        state.running -= np.bincount(run, minlength=len(state.running))
        before = state.done[at]
        done, place = before.copy(), self._facts.world_run[run]
        last = world.swept.shape[2] - 1
        while (more := (world.swept[place, stream, done] <= state.newest[at]) & (done < last)).any():
            done += more
        closed = done > before
        if closed.any():
            state.done[at] = done
            state.swept[at] = world.swept[place, stream, done]
            state.mean[at] = self._facts.ends[at] + done * self._facts.slide[at] + world.lag[place, stream, done]
            state.sigma[at] = world.sigma[place, stream, done]
            state.held[at] &= ~closed
            self._consolidate(now, run[closed], stream[closed], (done - before)[closed])
        state.expected[at] = expected_arrivals(state.mean[at], state.sigma[at], state.newest[at])

    def _consolidate(self, now: float, run: Ints, stream: Ints, windows: Ints) -> None:
        """Give the driver the partials of closed windows, and note when the results are there."""
        state, at = self._state, (run, stream)
        partials = windows * self._facts.partials[at]
        seconds = partials * self._facts.partial[at]
        self._costs.merged(np.maximum(partials, 1.0), seconds / SECOND, at)
        added = np.bincount(run, seconds, len(state.driver))
        state.driver = np.where(added > 0, np.maximum(state.driver, now) + added, state.driver)
        query = stream // self.world.inputs
        while True:
            inputs = state.done.reshape(*state.complete.shape, -1)[run, query].min(axis=1)
            more = state.complete[run, query] < inputs
            if not more.any():
                return
            run, query = run[more], query[more]
            window = state.complete[run, query]
            came = self._facts.query_swept[self._facts.world_run[run], query, window]
            state.latency[run, query, window] = (state.driver[run] - came) / SECOND
            state.complete[run, query] = window + 1

    def _outcomes(self, busy: Floats, held: Floats, used: Floats, warm_up: Micros) -> list[Outcome]:
        state, world, each = self._state, self.world, len(self.world.streams)
        came = (self._facts.query_swept >= warm_up) & (self._facts.query_swept < world.duration - TAIL)
        until = np.where(came, world.duration - self._facts.query_swept, np.nan) / SECOND
        windows = np.isfinite(world.swept).sum(axis=(1, 2))
        found = []
        for start in range(0, len(state.driver), each):
            here = slice(start, start + each)
            latency = np.minimum(state.latency[here], until)
            found.append(
                Outcome(
                    latency=latency,
                    limit=self._facts.limit[here, :: world.inputs] / SECOND,
                    throughput=state.read[here].sum(axis=1) / (world.duration / SECOND),
                    held=held[here],
                    used=used[here],
                    busy=busy[here],
                    jobs=state.jobs[here].sum(axis=1) / windows,
                    missing=(latency >= until).sum(axis=(1, 2)) / came.sum(axis=(1, 2)),
                )
            )
        return found
