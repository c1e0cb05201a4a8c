"""The aggregates as users write them, in PySpark's spelling."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NoReturn

from transom.errors import DefinitionError
from transom.model.expression import Expression, Input
from transom.model.signatures import checked
from transom.windows.aggregates.arguments import check_whole, flag, kll_size, refuse, refuse_distinct
from transom.windows.aggregates.base import Aggregate
from transom.windows.aggregates.best import BestOf
from transom.windows.aggregates.bits import BitsOf
from transom.windows.aggregates.collect import Collect, CollectFirst
from transom.windows.aggregates.count import CountOf
from transom.windows.aggregates.ddl import parse_fields, parse_type
from transom.windows.aggregates.distinct import DistinctOf
from transom.windows.aggregates.edges import EdgeOf
from transom.windows.aggregates.extremes import ExtremeOf
from transom.windows.aggregates.mean import Mean
from transom.windows.aggregates.moments import Spread
from transom.windows.aggregates.pairs import PairOf
from transom.windows.aggregates.shape import ShapeOf
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
_DIRECTION = re.compile(r"\s+(asc|desc)\s*$", re.IGNORECASE)


def count(x: Input = "*") -> Aggregate:
    """Count rows, or the rows in which `x` is not null. Returns bigint, never null."""
    refuse_distinct("count", x)
    return CountOf(None if isinstance(x, str) and x.strip() == "*" else Expression.of(x, "count"))


def count_if(condition: Input) -> Aggregate:
    """Count the rows that satisfy a condition. Returns bigint, never null."""
    return count().where(condition)


def sum(x: Input) -> Aggregate:
    """Add the values. Returns bigint for integers, double, or decimal(p + 10, s); null without values.

    Whether a total overflows depends only on the rows: under ANSI it fails the query, otherwise it wraps
    (bigint) or is null (decimal), as in Spark.
    """
    refuse_distinct("sum", x)
    return SumOf(Expression.of(x, "sum"))


def avg(x: Input) -> Aggregate:
    """Average the values. Returns double, or decimal(p + 4, s + 4) for decimals; null without values."""
    refuse_distinct("avg", x)
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


def corr(x: Input, y: Input) -> Aggregate:
    """Compute Pearson's correlation of pairs. Returns double; null for fewer than two, or where one never changes."""
    return PairOf(Expression.of(x, "corr"), Expression.of(y, "corr"), "corr")


def covar_pop(x: Input, y: Input) -> Aggregate:
    """Compute the population covariance of pairs. Returns double; null without any."""
    return PairOf(Expression.of(x, "covar_pop"), Expression.of(y, "covar_pop"), "covar_pop")


def covar_samp(x: Input, y: Input) -> Aggregate:
    """Compute the sample covariance of pairs. Returns double; null for fewer than two."""
    return PairOf(Expression.of(x, "covar_samp"), Expression.of(y, "covar_samp"), "covar_samp")


def skewness(x: Input) -> Aggregate:
    """Compute the skewness. Returns double; null without values, and where all are one."""
    return ShapeOf(Expression.of(x, "skewness"), "skewness")


def kurtosis(x: Input) -> Aggregate:
    """Compute the kurtosis above that of a normal distribution. Returns double; null as `skewness`."""
    return ShapeOf(Expression.of(x, "kurtosis"), "kurtosis")


@checked
def first(x: Input, ignore_nulls: bool = False) -> Aggregate:
    """Take the value of the earliest row by event time; of equal times the smallest, null before others.

    Args:
        x: The value.
        ignore_nulls: Take the earliest row in which it is not null.
    """
    return EdgeOf(Expression.of(x, "first"), last=False, ignore_nulls=flag("first", ignore_nulls))


@checked
def last(x: Input, ignore_nulls: bool = False) -> Aggregate:
    """Take the value of the latest row by event time; of equal times the largest.

    Args:
        x: The value.
        ignore_nulls: Take the latest row in which it is not null.
    """
    return EdgeOf(Expression.of(x, "last"), last=True, ignore_nulls=flag("last", ignore_nulls))


@checked
def any_value(x: Input, ignore_nulls: bool = False) -> Aggregate:
    """Take a value, the same one whenever it is computed: that of `first`."""
    return first(x, ignore_nulls)


def max_by(x: Input, y: Input) -> Aggregate:
    """Take `x` of the row with the largest `y`; of equal ones the largest `x`. Rows without `y` do not count."""
    return BestOf(Expression.of(x, "max_by"), Expression.of(y, "max_by"), largest=True)


def min_by(x: Input, y: Input) -> Aggregate:
    """Take `x` of the row with the smallest `y`; of equal ones the smallest `x`, null before others."""
    return BestOf(Expression.of(x, "min_by"), Expression.of(y, "min_by"), largest=False)


def bit_and(x: Input) -> Aggregate:
    """Join the bits of whole numbers by AND. Returns the type of `x`; null without values."""
    return BitsOf(Expression.of(x, "bit_and"), "bit_and")


