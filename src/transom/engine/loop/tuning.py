"""Changes of what is set while an application runs: logged with their reason, then in force from the next cut on."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from transom.engine.control.scheduler import Scheduler, tuning_of
from transom.engine.execution.runners import CutRunner
from transom.engine.loop.executors import Executors
from transom.engine.loop.journal import Journal
from transom.engine.loop.logrecords import Tuned
from transom.engine.streams.stream import RunningStream
from transom.errors import DefinitionError
from transom.model.sessions import is_connect
from transom.model.time import Clock, Micros
from transom.model.tuning import Tuning
from transom.settings import OFF, Settings

REMEMBERED = 32
"""Changes that are kept for people."""


@dataclass
class Tuner:
    """Changes the tuning; used on the loop's thread. Results never depend on it."""

    streams: Mapping[str, RunningStream]
    settings: Settings
    journal: Journal
    scheduler: Scheduler
    runner: CutRunner
    clock: Clock
    given: Collection[str] = ()
    """Settings that the user has given, which plans leave as they are."""
    executors: Executors | None = None
    """Asks for executors, if their number may change."""
    changes: deque[Tuned] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """The last changes, also of earlier runs."""
    tuned: Tuned | None = None
    """The last change, if what is in force is not what the settings say."""

    @property
    def tuning(self) -> Tuning:
        """What is in force."""
        tuning = self.scheduler.tuning
        return tuning if self.executors is None else replace(tuning, executors=self.executors.asked)

    @property
    def said(self) -> Tuning:
        """What the settings say."""
        return tuning_of(self.settings, self.streams)

    @property
    def poll(self) -> Micros:
        """Time between two looks at a source, of which triggers that are set are multiples."""
        return self.settings.poll

    def begin(self, changes: Sequence[Tuned]) -> None:
        """Go on with what the log says, unless the settings are others now.

        Args:
            changes: Those in the checkpoint.
        """
        if not changes:
            return
        self.changes.extend(changes)
        said, tuned = self.said, changes[-1]
        if not _same(tuned.settings, said):
            self._fall_back("the settings are others than before")
            return
        if tuned.planned and self.settings.plan == OFF:
            self._fall_back("the application does not plan any more")
            return
        # The cluster has given as many executors as it was told at the start: more are asked for by the first plan.
        tuning = replace(tuned.tuning.only(self.streams), executors=None)
        if tuned.planned:
            tuning = keeping(tuning, said, self.given)
        try:
            self._follow(replace(tuned, tuning=self._checked(tuning, said), settings=said))
        except DefinitionError as error:  # as on another kind of session
            self.journal.note(f"What was tuned before is set by the settings again: {error}")

    def _fall_back(self, reason: str) -> None:
        self.journal.note(f"What was tuned before is set by the settings again: {reason}.")
        self.changes.append(Tuned(self.said, self.said, reason, self.clock.now()))

    def change(self, tuning: Tuning, reason: str, planned: bool = False) -> bool:
        """Set something else from the next cut of each stream on; return whether anything changed.

        Args:
            tuning: The slots, and the streams for which something is set anew; the others stay as they are. Triggers
                become whole numbers of looks at the source.
            reason: Why, for people.
            planned: Whether it follows a plan.

        Raises:
            DefinitionError: There is no such stream, or the session cannot do it.
            CheckpointError: The log cannot be written.
        """
        wanted = self._checked(tuning.on_looks(self.poll), self.tuning)
        changes = wanted.changes(self.tuning)
        if not changes:
            return False
        tuned = Tuned(wanted, self.said, reason, self.clock.now(), planned)
        self.journal.log(tuned.to_json(), sync=False)
        self.journal.step("tuning logged")
        self.changes.append(tuned)
        self._follow(tuned)
        self.journal.note(f"Tuned, {reason}: {'; '.join(changes)}.")
        return True

    def _checked(self, tuning: Tuning, before: Tuning) -> Tuning:
        """Return a tuning for all streams.

        Raises:
            DefinitionError: There is no such stream, or the session cannot do it.
        """
        whole = tuning.over(before)
        for name, stream in self.streams.items():
            if whole.of(name).partitions is not None and is_connect(stream.session):
                raise DefinitionError(
                    f"tuning: partitions of {name!r}: a Spark Connect session has one number for all jobs.",
                    "Leave it out, or set spark.sql.shuffle.partitions of the session.",
                )
        return whole

    def _follow(self, tuned: Tuned) -> None:
        self.tuned = tuned
        self.scheduler.tune(tuned.tuning)
        self.runner.allow(self.scheduler.slots)
        if self.executors is not None and tuned.tuning.executors is not None:
            self.executors.ask(tuned.tuning.executors)
        for name, stream in self.streams.items():
            stream.options = replace(stream.options, tuning=tuned.tuning.of(name))


def keeping(tuning: Tuning, said: Tuning, given: Collection[str]) -> Tuning:
    """Return a tuning with what the user has given.

    Args:
        tuning: It.
        said: What the settings say, of the same streams at least.
        given: The settings that the user has given.
    """
    streams = {
        name: replace(each, trigger=said.of(name).trigger) if "trigger" in given else each
        for name, each in tuning.streams.items()
    }
    return replace(tuning, slots=said.slots if "slots" in given else tuning.slots, streams=streams)


def _same(before: Tuning, now: Tuning) -> bool:
    """Tell whether settings that were in force say the same of the streams that there still are."""
    return not now.only(before.streams).changes(before)
