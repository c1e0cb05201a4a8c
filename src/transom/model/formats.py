"""How rows are written as the payloads of messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from transom.errors import DefinitionError
from transom.model import arguments
from transom.model.signatures import checked

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

    @classmethod
    def of(cls, value: Any, what: str) -> Format:
        """Return a format given as such, by name ("text"), or as a table ({"json": "at timestamp"}), as in TOML.

        Raises:
            DefinitionError: It is none.

        >>> Format.of({"json": "n int", "options": {"locale": "de"}}, "kafka").schema
        'n int'
        """
        if isinstance(value, Format):
            return value
        table: Mapping[str, Any] = {value: None} if isinstance(value, str) else value
        if isinstance(table, Mapping):
            kinds: list[Kind] = [kind for kind in get_args(Kind) if kind in table]
            known = {*kinds, *(("options",) if set(kinds) & {"json", "csv"} else ("skip",) if "avro" in kinds else ())}
            if len(kinds) == 1 and set(table) <= known:
                schema = None if table[kinds[0]] in (None, True) else table[kinds[0]]
                return cls(kinds[0], schema, dict(table.get("options", {})), table.get("skip", 0))
        raise DefinitionError(
            f"{what}: format={value!r} is no format.", 'Write for example format=tm.json("at timestamp, fare double").'
        )

    def require_schema(self, what: str) -> None:
        """Refuse a format for reading that does not say what the columns are.

        Raises:
            DefinitionError: It does not.
        """
        if self.schema is None and self.kind in ("json", "csv", "avro"):
            raise DefinitionError(
                f"{what}: the format {self.kind} has no schema.",
                f'Write for example tm.{self.kind}("at timestamp, fare double"), in TOML '
                f'format = {{{self.kind} = "at timestamp, fare double"}}.',
            )


@checked
def json(schema: StructType | str | None = None, options: Mapping[str, str] | None = None) -> Format:
    """Payloads that are JSON objects.

    Args:
        schema: The columns, as a StructType or as text ("at timestamp, fare double"); a sink needs none.
        options: Options of Spark's JSON parser, such as timestampFormat.

    >>> json("at timestamp, fare double").kind
    'json'
    """
    return Format("json", schema, dict(options or {}))


@checked
def csv(schema: StructType | str | None = None, options: Mapping[str, str] | None = None) -> Format:
    """Payloads that are lines of CSV, without a header.

    Args:
        schema: The columns, in order; a sink needs none.
        options: Options of Spark's CSV parser, such as sep.
    """
    return Format("csv", schema, dict(options or {}))


@checked
def avro(schema: str, skip: int = 0) -> Format:
    """Payloads in Avro's binary encoding; needs Spark's Avro module, which `session_builder(kafka=True)` brings.

    Args:
        schema: The schema that they were written with, in Avro's JSON; a record.
        skip: Bytes before each payload that are left out: 5 for those of Confluent's schema registry.
    """
    arguments.text(schema, "avro: schema")
    return Format("avro", schema, skip=arguments.whole_number(skip, "avro: skip", least=0))


def text() -> Format:
    """Payloads as text in UTF-8: the column `value`."""
    return Format("text")


def raw() -> Format:
    """Messages as they are: the columns `key` and `value`, both binary."""
    return Format("raw")
