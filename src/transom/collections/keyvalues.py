"""Values of keys: which ones are equal, and what users may write for one.

Spark groups and joins -0.0 with 0.0 and every NaN with every other; Arrow compares their bits. So keys are made plain
where rows come in, as Spark makes them plain before it groups: 0.0 for -0.0, and one NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from transom.engine.spark.columns import quoted
from transom.errors import DefinitionError
from transom.model.arguments import shown

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_FLOATS = ("float", "double")
_ZERO = 0.0
"""Added to a number it gives that number, and 0.0 for -0.0."""


def plain_frame(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the rows with equal keys alike in every bit."""
    from pyspark.sql import functions as F

    plain = {}
    for name, kind in frame.dtypes:
        if name in keys and kind in _FLOATS:
            column = F.col(quoted(name))
            plain[name] = F.when(F.isnan(column), F.lit(math.nan)).otherwise(column + F.lit(_ZERO)).cast(kind)
    return frame.withColumns(plain) if plain else frame


def plain_table(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the rows with equal values of some columns alike in every bit; without copying any other column."""
    for name in columns:
        place = table.schema.get_field_index(name)
        if place >= 0 and kinds.is_floating(table.schema.field(place).type):
            kind, column = table.schema.field(place).type, table.column(place)
            sums = pc.add(column, pa.scalar(_ZERO, kind))
            table = table.set_column(place, table.schema.field(place), pc.if_else(pc.is_nan(sums), _nan(kind), sums))
    return table


def plain_value(value: Any) -> Any:
    """Return a key's value so that equal ones are equal in Python, too: one object for NaN, 0.0 for -0.0."""
    if not isinstance(value, float):
        return value
    return math.nan if math.isnan(value) else value + _ZERO


def key_types(frame: DataFrame, keys: Sequence[str], known: tuple[str, ...] | None, namespace: str) -> tuple[str, ...]:
    """Return the types of a dataset's keys, as Spark writes them.

    Args:
        frame: The dataset.
        keys: Names of the keys.
        known: Their types in other datasets; None if this is the first.
        namespace: Name of the namespace, for people.

    Raises:
        DefinitionError: A key is missing, or its values cannot be compared with those of other datasets.
    """
    types = dict(frame.dtypes)
    missing = [key for key in keys if key not in types]
    if missing:
        raise DefinitionError(
            f"The dataset has no column {', '.join(missing)}, a key of the namespace {namespace!r}.",
            f"Its columns are {', '.join(types)}.",
        )
    found = tuple(types[key] for key in keys)
    for key, kind in zip(keys, found, strict=True):
        _check_kind(key, kind)
    if known is not None and found != known:
        raise DefinitionError(
            f"The keys {', '.join(keys)} are {', '.join(found)}; in the namespace {namespace!r} they are "
            f"{', '.join(known)}, and equal values of different types lie in different partitions.",
            "Cast them, or use another namespace.",
        )
    return found


def _check_kind(name: str, kind: str) -> None:
    """Make sure that a key's type, as Spark writes it, has one notion of equality here and in Spark.

    Raises:
        DefinitionError: It has none.
    """
    if "map<" in kind or "variant" in kind:
        raise DefinitionError(f"The key {name} has type {kind}, which has no hash.", "Use its parts as keys.")
    if " collate " in kind:
        raise DefinitionError(
            f"The key {name} has type {kind}, whose different texts can be equal; executors compare bytes.",
            f"Cast it to string, of lower({name}) if case should not matter.",
        )
    if kind.startswith(("struct<", "array<")) and any(each in kind for each in _FLOATS):
        raise DefinitionError(
            f"The key {name} has type {kind}: 0.0 and -0.0 inside it would be two keys.", "Use its parts as keys."
        )


def key_value(value: Any, kind: pa.DataType, field: str) -> Any:
    """Return what a user wrote as the bound of a key, as a value of the key's type.

    Of whole numbers a bound may be any number: no key is between 2.5 and 3.

    Raises:
        DefinitionError: It is none.
    """
    if kinds.is_integer(kind) and isinstance(value, float) and not math.isnan(value):
        value = value if math.isinf(value) else math.ceil(value)
        if isinstance(value, float):
            return value
    try:
        found = plain_value(pa.scalar(value, kind).as_py())
        same = kinds.is_floating(kind) or found == value
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        found, same = None, False
    if found is None or found != found or not same or isinstance(value, bool) != kinds.is_boolean(kind):
        raise DefinitionError(f"{field} is {shown(value)}, and the key is {kind}.", _remedy(kind))
    return found


def literal(value: Any, kind: str) -> Column:
    """Return a key's value as a constant of the key's type, as Spark writes it.

    Python's times are taken as what they are; Spark would read them in the machine's zone.
    """
    from pyspark.sql import functions as F

    if isinstance(value, datetime):
        text = value.isoformat(sep=" ")
        return F.lit(text).cast("timestamp" if value.tzinfo is not None else "timestamp_ntz")
    return F.lit(value).cast(kind) if kind.startswith("decimal") else F.lit(value)


def _remedy(kind: pa.DataType) -> str:
    if kinds.is_timestamp(kind):
        return f"Give a datetime {'without' if kind.tz is None else 'with'} a time zone."
    if kinds.is_decimal(kind):
        return "Give a Decimal with no more digits, or a whole number."
    return "Give a value of the key's type."


def _nan(kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(math.nan, kind)
