"""The fit of a Parquet file to the schema, by its footer: which types are read as which without loss.

Spark decides it while it reads, and only for the columns that a job uses; so which queries there are, and which files
are beside it, would decide whether a file counts. Some of what Spark reads it reads as something else (an int of 300 as
a tinyint of 44, a date as a number): that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyarrow as pa
import pyarrow.types as kinds

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructField, StructType

Remade: TypeAlias = Literal["nanoseconds", "nothing"]
"""What Spark cannot read as the column that it is, but as another one that is made into it: times in nanoseconds, of
which whole microseconds are taken, and columns of type null."""

Remades: TypeAlias = "tuple[tuple[str, Remade], ...]"
"""Columns of the schema that are made so."""


@dataclass(frozen=True)
class Fit:
    """A file as its footer describes it."""

    rows: int
    why_not: str | None = None
    """Why the file does not fit the schema."""
    remade: Remades = ()
    """Columns of the schema that are read as another type first."""


def fit(rows: int, schema: StructType, found: pa.Schema, case_sensitive: bool) -> Fit:
    """Compare a file with the schema; columns that it lacks are null, those that the schema lacks are ignored.

    Args:
        rows: Number of rows in the file.
        schema: The columns that are wanted.
        found: Those of the file.
        case_sensitive: Whether names that differ in case are different.
    """
    remade: list[tuple[str, Remade]] = []
    named = _by_name(found, case_sensitive)
    for wanted in schema.fields:
        columns = named.get(wanted.name if case_sensitive else wanted.name.lower(), [])
        if len(columns) > 1:
            return Fit(rows, f"there are {len(columns)} columns {wanted.name}")
        for column in columns:
            other = _remade(wanted.dataType, column.type)
            if other is not None:
                remade.append((wanted.name, other))
            elif (why := misfit(wanted.dataType, column.type, case_sensitive)) is not None:
                return Fit(rows, f"column {wanted.name}{why}")
    return Fit(rows, None, tuple(remade))


def read_first(schema: StructType, remade: Remades) -> StructType:
    """Return the schema with which files are read whose columns are remade."""
    from pyspark.sql.types import IntegerType, LongType, StructField, StructType

    types = {name: LongType() if how == "nanoseconds" else IntegerType() for name, how in remade}
    return StructType([StructField(f.name, types.get(f.name, f.dataType), f.nullable) for f in schema.fields])


def remake(field: StructField, remade: Remades) -> Column:
    """Return a column of the schema, of a DataFrame that was read with `read_first`."""
    from pyspark.sql import functions as F

    name, how = "`" + field.name.replace("`", "``") + "`", dict(remade).get(field.name)
    if how is None:
        return F.col(name)
    if how == "nothing":
        return F.lit(None).cast(field.dataType).alias(field.name)
    micros = f"({name} - pmod({name}, 1000L)) div 1000L"
    if field.dataType.typeName() == "timestamp":
        return F.expr(f"timestamp_micros({micros})").alias(field.name)
    return F.expr(f"timestampadd(MICROSECOND, {micros}, TIMESTAMP_NTZ'1970-01-01')").alias(field.name)


def _by_name(columns: Iterable[pa.Field], case_sensitive: bool) -> dict[str, list[pa.Field]]:
    named: dict[str, list[pa.Field]] = {}
    for column in columns:
        named.setdefault(column.name if case_sensitive else column.name.lower(), []).append(column)
    return named


def _remade(wanted: DataType, found: pa.DataType) -> Remade | None:
    if kinds.is_null(found):
        return "nothing"
    is_time = wanted.typeName() in ("timestamp", "timestamp_ntz")
    return "nanoseconds" if is_time and kinds.is_timestamp(found) and found.unit == "ns" else None


def misfit(wanted: DataType, found: pa.DataType, case_sensitive: bool = False) -> str | None:
    """Return where a column or a part of it has another type than is wanted, and which; None when it fits.

    >>> from pyspark.sql.types import ArrayType, LongType
    >>> misfit(ArrayType(LongType()), pa.list_(pa.string()))
    '[] is string, not bigint'
    """
    from pyspark.sql.types import ArrayType, MapType, StructType

    if kinds.is_dictionary(found):
        found = found.value_type
    elif isinstance(found, pa.BaseExtensionType):
        found = found.storage_type
    if isinstance(wanted, ArrayType) and (
        kinds.is_list(found) or kinds.is_large_list(found) or kinds.is_fixed_size_list(found)
    ):
        return _within("[]", misfit(wanted.elementType, found.value_type, case_sensitive))
    if isinstance(wanted, MapType) and kinds.is_map(found):
        key = _within(" (key)", misfit(wanted.keyType, found.key_type, case_sensitive))
        return key or _within("{}", misfit(wanted.valueType, found.item_type, case_sensitive))
    if isinstance(wanted, StructType) and kinds.is_struct(found):
        named = _by_name(found, case_sensitive)
        for field in wanted.fields:
            columns = named.get(field.name if case_sensitive else field.name.lower(), [])
            if len(columns) > 1:
                return f" has {len(columns)} fields {field.name}"
            for column in columns:
                if (why := misfit(field.dataType, column.type, case_sensitive)) is not None:
                    return f".{field.name}{why}"
        return None
    if _reads(wanted, found):
        return None
    advice = ": write it in microseconds" if kinds.is_timestamp(found) and found.unit == "ns" else ""
    return f" is {found}, not {wanted.simpleString()}{advice}"


def _within(part: str, why: str | None) -> str | None:
    return None if why is None else part + why


def _reads(wanted: DataType, found: pa.DataType) -> bool:
    """Tell whether Spark reads values of one simple type as another, without loss."""
    from pyspark.sql.types import DecimalType

    name = wanted.typeName()
    if isinstance(wanted, DecimalType):
        whole = wanted.precision - wanted.scale
        if kinds.is_decimal(found):
            return bool(found.scale <= wanted.scale and found.precision - found.scale <= whole)
        if kinds.is_uint64(found):
            return (wanted.precision, wanted.scale) == (20, 0)
        return bool(kinds.is_signed_integer(found)) and whole >= (20 if found.bit_width == 64 else 10)
    bits = {"byte": 8, "short": 16, "integer": 32, "long": 64, "double": 53}.get(name)
    if bits is not None and kinds.is_integer(found):
        return bool(found.bit_width + int(kinds.is_unsigned_integer(found)) <= bits)
    simple = {
        "boolean": (kinds.is_boolean,),
        "float": (kinds.is_float32,),
        "double": (kinds.is_float32, kinds.is_float64),
        "date": (kinds.is_date32,),
        "string": (kinds.is_string, kinds.is_large_string, kinds.is_binary, kinds.is_large_binary),
        "binary": (
            *(kinds.is_string, kinds.is_large_string, kinds.is_binary, kinds.is_large_binary),
            kinds.is_fixed_size_binary,
        ),
        "timestamp": (),
        "timestamp_ntz": (kinds.is_date32,),
    }
    simple["varchar"] = simple["char"] = simple["string"]
    if name in ("timestamp", "timestamp_ntz") and kinds.is_timestamp(found):
        return bool(found.unit != "ns")
    if name in simple:
        return any(test(found) for test in simple[name])
    # Types that Parquet has no name for, as intervals: Spark knows.
    return bits is None and not hasattr(wanted, "fields") and name not in ("array", "map")
