"""The aggregates as users write them, in PySpark's spelling."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NoReturn

from transom.errors import DefinitionError
from transom.model.expression import Expression, Input
from transom.windows.aggregates.base import Aggregate
from transom.windows.aggregates.collect import Collect
from transom.windows.aggregates.count import CountOf
from transom.windows.aggregates.ddl import parse_fields, parse_type
from transom.windows.aggregates.edges import EdgeOf
from transom.windows.aggregates.extremes import ExtremeOf
from transom.windows.aggregates.mean import Mean
from transom.windows.aggregates.moments import Spread
from transom.windows.aggregates.sketches import ApproxCountDistinct, Quantile
from transom.windows.aggregates.sums import SumOf
from transom.windows.aggregates.topk import TopK, default_max_items
from transom.windows.aggregates.udaf import (
    MergeFunction,
    PartialFunction,
    ResultFunction,
    UserAggregate,
    UserStates,
)

MOST_ITEMS = 1_000_000
"""Most items that Spark's approx_top_k can track."""


def count(x: Input = "*") -> Aggregate:
    """Count rows, or the rows in which `x` is not null. Returns bigint, never null."""
    return CountOf(None if isinstance(x, str) and x.strip() == "*" else Expression.of(x, "count"))


def sum(x: Input) -> Aggregate:
    """Add the values. Returns bigint for integers, double, or decimal(p + 10, s); null without values.

    Whether a total overflows depends only on the rows: under ANSI it fails the query, otherwise it wraps
    (bigint) or is null (decimal), as in Spark.
    """
    return SumOf(Expression.of(x, "sum"))


def avg(x: Input) -> Aggregate:
    """Average the values. Returns double, or decimal(p + 4, s + 4) for decimals; null without values."""
    return Mean(Expression.of(x, "avg"))


def min(x: Input) -> Aggregate:
    """Find the smallest value. Returns the type of `x`; null without values."""
    return ExtremeOf(Expression.of(x, "min"), "min")


def max(x: Input) -> Aggregate:
    """Find the largest value; NaN is the largest number. Returns the type of `x`; null without values."""
    return ExtremeOf(Expression.of(x, "max"), "max")


def var_samp(x: Input) -> Aggregate:
    """Compute the unbiased sample variance. Returns double; null for fewer than two values."""
    return Spread(Expression.of(x, "var_samp"), root=False, sample=True)


def var_pop(x: Input) -> Aggregate:
    """Compute the population variance. Returns double; null without values."""
    return Spread(Expression.of(x, "var_pop"), root=False, sample=False)


def stddev_samp(x: Input) -> Aggregate:
    """Compute the sample standard deviation. Returns double; null for fewer than two values."""
    return Spread(Expression.of(x, "stddev_samp"), root=True, sample=True)


def stddev_pop(x: Input) -> Aggregate:
    """Compute the population standard deviation. Returns double; null without values."""
    return Spread(Expression.of(x, "stddev_pop"), root=True, sample=False)


def first(x: Input) -> Aggregate:
    """Take the value of the earliest row by event time; of equal times the smallest, null before others."""
    return EdgeOf(Expression.of(x, "first"), last=False)


def last(x: Input) -> Aggregate:
    """Take the value of the latest row by event time; of equal times the largest."""
    return EdgeOf(Expression.of(x, "last"), last=True)


def bool_or(x: Input) -> Aggregate:
    """Tell whether any value is true. Returns boolean; null without values."""
    return ExtremeOf(Expression.of(x, "bool_or"), "bool_or")


def bool_and(x: Input) -> Aggregate:
    """Tell whether all values are true. Returns boolean; null without values."""
    return ExtremeOf(Expression.of(x, "bool_and"), "bool_and")


def approx_count_distinct(x: Input) -> Aggregate:
    """Estimate the number of different values, with a relative standard error of 1.6 %. Returns bigint."""
    return ApproxCountDistinct(Expression.of(x, "approx_count_distinct"))


def quantile(x: Input, p: float | Sequence[float], k: int = 200) -> Aggregate:
    """Estimate the value of rank `p`. Returns double, or array<double> for a list; null without values.

    Args:
        x: Numbers.
        p: Rank, or ranks, in [0, 1]; 0.5 is the median.
        k: Accuracy, 8 to 65535. The rank is off by at most 1.33 % for 200; exact up to k values.
    """
    many = isinstance(p, Sequence) and not isinstance(p, str)
    ranks = tuple(p) if isinstance(p, Sequence) and not isinstance(p, str) else (p,)
    if not ranks:
        raise DefinitionError("quantile: p is an empty list.", "Give at least one rank in [0, 1].")
    for rank in ranks:
        number = isinstance(rank, (int, float)) and not isinstance(rank, bool)
        if not number or not 0 <= rank <= 1:
            raise DefinitionError(f"quantile: p is {rank!r}.", "Give ranks in [0, 1], for example 0.95.")
    _whole("quantile", "k", k, 8, 65_535)
    return Quantile(Expression.of(x, "quantile"), tuple(float(rank) for rank in ranks), many, k)


def percentile_approx(x: Input, percentage: float | Sequence[float], accuracy: int = 10_000) -> Aggregate:
    """Estimate quantiles with PySpark's name and accuracy, for which sketches are larger than `quantile`'s.

    Returns double, or array<double> for a list; null without values.

    Args:
        x: Numbers.
        percentage: Rank, or ranks, in [0, 1].
        accuracy: As in Spark, the reciprocal of the error of the rank; about 20,000 is the most reached.
    """
    _whole("percentile_approx", "accuracy", accuracy, 1, 2**31 - 1)
    return quantile(x, percentage, k=kll_size(accuracy))


