"""The way of a flow: each source sends to the destination, or to one relay that merges what passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from transom.errors import DefinitionError
from transom.widearea.topology import Site


@dataclass(frozen=True)
class Tree:
    """The parent of each source of a flow; a relay sends to the destination, what it has of its own with the rest."""

    destination: Site
    parents: tuple[tuple[Site, Site], ...]
    """Source and where it sends, by source."""

    def __post_init__(self) -> None:
        parents = dict(self.parents)
        if len(parents) != len(self.parents) or self.destination in parents:
            raise DefinitionError("A site of a tree has two parents.", "Give each source one, the destination none.")
        for source, parent in self.parents:
            if parent == source or parents.get(parent, self.destination) != self.destination:
                raise DefinitionError(
                    f"{source!r} sends by way of {parent!r}, which does not send to {self.destination!r} itself.",
                    "A tree has two hops at most.",
                )


def trees(sources: Sequence[Site], destination: Site, sites: Sequence[Site]) -> Iterator[Tree]:
    """Yield all trees of a flow; 27 for two sources at seven sites, of 36 pairs of paths.

    Of a pair of paths, one source may relay for the other only if it sends its own partials the same way.
    """
    ways = [[site for site in sites if site != source] for source in sources]
    for chosen in product(*ways):
        parents = dict(zip(sources, chosen, strict=True))
        if all(parents.get(parent, destination) == destination for parent in chosen):
            yield Tree(destination, tuple(parents.items()))


def count_trees(sources: int, sites: int) -> int:
    """Return an upper bound on the number of trees, without making them."""
    return int((sites - 1) ** sources)
