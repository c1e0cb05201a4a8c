"""A profile of an application: it runs for a while on what its sources have, with cuts of several sizes.

Each run begins with a checkpoint of its own that is removed again, and its results go nowhere. A first run warms up
Java, a second one tells how many rows can be read in some time; then cuts of three sizes are made, in one task each and
divided among the cores, in turn. Where rows come by the clock the size of cuts follows from the time between them.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from transom.api.app import App
from transom.api.running import Running
from transom.engine.control.nature import nature
from transom.engine.control.phases import PhaseRecorder
from transom.errors import DefinitionError, QueryFailedError
from transom.model.phases import CutPhases
from transom.model.sessions import is_connect
from transom.model.time import MICROS_PER_SECOND, Micros, parse_duration
from transom.model.tuning import StreamTuning, Tuning
from transom.planning.fit import fit
from transom.planning.profile import Equipment, Profile
from transom.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES = (1, 4, 16)
"""Cuts of this part of the largest size."""
ORDER = ((1, False), (16, True), (4, True), (4, False), (16, False), (1, True))
"""Size of the cuts of each run, and whether they are divided. Runs get faster one by one, as Java compiles: in this
order that favours neither large cuts nor, by much, divided ones."""
CUTS = 8
"""So many of the largest size fit into the time of a run."""
SKIPPED = 1
"""First cuts of each run that do not count: what they need is compiled."""
FEW = 4
"""Cuts of each stream with rows for which a run goes on at least, as on a machine that is busy."""
COLD = 15.0
"""Seconds of a run that only warms up, at most, from its first cut on."""
WARM_CUTS = 12
"""Cuts after which it has."""
FIRST, LARGE = 10_000, 100_000
"""Rows of a cut while it is not known what they cost, and at most while it is found out how many are read in a time."""
RUNS = 1 + len(ORDER)
ONE_TASK = 1 << 40
"""Rows of a task that no cut has."""
PATIENCE = 120.0
"""Seconds that are waited at most for the first cut of a run, and for as many as it needs."""
NAP = 0.1
"""Seconds between two looks at whether a run has ended."""
COARSE = 4.0
"""Cuts that have so many times the rows that they should have cannot be made smaller."""
LONG = "1 day"
"""The setting `cycle`, so that streams do not bound each other's cuts."""

Cuts = dict[str, list[CutPhases]]


