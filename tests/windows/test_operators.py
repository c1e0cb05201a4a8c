"""Operators, graphs and components."""

import math

import pytest

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

ROW = (("user", "bigint"), ("area", "string"), ("fare", "double"))


def op(name, *attributes, kind=OperatorKind.COMPUTE, keys=None):
    return Operator(name, kind, (ROW,), ROW, Attributes.of(*attributes), keys)


FIRST = Operator("op1", OperatorKind.MAP, (ROW,), ROW, ALL)
FINE, COARSE, OTHER = op("fine", "user", "area", keys=500), op("coarse", "area", keys=7), op("other", "user", keys=90)
WHOLE = Operator("total", OperatorKind.CONSOLIDATE, (ROW,), ROW, Attributes())


def test_kinds_are_those_of_table_1():
    table = {kind: (kind.stateless, kind.flexible) for kind in OperatorKind}
    assert table == {
        OperatorKind.MAP: (True, True),
        OperatorKind.COMPUTE: (False, True),
        OperatorKind.CONSOLIDATE: (True, False),
        OperatorKind.JOIN: (False, False),
    }


@pytest.mark.parametrize(
    ("members", "attributes", "cardinality"),
    [
        ((FIRST,), "all", math.inf),
        ((FIRST, COARSE), "area", 7),
        ((FINE, COARSE), "area", 7),
        ((FINE,), "area, user", 500),
        ((WHOLE,), "none", 1),
        ((op("new", "area"),), "area", None),
        ((FIRST, op("new", "area")), "area", None),
    ],
)
def test_a_component_has_what_its_operators_have_in_common(members, attributes, cardinality):
    component = Fused(members)
    assert str(component.partition) == attributes
    assert component.cardinality == cardinality


@pytest.mark.parametrize("members", [(COARSE, OTHER), (FINE, COARSE, OTHER), (FIRST, WHOLE), (WHOLE, op("x"))])
def test_operators_without_a_common_attribute_are_not_fused(members):
    with pytest.raises(DefinitionError, match="no partition attribute in common"):
        Fused(members)


def test_a_component_is_flexible_or_stateless_when_all_its_operators_are():
    merge = op("merge", "area", kind=OperatorKind.CONSOLIDATE)
    assert (Fused((FIRST,)).stateless, Fused((FIRST,)).flexible) == (True, True)
    assert (Fused((FIRST, FINE)).stateless, Fused((FIRST, FINE)).flexible) == (False, True)
    assert (Fused((merge,)).stateless, Fused((merge,)).flexible) == (True, False)
    assert (Fused((FINE, merge)).stateless, Fused((FINE, merge)).flexible) == (False, False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: op("x", "city"), "no city to partition by"),
        (lambda: op("x", "area", keys=-1), "-1 keys"),
        (lambda: OperatorEdge("a", "b", rows=-1.0), "rate of -1.0"),
        (lambda: OperatorEdge("a", "b", bytes=math.nan), "rate of nan"),
        (lambda: Graph((FINE, FINE)), "'fine'"),
        (lambda: Graph((FINE,), (OperatorEdge("fine", "gone"),)), "'gone'"),
        (lambda: Graph((FINE, COARSE), (OperatorEdge("fine", "coarse"), OperatorEdge("fine", "coarse"))), "two edges"),
        (
            lambda: Graph(
                (FIRST, FINE, COARSE),
                (OperatorEdge("op1", "fine"), OperatorEdge("fine", "coarse"), OperatorEdge("coarse", "fine")),
            ),
            "fine, coarse form a cycle",
        ),
        (lambda: Fused(()), "empty"),
        (lambda: Fused((FINE, FINE)), "twice"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(DefinitionError, match=message):
        make()


def test_levels_are_the_longest_paths():
    edges = (
        OperatorEdge("op1", "fine"),
        OperatorEdge("fine", "coarse"),
        OperatorEdge("op1", "coarse"),
        OperatorEdge("coarse", "total"),
    )
    assert Graph((WHOLE, COARSE, FINE, FIRST), edges).levels == {"op1": 0, "fine": 1, "coarse": 2, "total": 3}


def test_bytes_count_only_when_all_are_known():
    operators = (FIRST, FINE, COARSE)
    both = (OperatorEdge("op1", "fine", rows=2.0, bytes=30.0), OperatorEdge("fine", "coarse", rows=1.0))
    assert Graph(operators, both).weights == (2.0, 1.0)
    assert Graph(operators, (*both[:1], OperatorEdge("fine", "coarse", bytes=9.0))).weights == (30.0, 9.0)
    assert Graph(operators, (*both, OperatorEdge("op1", "coarse"))).weights is None
