"""Changes of what is set while an application runs: logged with their reason, then in force from the next cut on."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from transom.engine.control.scheduler import Scheduler, tuning_of
from transom.engine.execution.runners import CutRunner
from transom.engine.loop.journal import Journal
from transom.engine.loop.logrecords import Tuned
from transom.engine.streams.stream import RunningStream
from transom.errors import DefinitionError
from transom.model.sessions import is_connect
from transom.model.time import Clock, Micros
from transom.model.tuning import Tuning
from transom.settings import Settings

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
    changes: deque[Tuned] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """The last changes, also of earlier runs."""
    tuned: Tuned | None = None
    """The last change, if what is in force is not what the settings say."""

    @property
    def tuning(self) -> Tuning:
        """What is in force."""
        return self.scheduler.tuning

    @property
    def poll(self) -> Micros:
        """Time between two looks at a source, of which triggers that are set are multiples."""
        return self.settings.poll

    def begin(self, changes: Sequence[Tuned]) -> None:
        """Go on with what the log says, unless the settings are others now.

        Args:
            changes: Those in the checkpoint.
        """
        said = tuning_of(self.settings, self.streams)
        if not changes:
            return
        self.changes.extend(changes)
        tuned = changes[-1]
        if not _same(tuned.settings, said):
            self.journal.note("The settings are others than before, so what was tuned since then is set by them again.")
            self.changes.append(Tuned(said, said, "the settings are others", self.clock.now()))
            return
        try:
            self._follow(Tuned(self._checked(tuned.tuning.only(self.streams), said), said, tuned.reason, tuned.at))
        except DefinitionError as error:  # as on another kind of session
            self.journal.note(f"What was tuned before is set by the settings again: {error}")

    def change(self, tuning: Tuning, reason: str) -> bool:
        """Set something else from the next cut of each stream on; return whether anything changed.

        Args:
            tuning: The slots, and the streams for which something is set anew; the others stay as they are. Triggers
                become whole numbers of looks at the source.
            reason: Why, for people.

        Raises:
            DefinitionError: There is no such stream, or the session cannot do it.
            CheckpointError: The log cannot be written.
        """
        wanted = self._checked(tuning.on_looks(self.poll), self.tuning)
        changes = wanted.changes(self.tuning)
        if not changes:
            return False
        tuned = Tuned(wanted, tuning_of(self.settings, self.streams), reason, self.clock.now())
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
        for name, stream in self.streams.items():
            stream.options = replace(stream.options, tuning=tuned.tuning.of(name))


def _same(before: Tuning, now: Tuning) -> bool:
    """Tell whether settings that were in force say the same of the streams that there still are."""
    return not now.only(before.streams).changes(before)