@dataclass
class Profiler:
    """Makes a profile of an application.

    Args:
        build: Makes it anew, as each run reads its sources from the beginning.
        seconds: How long all runs together may take, after the warm-up.
        say: Told what goes on.
    """

    build: Callable[[], App]
    seconds: float
    say: Callable[[str], None] = lambda line: None
    cuts: Cuts = field(default_factory=dict)
    """Those that count, of each stream."""

    def run(self, session: SparkSession, job: str, versions: Mapping[str, str]) -> Profile:
        """Return the profile.

        Args:
            session: That the application uses.
            job: Digest of its job.
            versions: Of what it runs on.

        Raises:
            DefinitionError: It has nothing that can be measured, or too little of it.
            QueryFailedError: A query fails.
            TransomError: What `App.run` raises.
        """
        if is_connect(session):
            raise DefinitionError(
                "profile: a Spark Connect session does not tell what its tasks do.", "Use a classic session: --master."
            )
        cores, each = session.sparkContext.defaultParallelism, self.seconds / RUNS
        self.say(f"Profiling for about {self.seconds:.0f} s, into no sink; first it warms up ...")
        speed = self._warm_up(each / CUTS)
        self.say("How much comes in which time ...")
        app, found = self._measure({}, each, each / CUTS, rows=min(LARGE, max(FIRST, round(speed * each / 2))))
        if not found:
            raise DefinitionError("profile: nothing was read.", "Give a longer time: --for 5m, or a source with rows.")
        largest = {name: _largest([cut.rows for cut in cuts]) for name, cuts in found.items()}
        for size, divided in ORDER:
            tasks = max(2, cores) if divided else 1
            tuning = {name: _divided(rows // size, tasks) for name, rows in largest.items()}
            most = max(rows // size for rows in largest.values())
            self.say(f"Cuts of up to {most:,} rows in {'one task' if tasks == 1 else f'{tasks} tasks'} ...")
            app, found = self._measure(tuning, each, each / CUTS / size)
            for name, cuts in found.items():
                self.cuts.setdefault(name, []).extend(cuts[SKIPPED:])
        self._require_small_pieces(largest)
        streams = {
            stream.name: fit(stream.name, self.cuts.get(stream.name, ()), cores, nature(stream, app.settings.poll))
            for stream in app._definitions()
        }
        local = str(session.sparkContext.master).startswith("local")
        return Profile(job, Equipment(cores, local, 0.0, dict(versions)), streams)

    def _warm_up(self, trigger: float) -> float:
        """Run until Java has compiled what cuts need, and return how many rows a second were read at best.

        The first jobs of a session take seconds, whatever they do.
        """
        _, found = self._measure({}, COLD, trigger, WARM_CUTS)
        if sum(len(cuts) for cuts in found.values()) < WARM_CUTS:
            rows = {name: sum(cut.rows for cut in cuts) for name, cuts in found.items()}
            small = {name: _divided(max(1, each // WARM_CUTS), 1) for name, each in rows.items()}
            self._measure(small, COLD, trigger / WARM_CUTS, WARM_CUTS)
        return max((cut.rows / cut.job for cuts in found.values() for cut in cuts if cut.job), default=0.0)

    def _require_small_pieces(self, largest: Mapping[str, int]) -> None:
        """Refuse sources that cannot be cut as small as cuts are to be.

        Raises:
            DefinitionError: Also the smallest cuts had more rows than the largest should have.
        """
        for name, rows in largest.items():
            least = min((cut.rows for cut in self.cuts.get(name, ()) if cut.rows), default=0)
            if least > COARSE * rows:
                raise DefinitionError(
                    f"profile: no cut of {name!r} has fewer than {least:,} rows, as a file is not divided, and cuts of "
                    f"{rows:,} rows are as large as can be measured in this time.",
                    "Give a source of more and smaller files, or a longer time, such as --for 10m.",
                )

    def _measure(
        self,
        streams: Mapping[str, StreamTuning],
        seconds: float,
        trigger: float,
        enough: float = math.inf,
        rows: int = FIRST,
    ) -> tuple[App, Cuts]:
        """Run for some time, until all is read, or until there are enough cuts.

        Args:
            streams: What is set of them; nothing while that is not known.
            seconds: For how long, from its first cut on.
            trigger: Least time between two cuts that take all there is, seconds.
            enough: So many cuts are.
            rows: Of a cut, where nothing is set.

        Returns:
            What ran, and the cuts of each stream.
        """
        app, found = self.build(), Cuts()
        read = [0]

        def note(cut: CutPhases) -> None:
            if cut.rows or cut.windows:
                found.setdefault(cut.stream, []).append(cut)
                read[0] += bool(cut.rows)

        between: Micros = max(app.settings.poll, round(trigger * MICROS_PER_SECOND))
        with tempfile.TemporaryDirectory(prefix="transom-profile-", ignore_cleanup_errors=True) as directory:
            app.checkpoint = Path(directory, "checkpoint")
            app.settings = _undisturbed(app.settings, between, streams, rows)
            recorder = PhaseRecorder(note, every=1)
            app._phases = lambda: recorder
            app._queries.mute()
            if streams:
                paced = {name: replace(each, trigger=between) for name, each in streams.items()}
                app._queries.requests.tune(Tuning(1, paced), "a profile")
            running = app.start(on_progress=lambda progress: app.stop() if _all_read(app) else None)
            try:
                _wait(running, lambda: bool(read[0]), PATIENCE)
                _wait(running, lambda: read[0] >= enough, seconds)
                _wait(running, lambda: min(map(_that_read, found.values()), default=0) >= min(enough, FEW), PATIENCE)
            except BaseException:
                app._stop_at_once()
                raise
            running.stop()
            final = running.wait()
            recorder.settle()
            failed = {query.name: query.failure for query in final.queries if query.failure}
            found = {name: _numbered(cuts) for name, cuts in found.items()}
        if failed:
            raise QueryFailedError(
                "; ".join(f"query {name!r} failed: {why}" for name, why in failed.items()), "Correct it first."
            )
        return app, found


def _numbered(cuts: Sequence[CutPhases]) -> list[CutPhases]:
    """Return the cuts of a run in their order, with the rows before each."""
    found, before = [], 0
    for cut in sorted(cuts, key=lambda cut: cut.number):
        found.append(replace(cut, before=before))
        before += cut.rows
    return found


def _that_read(cuts: Sequence[CutPhases]) -> int:
    """Return how many of some cuts read rows: others, which only close windows, say nothing of what rows cost."""
    return sum(bool(cut.rows) for cut in cuts)


def _largest(rows: Sequence[int]) -> int:
    """Return the rows of the largest cuts that are made, given those of the cuts of a run.

    So many that some of them fit into a run; but also half of one that was made: where a cut takes long whatever it
    reads, small ones would not show what a row costs.
    """
    return max(max(SIZES), sum(rows) // CUTS, max(rows) // 2)


def _wait(running: Running, until: Callable[[], bool], seconds: float) -> None:
    """Wait until a run ends, something holds, or so many seconds have passed."""
    for _ in range(math.ceil(seconds / NAP)):
        if running._ended.wait(NAP) or until():
            return


def _undisturbed(settings: Settings, trigger: Micros, streams: Mapping[str, StreamTuning], rows: int) -> Settings:
    """Return settings with one job at a time, so that no other one has a part of the cores that it is measured on.

    Where the partials are decides what a cut costs, so that must not change meanwhile: "auto" begins on the driver.
    """
    most = max((each.rows_per_cut or 0 for each in streams.values()), default=min(rows, settings.max_rows_per_cut))
    return replace(
        settings,
        tier="driver" if settings.tier == "auto" else settings.tier,
        slots=1,
        trigger=trigger,
        policy="fcfs",
        cycle=parse_duration(LONG, "cycle"),
        max_rows_per_cut=most,
    )


def _all_read(app: App) -> bool:
    """Tell whether a run has nothing left to do; asked on its thread."""
    loop = app._loop
    return loop is not None and not loop.cuts.busy and all(each.ended() for each in loop.streams.values())


def _divided(rows: int, tasks: int) -> StreamTuning:
    """Return settings of cuts of so many rows in so many tasks."""
    per_task = ONE_TASK if tasks == 1 else -(-rows // tasks)
    return StreamTuning(0, rows, per_task, None if tasks == 1 else tasks)
