"""Fusion: Algorithm 1 against the paper's own loops, the optimum against all partitions, the search between them."""

import random
from functools import reduce
from operator import and_

import pytest
from benchmarks.fusing.fusion import Score, fuse, fuse_from_operators, fuse_greedily, traffic
from benchmarks.fusing.labels import components_of, labels_of
from benchmarks.fusing.optimum import optimum
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.errors import DefinitionError
from transom.windows.operators import (
    ALL,
    Attributes,
    Fused,
    Graph,
    Operator,
    OperatorEdge,
    OperatorKind,
)

LOAN = tuple((name, "string") for name in ("user", "area", "date", "approval", "amount", "income"))


def op(name, partition, kind=OperatorKind.COMPUTE):
    return Operator(name, kind, (LOAN,), LOAN, partition)


LOANS = Graph(
    (
        op("op1", ALL, OperatorKind.MAP),
        op("op2", Attributes.of("area")),
        op("op3", Attributes.of("area")),
        op("op4", Attributes()),
        op("op5", Attributes()),
    ),
    (
        OperatorEdge("op1", "op2", rows=1_000.0),
        OperatorEdge("op1", "op3", rows=1_000.0),
        OperatorEdge("op2", "op4", rows=10.0),
        OperatorEdge("op3", "op5", rows=10.0),
    ),
)
"""Figure 1 of the paper."""


@st.composite
def graphs(draw, most=7, measured=True):
    names = ("user", "area", "date", "income")
    count = draw(st.integers(1, most))
    operators = []
    for number in range(count):
        chosen = draw(st.sets(st.sampled_from(names), max_size=3))
        whole = draw(st.integers(0, 5)) == 0
        operators.append(op(f"o{number}", ALL if whole else Attributes(frozenset(chosen))))
    pairs = [(i, j) for j in range(count) for i in range(j)]
    kept = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    # Few distinct rates, so that there are ties; zero means that nothing flows.
    rates = [float(draw(st.integers(0, 6))) if measured else None for _ in kept]
    edges = tuple(OperatorEdge(f"o{i}", f"o{j}", rows=rate) for (i, j), rate in zip(kept, rates, strict=True))
    return Graph(tuple(operators), edges)


def algorithm_1(graph, score):
    """The paper's pseudo-code, line by line."""
    fused = {o.name: frozenset([o.name]) for o in graph.operators}
    every = {name for o in graph.operators for name in o.partition.names} | {"the row"}

    def attributes(component):
        return reduce(and_, (every if graph[o].partition.whole else graph[o].partition.names for o in component))

    while True:
        best, chosen = 0, None
        for i in graph.operators:
            for edge in graph.downstream[i.name]:
                if edge.target in fused[i.name]:
                    continue
                common = attributes(fused[i.name]) & attributes(fused[edge.target])
                if not common:
                    continue
                value = edge.rows if score is Score.COMM else len(common)
                if value > best:
                    best, chosen = value, (i.name, edge.target)
        if chosen is None:
            return set(fused.values())
        union = fused[chosen[0]] | fused[chosen[1]]
        fused.update(dict.fromkeys(union, union))


def names(components):
    return {frozenset(o.name for o in component) for component in components}


def partitions(items):
    if not items:
        yield []
        return
    first, *rest = items
    for smaller in partitions(rest):
        yield [[first], *smaller]
        for place, block in enumerate(smaller):
            yield [*smaller[:place], [first, *block], *smaller[place + 1 :]]


def least_of_all_partitions(graph):
    found = []
    for blocks in partitions(list(graph.operators)):
        try:
            found.append(traffic(graph, [Fused(tuple(block)) for block in blocks]))
        except DefinitionError:
            continue
    return min(found)


@given(graphs(most=9), st.sampled_from(Score))
def test_the_greedy_is_algorithm_1(graph, score):
    assert names(fuse_greedily(graph, score)) == algorithm_1(graph, score)


@settings(max_examples=60)
@given(graphs(most=6))
def test_the_optimum_is_the_least_over_all_partitions(graph):
    assert traffic(graph, optimum(graph)) == least_of_all_partitions(graph)


