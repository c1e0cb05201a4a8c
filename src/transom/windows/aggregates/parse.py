"""Aggregates written as text, as in job files: `quantile(fare, [0.5, 0.99]) as q`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

from transom.errors import DefinitionError, did_you_mean
from transom.windows.aggregates import functions
from transom.windows.aggregates.base import Aggregate

FUNCTIONS: dict[str, Callable[..., Aggregate]] = {
    "count": functions.count,
    "count_if": functions.count_if,
    "sum": functions.sum,
    "avg": functions.avg,
    "mean": functions.mean,
    "min": functions.min,
    "max": functions.max,
    "variance": functions.variance,
    "var_samp": functions.var_samp,
    "var_pop": functions.var_pop,
    "stddev": functions.stddev,
    "stddev_samp": functions.stddev_samp,
    "stddev_pop": functions.stddev_pop,
    "skewness": functions.skewness,
    "kurtosis": functions.kurtosis,
    "corr": functions.corr,
    "covar_pop": functions.covar_pop,
    "covar_samp": functions.covar_samp,
    "max_by": functions.max_by,
    "min_by": functions.min_by,
    "any_value": functions.any_value,
    "bit_and": functions.bit_and,
    "bit_or": functions.bit_or,
    "bit_xor": functions.bit_xor,
    "count_distinct": functions.count_distinct,
    "approx_top_k": functions.approx_top_k,
    "first": functions.first,
    "last": functions.last,
    "any": functions.any_,
    "all": functions.all_,
    "bool_or": functions.bool_or,
    "bool_and": functions.bool_and,
    "approx_count_distinct": functions.approx_count_distinct,
    "quantile": functions.quantile,
    "percentile_approx": functions.percentile_approx,
    "top_k": functions.top_k,
    "collect_list": functions.collect_list,
    "collect_set": functions.collect_set,
}
"""The aggregates that job files can use."""

_REFUSED: dict[str, Callable[..., Any]] = {
    "median": functions.median,
    "percentile": functions.percentile,
    "mode": functions.mode,
    "histogram_numeric": functions.histogram_numeric,
}
_TWO = frozenset(["corr", "covar_pop", "covar_samp", "max_by", "min_by"])
"""Functions whose first two arguments are expressions."""
_OTHER_NAMES = {
    "every": "bool_and",
    "some": "bool_or",
    "std": "stddev",
    "array_agg": "collect_list",
    "approx_percentile": "percentile_approx",
    "first_value": "first",
    "last_value": "last",
    "arg_max": "max_by",
    "arg_min": "min_by",
    "countif": "count_if",
    "listagg": "collect_list",
    "string_agg": "collect_list",
    "group_concat": "collect_list",
}
"""Names that SQL has for some, of Spark's dialect or another one."""
_FILTER = re.compile(r"\s*filter\s*\(\s*where\b", re.IGNORECASE)
_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\(")
ALIAS = re.compile(r"\s+as\s+(`[^`]+`|[A-Za-z_]\w*)\s*$", re.IGNORECASE)
"""The end of an expression that says its name."""
_NAMED = re.compile(r"\s*([A-Za-z_]\w*)\s*=(?!=)(.*)", re.DOTALL)
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_REMEDY = 'Write for example "avg(fare) as fare" or "count(*) as trips".'


def parse_aggregate(text: str) -> tuple[str, Aggregate]:
    """Return the name and the aggregate of a text.

    The first argument is a SQL expression (the first two, of functions of pairs), the others are numbers, lists of
    numbers, or `name=number`. `FILTER (WHERE condition)` may follow the call. Without `as`, the name is what is
    written, like PySpark's.

    Raises:
        DefinitionError: The text is not a call of a known function, or an argument is wrong.

    >>> name, aggregate = parse_aggregate("quantile(fare * 1.1, 0.95) as p95")
    >>> name, aggregate.describe()
    ('p95', 'quantile(fare * 1.1, 0.95)')
    >>> parse_aggregate("count(*) filter (where fare > 9) as dear")[1].describe()
    'count(*) FILTER (WHERE fare > 9)'
    """
    call = _CALL.match(text) if isinstance(text, str) else None
    if call is None:
        raise DefinitionError(f"aggregate: {text!r} is not a call of a function.", _REMEDY)
    end, arguments = _split(text, call.end())
    condition = None
    if (filtered := _FILTER.match(text, end)) is not None:
        closed, _ = _split(text, text.index("(", end) + 1)
        end, condition = closed, text[filtered.end() : closed - 1].strip()
    rest = text[end:]
    alias = ALIAS.match(rest)
    if rest.strip() and alias is None:
        raise DefinitionError(f"aggregate: {text!r} has {rest.strip()!r} after the call.", _REMEDY)
    name = call.group(1).lower()
    written = text[:end].strip()
    shown = alias.group(1).strip("`") if alias else written
    if not arguments and name != "count":
        raise DefinitionError(f"aggregate: {written!r} has no argument.", _REMEDY)
    function = FUNCTIONS.get(name) or _REFUSED.get(name)
    if function is None:
        raise _unknown(name)
    if name in _TWO and len(arguments) != 2:
        raise DefinitionError(f"aggregate: {written!r} has not two arguments.", f"Write {name}(x, y).")
    number = 2 if name in _TWO else 1
    positional, named = _literals(arguments[number:], written)
    try:
        aggregate = function(*arguments[:number], *positional, **named)
        return shown, aggregate if condition is None else aggregate.where(condition)
    except TypeError as error:
        reason = str(error).replace("()", "")
        raise DefinitionError(f"aggregate: {written!r} has wrong arguments: {reason}.", _REMEDY) from error


def _unknown(name: str) -> DefinitionError:
    if name in _OTHER_NAMES:
        return DefinitionError(f"aggregate: {name!r} is not known.", f"Did you mean {_OTHER_NAMES[name]!r}?")
    known = f"Known are {', '.join(sorted(FUNCTIONS))}."
    return DefinitionError(f"aggregate: {name!r} is not known.", f"{did_you_mean(name, FUNCTIONS, '')} {known}".strip())


def _split(text: str, start: int) -> tuple[int, list[str]]:
    """Return the position after the call's closing parenthesis and its arguments, split at its own commas."""
    arguments: list[str] = []
    closing = [")"]
    begin = position = start
    while position < len(text):
        character = text[position]
        if character in "'\"`":
            position = _after_quote(text, position)
            continue
        if character in _CLOSING:
            closing.append(_CLOSING[character])
        elif character in ")]}":
            if character != closing.pop():
                break
            if not closing:
                arguments.append(text[begin:position].strip())
                return position + 1, [] if arguments == [""] else arguments
        elif character == "," and len(closing) == 1:
            arguments.append(text[begin:position].strip())
            begin = position + 1
        position += 1
    raise DefinitionError(f"aggregate: {text!r} has brackets that do not match.", _REMEDY)


def _after_quote(text: str, start: int) -> int:
    quote, position = text[start], start + 1
    while position < len(text):
        if text[position] == "\\" and quote != "`":
            position += 1
        elif text[position] == quote:
            return position + 1
        position += 1
    raise DefinitionError(f"aggregate: {text!r} has a quote that is not closed.", _REMEDY)


def _literals(arguments: list[str], call: str) -> tuple[list[Any], dict[str, Any]]:
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for argument in arguments:
        match = _NAMED.fullmatch(argument)
        source = match.group(2).strip() if match else argument
        try:
            value = ast.literal_eval(source)
        except (ValueError, SyntaxError) as error:
            message = f"aggregate: {argument!r} in {call!r} is not a number, a list of numbers or a text in quotes."
            raise DefinitionError(message, "Only the first argument may be an expression.") from error
        if match:
            named[match.group(1)] = value
        else:
            positional.append(value)
    return positional, named
