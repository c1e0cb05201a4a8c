"""Random jobs as in section 7 of the Enorm paper ("Large Job")."""

from __future__ import annotations

import random
from itertools import pairwise

from transom.windows.operators import Attributes, Graph, Operator, OperatorEdge, OperatorKind

ATTRIBUTES = tuple(f"a{number:02}" for number in range(30))
LARGEST_STEP = 3
"""The paper changes the size of the attribute set "by a random value" from operator to operator: here by -3 to 3."""


def random_job(operators: int, chooser: random.Random) -> Graph:
    """Return a job of compute operators.

    The first operator has 15 of the 30 attributes, each further one up to three more or fewer than the one before
    (at least one), always a random subset. Operators are divided evenly, in order, into 3 to 0.75 n levels. Each
    sends a stream of rate 1 to the next level: the first operator there gets Y = uniform(0, X) uniform(0, 1) with
    X = 1, X becomes X - Y, and so on; what is left of X is sent nowhere.

    Args:
        operators: Their number n, at least 4.
        chooser: Decides everything.
    """
    size = len(ATTRIBUTES) // 2
    made = []
    for number in range(operators):
        attributes = chooser.sample(ATTRIBUTES, size)
        schema = tuple((name, "bigint") for name in attributes)
        made.append(Operator(f"op{number}", OperatorKind.COMPUTE, (schema,), schema, Attributes.of(*attributes)))
        size = min(len(ATTRIBUTES), max(1, size + chooser.randint(-LARGEST_STEP, LARGEST_STEP)))
    count = chooser.randint(3, max(3, int(0.75 * operators)))
    bounds = [round(level * operators / count) for level in range(count + 1)]
    levels = [made[low:high] for low, high in pairwise(bounds)]
    edges = []
    for above, below in pairwise(levels):
        for source in above:
            left = 1.0
            for target in below:
                sent = chooser.uniform(0, left) * chooser.random()
                left -= sent
                edges.append(OperatorEdge(source.name, target.name, rows=sent))
    return Graph(tuple(made), tuple(edges))