@given(graphs(most=9))
def test_the_search_is_never_worse_than_algorithm_1_nor_better_than_the_optimum(graph):
    found = traffic(graph, fuse(graph))
    assert traffic(graph, optimum(graph)) <= found <= traffic(graph, fuse_greedily(graph, Score.COMM))


@given(graphs(most=9), st.integers(0, 5))
def test_every_method_gives_components_that_flows_connect(graph, seed):
    for method in (fuse, lambda g: fuse_from_operators(g, seed), optimum, lambda g: fuse_greedily(g, Score.PA)):
        components = method(graph)
        assert method(graph) == components
        assert sorted(o.name for c in components for o in c) == sorted(o.name for o in graph.operators)
        for component in components:
            reached = {component.operators[0].name}
            for _ in component:
                for edge in graph.edges:
                    if edge.source in component and edge.target in component and {edge.source, edge.target} & reached:
                        reached |= {edge.source, edge.target}
            assert len(reached) == len(component)


@pytest.mark.parametrize("method", [fuse, lambda g: fuse_greedily(g, Score.COMM), lambda g: fuse_greedily(g, Score.PA)])
def test_the_loans_are_fused_as_in_figure_2(method):
    components = method(LOANS)
    assert [(str(c), str(c.partition)) for c in components] == [
        ("{op1, op2, op3}", "area"),
        ("{op4}", "none"),
        ("{op5}", "none"),
    ]
    assert traffic(LOANS, components) == 20


def test_the_search_finds_what_no_pair_of_components_shows():
    """The heaviest flow tempts the greedy to give up both attributes that the two next ones need."""
    user, area = Attributes.of("user"), Attributes.of("area")
    graph = Graph(
        (op("a", Attributes.of("user", "area")), op("b", area), op("c", user), op("d", user)),
        (OperatorEdge("a", "b", rows=5.0), OperatorEdge("a", "c", rows=4.0), OperatorEdge("a", "d", rows=3.0)),
    )
    assert traffic(graph, fuse_greedily(graph, Score.COMM)) == 7
    assert traffic(graph, fuse(graph)) == traffic(graph, optimum(graph)) == 5


def test_without_rates_common_attributes_decide():
    edges = tuple(OperatorEdge(edge.source, edge.target) for edge in LOANS.edges)
    graph = Graph(LOANS.operators, edges)
    assert fuse(graph) == fuse_greedily(graph, Score.PA)
    for unmeasured in (lambda: traffic(graph, fuse(graph)), lambda: fuse_greedily(graph, Score.COMM)):
        with pytest.raises(DefinitionError, match="measured rate"):
            unmeasured()


def test_a_large_search_for_the_optimum_gives_up():
    chooser = random.Random(1)
    attributes = [Attributes.of(*chooser.sample([name for name, _ in LOAN], 2)) for _ in range(30)]
    graph = Graph(
        tuple(op(f"o{i}", partition) for i, partition in enumerate(attributes)),
        tuple(
            OperatorEdge(f"o{i}", f"o{j}", rows=chooser.random()) for j in range(30) for i in range(max(0, j - 6), j)
        ),
    )
    assert optimum(graph, nodes=20) is None


def test_a_graph_without_flows_is_left_alone():
    graph = Graph(LOANS.operators)
    for method in (fuse, fuse_from_operators, optimum, lambda g: fuse_greedily(g, Score.PA)):
        assert method(graph) == components_of(graph, range(5))
    assert fuse(Graph(())) == ()


def test_labels_and_components_are_two_ways_to_say_the_same():
    graph = Graph(tuple(op(name, Attributes.of("area")) for name in "abcd"))
    components = components_of(graph, [4, 4, 1, 4])
    assert [str(c) for c in components] == ["{a, b, d}", "{c}"]
    assert labels_of(graph, components) == [0, 0, 1, 0]
    for wrong in (components[:1], (*components, Fused(graph.operators[:1]))):
        with pytest.raises(DefinitionError, match="exactly one"):
            labels_of(graph, wrong)
