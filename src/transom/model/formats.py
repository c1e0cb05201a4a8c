"""How rows are written as the payloads of messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from transom.errors import DefinitionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Kind: TypeAlias = Literal["json", "csv", "avro", "text", "raw"]


@dataclass(frozen=True)
class Format:
    """How a row is written as bytes; made by `json`, `csv`, `avro`, `text` and `raw`."""

    kind: Kind
    schema: StructType | str | None = None
    """The columns; that of Avro is in Avro's own words, and a sink takes the columns of the results."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of Spark's parser."""
    skip: int = 0
    """Bytes before the payload."""

    def require_schema(self, what: str) -> None:
        """Refuse a format for reading that does not say what the columns are.

        Raises:
            DefinitionError: It does not.
        """
        if self.schema is None and self.kind in ("json", "csv", "avro"):
            raise DefinitionError(
                f"{what}: the format {self.kind} has no schema.",
                f'Write for example tm.{self.kind}("at timestamp, fare double").',
            )


def json(schema: StructType | str | None = None, options: Mapping[str, str] | None = None) -> Format:
    """Payloads that are JSON objects.

    Args:
        schema: The columns, as a StructType or as text ("at timestamp, fare double"); a sink needs none.
        options: Options of Spark's JSON parser, such as timestampFormat.

    >>> json("at timestamp, fare double").kind
    'json'
    """
    return Format("json", schema, dict(options or {}))


def csv(schema: StructType | str | None = None, options: Mapping[str, str] | None = None) -> Format:
    """Payloads that are lines of CSV, without a header.

    Args:
        schema: The columns, in order; a sink needs none.
        options: Options of Spark's CSV parser, such as sep.
    """
    return Format("csv", schema, dict(options or {}))


def avro(schema: str, skip: int = 0) -> Format:
    """Payloads in Avro's binary encoding; needs Spark's Avro module, which `session_builder(kafka=True)` brings.

    Args:
        schema: The schema that they were written with, in Avro's JSON; a record.
        skip: Bytes before each payload that are left out: 5 for those of Confluent's schema registry.
    """
    return Format("avro", schema, skip=skip)


def text() -> Format:
    """Payloads as text in UTF-8: the column `value`."""
    return Format("text")


def raw() -> Format:
    """Messages as they are: the columns `key` and `value`, both binary."""
    return Format("raw")
