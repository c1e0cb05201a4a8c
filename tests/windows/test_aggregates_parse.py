"""Aggregates of job files."""

from __future__ import annotations

from typing import Any

import pytest

from transom.errors import DefinitionError
from transom.windows.aggregates import functions as tm
from transom.windows.aggregates.parse import FUNCTIONS, parse_aggregate

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
    ("avrg(fare)", "Did you mean 'avg'.*Known are all, any, approx_count_distinct, avg"),
    ("median(fare)", "quantile"),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=[str(text) for text, _ in BAD])
def test_wrong_text_is_refused_with_advice(text: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        parse_aggregate(text)


def test_every_function_can_be_written() -> None:
    for name in FUNCTIONS:
        needs = {"quantile": ", 0.5", "percentile_approx": ", 0.5", "top_k": ", 3"}.get(name, "")
        assert parse_aggregate(f"{name}(x{needs})")[1].describe()
