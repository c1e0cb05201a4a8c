"""Checkpoints of datasets: when, of which, where, and until when (Stark, section III-D).

With every dataset that is made, its size and how long it took are noted. When making it again would take longer than
the bound, some datasets are written: by the tasks that hold their partitions, before `derive` returns, so that the
bound holds whenever an executor is lost. What is then not needed any more is forgotten, and its files deleted.
"""

from __future__ import annotations

import logging
import os
import pickle
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pyarrow.fs import FileSystem

from transom.collections.datasets import Dataset, with_ancestors
from transom.collections.deriving import copying
from transom.engine.placed.placed import Tasks
from transom.errors import DefinitionError, require_extra
from transom.model.arguments import text
from transom.model.signatures import check_fields
from transom.model.time import MICROS_PER_SECOND, Duration, parse_duration
from transom.placement.lineage import Lineage, LineageNode
from transom.placement.lookahead import HISTORY
from transom.placement.recovery import POLICIES, Policy, due
from transom.storage.places import refuse_secrets

logger = logging.getLogger(__name__)

PACE = 1e-8
"""Seconds to read a byte of a checkpoint, until one was written; then it is taken to be what writing it took."""
ROOM = 0.75
"""Share of the time that is used: meanwhile another executor may start on the same cores, and what is new is slow."""
RECOVERIES = 4
"""The time of the last ones beyond their work counts as starting, too: workers of new executors start cold."""
JOBS = 16
"""The time for starting a job is the longest of the last ones: the bound has to hold on a busy day as well."""


@dataclass(frozen=True)
class Recovery:
    """A bound on how soon derived datasets are there again after an executor was lost.

    Provisional: may change in a minor version.

    Args:
        bound: Time for reading and deriving what one executor held, from when Spark has noticed the loss.
        path: Directory for checkpoints that all executors reach: of a shared file system, or a URI as `hdfs://...`.
        policy: `lookahead` writes the fewest bytes over steps that repeat; `cut` is Stark's minimum cut relaxed by
            `relax`, which is also what `lookahead` does while no step is known to repeat; `edge` writes all leaves.
            The first two need `pip install "transom[recovery]"`.
        relax: f: the cut costs at most f times the minimum, and comes later again.

    Raises:
        DefinitionError: A value cannot be, or the libraries of the policy are not installed.
    """

    bound: Duration
    path: str
    policy: Policy = "lookahead"
    relax: float = 3.0

    def __post_init__(self) -> None:
        check_fields(self, "Recovery")
        if parse_duration(self.bound, "bound") <= 0:
            raise DefinitionError(f"bound is {self.bound!r}.", "Give a time above 0.")
        if not isinstance(self.policy, str) or self.policy not in POLICIES:
            raise DefinitionError(f"policy is {self.policy!r}.", f"Give one of {', '.join(POLICIES)}.")
        if not isinstance(self.relax, (int, float)) or not self.relax >= 1:
            raise DefinitionError(f"relax is {self.relax!r}.", "Give a number, at least 1.")
        text(self.path, "path")
        if self.policy != "edge":
            require_extra("recovery", ("networkx", "scipy"), f"The policy {self.policy!r} of tm.Recovery")
        refuse_secrets(self.path, "Recovery")
        try:
            FileSystem.from_uri(self.root)
        except Exception as error:  # Arrow raises other errors for other schemes
            raise DefinitionError(f"path is {self.path!r}: {error}.", "Give a directory or a URI.") from None

    @property
    def seconds(self) -> float:
        """The bound."""
        return parse_duration(self.bound, "bound") / MICROS_PER_SECOND

    @property
    def root(self) -> str:
        """The directory, absolute where it is local."""
        return self.path if "://" in self.path else os.path.abspath(self.path)