def top_k(x: Input, k: int, max_items: int | None = None) -> Aggregate:
    """Find the `k` most frequent values. Returns array<struct<item, count>>, ordered by count, then item.

    Args:
        x: Values; items keep the type of strings and integers, others become text. Nulls count as an item.
        k: How many.
        max_items: How many different values are tracked per key and window; exact below it. Default 10,000.
    """
    _whole("top_k", "k", k, 1, MOST_ITEMS)
    items = default_max_items(k) if max_items is None else max_items
    _whole("top_k", "max_items", items, k, MOST_ITEMS)
    return TopK(Expression.of(x, "top_k"), k, items)


def collect_list(x: Input, limit: int = 1000) -> Aggregate:
    """Collect the `limit` smallest values, sorted. Returns an array, empty without values."""
    _whole("collect_list", "limit", limit, 1, 2**31 - 1)
    return Collect(Expression.of(x, "collect_list"), limit, unique=False)


def collect_set(x: Input, limit: int = 1000) -> Aggregate:
    """Collect the `limit` smallest different values, sorted. Returns an array, empty without values."""
    _whole("collect_set", "limit", limit, 1, 2**31 - 1)
    return Collect(Expression.of(x, "collect_set"), limit, unique=True)


def udaf(
    inputs: Input | Sequence[Input] | Mapping[str, Input],
    partial: PartialFunction,
    merge: MergeFunction,
    result: ResultFunction,
    state: str,
    returns: str,
    name: str | None = None,
) -> Aggregate:
    """Make an aggregate of three functions over Arrow.

    `partial` runs on the executors with all rows of one key in one pane at a time; `merge` and `result` run
    on the driver. `merge` must give the same whatever the order and grouping of its states. An exception in
    any of them fails only the query.

    Args:
        inputs: Columns of the table that `partial` gets: a mapping from names, or columns named as they are
            written (an expression that is not a name becomes c0, c1, ... by its position).
        partial: A `pyarrow.Table` of rows to a mapping with the fields of `state`.
        merge: A `pyarrow.Table` of at least two states to a mapping with the fields of `state`.
        result: A mapping with the fields of `state` to the value.
        state: Fields of the state as Spark writes columns, e.g. "total double, n bigint".
        returns: Spark type of the value, e.g. "double".
        name: What the aggregate is called; that of `partial` if not given. A checkpoint knows it by name, inputs and
            types, so that a stream takes no two that differ in nothing but their functions.

    Raises:
        DefinitionError: A type cannot be read, a function cannot be called, or an input has no usable name.
    """
    named = inputs if isinstance(inputs, Mapping) else _named(inputs)
    if not named:
        raise DefinitionError("udaf: inputs is empty.", "Give at least one column.")
    fields = tuple((key, Expression.of(value, f"udaf: input {key}")) for key, value in named.items())
    for key, _ in fields:
        if not isinstance(key, str) or not key.isidentifier():
            raise DefinitionError(f"udaf: the input name {key!r} is not a name.", "Use letters, digits and _.")
    for field, function in (("partial", partial), ("merge", merge), ("result", result)):
        if not callable(function):
            raise DefinitionError(f"udaf: {field} is {function!r}.", "Give a function.")
    parse_fields(state, "udaf: state")
    parse_type(returns, "udaf: returns")
    called = name if name is not None else str(getattr(partial, "__name__", type(partial).__name__))
    return UserAggregate(called, UserStates(called, fields, partial, merge, state), result, returns)


def median(x: Input) -> NoReturn:
    """Refuse: an exact median cannot be merged in bounded space."""
    _refuse("median", "Use quantile(x, 0.5), whose rank error is bounded.")


def percentile(x: Input, p: float | Sequence[float]) -> NoReturn:
    """Refuse: an exact percentile cannot be merged in bounded space."""
    _refuse("percentile", "Use quantile(x, p), whose rank error is bounded.")


def mode(x: Input) -> NoReturn:
    """Refuse: an exact mode cannot be merged in bounded space."""
    _refuse("mode", "Use top_k(x, 1), which is exact up to max_items different values.")


def count_distinct(x: Input) -> NoReturn:
    """Refuse: an exact distinct count cannot be merged in bounded space."""
    _refuse("count_distinct", "Use approx_count_distinct(x), or collect_set(x, limit) for few values.")


mean = avg
variance = var_samp
stddev = stddev_samp
any_ = bool_or
all_ = bool_and


def _named(inputs: Input | Sequence[Input]) -> dict[str, Input]:
    items = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    names = [x if isinstance(x, str) and x.isidentifier() else f"c{i}" for i, x in enumerate(items)]
    if len(set(names)) != len(names):
        raise DefinitionError(f"udaf: inputs names {names} repeat.", "Give a mapping with a name for each.")
    return dict(zip(names, items, strict=True))


def _whole(function: str, field: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        remedy = f"Give a whole number from {least} to {most}."
        raise DefinitionError(f"{function}: {field} is {value!r}.", remedy)


def kll_size(accuracy: int) -> int:
    """Return the k of a KLL sketch whose rank error is 1 / accuracy, within [8, 65535].

    The error is 2.296 / k^0.9723 with 99 % confidence (Apache DataSketches,
    `KllHelper.getNormalizedRankError`).

    >>> kll_size(75), kll_size(10_000)
    (200, 30565)
    """
    k = math.ceil((2.296 * accuracy) ** (1 / 0.9723))
    return 8 if k < 8 else 65_535 if k > 65_535 else k


def _refuse(name: str, remedy: str) -> NoReturn:
    raise DefinitionError(f"{name}: its exact value cannot be merged in bounded space.", remedy)
