"""Components of a graph as the number of the component of each operator, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from transom.errors import DefinitionError
from transom.windows.operators import Fused, Graph, Operator


def components_of(graph: Graph, labels: Sequence[int]) -> tuple[Fused, ...]:
    """Return the components that operators with equal labels form, in the order of their first operators."""
    groups: dict[int, list[Operator]] = {}
    for operator, label in zip(graph.operators, labels, strict=True):
        groups.setdefault(label, []).append(operator)
    return tuple(Fused(tuple(members)) for members in groups.values())


def labels_of(graph: Graph, components: Iterable[Fused]) -> list[int]:
    """Return the number of the component of each operator of the graph.

    Raises:
        DefinitionError: An operator is in no component or in two.
    """
    found: dict[str, int] = {}
    count = 0
    for number, component in enumerate(components):
        count += len(component)
        found.update(dict.fromkeys((operator.name for operator in component), number))
    if found.keys() != graph.index.keys() or count != len(found):
        raise DefinitionError("components: every operator of the graph is in exactly one.", "Fuse the whole graph.")
    return [found[operator.name] for operator in graph.operators]
