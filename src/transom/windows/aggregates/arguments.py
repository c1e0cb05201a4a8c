"""Arguments of aggregates: what is checked of them, and what is refused."""

from __future__ import annotations

import math
import re
from typing import NoReturn

from transom.errors import DefinitionError
from transom.model.expression import Input

_DISTINCT = re.compile(r"\s*distinct\b\s*(\S.*)", re.IGNORECASE | re.DOTALL)


def check_whole(function: str, field: str, value: object, least: int, most: int) -> None:
    """Return when an argument is a whole number in a range.

    Raises:
        DefinitionError: It is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        remedy = f"Give a whole number from {least} to {most}."
        raise DefinitionError(f"{function}: {field} is {value!r}.", remedy)


def flag(function: str, value: object) -> bool:
    """Return whether nulls are ignored.

    Raises:
        DefinitionError: It is neither True nor False.
    """
    if not isinstance(value, bool):
        raise DefinitionError(f"{function}: ignore_nulls is {value!r}.", "Write True or False.")
    return value


def refuse_distinct(function: str, x: Input) -> None:
    """Refuse SQL's DISTINCT before a column.

    Raises:
        DefinitionError: It is there.
    """
    found = _DISTINCT.match(x) if isinstance(x, str) else None
    if found is None:
        return
    values = found[1].strip("() ")
    instead = f"count_distinct({values}, at_most=1000)" if function == "count" else f"collect_set({values}, limit)"
    raise DefinitionError(
        f"{function}: {x!r} is SQL's form.",
        f"Did you mean {instead!r}{f', or approx_count_distinct({values})' if function == 'count' else ''}?",
    )


def kll_size(accuracy: int) -> int:
    """Return the k of a KLL sketch whose rank error is 1 / accuracy, within [8, 65535].

    The error is 2.296 / k^0.9723 with 99 % confidence (Apache DataSketches,
    `KllHelper.getNormalizedRankError`).

    >>> kll_size(75), kll_size(10_000)
    (200, 30565)
    """
    k = math.ceil((2.296 * accuracy) ** (1 / 0.9723))
    return 8 if k < 8 else 65_535 if k > 65_535 else k


def refuse(name: str, remedy: str) -> NoReturn:
    """Refuse an aggregate that has no bounded state.

    Raises:
        DefinitionError: Always.
    """
    raise DefinitionError(f"{name}: its exact value cannot be merged in bounded space.", remedy)
