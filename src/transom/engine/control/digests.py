"""What an application learns of its own costs while it runs: profiles of its streams, as plans are made of them."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from transom.engine.control.nature import nature
from transom.engine.streams.stream import RunningStream
from transom.errors import DefinitionError
from transom.model.phases import CutPhases
from transom.model.sessions import is_connect
from transom.model.time import Micros
from transom.planning.digest import Digest
from transom.planning.fit import fit
from transom.planning.profile import Equipment, Profile, StreamProfile


@dataclass(frozen=True)
class Known:
    """What is known of the costs of an application."""

    profile: Profile
    """Of the streams that are known."""
    unknown: Mapping[str, str]
    """The others, with the reason."""


class Digests:
    """Keeps the cuts that were measured, by stream, arrangement and tier; used on the loop's thread.

    Where the partials are, and how key sets are computed, decides what a cut costs: what was measured under others
    waits until they come back.

    Args:
        streams: The streams.
        look: Time between two looks at a source.
        now: Returns the monotonic time.
    """

    def __init__(self, streams: Mapping[str, RunningStream], look: Micros, now: Callable[[], Micros]) -> None:
        self._streams = streams
        self._look = look
        self._now = now
        self._machine: Equipment | None = None
        """As Spark said the last time; None while it has said nothing."""
        self._digests: defaultdict[tuple[str, str], Digest] = defaultdict(Digest)
        self._before: dict[tuple[str, str], StreamProfile] = {}
        """What counts while too little is measured: of an earlier run or a file, with other cores, since a change."""
        self._ways: dict[str, str] = {}
        """How the cuts of each stream were computed the last time."""
        self._since: dict[str, int] = {}
        """The last cut of each stream that may have been computed in another way, or cost something else."""

    def take(self, cut: CutPhases) -> None:
        """Take in the phases of a cut."""
        stream = self._streams[cut.stream]
        way = way_of(stream)
        if self._ways.setdefault(cut.stream, way) != way:
            self._ways[cut.stream], self._since[cut.stream] = way, stream.state.cut
            self._forget()
        if cut.number > self._since.get(cut.stream, -1):
            self._digests[cut.stream, way].take(cut, self._now())

    def _forget(self) -> None:
        """Forget ways in which nothing was computed for so long that nothing counts: queries come and go for ever."""
        for where in [where for where, digest in self._digests.items() if not digest.cuts(self._now())]:
            del self._digests[where]

    def changed(self, name: str, profile: StreamProfile, since: int) -> None:
        """Let what is known of a stream begin anew: its costs have changed.

        Args:
            name: Of the stream.
            profile: What they are now, until enough is measured.
            since: Number of the first cut that cost so; those before it are forgotten, also if they are told of later.
        """
        where = name, way_of(self._streams[name])
        self._before[where] = profile
        self._digests[where].forget_before(since)
        self._since[name] = max(self._since.get(name, -1), since - 1)

    def cores(self) -> int:
        """Return the cores that run tasks now; with others than before, what was measured becomes what was known."""
        before, self._machine = self._machine, _machine(self._streams) or self._machine
        if before is not None and self._equipment.cores != before.cores:
            found, _ = self._profiles(before.cores)
            self._before |= {(name, way_of(self._streams[name])): one for name, one in found.items()}
            self._digests.clear()
            # Cuts that are under way have had some tasks on those that there were.
            self._since |= {name: stream.state.cut for name, stream in self._streams.items()}
        return self._equipment.cores

    def known(self) -> Known:
        """Return the profile of the streams as they are computed now."""
        found, unknown = self._profiles(self.cores())
        while missing := [name for name, one in found.items() if one.after is not None and one.after not in found]:
            for name in missing:
                unknown[name] = f"it reads results of {found.pop(name).after!r}, of which too little is known."
        return Known(Profile("", self._equipment, found), unknown)

    @property
    def _equipment(self) -> Equipment:
        return self._machine or Equipment(1)

    def _profiles(self, cores: int) -> tuple[dict[str, StreamProfile], dict[str, str]]:
        """Return what is known of the streams, measured with so many cores; and of the others why nothing is."""
        found, unknown = dict[str, StreamProfile](), dict[str, str]()
        for name, stream in self._streams.items():
            try:
                found[name] = self._profile(stream, cores)
            except DefinitionError as error:
                unknown[name] = error.message
            except Exception as error:  # it decides no result, and snapshots have it: no run ends by it
                unknown[name] = f"what was measured of it cannot be understood ({type(error).__name__}: {error})."
        return found, unknown

    def _profile(self, stream: RunningStream, cores: int) -> StreamProfile:
        """Return what was measured, or, as long as that is too little, what was known before.

        Raises:
            DefinitionError: Nothing was.
        """
        where = stream.name, way_of(stream)
        said, before = nature(stream.definition, self._look), self._before.get(where)
        cuts = self._digests[where].cuts(self._now()) if where in self._digests else ()
        try:
            return fit(stream.name, cuts, cores, said, before)
        except DefinitionError:
            if before is None:
                raise
            return replace(before, limit=said.limit, after=said.after)

    # ---- what outlasts the run

    def begin(self, profile: Profile) -> None:
        """Begin with a profile that was made before, of the streams as they are computed now."""
        for name in profile.streams.keys() & self._streams.keys():
            self._before[name, way_of(self._streams[name])] = profile.streams[name]

    def to_json(self) -> dict[str, Any]:
        """Return what a restart should know again."""
        profile = self.known().profile
        ways = {name: way_of(self._streams[name]) for name in profile.streams}
        return {"profile": json.loads(profile.to_json()), "ways": ways}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Take in what `to_json` returned; what another Transom wrote and this one cannot read is passed over."""
        try:
            profile = Profile.from_json(json.dumps(kept["profile"]), "the profile in the checkpoint")
            before = {(name, way): profile.streams[name] for name, way in kept["ways"].items() if name in self._streams}
        except (DefinitionError, KeyError, TypeError, AttributeError):
            return
        self._before |= before


def way_of(stream: RunningStream) -> str:
    """Return a digest of how the cuts of a stream are computed now: by which arrangement, and in which tier."""
    options = stream.options
    way = [stream.compiler.arrangement.to_json(), sorted(stream.options.in_files), options.all_in_files]
    names = sorted(stream.state.queries)
    return hashlib.blake2b(json.dumps([way, names]).encode(), digest_size=8).hexdigest()


def _machine(streams: Mapping[str, RunningStream]) -> Equipment | None:
    """Return the cores that run tasks, and whether the driver runs on them; None if Spark is gone or does not tell."""
    from py4j.protocol import Py4JError

    session = next(iter(streams.values())).session
    if is_connect(session):
        return None
    try:
        context = session.sparkContext
        cores, local = context.defaultParallelism, str(context.master).startswith("local")
        with suppress(Py4JError):  # where there are executors: Spark's number of partitions is at least two, or was set
            cores = int(context._jsc.sc().schedulerBackend().totalCoreCount())
        return Equipment(cores, local) if cores else None
    except (Py4JError, OSError):
        return None