class Checkpointer:
    """Notes how datasets are made, decides which to checkpoint, writes and removes checkpoints; not thread-safe.

    Args:
        recovery: Bound, place, policy.
        name: Of the namespace and the application; a directory.
    """

    def __init__(self, recovery: Recovery, name: str) -> None:
        self.recovery = recovery
        self.bytes = 0
        """Written so far."""
        self.checkpoints = 0
        """Datasets written so far."""
        self._directory = f"{recovery.root.rstrip('/')}/{name}-{uuid.uuid4().hex[:8]}"
        self._lineage = Lineage()
        self._made: deque[LineageNode] = deque(maxlen=HISTORY)
        self._datasets: dict[str, Dataset] = {}
        self._living: set[str] = set()
        self._paths: dict[str, list[str]] = {}
        self._started: deque[float] = deque(maxlen=JOBS)
        self._beyond: deque[float] = deque(maxlen=RECOVERIES)
        self._pace = PACE
        self._warned = False

    @property
    def lineage(self) -> Lineage:
        """The lineage of the living datasets, with what was measured."""
        return self._lineage

    @property
    def bound(self) -> float:
        """Seconds that a recovery may compute and read by what was measured; the rest is for starting it, and room."""
        return (self.recovery.seconds - self.starting) * ROOM

    @property
    def starting(self) -> float:
        """Seconds that a recovery takes beyond the work: starting a job, at executors that may be new."""
        return max((*self._started, *self._beyond), default=0.0)

    def take_in(self, dataset: Dataset) -> None:
        """Note a dataset that was made, and those before it that are not known yet."""
        for each in with_ancestors([dataset]):
            if each.name in self._lineage.datasets or not (each.files or each is dataset):
                continue
            share = _share(each)
            node = LineageNode(
                each.name,
                tuple(name for name in each.made_from if name in self._lineage.datasets),
                each.bytes,
                each.delay,
                durable=each.frame is not None,
                reading=each.delay if each.frame is not None else share * self._pace,
                kind=each.kind,
            )
            self._lineage = self._lineage.added(node)
            self._made.append(node)
            self._datasets[each.name] = each
            self._living.add(each.name)
        if dataset.frame is None:
            self._started.append(dataset.started)

    def recovered(self, datasets: Sequence[Dataset], seconds: float) -> None:
        """Note how long it took until what was lost of some datasets was there again."""
        known = [dataset.name for dataset in datasets if dataset.name in self._lineage.datasets]
        if known:
            self._beyond.append(max(0.0, seconds - max(self._lineage.work(name) for name in known)))

    def due(self, dataset: Dataset) -> list[Dataset]:
        """Return which datasets have to be written now that this one was made; none for one that was added."""
        if dataset.frame is not None:
            return []
        held = {
            name: replace(node, held=bool(self._datasets[name].files)) for name, node in self._lineage.datasets.items()
        }
        lineage, recovery = Lineage(held), self.recovery
        names = due(lineage, dataset.name, self.bound, tuple(self._made), recovery.policy, recovery.relax)
        if names and not self._warned and lineage.checkpointed(names).work(dataset.name) > self.bound:
            self._warned = True
            logger.warning(
                "%s cannot be recovered within %s: reading it, and starting a job, takes longer. Give more time.",
                dataset.name,
                recovery.bound,
            )
        return [self._datasets[name] for name in names]

    def write(self, datasets: Sequence[Dataset], tasks: Callable[[list[str | None]], Tasks]) -> list[list[str]]:
        """Write datasets whose partitions are all there, in one job, and return the paths of each.

        Args:
            datasets: At the same executor partition by partition.
            tasks: Gives tasks at these executors.
        """
        by_home: dict[str, list[int]] = {}
        for number, file in enumerate(datasets[0].files):
            by_home.setdefault(file.executor, []).append(number)
        homes = sorted(by_home)
        numbers = [by_home[home] for home in homes]
        sources = [[file.path for file in dataset.files] for dataset in datasets]
        targets = [f"{self._directory}/{dataset.name}" for dataset in datasets]
        system, directory = FileSystem.from_uri(self._directory)
        system.create_dir(directory, recursive=True)

        found = tasks(list(homes)).run(copying(sources, targets, numbers))
        answers = [pickle.loads(answer) for answer in found]
        written = []
        for place, dataset in enumerate(datasets):
            names = {number: name for answer in answers for number, name in answer[place][0].items()}
            seconds = max(answer[place][1] for answer in answers) / MICROS_PER_SECOND
            self._pace = seconds / max(_share(dataset), 1)
            self._note(dataset, [names[number] for number in range(len(names))], seconds)
            written.append(self._paths[dataset.name])
        self._prune()
        return written

    def _note(self, dataset: Dataset, paths: list[str], seconds: float) -> None:
        self._paths[dataset.name] = paths
        self.bytes += dataset.bytes
        self.checkpoints += 1
        node = replace(self._lineage.datasets[dataset.name], durable=True, reading=seconds)
        self._lineage = Lineage({**self._lineage.datasets, dataset.name: node})

    def forget(self, dataset: Dataset) -> None:
        """Note that a dataset is not asked for any more; what is made from it may still need it."""
        self._living.discard(dataset.name)
        self._prune()

    def _prune(self) -> None:
        """Forget what no living dataset would be made from, and delete checkpoints of it."""
        self._lineage = self._lineage.needed(self._living)
        for name in [name for name in self._datasets if name not in self._lineage.datasets]:
            del self._datasets[name]
            for path in self._paths.pop(name, ()):
                _deleted(path)

    def close(self) -> None:
        """Delete all checkpoints."""
        system, directory = FileSystem.from_uri(self._directory)
        with suppress(FileNotFoundError):
            system.delete_dir(directory)


def _share(dataset: Dataset) -> int:
    """Return the bytes of a dataset at the executor with most of them: what one task reads again."""
    by_home: dict[str, int] = {}
    for file in dataset.files:
        by_home[file.executor] = by_home.get(file.executor, 0) + file.bytes
    return max(by_home.values(), default=0)


def _deleted(path: str) -> None:
    system, place = FileSystem.from_uri(path)
    with suppress(FileNotFoundError):
        system.delete_file(place)
