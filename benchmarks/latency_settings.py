"""The settings with which the latency model is tried, and what it says of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean

from benchmarks.model_jobs import JOBS, PIECE, Job
from transom.model.phases import Phase
from transom.model.tuning import StreamTuning, Tuning
from transom.planning.model import Machine, Model, Prediction
from transom.planning.moments import cantelli
from transom.planning.profile import Profile

SHARE = 0.99
MOST_RATE = 1e7
"""Rows in a second that no machine can do."""


@dataclass(frozen=True)
class Setting:
    """Settings of a job, and how much is asked of it."""

    job: str
    cores: int
    trigger: float
    """Seconds."""
    tasks: int
    """That read a cut."""
    partitions: int
    """Tasks behind the exchange, if there is one."""
    slots: int
    load: float
    """The rate, as a share of the largest with which the model says that it keeps up in cuts like those measured."""

    @property
    def label(self) -> str:
        """The setting in a line."""
        return (
            f"{self.job} {self.cores} cores, {1e3 * self.trigger:.0f} ms, {self.tasks} tasks, "
            f"{self.partitions} partitions, {self.slots} slots, {100 * self.load:.0f} %"
        )


@dataclass(frozen=True)
class Predicted:
    """What is expected of a setting, before it runs."""

    setting: Setting
    rate: float
    """Rows in a second."""
    tuning: Tuning
    mean: float
    quantile: float
    bound: float
    """That of Cantelli for the quantile."""
    naive: float
    rows: float
    """Of a cut of its first stream."""
    phases: Mapping[str, float]

    def to_json(self) -> dict[str, object]:
        """Return it as JSON."""
        return {**self.__dict__, "setting": self.setting.label, "tuning": self.tuning.to_json()}


def settings() -> list[Setting]:
    """Return all settings; none of them is one that is profiled: profiles are of a backlog, without a trigger."""
    words = [
        Setting("words", 2, trigger, tasks, partitions, 1, load)
        for (trigger, load), (tasks, partitions) in product(
            ((0.1, 0.35), (0.3, 0.6), (0.6, 0.8), (1.0, 0.5)), ((1, 1), (2, 2), (2, 8))
        )
    ]
    words += [Setting("words", 1, trigger, 1, 1, 1, load) for trigger, load in ((0.4, 0.4), (0.8, 0.7))]
    apart = [
        Setting("apart", 2, trigger, tasks, 2, slots, load)
        for (trigger, load), (tasks, slots) in product(((0.3, 0.4), (0.8, 0.7)), ((1, 1), (1, 2), (2, 2)))
    ]
    files = [Setting("files", 2, trigger, 2, 2, 1, load) for trigger, load in ((0.3, 0.4), (0.8, 0.7))]
    windowed = [
        Setting("windowed", 2, trigger, tasks, 2, 1, load)
        for (trigger, load), tasks in product(((0.2, 0.4), (0.5, 0.6), (1.0, 0.8)), (1, 2))
    ]
    clicks = [
        Setting("clicks", 2, trigger, tasks, 2, 1, load)
        for (trigger, load), tasks in product(((0.1, 0.3), (0.3, 0.5), (0.6, 0.7), (1.0, 0.85)), (1, 2))
    ]
    return words + apart + files + windowed + clicks


QUICK = (
    Setting("words", 2, 0.3, 1, 1, 1, 0.5),
    Setting("words", 2, 0.6, 2, 2, 1, 0.7),
    Setting("clicks", 2, 0.3, 1, 1, 1, 0.4),
)


def foretell(setting: Setting, profile: Profile, lines: Mapping[str, tuple[float, float]]) -> Predicted:
    """Return what is expected of a setting.

    Args:
        setting: It.
        profile: Of its job.
        lines: Of each stream fixed seconds of a cut and seconds of a row, as the scheduler has them.
    """
    job = JOBS[setting.job]
    streams = {name: replace(each, piece=PIECE, regular=0.0) for name, each in profile.streams.items()}
    known = replace(profile, streams=streams)
    machine = Machine(setting.cores, True, profile.equipment.driver)
    rate, tuning, prediction = _loaded(setting, job, known, machine)
    each = list(prediction.streams.values())  # their queries have equally many results
    fixed, row = next(iter(lines.values()))
    length = max(setting.trigger, PIECE, fixed / max(0.01, 1 - row * rate))
    return Predicted(
        setting,
        rate,
        tuning,
        fmean(one.result.mean for one in each),
        fmean(streams[name].residuals.quantile(one.result, SHARE) for name, one in prediction.streams.items()),
        fmean(cantelli(one.result, SHARE) for one in each),
        setting.trigger / 2 + fixed + row * rate * length,
        each[0].rows,
        {str(phase): fmean(one.phases[phase].mean for one in each) for phase in Phase},
    )


def _loaded(setting: Setting, job: Job, known: Profile, machine: Machine) -> tuple[float, Tuning, Prediction]:
    """Return the rate that is asked for, and what follows from it.

    Raises:
        RuntimeError: No rate is without a growing backlog by the model.
    """
    most = MOST_RATE
    while most > 1:
        rate = setting.load * _capacity(setting, job, known, machine, most)
        tuning, prediction = _tuned(setting, job, known, machine, rate)
        if prediction.keeps_up:
            return rate, tuning, prediction
        most = rate  # where cores are nearly full, cuts of other rows may leave less of them than those of more
    raise RuntimeError(f"{setting.label}: a backlog grows at any rate by the model.")


def _capacity(setting: Setting, job: Job, known: Profile, machine: Machine, most: float) -> float:
    """Return the largest rate below another one with which the model says that no backlog grows.

    Cuts are no larger than those that were measured: more can be done in larger ones, but how much is a guess.
    """
    largest = min(stream.most_rows or math.inf for stream in known.streams.values())
    low, high = 1.0, most
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        _, prediction = _tuned(setting, job, known, machine, middle)
        able = prediction.keeps_up and all(each.rows <= largest for each in prediction.streams.values())
        low, high = (middle, high) if able else (low, middle)
    return low


def _tuned(setting: Setting, job: Job, known: Profile, machine: Machine, rate: float) -> tuple[Tuning, Prediction]:
    """Return the tuning that divides cuts, with as many rows as they are expected to have, into so many tasks."""
    rows = rate * max(setting.trigger, PIECE)
    for _ in range(3):
        # Half a task less: so cuts that are a little larger or smaller have as many tasks.
        per_task = max(1, math.ceil(rows / max(0.5, setting.tasks - 0.5)))
        stream = StreamTuning(round(1e6 * setting.trigger), None, per_task, setting.partitions)
        tuning = Tuning(setting.slots, dict.fromkeys(job.streams, stream))
        prediction = Model(known, machine, tuning, dict.fromkeys(job.streams, rate)).predict()
        if not prediction.keeps_up:
            break
        rows = max(each.rows for each in prediction.streams.values())
    return tuning, prediction
