"""What states are called in checkpoints: the same for ever, whatever becomes of the code."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import pytest

from transom.model.expression import Expression
from transom.windows import aggregates as package
from transom.windows.aggregates import functions as tm
from transom.windows.aggregates.base import Aggregate, Primitive
from transom.windows.aggregates.former import current_key
from transom.windows.aggregates.lasting import primitive_of
from transom.windows.intervals import TIMES


def partial(rows: Any) -> dict[str, Any]:
    return {"t": 0}


USER = tm.udaf({"a": "x", "b": "y + 1"}, partial, partial, len, "t bigint", "bigint", name="mine")

# Never change a line: checkpoints hold these. Another form of a state gets another version, and the old one is read.
KEYS: list[tuple[Aggregate, str]] = [
    (tm.count(), '["count.1"]'),
    (tm.count("x"), '["count.1", "x"]'),
    (tm.sum("x"), '["sum.1", "x"]'),
    (tm.avg("x"), '["mean.1", "x"]'),
    (tm.var_samp("x"), '["moments.1", "x"]'),
    (tm.stddev_pop("x"), '["moments.1", "x"]'),
    (tm.min("x"), '["extreme.1", "min", "x"]'),
    (tm.max("a 'b\" é"), '["extreme.1", "max", "a \'b\\" é"]'),
    (tm.any_("x"), '["extreme.1", "bool_or", "x"]'),
    (tm.all_("x"), '["extreme.1", "bool_and", "x"]'),
    (tm.first("x"), '["edge.1", "first", "x"]'),
    (tm.last("x"), '["edge.1", "last", "x"]'),
    (tm.collect_list("x", 3), '["smallest.1", 3, false, "x"]'),
    (tm.collect_set("x", 3), '["smallest.1", 3, true, "x"]'),
    (tm.approx_count_distinct("x"), '["hll.1", 12, "x"]'),
    (tm.quantile("x", 0.5), '["kll.1", 200, "x"]'),
    (tm.top_k("x", 2), '["frequent.1", 10000, "x"]'),
    (USER, '["user.1", "mine", "t bigint", ["a", "x"], ["b", "y + 1"]]'),
    (tm.last("x", ignore_nulls=True), '["edge.1", "last", "x", "ignore nulls"]'),
    (tm.max_by("x", "y"), '["best.1", "max", "x", "y"]'),
    (tm.bit_xor("x"), '["bits.1", "bit_xor", "x"]'),
    (tm.corr("x", "y"), '["pairs.1", "x", "y"]'),
    (tm.skewness("x"), '["moments4.1", "x"]'),
    (tm.collect_list("x", 3, order_by="y desc"), '["first.1", 3, "desc", "x", "y"]'),
    (tm.count_distinct("x", at_most=3), '["smallest.1", 4, true, "x"]'),
    (tm.top_k("x", 2, weight="y"), '["heavy.1", 10000, "x", "y"]'),
    (tm.count_if("x > 5"), '["where.1", "x > 5", "[\\"count.1\\"]"]'),
]
FORMER = [
    ("Count(x=None)", '["count.1"]'),
    ("Count(x=Expression(text='x', column=None))", '["count.1", "x"]'),
    ("""Sum(x=Expression(text="Column<'x'>", column=Column<'x'>))""", """["sum.1", "Column<'x'>"]"""),
    ("MeanSum(x=Expression(text='a, \"b\" \\\\ é', column=None))", '["mean.1", "a, \\"b\\" \\\\ é"]'),
    ("Moments(x=Expression(text='x', column=None))", '["moments.1", "x"]'),
    ("Extreme(x=Expression(text='x', column=None), function='max')", '["extreme.1", "max", "x"]'),
    ("Edge(x=Expression(text='x', column=None), last=True)", '["edge.1", "last", "x"]'),
    ("Edge(x=Expression(text='x', column=None), last=False)", '["edge.1", "first", "x"]'),
    ("Smallest(x=Expression(text='x', column=None), limit=3, unique=True)", '["smallest.1", 3, true, "x"]'),
    ("Hll(x=Expression(text='x', column=None))", '["hll.1", 12, "x"]'),
    ("Kll(x=Expression(text='x', column=None), k=200)", '["kll.1", 200, "x"]'),
    ("FrequentItems(x=Expression(text='x', column=None), max_items=9)", '["frequent.1", 9, "x"]'),
    ("TimeRange()", '["times.1"]'),
    (
        "UserStates(fields=(('a', Expression(text='x', column=None)), ('b', Expression(text='y + 1', column=None))), "
        "partial=<function f.<locals>.mine at 0x7f7fd44d8220>, merge=<function mine at 0x7f7fd44d8220>, "
        "state='t bigint')",
        '["user.1", "mine", "t bigint", ["a", "x"], ["b", "y + 1"]]',
    ),
]


@pytest.mark.parametrize(("aggregate", "key"), KEYS, ids=[aggregate.describe() for aggregate, _ in KEYS])
def test_keys_never_change(aggregate: Aggregate, key: str) -> None:
    (primitive,) = aggregate.primitives
    assert primitive.key == key
    assert current_key(key) == key


def test_all_primitives_have_one() -> None:
    kinds = {type(aggregate.primitives[0]) for aggregate, _ in KEYS} | {type(TIMES)}
    modules = [importlib.import_module(f"{package.__name__}.{m.name}") for m in pkgutil.iter_modules(package.__path__)]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    concrete = {cls for cls in classes if hasattr(cls, "merge_into") and not inspect.isabstract(cls)} - {Primitive}
    assert concrete == kinds
    assert TIMES.key == '["times.1"]'


@pytest.mark.parametrize(("name", "key"), FORMER, ids=[key for _, key in FORMER])
def test_names_of_format_1_are_read(name: str, key: str) -> None:
    assert current_key(name) == key


def test_names_that_nobody_knows_stay_what_they_are() -> None:
    for name in ("", "Sum", "Sum(", "Sum(x=1", "Product(x=Expression(text='x', column=None))", "Sum(x=<Column>)", "["):
        assert current_key(name) == name


def test_the_keys_follow_the_expressions() -> None:
    assert tm.sum("x").primitives[0].key != tm.sum("y").primitives[0].key
    assert tm.sum(Expression("x")).primitives[0].key == tm.sum("x").primitives[0].key


@pytest.mark.parametrize("aggregate", [aggregate for aggregate, _ in KEYS if aggregate is not USER])
def test_states_can_be_merged_by_their_names(aggregate):
    for primitive in aggregate.primitives:
        assert primitive_of(primitive.key) == primitive


@pytest.mark.parametrize(
    "name",
    [
        *(primitive.key for primitive in USER.primitives),
        *("", "sum", "[]", '["sum.1"]', '["sum.1", "x", "y"]', '["sum.2", "x"]', '{"sum.1": 1}', '["hll.1", 11, "x"]'),
        '["where.1", "x > 5", "[]"]',
    ],
)
def test_what_is_no_name_makes_no_states(name):
    with pytest.raises(ValueError, match="without the job"):
        primitive_of(name)
