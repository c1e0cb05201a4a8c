"""Datasets, what they are made from, and how long it takes to make them again (Stark, section III-D)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

from transom.errors import DefinitionError


@dataclass(frozen=True)
class Dataset:
    """A materialised dataset, as far as recovery is concerned."""

    name: str
    parents: tuple[str, ...]
    size: int
    """Measured bytes: what a checkpoint of it writes."""
    delay: float
    """Longest task of the transformation that makes it from its parents, seconds."""
    durable: bool = False
    """Whether it can be read again without its parents: an input, the output of a shuffle, a checkpoint."""

    def __post_init__(self) -> None:
        """Check the measurements.

        Raises:
            DefinitionError: Size or delay are negative or not finite.
        """
        if self.size < 0 or not (isfinite(self.delay) and self.delay >= 0):
            raise DefinitionError(
                f"Dataset {self.name} has {self.size} bytes and takes {self.delay} s.",
                "Give measured values, 0 or more.",
            )


@dataclass(frozen=True)
class Lineage:
    """Datasets in the order in which they were made: parents come before children."""

    datasets: Mapping[str, Dataset] = field(default_factory=dict)

    def added(self, new: Dataset) -> Lineage:
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

    def lengths(self) -> dict[str, float]:
        """Return the longest un-checkpointed path that ends at each dataset, in seconds. O(edges)."""
        found: dict[str, float] = {}
        for name, dataset in self.datasets.items():
            above = max((found[parent] for parent in dataset.parents), default=0.0)
            found[name] = 0.0 if dataset.durable else above + dataset.delay
        return found

    def leaves(self) -> list[str]:
        """Return the datasets that nothing is made from yet, without durable ones."""
        used = {parent for dataset in self.datasets.values() for parent in dataset.parents}
        return [name for name, dataset in self.datasets.items() if name not in used and not dataset.durable]
