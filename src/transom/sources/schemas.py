"""Small helpers that all sources share: schemas as users write them, offsets that are one number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transom.errors import DefinitionError, SourceError
from transom.sources.base import ARRIVAL, CORRUPT, ORIGIN, PARTITION, Offset

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

RESERVED = (CORRUPT, PARTITION, ARRIVAL, ORIGIN)


def has_session() -> bool:
    """Tell whether a Spark session is there, which parsing text needs."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None or SparkSession._instantiatedSession is not None


def as_struct(schema: StructType | str) -> StructType:
    """Return a schema given as a StructType or as DDL text; text needs a running Spark session.

    Raises:
        DefinitionError: The text is no schema.
        SourceError: There is no Spark session yet.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    if isinstance(schema, StructType):
        return schema
    if not isinstance(schema, str):
        raise DefinitionError(
            f"schema: {schema!r} is no schema.",
            'Give a StructType, or text such as "at timestamp, fare double".',
        )
    if not has_session():
        raise SourceError("schema: text can only be parsed with a Spark session.", "Start Spark first.")
    try:
        struct = StructType.fromDDL(schema)
    except PySparkException as error:
        raise DefinitionError(
            f"schema: {schema!r} cannot be parsed.", 'Write for example "at timestamp, fare double".'
        ) from error
    if not isinstance(struct, StructType):
        raise DefinitionError(
            f"schema: {schema!r} is a type, not columns.", 'Write for example "at timestamp, fare double".'
        )
    return struct


def check_reserved(names: list[str], what: str) -> None:
    """Refuse column names that sources add themselves, and names used twice.

    Raises:
        DefinitionError: One of the names cannot be used.
    """
    for name in names:
        if name.lower() in RESERVED:
            raise DefinitionError(f"{what}: the column name {name} is reserved.", "Rename the column.")
    if len({name.lower() for name in names}) < len(names):
        raise DefinitionError(f"{what}: a column name occurs twice.", "Rename one of the columns.")
    if not names:
        raise DefinitionError(f"{what}: there are no columns.", "Name at least one column.")


def position(offset: Offset) -> int:
    """Return an offset that is one number.

    Raises:
        SourceError: It is the offset of another kind of source.
    """
    if isinstance(offset, dict):
        raise SourceError(
            f"The offset {offset!r} belongs to another kind of source.",
            "Use a new checkpoint after changing the kind of source.",
        )
    return offset
