"""Executors that an application asks its cluster manager for, and gives back when it does not need them any more."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from transom.engine.execution.threads import Threads
from transom.engine.placed import placed
from transom.engine.placed.placed import ExecutorInfo
from transom.engine.streams.stream import RunningStream
from transom.errors import DefinitionError
from transom.failures import FailureKind, classify
from transom.model.sessions import is_local, java_class
from transom.model.time import MICROS_PER_SECOND, Clock, Micros, format_duration
from transom.placement.grants import INSTANCES, Grant, granted
from transom.placement.leaving import Executor, Leaver, next_step
from transom.planning.fleet import Fleet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

EVERY: Micros = MICROS_PER_SECOND
"""Time between two looks at the executors while some are asked for or go."""
REST: Micros = 5 * MICROS_PER_SECOND
"""The same at other times."""
KEPT: Micros = 300 * MICROS_PER_SECOND
"""Executors are given back when their number has not changed for so long: to start them takes some time, and what is
known of costs is rough at first."""
PATIENCE: Micros = 60 * MICROS_PER_SECOND
"""When executors that were asked for have not come in this time, people are told."""
AT_THE_END = 10.0
"""Seconds that are waited for Spark to take back, at the end of a run, what it gave."""


class Manager(Protocol):
    """Gives and takes executors; each call may take long."""

    def there(self) -> Sequence[ExecutorInfo]:
        """Return the executors that are alive; none if Spark has none at the moment."""

    def ask(self, total: int) -> bool:
        """Ask for so many in all; return whether the request was taken."""

    def close(self, id: str) -> None:
        """Let an executor have no more tasks."""

    def end(self, ids: Sequence[str]) -> None:
        """End executors, and give nothing in their place."""


@dataclass(frozen=True)
class SparkManager:
    """The cluster manager of a classic session."""

    session: SparkSession

    @property
    def _context(self) -> Any:
        return self.session.sparkContext._jsc.sc()

    def there(self) -> Sequence[ExecutorInfo]:
        """Return the executors that are alive; none if Spark has none at the moment."""
        try:
            return placed.executors(self.session)
        except placed.NoExecutorError:
            return ()

    def ask(self, total: int) -> bool:
        """Ask for so many in all; return whether the request was taken."""
        nowhere = java_class(self.session, "PythonUtils", "toScalaMap").toScalaMap({})
        return bool(self._context.requestTotalExecutors(total, 0, nowhere))

    def close(self, id: str) -> None:
        """Let an executor have no more tasks; as when it is decommissioned."""
        none = java_class(self.session, "scala.Option", "empty").empty()
        info = java_class(self.session, "org.apache.spark.scheduler.ExecutorDecommissionInfo")
        pair = java_class(self.session, "scala.Tuple2")
        gateway: Any = self.session.sparkContext._gateway
        one = gateway.new_array(pair, 1)
        one[0] = pair(id, info("Transom gives it back", none))
        self._context.schedulerBackend().decommissionExecutors(one, False, False)

    def end(self, ids: Sequence[str]) -> None:
        """End executors, and give nothing in their place."""
        some = java_class(self.session, "PythonUtils", "toSeq").toSeq(list(ids))
        self._context.schedulerBackend().killExecutors(some, False, False, True)


@dataclass(frozen=True)
class _Act:
    """What the manager is told, and asked, at once."""

    ask: int | None = None
    close: Sequence[str] = ()
    end: Sequence[str] = ()


@dataclass(eq=False)
class Executors:
    """Asks for executors and gives them back; used on the loop's thread. Results never depend on it.

    What Spark is told goes on another thread, as it waits for the cluster manager. Some stay always: as many as there
    were before the first request, or, where the cluster manager gives all that it has by itself, as many as Spark's
    settings say, or one. At its end a run leaves as many as it found, or as the settings say there.
    """

    streams: Mapping[str, RunningStream]
    most: int
    manager: Manager
    clock: Clock
    note: Callable[[str], None]
    threads: Threads = field(default_factory=lambda: Threads(1, "transom-executors"))
    grant: Grant = field(default_factory=Grant)
    """What the cluster manager gives by itself, and at most."""
    asked: int | None = None
    """That were asked for, or that there are; None until that is known."""
    _least: int = 0
    _found: int = 0
    """That there were before any were asked for."""
    _changed: bool = False
    """Whether any were asked for."""
    _there: Sequence[ExecutorInfo] = ()
    _leaving: Mapping[str, Leaver] = field(default_factory=dict)
    _request: int | None = None
    """What was not asked for yet."""
    _under_way: tuple[Future[tuple[bool, Sequence[ExecutorInfo]]], _Act] | None = None
    _next: Micros = 0
    _since: Micros = -KEPT
    """When their number changed last."""
    _full: Micros = 0
    """When there were as many as were asked for, or these were asked for."""
    _told: set[str] = field(default_factory=set)

    @property
    def fleet(self) -> Fleet | None:
        """The executors that there are and may be; None while that is not known."""
        if self.asked is None or not self._there:
            return None
        cores = max(1, min(one.cores for one in self._there))
        room = len(self._there) if "missing" in self._told else None
        return Fleet(self.asked, self._least, max(self._least, self.most), cores, self._kept(), room)

    @property
    def count(self) -> int:
        """Executors that there were at the last look."""
        return len(self._there)

    def spare(self) -> str | None:
        """Return why it is time to see whether fewer do, for people; None if it is not."""
        if self.asked is None or self.asked <= self._least or not self._kept():
            return None
        return f"the number of executors has been {self.asked} for {format_duration(KEPT)}"

    def _kept(self) -> bool:
        return self.clock.monotonic() >= self._since + KEPT

    def ask(self, total: int) -> None:
        """Let there be so many from now on, as far as the cluster manager has them."""
        if total == self.asked:
            return
        self.asked = self._request = total
        self._changed, self._next = True, 0
        self._full = self._since = self.clock.monotonic()
        self._told.discard("missing")

    def look(self) -> None:
        """Go on with what is to come and to go."""
        now = self.clock.monotonic()
        if self._under_way is not None:
            if not self._under_way[0].done():
                return
            self._take(*self._under_way, now)
        if now < self._next:
            return
        there = self._standings()
        # How many were asked for counts once it is sure that no others come in the place of those that go.
        wanted = self.asked if self._changed and self._request is None else None
        step = next_step(there, self._leaving, wanted, now)
        self._leaving = step.leaving
        for stream in self.streams.values():
            stream.state.executors.empty(step.leaving.keys())
        act = _Act(self._request, step.close, step.end)
        self._under_way = self.threads.submit(_tell, self.manager, act), act
        self._next = now + (EVERY if self._leaving or act.ask is not None else REST)

    def _take(self, told: Future[tuple[bool, Sequence[ExecutorInfo]]], act: _Act, now: Micros) -> None:
        """Take in what came of what the manager was told."""
        self._under_way = None
        if error := told.exception():
            self._tell_once("error", f"Executors stay as they are; Spark says: {type(error).__name__}: {error}.")
            return
        taken, self._there = told.result()
        if not taken:
            self._tell_once("refused", f"The cluster manager did not take the request for {act.ask} executors.")
        elif act.ask == self._request:
            self._request = None
        if not self._changed:
            self._count(len(self._there), now)
            return
        if len(self._there) >= (self.asked or 0):
            self._full = now
            self._told.discard("missing")
        elif now - self._full >= PATIENCE:
            whole = " Without spark.executor.cores a standalone cluster gives one for each worker."
            self._tell_once(
                "missing",
                f"{self.asked} executors were asked for; for a minute there have been {len(self._there)}. Settings are "
                f"for these until others come.{whole if self.grant.whole_workers else ''}",
            )

    def _count(self, there: int, now: Micros) -> None:
        """Take note of how many there are while none were asked for."""
        grant = self.grant
        if there > self._found:
            self._found = there
            self._since = now if grant.gives_all else self._since
        self.asked = self._found or None
        self._least = (grant.stated or 1) if grant.gives_all else self._found
        if self._least > self.most:
            self._tell_once("least", f"max_executors is {self.most}, and {self._least} executors stay in any case.")
        first = max(self._least, self.most) if grant.stated is None else grant.stated
        if grant.gives_all and self._found > first:
            which = "max_executors" if grant.stated is None else INSTANCES
            self.note(f"The cluster gave {self._found} executors, and {which} is {first}: the others are given back.")
            self.ask(first)

    def _tell_once(self, what: str, text: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self.note(text)

    def _standings(self) -> list[Executor]:
        """Return the executors with what they do: key groups count of streams that have partials in files."""
        groups: Counter[str] = Counter()
        for stream in self.streams.values():
            if any(entry.store.parts for entry in stream.state.stores):
                groups.update(stream.state.executors.standing.groups)
        return [Executor(one.id, one.active, groups[one.id], one.leaving) for one in self._there]

    def close(self) -> None:
        """End, and give back what was asked for beyond what there was in the beginning."""
        if self._changed:
            # What is under way is before it on the same thread.
            left = self.grant.stated if self.grant.gives_all else None
            given = self.threads.submit(_give_back, self.manager, left or self._found, self._leaving)
            wait([given], AT_THE_END)
            if why := _why_not(given):
                logger.warning("Executors that were asked for may stay until the Spark session ends: %s.", why)
        self.threads.close(0)
        for name in [name for name, setter in _setters.items() if setter is self]:
            del _setters[name]


def _tell(manager: Manager, act: _Act) -> tuple[bool, Sequence[ExecutorInfo]]:
    """Tell the manager what to do; return whether it took a request, and the executors that there are then."""
    taken = act.ask is None or manager.ask(act.ask)
    for id in act.close:
        manager.close(id)
    if act.end:
        manager.end(act.end)
    return taken, manager.there()


def _why_not(given: Future[None]) -> str | None:
    """Return why executors may not have been given back; None if they were, or are gone with Spark."""
    if not given.done():
        return f"the cluster manager has not answered for {AT_THE_END:.0f} s"
    if (error := given.exception()) is None or (failure := classify(error)).kind is FailureKind.SPARK_GONE:
        return None
    return failure.reason


def _give_back(manager: Manager, left: int, leaving: Mapping[str, Leaver]) -> None:
    """Let there be so many executors as a run leaves; those that were leaving end first."""
    manager.ask(left)
    step = next_step([Executor(one.id) for one in manager.there()], leaving, left, 0)
    if step.leaving:
        manager.end(list(step.leaving))


_setters: WeakValueDictionary[str, Executors] = WeakValueDictionary()
"""Who sets the number of executors of a Spark application."""


def make_executors(
    session: SparkSession, streams: Mapping[str, RunningStream], most: int, clock: Clock, note: Callable[[str], None]
) -> Executors | None:
    """Return what asks for executors of a session; None in local mode, where there are none.

    Args:
        session: A classic session.
        streams: The streams, whose key groups may live at executors.
        most: As many are asked for at most.
        clock: The time.
        note: Tells people.

    Raises:
        DefinitionError: Another application that runs in this session does it.
    """
    context = session.sparkContext
    if is_local(session):
        note("max_executors is of no use here: in local mode there are no executors to ask for.")
        return None
    if context.applicationId in _setters:
        raise DefinitionError(
            "settings: max_executors: another application in this Spark session sets the number of executors.",
            "Leave max_executors out of one of the two, or run it in a Spark session of its own.",
        )
    grant = granted(str(context.master), context.getConf().get)
    if grant.bound is not None and grant.bound < most:
        note(
            f"spark.cores.max allows {grant.bound} executors, and max_executors is {most}: no more than {grant.bound} "
            f"are asked for. To begin with few, set {INSTANCES} instead."
        )
        most = max(1, grant.bound)
    made = _setters[context.applicationId] = Executors(streams, most, SparkManager(session), clock, note, grant=grant)
    return made
