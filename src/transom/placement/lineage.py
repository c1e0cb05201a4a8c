"""Datasets, what they are made from, and how long it takes to make them again (Stark, section III-D)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

from transom.errors import DefinitionError


@dataclass(frozen=True)
class LineageNode:
    """A materialised dataset, as far as recovery is concerned."""

    name: str
    parents: tuple[str, ...]
    size: int
    """Measured bytes: what a checkpoint of it writes."""
    delay: float
    """Longest task of the transformation that makes it from its parents, seconds."""
    durable: bool = False
    """Whether it can be read again without its parents: an input, the output of a shuffle, a checkpoint."""
    reading: float = 0.0
    """Seconds to have it again from where it is durable, or would be, once checkpointed. Stark counts 0."""
    kind: str = ""
    """Its role in its step: datasets of one kind are made alike, step after step."""
    held: bool = True
    """Whether its partitions are there; only then it can be checkpointed."""

    def __post_init__(self) -> None:
        """Check the measurements.

        Raises:
            DefinitionError: Size, delay or reading are negative or not finite.
        """
        if self.size < 0 or not all(isfinite(each) and each >= 0 for each in (self.delay, self.reading)):
            raise DefinitionError(
                f"Dataset {self.name} has {self.size} bytes, takes {self.delay} s, and {self.reading} s to read.",
                "Give measured values, 0 or more.",
            )


@dataclass(frozen=True)
class Lineage:
    """Datasets in the order in which they were made: parents come before children.

    Of a durable dataset the parents may be forgotten.
    """

    datasets: Mapping[str, LineageNode] = field(default_factory=dict)

    def added(self, new: LineageNode) -> Lineage:
        """Return the lineage with one more dataset.

        Raises:
            DefinitionError: The name is taken, or a parent is not known.
        """
        if new.name in self.datasets:
            raise DefinitionError(f"There is a dataset {new.name} already.", "Give each dataset its own name.")
        if unknown := [parent for parent in new.parents if parent not in self.datasets]:
            raise DefinitionError(f"Dataset {new.name} is made from unknown {unknown[0]}.", "Add parents first.")
        return Lineage({**self.datasets, new.name: new})

    def checkpointed(self, names: Sequence[str]) -> Lineage:
        """Return the lineage in which some datasets can be read again."""
        changed = {name: replace(self.datasets[name], durable=True) for name in names}
        return Lineage({**self.datasets, **changed})

    def needed(self, living: Iterable[str]) -> Lineage:
        """Return what some datasets can be made again from: themselves, and ancestors up to durable ones. O(edges)."""
        wanted = set(living)
        for name, dataset in reversed(list(self.datasets.items())):
            if name in wanted and not dataset.durable:
                wanted.update(dataset.parents)
        return Lineage({name: dataset for name, dataset in self.datasets.items() if name in wanted})

    def lengths(self) -> dict[str, float]:
        """Return the longest un-checkpointed path that ends at each dataset, in seconds. O(edges).

        It begins with reading a durable dataset; that of a durable dataset is nothing else.
        """
        found: dict[str, float] = {}
        for name, dataset in self.datasets.items():
            above = max((found[parent] for parent in dataset.parents if parent in found), default=0.0)
            found[name] = dataset.reading if dataset.durable else above + dataset.delay
        return found

    def work(self, name: str) -> float:
        """Return the seconds to make a dataset again, one transformation after the other. O(edges).

        At least the longest path: where branches meet, both are counted; what both of them are made from, once.
        """
        behind = self.needed([name]).datasets.values()
        return sum(dataset.reading if dataset.durable else dataset.delay for dataset in behind)

    def in_series(self) -> Lineage:
        """Return the lineage with delays whose longest paths are the work behind each dataset. O(datasets x edges).

        What a dataset takes besides the parent with most work behind it, other branches too, is its own delay.
        """
        work = {name: self.work(name) for name in self.datasets}
        changed = {}
        for name, dataset in self.datasets.items():
            above = max((work[parent] for parent in dataset.parents if parent in work), default=0.0)
            own = dataset.delay if dataset.durable else max(0.0, work[name] - above)
            changed[name] = replace(dataset, delay=own)
        return Lineage(changed)

    def leaves(self) -> list[str]:
        """Return the datasets that nothing is made from yet, without durable ones and those that are not there."""
        used = {parent for dataset in self.datasets.values() for parent in dataset.parents}
        return [
            name for name, dataset in self.datasets.items() if name not in used and dataset.held and not dataset.durable
        ]
