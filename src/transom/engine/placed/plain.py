"""Plain tables: of their columns only names and types are said, not whether values may be NULL, at any depth.

Spark says of some columns that they are never NULL (`range`, `coalesce`, elements of arrays), Arrow's functions say it
of none; Arrow puts only tables together that say the same.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kinds


def plain(table: pa.Table) -> pa.Table:
    """Return a table with plain columns; itself, if it has no others."""
    schema = plain_schema(table.schema)
    return table if table.schema.equals(schema, check_metadata=True) else table.cast(schema)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of plain columns.

    >>> plain_schema(pa.schema([pa.field("n", pa.int64(), nullable=False)])).field("n").nullable
    True
    """
    return pa.schema([pa.field(field.name, _plain_type(field.type)) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if kinds.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if kinds.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    if kinds.is_large_list(kind):
        return pa.large_list(_plain_field(kind.value_field))
    if kinds.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    if kinds.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_field(kind.item_field), kind.keys_sorted)
    return kind


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _plain_type(field.type))
