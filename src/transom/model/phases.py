"""The phases of a cut, from the arrival of its rows to visible results, and how long each took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any


class Phase(StrEnum):
    """A phase of a cut, in their order. Up to `COMMIT` they are of its rows, then of the windows that it completed."""

    LOOK = "look"
    """From the arrival of a row until the loop looks at the source."""
    TURN = "turn"
    """Until its stream may run: its own cut under way, the trigger, and the policy's rest."""
    SLOT = "slot"
    """While jobs of other streams have all slots."""
    PLAN = "plan"
    """The log, and until Spark has the job: with Spark SQL the DataFrame and its optimiser."""
    LAUNCH = "launch"
    """Until the first task of the first stage runs."""
    MAP = "map"
    """Read, parse, the user's `map`, aggregation within a task: to the end of the last wave of tasks."""
    EXCHANGE = "exchange"
    """The stages after the first: barrier, fetch, final aggregation; none in a cut of one task."""
    COLLECT = "collect"
    """Partials to the driver, from the end of the last task on."""
    COMMIT = "commit"
    """The loop's thread: durable partials, the log, panes."""
    CLOSE = "close"
    """Until the cut is logged that closes the windows."""
    CONSOLIDATE = "consolidate"
    """Merging partials into windows, here or on the executors."""
    DELIVER = "deliver"
    """Until the results are visible in their sinks."""


WAITS = (Phase.LOOK, Phase.TURN, Phase.SLOT)
"""Before the cut is logged; of each a mean over its rows."""
OF_A_JOB = (Phase.PLAN, Phase.LAUNCH, Phase.MAP, Phase.EXCHANGE, Phase.COLLECT)
"""Known one by one where Spark was asked; `CutPhases.job` is their sum."""
OF_WINDOWS = (Phase.CLOSE, Phase.CONSOLIDATE, Phase.DELIVER)


@dataclass(frozen=True)
class StageTasks:
    """A stage of a cut's job, as Spark's status store has it."""

    tasks: int
    seconds: float
    """From its submission to its end."""
    launch: float
    """Of it, until its first task ran."""
    run: float
    """Seconds of all tasks together in executors."""
    cpu: float
    """Of it, seconds of processor time."""
    rows: int = 0
    """Rows that were read from the source, as far as Spark counts them."""
    input_bytes: int = 0
    shuffle_bytes: int = 0
    """That were written for an exchange."""
    in_workers: bool = False
    """Whether its tasks were Python workers, without Spark SQL, of whose work Spark knows nothing."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class WorkersDid:
    """What Python workers did for a cut whose partials were made without Spark SQL."""

    tasks: int
    """0 where rows were aggregated where they were, on the thread of the job."""
    cpu: float
    """Seconds of processor time of all tasks together."""
    rows: int
    """That were read."""
    input_bytes: int = 0

    def added(self, stages: tuple[StageTasks, ...]) -> tuple[StageTasks, ...]:
        """Return the stages of a cut with this work, which Spark's status store does not know."""
        if not self.tasks:
            mine = StageTasks(1, self.cpu, 0.0, self.cpu, self.cpu, self.rows, self.input_bytes, in_workers=True)
            return (mine, *stages)
        return tuple(
            replace(stage, cpu=stage.cpu + self.cpu, rows=self.rows, input_bytes=self.input_bytes)
            if stage.in_workers
            else stage
            for stage in stages
        )


@dataclass(frozen=True)
class CutPhases:
    """How long the phases of a cut took."""

    stream: str
    number: int
    """The cut's."""
    rows: int
    """Rows that it read; 0 for one that only closed windows."""
    seconds: Mapping[Phase, float]
    """The phases that were measured. Those of `WAITS` are means over the rows; those of `OF_A_JOB` are there where
    Spark was asked; those of `OF_WINDOWS` for cuts that completed windows, with deliver of the slowest sink."""
    job: float | None = None
    """Seconds from its start to the end of its job; None for one without rows."""
    tasks: int | None = None
    """Tasks that read its rows; None where Spark was not asked."""
    stages: tuple[StageTasks, ...] = field(default=())
    """Where Spark was asked."""
    partials: int = 0
    """Rows of partials that came to the driver."""
    results: int = 0
    """Rows of results of the windows that it completed."""
    windows: int = 0
    """These windows."""
    batching_at_source: float | None = None
    """Mean time from the events to the arrival of their rows, before all phases; None where it was not measured."""
    allowed: int = 0
    """Tasks that its settings allow; 0 for as many as its source has parts."""
    before: int | None = None
    """Rows of its stream before it, where windows hold no older ones; None where that is not known."""

    @property
    def total(self) -> float:
        """Seconds of all phases that were measured."""
        whole = sum(seconds for phase, seconds in self.seconds.items() if phase not in OF_A_JOB)
        return whole + (self.job or 0.0)

    def to_json(self) -> dict[str, Any]:
        """Return them as JSON."""
        return {
            **self.__dict__,
            "seconds": {str(phase): seconds for phase, seconds in self.seconds.items()},
            "stages": [stage.to_json() for stage in self.stages],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CutPhases:
        """Return what `to_json` wrote."""
        seconds = {Phase(phase): float(seconds) for phase, seconds in value["seconds"].items()}
        stages = tuple(StageTasks(**stage) for stage in value.get("stages", ()))
        return cls(**{**value, "seconds": seconds, "stages": stages})