def bit_or(x: Input) -> Aggregate:
    """Join the bits of whole numbers by OR. Returns the type of `x`; null without values."""
    return BitsOf(Expression.of(x, "bit_or"), "bit_or")


def bit_xor(x: Input) -> Aggregate:
    """Join the bits of whole numbers by exclusive OR. Returns the type of `x`; null without values."""
    return BitsOf(Expression.of(x, "bit_xor"), "bit_xor")


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
    check_whole("quantile", "k", k, 8, 65_535)
    return Quantile(Expression.of(x, "quantile"), tuple(float(rank) for rank in ranks), many, k)


def percentile_approx(x: Input, percentage: float | Sequence[float], accuracy: int = 10_000) -> Aggregate:
    """Estimate quantiles with PySpark's name and accuracy, for which sketches are larger than `quantile`'s.

    Returns double, or array<double> for a list; null without values.

    Args:
        x: Numbers.
        percentage: Rank, or ranks, in [0, 1].
        accuracy: As in Spark, the reciprocal of the error of the rank; about 20,000 is the most reached.
    """
    check_whole("percentile_approx", "accuracy", accuracy, 1, 2**31 - 1)
    return quantile(x, percentage, k=kll_size(accuracy))


def top_k(x: Input, k: int, max_items: int | None = None, *, weight: Input | None = None) -> Aggregate:
    """Find the `k` most frequent values. Returns array<struct<item, count>>, ordered by count, then item.

    Args:
        x: Values; items keep the type of strings and integers, others become text. Nulls count as an item.
        k: How many.
        max_items: How many different values are tracked per key and window; exact below it. Default 10,000.
        weight: What a row counts instead of one: whole numbers, 0 or more; null counts nothing.
    """
    check_whole("top_k", "k", k, 1, MOST_ITEMS)
    items = default_max_items(k) if max_items is None else max_items
    check_whole("top_k", "max_items", items, k, MOST_ITEMS)
    return TopK(Expression.of(x, "top_k"), k, items, None if weight is None else Expression.of(weight, "top_k: weight"))


def approx_top_k(x: Input, k: int = 5, max_items: int | None = None) -> Aggregate:
    """Find the `k` most frequent values; PySpark's name for `top_k`."""
    return top_k(x, k, max_items)


@checked
def collect_list(x: Input, limit: int = 1000, *, order_by: str | None = None) -> Aggregate:
    """Collect `limit` values, the smallest ones, sorted. Returns an array, empty without values.

    Args:
        x: The values; nulls are left out.
        limit: How many.
        order_by: SQL text: collect the first values in the order of this one instead; "at desc" for the newest ones.
            Of equal ranks smaller values come first, with desc the larger ones.
    """
    check_whole("collect_list", "limit", limit, 1, 2**31 - 1)
    value = Expression.of(x, "collect_list")
    if order_by is None:
        return Collect(value, limit, unique=False)
    if not isinstance(order_by, str):
        raise DefinitionError(f"collect_list: order_by is {order_by!r}.", 'Give SQL text, for example "at desc".')
    order = _DIRECTION.sub("", order_by)
    descending = order_by[len(order) :].strip().lower() == "desc"
    return CollectFirst(value, Expression.of(order, "collect_list: order_by"), descending, limit)


def collect_set(x: Input, limit: int = 1000) -> Aggregate:
    """Collect the `limit` smallest different values, sorted. Returns an array, empty without values."""
    check_whole("collect_set", "limit", limit, 1, 2**31 - 1)
    return Collect(Expression.of(x, "collect_set"), limit, unique=True)


@checked
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
    refuse("median", "Use quantile(x, 0.5), whose rank error is bounded.")


def percentile(x: Input, p: float | Sequence[float]) -> NoReturn:
    """Refuse: an exact percentile cannot be merged in bounded space."""
    refuse("percentile", "Use quantile(x, p), whose rank error is bounded.")


def mode(x: Input) -> NoReturn:
    """Refuse: an exact mode cannot be merged in bounded space."""
    refuse("mode", "Use top_k(x, 1), which is exact up to max_items different values.")


def count_distinct(x: Input, *, at_most: int | None = None) -> Aggregate:
    """Count the different values, exactly; more than `at_most` of a key in a window fail the query. Returns bigint.

    Args:
        x: The values; nulls do not count.
        at_most: The bound of what is kept, at most 1,000,000; must be given.

    Raises:
        DefinitionError: There is no bound.
    """
    if at_most is None:
        refuse(
            "count_distinct",
            "Use approx_count_distinct(x), or count_distinct(x, at_most=1000) where there are few values.",
        )
    check_whole("count_distinct", "at_most", at_most, 1, MOST_ITEMS)
    return DistinctOf(Expression.of(x, "count_distinct"), at_most)


def histogram_numeric(x: Input, bins: int) -> NoReturn:
    """Refuse: the bins depend on the order in which rows come and are merged."""
    raise DefinitionError(
        "histogram_numeric: its bins depend on the order in which rows come, so that no result could be checked.",
        "Use quantile(x, [0.1, 0.2, ...]), or group by a bin: group_by(bin='width_bucket(x, 0, 100, 10)').",
    )


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
