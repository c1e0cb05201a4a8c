"""The loop of an application: commits, deliveries, changes, snapshots and new cuts, one after the other, to its end."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from transom.engine.control.phases import PhaseRecorder
from transom.engine.control.scheduler import Scheduler
from transom.engine.loop.backpressure import Backpressure
from transom.engine.loop.batches import Cuts
from transom.engine.loop.beginning import Beginning
from transom.engine.loop.changing import Changer
from transom.engine.loop.ending import Ending
from transom.engine.loop.expectation import Expectation
from transom.engine.loop.learning import Learning
from transom.engine.loop.metrics import Metrics
from transom.engine.loop.planner import Planner
from transom.engine.loop.progress import Progress
from transom.engine.loop.quarantine import Quarantine
from transom.engine.loop.reporting import PROGRESS_EVERY, Reporter
from transom.engine.loop.snapshots import Snapshots
from transom.engine.loop.starting import Starter
from transom.engine.loop.tuning import Tuner
from transom.engine.loop.wakeups import Wakeups
from transom.engine.streams.stream import RunningStream
from transom.model.time import Micros


class Beside:
    """What goes on beside the streams of a loop, on its thread; of this class itself nothing."""

    longest: Micros | None = None
    """It is looked at this often at least; None where nothing is to be done unless it wakes the loop."""

    def begin(self, loop: Loop) -> None:
        """Begin, after the streams were recovered and before any cut starts."""

    def look(self) -> bool:
        """Do what is to be done, after the cuts have started that could; tell whether streams have more to read."""
        return False

    def done(self) -> bool:
        """Tell whether nothing is left to be done, when the streams have ended."""
        return True

    def end(self) -> None:
        """End, whatever is left to be done."""


@dataclass(frozen=True)
class Loop:
    """Runs streams until they are exhausted or it is told to stop; `assembly.py` makes one.

    All state changes happen on one thread; `ending` says which of its methods others may call.
    """

    streams: Mapping[str, RunningStream]
    cuts: Cuts
    beginning: Beginning
    starter: Starter
    learning: Learning
    backpressure: Backpressure
    changer: Changer
    tuner: Tuner
    planner: Planner | None
    """Of an application that plans while it runs."""
    phases: PhaseRecorder
    quarantine: Quarantine
    snapshots: Snapshots
    scheduler: Scheduler
    metrics: Metrics
    reporter: Reporter
    expectation: Expectation
    ending: Ending
    beside: Beside
    wakeups: Wakeups
    poll: Micros
    """Time between two looks at the sources."""

    def run(self, once: bool) -> Progress:
        """Run until stopped, or with `once` until the sources are exhausted.

        Args:
            once: Stop at the end of the input.

        Raises:
            SourceError: A source cannot be read.
            QueryFailedError: No query is left.
            SinkError: At the end of the input, sinks still fail after many tries.
            CheckpointError: The checkpoint cannot be written.
            TransomError: What `ending.fail` was told.
        """
        self.scheduler.once = once
        with ExitStack() as last:
            last.callback(self.changer.close)
            if self.planner is not None:
                last.callback(self.planner.close)
            last.push(lambda kind, error, trace: self.ending.end_threads(error is None))
            self.beginning.begin()
            last.callback(self.beside.end)
            self.beside.begin(self)
            woken, looked = True, 0
            while self.ending.failure is None:
                now = self.starter.clock.monotonic()
                if woken or now - looked >= self.poll:
                    looked = now
                    self._look()
                    if not self.ending.stopping and not self.quarantine.all_failed:
                        self.starter.start()
                if more := self.beside.look():
                    self.wakeups.wake_soon()
                if self._finished(once):
                    break
                self.reporter.show()
                woken = self._wait() or more
            return self._end()
        raise AssertionError

    def _look(self) -> None:
        """Take in what has happened: jobs that are done, results that were delivered, changes that were asked for."""
        for stream, outcome in self.cuts.commit():
            self.learning.committed(stream, outcome)
        self.snapshots.wanted |= self.cuts.tidied()
        self.backpressure.look()
        self._change_queries()
        if self.planner is not None:
            self.planner.look()
        self.snapshots.take_if_due()

    def _change_queries(self) -> None:
        """Make the changes that were asked for; a snapshot ends them, so that no restart needs a query that left."""
        if self.ending.stopping:
            self.changer.close()
        elif self.changer.make(busy=self.cuts.busy):
            self.metrics.keep({name for stream in self.streams.values() for name in stream.state.queries})
            self.snapshots.wanted = True

    def _finished(self, once: bool) -> bool:
        """Tell whether nothing is left to do but to wait for sinks that fail, or it was told to stop long ago."""
        if self.ending.stopping and self.ending.overdue():
            return True
        if self.cuts.busy and not (self.ending.stopping and self.cuts.only_wait):
            return False
        ends = self.ending.stopping or self.quarantine.all_failed
        if not ends and not (once and all(stream.ended() or stream.stuck for stream in self.streams.values())):
            return False
        if not self.ending.stopping and not self.beside.done():
            return False
        return self.backpressure.blocked_for_ever(self.ending.stopping)

    def _wait(self) -> bool:
        """Wait until something happens, or there is something to look at again; tell whether streams are concerned."""
        poll, busy = self.poll, self.cuts.busy
        if busy and all(name in busy for name in self.streams):
            poll = max(poll, PROGRESS_EVERY)
        if self.beside.longest is not None:
            poll = min(poll, self.beside.longest)
        return self.wakeups.wait(poll, busy=self.ending.something_runs) or self.beside.longest is None

    def let_go(self) -> None:
        """Let go of all partials after the end: the parts of a loop know each other, so that they stay for a while."""
        for stream in self.streams.values():
            stream.state.arrange(())

    def _end(self) -> Progress:
        """Return what was done, or raise what ended it."""
        if self.ending.failure is not None:
            raise self.ending.failure
        if not self.cuts.busy:  # else it was not waited for
            self.snapshots.take()
        self.quarantine.require_a_query()
        if not self.ending.stopping:
            self.backpressure.require_all_delivered()
        return self.reporter.progress()
