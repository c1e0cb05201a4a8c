"""The scheduler: gives what is known of the streams to a policy, which says what runs next and how much of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from transom.engine.control.estimates import UNSTATED, Deadline, StreamEstimate
from transom.engine.control.memory import MemoryWatch, Shares
from transom.engine.control.overload import Overload
from transom.engine.state.closing import Closing
from transom.engine.streams.cuts import CutOutcome, LoggedCut
from transom.engine.streams.stream import RunningStream, Taking
from transom.model.time import MICROS_PER_SECOND, Micros, format_duration
from transom.model.tuning import StreamTuning, Tuning
from transom.scheduling.costs import RunCosts, cycle_seconds, offered
from transom.scheduling.limits import out_of_reach
from transom.scheduling.memory import holding
from transom.scheduling.policies import Policy, StreamView, bounded, freeing, policy_named
from transom.settings import OFF, Settings

PACE: Micros = MICROS_PER_SECOND
"""Time between two measurements of the cycle, the load and the largest cuts."""
VIEWED: Micros = MICROS_PER_SECOND // 4
"""Time between two computations of what is expected of a stream to which nothing happens."""


def tuning_of(settings: Settings, streams: Iterable[str]) -> Tuning:
    """Return what settings make of what can be set while the application runs."""
    return Tuning(settings.slots, dict.fromkeys(streams, StreamTuning(settings.trigger, settings.max_rows_per_cut)))


class Pace:
    """The length of a cycle, the load, and the largest cuts that follow from them; measured every `PACE`.

    Args:
        cycle: Its length, if it is fixed.
    """

    def __init__(self, cycle: Micros | None) -> None:
        self._fixed = cycle
        self._at: Micros | None = None
        self._most: dict[str, int] = {}
        self.cycle = 1.0
        """Seconds of a cycle."""
        self.load = 0.0
        """Offered work over capacity."""

    def again(self) -> None:
        """Let the next look measure, whenever the last one was."""
        self._at = None

    def measure(self, known: Collection[StreamEstimate], slots: int, now: Micros) -> None:
        """Measure, if it was not done just now.

        Args:
            known: What is known of the streams.
            slots: Jobs that may run at once.
            now: The time.
        """
        if self._at is not None and now < self._at + PACE:
            return
        self._at, self._most = now, {}
        if known:
            fixed, row, partial, rate, period = np.array([each.pace() for each in known]).T
            self.load = float(offered(RunCosts(fixed, row, partial), rate, period, slots))
            self.cycle = float(cycle_seconds(np.median(fixed), np.asarray((rate * row).sum() / slots)))
        if self._fixed is not None:
            self.cycle = self._fixed / MICROS_PER_SECOND

    def max_rows(self, bounds: Mapping[str, int], of: Callable[[str], StreamEstimate]) -> dict[str, int]:
        """Return the rows of each stream, up to a bound, that fit into the cycle that was measured last."""
        if self._most.keys() != bounds.keys():
            self._most = {name: min(bound, of(name).runs.fitting(self.cycle)) for name, bound in bounds.items()}
        return self._most


class Scheduler:
    """Decides for the streams of one application; all methods run on the loop's thread, and `now` is monotonic time.

    Args:
        streams: The streams.
        settings: Policy, cycle, slots.
        measure: Returns the shares of memory in use; None for no memory mode.
        note: Tells people once.
    """

    def __init__(
        self,
        streams: Mapping[str, RunningStream],
        settings: Settings,
        measure: Callable[[], Shares] | None = None,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._streams = streams
        self._settings = settings
        self._tuning = tuning_of(settings, streams)
        self._policy = policy_named(settings.policy, settings.longest_wait)
        self._freeing = bounded(Policy("memory", freeing), settings.longest_wait)
        self.memory = MemoryWatch(settings.memory_bound, measure, note)
        self._note = note
        self._told: set[str] = set()
        """Queries whose limit is known to be out of reach."""
        self.resting: dict[str, Micros] = {}
        """Streams that were left alone the last time, with the wall time at which the watermark of their next window is
        expected."""
        self.once = False
        """Whether all input is there from the start, so that no watermark is worth waiting for."""
        self._estimates: dict[str, StreamEstimate] = {}
        self._views: dict[str, tuple[Micros, tuple[object, ...], int, StreamView]] = {}
        """Of each stream the last one, with when it was made, of what, and for how many rows."""
        self._pace = Pace(settings.cycle)
        self._overload = Overload(self._estimates, lambda: self._tuning.slots, note)
        self.spent = 0.0
        """Seconds of processor time that scheduling has taken."""

    def of(self, stream: RunningStream, now: Micros) -> StreamEstimate:
        """Return what is known of a stream."""
        known = self._estimates.get(stream.name)
        if known is None or known.stream is not stream:
            known = self._estimates[stream.name] = StreamEstimate(stream, now)
        return known

    @property
    def tuning(self) -> Tuning:
        """What is set of all streams; whoever needs some of it looks at each turn of the loop."""
        return self._tuning

    def tune(self, tuning: Tuning) -> None:
        """Set something else from now on, for all streams."""
        self._tuning = tuning
        self._views.clear()
        self._pace.again()

    @property
    def slots(self) -> int:
        """Jobs that may run at once."""
        return max(self._tuning.slots, len(self._streams)) if self._policy.at_once else self._tuning.slots

    def trigger(self, stream: str) -> Micros:
        """Return the least time between two cuts of a stream that take all there is; none where all is there."""
        return 0 if self.once else self._tuning.of(stream).trigger

    @property
    def pools(self) -> bool:
        """Whether each stream has a FAIR pool of its own."""
        return self._policy.at_once

    def max_rows(self, now: Micros) -> Mapping[str, int]:
        """Return the largest cut of each stream: what fits into a cycle, as far as there are others to wait for it."""
        most = self._settings.max_rows_per_cut
        bounds = {name: each.rows_per_cut or most for name, each in self._tuning.streams.items()}
        if self._policy.at_once or (len(self._streams) == 1 and self._settings.cycle is None):
            return bounds
        begun = time.thread_time()
        self._pace.measure(self._estimates.values(), self._tuning.slots, now)
        fitting = self._pace.max_rows(bounds, lambda name: self.of(self._streams[name], now))
        self.spent += time.thread_time() - begun
        return fitting

    def taking(self, most: int, now: Micros, wall: Micros) -> Taking:
        """Return what says what a stream reads next: less than all, if its queries allow that."""
        overload, most = self._overload, 0 if self.once else most
        return lambda stream, piece: overload.take(self.of(stream, now), piece, most, now, wall)

    def learned(self) -> dict[str, Any]:
        """Return what a restart should know again, as JSON, by stream: the lags of watermarks."""
        return {name: estimate.watermarks.lags.to_json() for name, estimate in self._estimates.items()}

    def restore(self, learned: Mapping[str, Any], now: Micros) -> None:
        """Take in what `learned` returned, for the streams that there still are."""
        for name in learned.keys() & self._streams.keys():
            self.of(self._streams[name], now).watermarks.lags.restore(learned[name])

    # ---- what happens

    def looked(self, streams: Iterable[RunningStream], now: Micros, ahead: Micros = 0) -> None:
        """Take in what the sources of some streams have.

        Args:
            streams: The streams.
            now: Monotonic time.
            ahead: By how much the wall clock, which dates rows and watermarks, is ahead of it.
        """
        begun = time.thread_time()  # a system call: once for all
        for stream in streams:
            known = self.of(stream, now)
            if known.watermarks.ahead != ahead:
                known.wall_is(ahead, now)
            if known.is_news():
                known.looked(now)
        self.spent += time.thread_time() - begun

    def started(self, stream: RunningStream, cut: LoggedCut, now: Micros) -> None:
        """Note that the job of a cut was submitted."""
        self.of(stream, now).started(cut, now)

    def finished(self, stream: RunningStream, outcome: CutOutcome, now: Micros) -> None:
        """Note that a job is done and its rows are in the state."""
        begun = time.thread_time()
        estimate = self.of(stream, now)
        estimate.finished(outcome, now)
        self._overload.read(stream, outcome)
        if not self.once:
            self._tell_who_misses(estimate)
        self.spent += time.thread_time() - begun

    def _tell_who_misses(self, estimate: StreamEstimate) -> None:
        """Say once of each query when its stream is too slow for its limit; the rows of derived streams come once."""
        stream = estimate.stream
        if stream.feed.is_derived or self._settings.plan != OFF:  # a plan says it better
            return
        queries = stream.state.running()
        limits = {query.name: UNSTATED if query.target is None else query.target.limit for query in queries}
        for name in out_of_reach(estimate.runs.recent, limits):
            if name not in self._told:
                self._told.add(name)
                self._note(
                    f"{name} has a limit of {format_duration(limits[name])}, but the micro-batches of {stream.name}, "
                    f"with {len(queries)} queries, take longer. If it needs less by itself, let it read apart: "
                    "stream.apart(), or own_stream = true in TOML."
                )

    def closed(self, stream: RunningStream, closings: Iterable[Closing], took: Micros, now: Micros) -> None:
        """Note that windows were consolidated."""
        tables = [closing.results.table for closing in closings if closing.results is not None]
        self.of(stream, now).closed(sum(table.num_rows for table in tables), took)

    # ---- decisions

    def order(self, ready: Sequence[str], now: Micros, delivering: bool = False) -> list[str]:
        """Return the streams to run now, the first one first; those left out are better run later.

        Args:
            ready: Streams with rows to read.
            now: Monotonic time.
            delivering: Whether a sink is taking results.
        """
        begun = time.thread_time()
        self.memory.look(now)
        self._pace.measure(self._estimates.values(), self._tuning.slots, now)
        cycle = self._pace.cycle
        views = []
        for name in ready:
            estimate = self.of(self._streams[name], now)
            view = self._view(estimate, now)
            if self.memory.short:
                view = view._replace(freed=estimate.freed(view.expected <= now, cycle))
            views.append(view)
        policy = self._freeing if self.memory.mode.active else self._policy
        if self.memory.short and (
            delivering or any(view.freed > 0 for view in views) or self._waits_in_memory(cycle, now)
        ):
            policy = bounded(holding(policy), self._settings.longest_wait)
        chosen = policy(views, now)
        rests = (view for view in views if view.name not in chosen and view.expected > now)
        ahead = {name: self._estimates[name].watermarks.ahead for name in ready}
        self.resting = {view.name: round(view.expected) + ahead[view.name] for view in rests}
        self.spent += time.thread_time() - begun
        return chosen

    def _view(self, estimate: StreamEstimate, now: Micros) -> StreamView:
        """Return a stream as the policy sees it, anew if something happened to it or some time has passed.

        Of a stream to which only rows were added, and this is most of what happens, only what follows from them is new.
        """
        name, of_what = estimate.stream.name, (estimate, estimate.changes, estimate.stream.seen.more)
        known = self._views.get(name)
        if known is None or known[1] != of_what or not known[0] <= now < known[0] + VIEWED:
            deadlines, trigger = self._deadlines(estimate, now), None if self.once else self.trigger(name)
            view = estimate.view(deadlines, self._pace.cycle, self._pace.load, now, trigger)
        else:
            now, _, backlog, view = known
            if backlog == estimate.backlog.rows:
                return view
            view = view.grown(float(estimate.next_run()))
        self._views[name] = now, of_what, estimate.backlog.rows, view
        return view

    def remains(self, stream: RunningStream, now: Micros) -> tuple[Micros, Micros | None]:
        """Return what remains to be done with rows that come to a stream, and the end of the window that waits for it.

        Microseconds until results are out; event time, None where no window waits.
        """
        estimate = self.of(stream, now)
        tightest = min(self._deadlines(estimate, now), key=lambda one: one.end + one.limit - one.below, default=None)
        below, end = (0, None) if tightest is None else (tightest.below, tightest.end)
        return round(estimate.next_run() + below), end

    def _waits_in_memory(self, cycle: float, now: Micros) -> bool:
        """Tell whether a stream frees memory with the rows that it reads now or next."""
        return any(self.of(stream, now).freed(False, cycle) > 0 for stream in self._streams.values())

    def _deadlines(self, estimate: StreamEstimate, now: Micros) -> list[Deadline]:
        """Return the deadlines of a stream, with those of the streams that wait for it, at any level.

        A window further down has the runs in between before its limit, so that the slack is that of the whole pipeline;
        each input of a join has the join's deadlines, so that the slack of the join is the least over its inputs.
        """
        found = list(estimate.deadlines())
        found += [Deadline(each.end, each.limit or UNSTATED, each.cost) for each in estimate.stream.elsewhere.values()]
        for reader in estimate.stream.readers:
            below = self.of(reader.child, now)
            cost = below.next_run()
            found += [
                replace(each, end=each.end + reader.behind, below=each.below + cost)
                for each in self._deadlines(below, now)
            ]
        return found
