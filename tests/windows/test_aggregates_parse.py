"""Aggregates of job files."""

from __future__ import annotations

from typing import Any

import pytest

from transom.errors import DefinitionError
from transom.windows.aggregates import functions as tm
from transom.windows.aggregates.parse import _TWO, FUNCTIONS, parse_aggregate

GOOD: list[tuple[str, str, Any]] = [
    ("avg(fare) as fare", "fare", tm.avg("fare")),
    ("avg(fare)", "avg(fare)", tm.avg("fare")),
    (" COUNT( * )  AS trips ", "trips", tm.count()),
    ("count()", "count()", tm.count()),
    ("quantile(fare, 0.95) as p95", "p95", tm.quantile("fare", 0.95)),
    ("quantile(fare, [0.5, 0.99]) as q", "q", tm.quantile("fare", [0.5, 0.99])),
    ("quantile(fare, 0.5, k=400) as q", "q", tm.quantile("fare", 0.5, k=400)),
    ("top_k(zone, k = 3, max_items=64) as `top zones`", "top zones", tm.top_k("zone", 3, 64)),
    ("avg(fare * 1.1) as x", "x", tm.avg("fare * 1.1")),
    ("sum(if(a[0] = ')', 1, f(b, c))) as s", "s", tm.sum("if(a[0] = ')', 1, f(b, c))")),
    (
        r"count(case when x = 'it\'s, (' then 1 end) as n",
        "n",
        tm.count(r"case when x = 'it\'s, (' then 1 end"),
    ),
    ("max(`odd, name(`) as m", "m", tm.max("`odd, name(`")),
    ("max(cast(x as int))", "max(cast(x as int))", tm.max("cast(x as int)")),
    ("any(late) as a", "a", tm.any_("late")),
    ("max_by(zone, f(a, b)) as best", "best", tm.max_by("zone", "f(a, b)")),
    ("corr(a, b)", "corr(a, b)", tm.corr("a", "b")),
    ("count(*) filter (where (x > 5) and y = ')') as n", "n", tm.count().where("(x > 5) and y = ')'")),
    ("last(x, ignore_nulls=True) as x", "x", tm.last("x", ignore_nulls=True)),
    ("collect_list(x, limit=3, order_by='at DESC') as x", "x", tm.collect_list("x", 3, order_by="at desc")),
    ("top_k(page, 3, weight='bytes') as top", "top", tm.top_k("page", 3, weight="bytes")),
    ("count_distinct(user, at_most=100) as users", "users", tm.count_distinct("user", at_most=100)),
]


@pytest.mark.parametrize(("text", "name", "aggregate"), GOOD, ids=[text for text, _, _ in GOOD])
def test_text_becomes_a_name_and_an_aggregate(text: str, name: str, aggregate: Any) -> None:
    assert parse_aggregate(text) == (name, aggregate)


BAD: list[tuple[Any, str]] = [
    ("fare", "not a call"),
    (7, "not a call"),
    ("avg(fare", "brackets"),
    ("avg(fare])", "brackets"),
    ("avg('fare)", "quote"),
    ("avg(fare) fare", "after the call"),
    ("avg(fare) as", "after the call"),
    ("avg()", "no argument"),
    ("avg(a, 2)", "wrong arguments"),
    ("quantile(fare)", "wrong arguments: .*'p'"),
    ("quantile(fare, x)", "'x' in .* is not a number"),
    ("quantile(fare, 95)", "p is 95"),
    ("avrg(fare)", "Did you mean 'avg'.*Known are all, any, any_value, approx_count_distinct"),
    ("median(fare)", "quantile"),
    (
        "count(distinct user)",
        "Did you mean 'count_distinct\\(user, at_most=1000\\)'.*approx_count_distinct",
    ),
    ("sum(DISTINCT fare)", "Did you mean 'collect_set"),
    ("count_distinct(user)", "at_most"),
    ("every(late)", "Did you mean 'bool_and'"),
    ("corr(a)", "not two arguments.*corr\\(x, y\\)"),
    ("count(*) filter (where x > 5", "brackets"),
    ("count(*) filter (x > 5)", "after the call"),
    ("count(*) filter (where )", "expression is empty"),
    ("histogram_numeric(fare, 5)", "order in which rows come.*quantile"),
    ("last(x, ignore_nulls=1)", "ignore_nulls is 1"),
    ("count_distinct(x, at_most=0)", "at_most is 0"),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=[str(text) for text, _ in BAD])
def test_wrong_text_is_refused_with_advice(text: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        parse_aggregate(text)


def test_every_function_can_be_written() -> None:
    for name in FUNCTIONS:
        needs = {"quantile": ", 0.5", "percentile_approx": ", 0.5", "top_k": ", 3", "count_distinct": ", at_most=9"}
        assert parse_aggregate(f"{name}(x{', y' if name in _TWO else needs.get(name, '')})")[1].describe()
