"""Which executors go when there are more than were asked for, and what happens to each until it is gone.

First its key groups move to others, then it gets no more tasks, then it is ended, when it has been idle for a while:
the tasks of a job that runs read what earlier ones left there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from transom.model.time import MICROS_PER_SECOND, Micros
from transom.placement.locality import ExecutorId

PATIENCE: Micros = 60 * MICROS_PER_SECOND
"""Longest wait for key groups to move, and for tasks to end: what is lost then is read and computed again."""
QUIET = 3
"""Looks in which an executor that gets no tasks has none, before it is ended."""


@dataclass(frozen=True)
class Executor:
    """An executor that is there."""

    id: ExecutorId
    tasks: int = 0
    """That run."""
    groups: int = 0
    """Key groups that are merged there."""
    going: bool = False
    """Whether Spark takes it away anyhow."""


@dataclass(frozen=True)
class Leaver:
    """An executor that is given back."""

    since: Micros
    """Monotonic time."""
    closed: Micros | None = None
    """From when on it gets no tasks; None while its key groups move."""
    quiet: int = 0
    """Looks since then in which it had none."""


@dataclass(frozen=True)
class Step:
    """What is next."""

    leaving: Mapping[ExecutorId, Leaver]
    """Executors that are given back; their key groups are to move."""
    close: tuple[ExecutorId, ...] = ()
    """Those that get no tasks from now on."""
    end: tuple[ExecutorId, ...] = ()
    """Those that are ended."""


def next_step(
    there: Collection[Executor], leaving: Mapping[ExecutorId, Leaver], wanted: int | None, now: Micros
) -> Step:
    """Return what is next on the way to as many executors as are wanted.

    Those go first that have fewest key groups, and of these the last that came. Who is not closed yet stays after all,
    if more are wanted again.

    Args:
        there: The executors.
        leaving: Those that are given back.
        wanted: How many there are to be; None for as many as there are.
        now: Monotonic time.
    """
    known = {one.id: one for one in there}
    after = {id: leaver for id, leaver in leaving.items() if id in known}
    stay = sorted((one for one in there if one.id not in after and not one.going), key=_rank)
    more = 0 if wanted is None else len(stay) - wanted
    if more > 0:
        after |= {one.id: Leaver(now) for one in stay[:more]}
    elif more < 0:
        back = sorted((known[id] for id, leaver in after.items() if leaver.closed is None), key=_rank)
        for one in back[more:]:
            del after[one.id]
    close, end = [], []
    for id, leaver in after.items():
        if leaver.closed is None:
            if not known[id].groups or now - leaver.since >= PATIENCE:
                close.append(id)
                after[id] = replace(leaver, closed=now)
            continue
        quiet = 0 if known[id].tasks else leaver.quiet + 1
        after[id] = replace(leaver, quiet=quiet)
        if quiet >= QUIET or now - leaver.closed >= PATIENCE:
            end.append(id)
    return Step(after, tuple(close), tuple(end))


def _rank(one: Executor) -> tuple[int, int, str]:
    """Return in which order executors go."""
    return one.groups, -int(one.id) if one.id.isdigit() else 0, one.id
