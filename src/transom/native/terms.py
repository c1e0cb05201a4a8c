"""Terms: what is computed of each row, as Spark understands it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Term:
    """A column, a constant, or an operation on other terms."""

    kind: str
    """Spark's name of its class, such as `EqualTo`; `Column` for a column, `Literal` for a constant."""
    type: pa.DataType
    """Of its values; null if Arrow has no such type."""
    text: str
    """As SQL, for people."""
    children: tuple[Term, ...] = ()
    value: Any = None
    """The name of a column, an Arrow scalar for a constant, the place of a field of a struct, the set of an `InSet`,
    the character that escapes others in the pattern of a `Like`, the seed of a hash, the time zone of a `Cast` or a
    function of times (behind the unit, of a `TimestampAdd`)."""
    mode: str = ""
    """The outcome of an operation that cannot be done: `ANSI` (an error), `LEGACY`, `TRY`."""


def column(name: str, kind: pa.DataType) -> Term:
    """Return a column of some rows."""
    return Term("Column", kind, name, value=name)
