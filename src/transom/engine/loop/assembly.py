"""Makes a loop out of its parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from transom.checkpoint.store import Checkpoint
from transom.engine.changes.requests import Requests
from transom.engine.control.adapting import Adapters
from transom.engine.control.digests import Digests
from transom.engine.control.memory import MemoryGauge
from transom.engine.control.phases import PhaseRecorder
from transom.engine.control.scheduler import Scheduler
from transom.engine.control.tiers import Tiers
from transom.engine.execution.runners import CutRunner, SparkCutRunner
from transom.engine.loop.backpressure import Backpressure
from transom.engine.loop.batches import Cuts
from transom.engine.loop.beginning import Beginning
from transom.engine.loop.changing import Changer
from transom.engine.loop.costwatch import CostWatch
from transom.engine.loop.delivery import Delivery
from transom.engine.loop.ending import Ending
from transom.engine.loop.executors import make_executors
from transom.engine.loop.expectation import Expectation
from transom.engine.loop.journal import Journal
from transom.engine.loop.learning import Learning
from transom.engine.loop.loop import Beside, Loop
from transom.engine.loop.metrics import Metrics
from transom.engine.loop.planner import Planner
from transom.engine.loop.progress import Progress
from transom.engine.loop.quarantine import Quarantine
from transom.engine.loop.reporting import Reporter
from transom.engine.loop.snapshots import Snapshots
from transom.engine.loop.starting import Starter
from transom.engine.loop.tuning import Tuner
from transom.engine.loop.wakeups import Wakeups
from transom.engine.streams.stream import RunningStream
from transom.model.phases import CutPhases
from transom.model.time import Clock
from transom.planning.profile import Profile
from transom.settings import OFF, Settings
from transom.sinks.base import Sink
from transom.sinks.outlets import Outlets


@dataclass(frozen=True)
class Outside:
    """The ways from a loop to what is outside of it."""

    on_progress: Callable[[Progress], None] | None = None
    """Called now and then with what has happened."""
    on_step: Callable[[str], None] = lambda step: None
    """Called with the name of each step that a crash could follow; for fault tests."""
    requests: Requests = field(default_factory=Requests)
    """Changes of the set of queries that are asked for while it runs."""
    forget: Callable[[str], None] = lambda name: None
    """Called with the name of each query that leaves."""
    release: Callable[[Sink], None] = lambda sink: None
    """Called with each sink that is not needed any more while it runs."""
    late: Callable[[Sink], None] = lambda sink: None
    """Called with each sink that hung when the run ended, and does not any more."""
    runner: CutRunner | None = None
    """Runs the jobs of cuts; Spark if None."""
    phases: PhaseRecorder = field(default_factory=PhaseRecorder)
    """Takes the stamps of all cuts."""
    beside: Beside = field(default_factory=Beside)
    """What goes on beside the streams."""
    said: Collection[str] = ()
    """Settings that the user has given."""
    profile: Profile | None = None
    """What is known of the costs at the beginning."""


def make_loop(
    streams: Mapping[str, RunningStream],
    sinks: Mapping[str, Outlets],
    checkpoint: Checkpoint,
    settings: Settings,
    clock: Clock,
    outside: Outside,
    lost: Mapping[str, str],
) -> Loop:
    """Return a loop that has not begun.

    Args:
        streams: The streams, freshly made.
        sinks: Sinks of each query.
        checkpoint: Open checkpoint.
        settings: Settings.
        clock: The time.
        outside: The ways out.
        lost: Queries that failed earlier and are in no stream, since they cannot be compiled any more; with the reason.
    """
    session = next(iter(streams.values())).session
    wakeups, adapters, phases = Wakeups(clock), Adapters(), outside.phases
    wake, most_bytes = wakeups.wake, settings.max_waiting_bytes
    outside.requests.wake = wake
    journal = Journal(checkpoint, outside.on_step)
    metrics = Metrics(clock.monotonic(), streams)
    delivery = Delivery(sinks, clock, wake, settings.sink_workers, most_bytes, outside.release, outside.late)
    quarantine = Quarantine(streams, journal)
    backpressure = Backpressure(streams, delivery, journal, metrics, phases, quarantine, most_bytes)
    gauge = MemoryGauge(session, settings.memory_limit, settings.memory_bound)
    scheduler = Scheduler(streams, settings, gauge.measure, journal.note)
    without_sql = settings.lane == "auto"
    runner = outside.runner or SparkCutRunner(scheduler.slots, scheduler.pools, len(streams), without_sql)
    cuts = Cuts(streams, journal, runner, scheduler, adapters, phases, delivery, quarantine, clock, wake)
    tiers = Tiers(streams, settings, journal.note)
    executors = None
    if settings.max_executors is not None:
        executors = make_executors(session, streams, settings.max_executors, clock, journal.note)
    tuner = Tuner(streams, settings, journal, scheduler, runner, clock, outside.said, executors)
    digests = Digests(streams, settings.poll, clock.monotonic)
    phases.on_cut = _both(phases.on_cut, digests.take)
    planner = None
    if settings.plan != OFF:
        if outside.profile is not None:
            digests.begin(outside.profile)
        watch = CostWatch(streams, digests, clock, phases.closely)
        planner = Planner(streams, digests, scheduler, tuner, journal, clock, watch=watch, executors=executors)
        phases.on_cut = _both(phases.on_cut, planner.take)
    changer = Changer(streams, sinks, delivery, journal, outside.requests, outside.forget, tuner)
    smallest = settings.snapshot_bytes
    snapshots = Snapshots(streams, checkpoint, journal, cuts, delivery, scheduler, tiers, tuner, digests, smallest)
    ending = Ending(session, runner, cuts, delivery, journal, clock, settings.stop_timeout, wake)
    return Loop(
        streams=streams,
        cuts=cuts,
        beginning=Beginning(
            streams,
            sinks,
            lost,
            checkpoint,
            journal,
            scheduler,
            changer,
            quarantine,
            delivery,
            cuts,
            tiers,
            tuner,
            digests,
            snapshots,
            clock,
        ),
        starter=Starter(
            streams,
            scheduler,
            cuts,
            changer,
            backpressure,
            snapshots,
            delivery,
            metrics,
            quarantine,
            journal,
            phases,
            clock,
        ),
        learning=Learning(journal, metrics, adapters, tiers, cuts, snapshots, clock),
        backpressure=backpressure,
        changer=changer,
        tuner=tuner,
        planner=planner,
        phases=phases,
        quarantine=quarantine,
        snapshots=snapshots,
        scheduler=scheduler,
        metrics=metrics,
        reporter=Reporter(
            streams, metrics, scheduler, phases, delivery, changer, ending, journal, clock, outside.on_progress, planner
        ),
        expectation=Expectation(streams, digests, scheduler, phases, metrics, tuner, clock),
        ending=ending,
        beside=outside.beside,
        wakeups=wakeups,
        poll=settings.poll,
    )


def _both(one: Callable[[CutPhases], None], other: Callable[[CutPhases], None]) -> Callable[[CutPhases], None]:
    """Return what tells two of each cut."""

    def tell(cut: CutPhases) -> None:
        one(cut)
        other(cut)

    return tell
