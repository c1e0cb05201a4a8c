"""An application that plans as it runs: how soon it keeps its limit again, how often it changes, what that costs.

In virtual time: the real loop and its planner, with jobs whose phases take what a profile says, which the application
knows as well in the beginning, as after `transom profile`. From one moment on a row costs twice as much (part `cost`),
or half as many rows more come (part `rate`); in part `quiet` the rate differs by a tenth from one arrival to the next,
for ten minutes, and nothing should change.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from benchmarks.harness import CORES, Run, benchmark
from benchmarks.simulated_plans import Played, Truth, compiled_once, play, virtual_session
from transom.engine.control import digests
from transom.model.phases import Phase
from transom.planning.profile import Equipment, PhaseCost, Profile, StreamProfile

STREAM = "clicks"
LIMIT = 3.0
"""Seconds."""
CHANGE = 120.0
"""Seconds after which costs or the rate change."""
AFTER = 180.0
"""Seconds that are looked at from then on."""
QUIET = 600.0
"""Seconds of the quiet part."""
SETTLED = 60.0
"""Seconds in which the first plans may be made."""
REDUCED = "nothing, but for a quiet part of two minutes instead of ten"


def stream() -> StreamProfile:
    """Return the stream: a row takes 0.3 ms of a core, so that 2,000 in a second keep 0.6 cores busy."""
    noise = 0.02
    costs = {
        Phase.PLAN: PhaseCost(0.06, 0.0, noise),
        Phase.LAUNCH: PhaseCost(0.01, 0.003, noise),
        Phase.MAP: PhaseCost(0.02, 0.0003, noise),
        Phase.EXCHANGE: PhaseCost(0.02, 0.0, noise),
        Phase.COLLECT: PhaseCost(0.01, 0.0, noise),
        Phase.COMMIT: PhaseCost(0.01),
        Phase.CONSOLIDATE: PhaseCost(0.005),
    }
    return StreamProfile(costs, closing=1.0, merged=1.0, results=1.0, piece=0.1, regular=0.0, limit=LIMIT, cuts=64)


class AtOnce:
    """Makes a plan when it is asked for: in virtual time nothing goes on beside the loop."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Do it."""
        done: Future[Any] = Future()
        try:
            done.set_result(function(*arguments))
        except Exception as error:  # the planner tells it
            done.set_exception(error)
        return done

    def close(self, longest: float) -> None:
        """Do nothing."""


class Watch:
    """Takes part in a run: gives the profile, makes plans at once, and takes the time that they cost."""

    def __init__(self, known: Profile) -> None:
        self.known = known
        self.spent = 0.0
        """Seconds of processor time."""
        self.changes: list[float] = []
        """When settings changed, seconds since the beginning."""
        self._begun: float | None = None

    def __call__(self, app: Any) -> None:
        """Take part in the run of an application."""
        before = app._on_step

        def on_step(step: str) -> None:
            now = app._clock.monotonic() / 1e6
            if self._begun is None:
                self._begun = now
                self._join(app._loop.planner)
            if step == "tuning logged":
                self.changes.append(now - self._begun)
            before(step)

        app._on_step = on_step

    def _join(self, planner: Any) -> None:
        planner.digests.begin(self.known)
        planner.threads = AtOnce()
        planner.look = self._timed(planner.look)
        planner.watch.take = self._timed(planner.watch.take)

    def _timed(self, action: Callable[..., Any]) -> Callable[..., Any]:
        """Return the same action, the time of which counts."""

        def timed(*arguments: Any) -> Any:
            began = time.process_time()
            found = action(*arguments)
            self.spent += time.process_time() - began
            return found

        return timed


@dataclass(frozen=True)
class Seen:
    """A run, and what the planner did in it."""

    played: Played
    watch: Watch

    def changes(self, since: float) -> int:
        """Return how often settings changed from a second on."""
        return sum(at >= since for at in self.watch.changes)

    def late(self, since: float) -> list[float]:
        """Return when results were there that were beyond the limit, from a second on."""
        return [at for at, latency in self.played.sink.seen[STREAM] if at >= since and latency > LIMIT]


def run_one(run: Run, session: Any, seconds: float, **changing: Any) -> Seen:
    """Run the application for some virtual seconds."""
    truth = Truth(Profile("", Equipment(CORES, False), {STREAM: stream()}), {STREAM: 2_000.0}, {STREAM: LIMIT})
    watch = Watch(truth.profile)
    with patch.object(digests, "_machine", lambda streams: truth.profile.equipment):
        played = play(
            session, run.fresh("virtual"), truth, CORES, seconds, prepare=watch, policy="klink", plan="auto", **changing
        )
    return Seen(played, watch)


def twice_the_cost(name: str, second: float) -> StreamProfile:
    """Return what the phases cost: from the change on a row takes twice as long."""
    one = stream()
    if second < CHANGE:
        return one
    row = one.costs[Phase.MAP]
    return replace(one, costs={**one.costs, Phase.MAP: replace(row, each=2 * row.each)})


def half_as_many_more(name: str, second: float) -> float:
    """Return the rows that come in a second."""
    return 2_000.0 if second < CHANGE else 3_000.0


def about(name: str, second: float) -> float:
    """Return the rows that come in a second, which differ by a tenth at most."""
    return 2_000.0 * (1 + random.Random(second).uniform(-0.1, 0.1))


def recovered(late: Sequence[float], newest: float) -> float:
    """Return the seconds from the change to the last late result; infinite if results are late, or missing, to the end.

    Args:
        late: When late results were there.
        newest: When the last result was there: while a long cut is under way none is.
    """
    seconds = late[-1] - CHANGE if late else 0.0
    end = CHANGE + AFTER - LIMIT
    return math.inf if newest < end or (late and late[-1] > end) else seconds


def recover(run: Run, session: Any, name: str, **changing: Any) -> int:
    """Change something, and note when the last result was late; return how often settings changed from then on."""
    seen = run_one(run, session, CHANGE + AFTER, **changing)
    late, changes = seen.late(CHANGE), seen.changes(CHANGE)
    newest = max(at for at, _ in seen.played.sink.seen[STREAM])
    seconds = recovered(late, newest)
    run.figure(f"{name}.recover_s", seconds)
    run.say(f"{name}: {len(late)} late results, the last after {seconds:.1f} s; {changes} changes of settings since")
    return changes


def quiet(run: Run, session: Any) -> None:
    """Let nothing happen, and note how often settings change all the same, and what planning costs."""
    seconds = SETTLED + (120.0 if run.quick else QUIET)
    seen = run_one(run, session, seconds, rate_at=about)
    run.figure("idle_changes", float(seen.changes(SETTLED)))
    run.figure("overhead", seen.watch.spent / seconds / CORES)
    run.say(
        f"quiet: {seen.changes(0)} changes, {seen.changes(SETTLED)} of them when nothing was new; "
        f"planning took {seen.watch.spent:.2f} s of {seconds:.0f} s on {CORES} cores"
    )


def main() -> None:
    """Run the benchmark."""
    with benchmark("replan", REDUCED, parts=("cost", "rate", "quiet")) as run, compiled_once():
        session, changes = virtual_session(), []
        if "cost" in run.parts:
            changes.append(recover(run, session, "cost", costs_at=twice_the_cost))
        if "rate" in run.parts:
            changes.append(recover(run, session, "rate", rate_at=half_as_many_more))
        if changes:
            run.figure("changes", float(max(changes)))
        if "quiet" in run.parts:
            quiet(run, session)
        run.compared += 1  # results are those of rows in memory: there is nothing else to compare them with


if __name__ == "__main__":
    main()
