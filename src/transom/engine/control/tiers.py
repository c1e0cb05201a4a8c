"""The tier of each component's partials, and the files of those that the executors hold."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from transom.engine.cluster.merges import ExecutorLoss, Merge
from transom.engine.cluster.store import TieredStore
from transom.engine.streams.stream import RunningStream
from transom.errors import SessionError
from transom.model.sessions import is_connect
from transom.model.time import MIN_TIME, format_duration
from transom.placement.balance import Move
from transom.placement.migration import Strategy
from transom.placement.tiers import Footprint, in_files
from transom.settings import Settings
from transom.windows.components import Component

REVIEW_EVERY = 8
"""Commits of a stream."""
BALANCE_EVERY = 16
"""Commits of a stream."""
MOST_FILES = 64
"""A store with partials of more cuts in files has them merged before the next cut; a snapshot follows at once."""


class Tiers:
    """Promotes and demotes components; a change is part of the snapshot that follows it at once.

    Partials merge wherever they are, so that results do not depend on it: the log says of each cut where its partials
    are, the snapshot says it of all before.

    Args:
        streams: The streams.
        settings: Forced tier, budget.
        note: Tells people.

    Raises:
        SessionError: The executors are to hold partials, and the session is a Spark Connect session.
    """

    def __init__(self, streams: Mapping[str, RunningStream], settings: Settings, note: Callable[[str], None]) -> None:
        self._streams = streams
        self._settings = settings
        self._note = note
        self._commits = 0
        self._own_commits: Counter[str] = Counter()
        self._recovered: dict[str, ExecutorLoss] = {}
        """The last loss of executors that people were told of, by stream."""
        self._slow: set[str] = set()
        """Streams whose recovery would take too long, as people were told."""
        able = all(not is_connect(stream.session) for stream in streams.values())
        if settings.tier == "cluster" and not able:
            raise SessionError(
                "settings: tier 'cluster' needs a classic Spark session; this one is a Spark Connect session.",
                "Leave the setting out, so that the driver holds them, or make the session on the driver's machine.",
            )
        self._auto = settings.tier == "auto" and able
        for stream in streams.values():
            stream.options = replace(stream.options, all_in_files=settings.tier == "cluster")

    def begin(self) -> bool:
        """Return whether a snapshot is due because the tier is forced to the driver, and partials are in files."""
        if self._settings.tier != "driver":
            return False
        changed = False
        for stream in self._streams.values():
            changed |= bool(stream.options.in_files) or any(entry.store.parts for entry in stream.state.stores)
            stream.options = replace(stream.options, in_files=frozenset())
        return changed

    def committed(self, stream: RunningStream) -> bool:
        """Decide again now and then, after a commit; return whether a snapshot is due."""
        self._commits += 1
        if not self._auto or self._commits % REVIEW_EVERY:
            return False
        changed = False
        footprints = {name: self._footprints(each) for name, each in self._streams.items()}
        everything = [one for some in footprints.values() for one in some.values()]
        now = {
            footprints[s.name][n].name
            for s in self._streams.values()
            for n in s.options.in_files
            if n in footprints[s.name]
        }
        wanted = in_files(now, everything, self._settings.driver_bytes)
        for each in self._streams.values():
            names = frozenset(name for name, one in footprints[each.name].items() if one.name in wanted)
            for name in sorted(names ^ each.options.in_files):
                where = "their executors" if name in names else "the driver"
                self._note(f"Partials of {each.name} by {name} are kept by {where} from now on.")
            changed |= names != each.options.in_files
            each.options = replace(each.options, in_files=names)
        return changed

    def overfull(self, stream: RunningStream) -> list[tuple[TieredStore, Merge]]:
        """Return what makes fewer files of a stream's stores, if one has too many; until then it rests."""
        stores = [entry.store for entry in stream.state.stores]
        if all(len(store.parts) <= MOST_FILES for store in stores):
            return []
        many = [store for store in stores if len(store.parts) > MOST_FILES // 2]
        cut = stream.state.cut
        return [(store, store.begin_compaction(cut, f"{cut:012d}-{uuid.uuid4().hex}-merged")) for store in many]

    def balance(self, stream: RunningStream) -> None:
        """Move key groups of a stream after a commit: from executors that will go, now and then also to even out loads.

        Only instant migration is used: no window waits for it.
        """
        merges = _in_files(stream)
        if not merges:
            return
        self._own_commits[stream.name] += 1
        moves = stream.state.executors.due_moves(merges, self._own_commits[stream.name] % BALANCE_EVERY == 0)
        if moves:
            migrate(stream, moves, Strategy.INSTANT)
            text = ", ".join(f"{move.group} from {move.source} to {move.target}" for move in moves)
            self._note(f"Key groups of {stream.name} move: {text}.")
        self._tell_of_recovery(stream)

    def _tell_of_recovery(self, stream: RunningStream) -> None:
        """Tell of executors that were lost, and once when the loss of one would cost more than the bound."""
        standing, bound = stream.state.executors.standing, self._settings.recovery_bound
        known = standing.recovered
        if known is not None and known.took and self._recovered.get(stream.name) != known:
            self._recovered[stream.name] = known
            within = "within" if known.took <= bound else "beyond"
            self._note(
                f"Executor {', '.join(known.lost)} is gone; {stream.name} read {known.rows:,} rows of its key groups "
                f"again in {known.took / 1e6:.1f} s, {within} the bound of {format_duration(bound)}."
            )
        if standing.recovery <= bound:
            self._slow.discard(stream.name)
        elif stream.name not in self._slow:
            self._slow.add(stream.name)
            self._note(
                f"If an executor is lost, windows of {stream.name} may be {standing.recovery / 1e6:.0f} s late, beyond "
                f"the bound of {format_duration(bound)}: give more executors, or raise recovery_bound."
            )

    def _footprints(self, stream: RunningStream) -> dict[str, Footprint]:
        """Return the footprint of each component, by the name of its finest key set."""
        stores = {entry.key_set.name: entry.store for entry in stream.state.stores}
        found = {}
        for component in stream.compiled.components:
            mine = _stores(component, stores)
            here, there = sum(store.nbytes for store in mine), sum(store.file_bytes for store in mine)
            name = component.finest.name
            found[name] = Footprint(f"{stream.name}/{name}", here, there)
        return found

    def settle(self) -> None:
        """Bring the partials of each store to the tier that it has now, before a snapshot.

        Raises:
            CheckpointError: A file cannot be read or written.
        """
        for stream in self._streams.values():
            stores = {entry.key_set.name: entry.store for entry in stream.state.stores}
            for component in stream.compiled.components:
                for store in _stores(component, stores):
                    if not stream.options.puts_in_files(component):
                        store.recall()
                    elif store.holds_states:
                        store.spill(stream.state.cut, f"{stream.state.cut:012d}-{uuid.uuid4().hex}")

    def clean(self, running: Mapping[str, int], check: Callable[[], None]) -> None:
        """Remove files that no store needs, after a snapshot that does not name them.

        Args:
            running: The cut of each stream whose job runs; its files are needed.
            check: Returns while no other application has taken over, which would have files that are not known here.
        """
        for stream in self._streams.values():
            directory = stream.state.executors.directory
            if not directory.is_dir():
                continue
            needed = {name for entry in stream.state.stores for part in entry.store.parts for name in part.files.names}
            first = f"{running.get(stream.name, 1 << 40):012d}"
            found = [path for path in directory.iterdir() if path.name not in needed]
            check()
            for path in found:
                if path.name.lstrip(".") < first:
                    with suppress(OSError):
                        path.unlink()


def migrate(stream: RunningStream, moves: Sequence[Move], strategy: Strategy) -> None:
    """Let key groups of a stream live elsewhere from its next cut on (Enorm, section 5.1).

    Instant: the new homes read what the groups have in the background, and are used then. Disruptive: returns when all
    that the old homes have is at the new ones. Smooth: windows that have begun are merged at the old homes.

    Args:
        stream: The stream; the caller lets no cut of it begin meanwhile.
        moves: Which groups.
        strategy: How.
    """
    newest = stream.max_event_time()
    boundary = MIN_TIME if newest is None else newest + 1
    stream.state.executors.migrate(moves, strategy, stream.state.cut + 1, boundary, _in_files(stream))


def _in_files(stream: RunningStream) -> list[Merge]:
    return [entry.store.in_files() for entry in stream.state.stores if entry.store.parts]


def _stores(component: Component, stores: Mapping[str, TieredStore]) -> list[TieredStore]:
    return [stores[key_set.name] for key_set in component.key_sets if key_set.name in stores]
