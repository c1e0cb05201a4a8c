"""Whether partials that another site made are those that the stream of a flow is made of; several of them as one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from transom.engine.partials.tables import PANE, TAG, PartialTable, state_name, store_table
from transom.engine.streams.sending import FlowSender
from transom.engine.streams.stream import RunningStream
from transom.errors import SiteError, TransomError
from transom.widearea.bodies import from_body, to_body
from transom.windows.aggregates.lasting import primitive_of
from transom.windows.panes import Grid
from transom.windows.store import PaneStore

AS_THEY_ARE = Grid(((1, 0),))
"""The grid of panes that are known by where they begin."""
_NONE = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError)
"""What comes of reading as partials what are none."""


def partials_in(body: bytes) -> PartialTable | None:
    """Return the partials of a body; None where there are none.

    Raises:
        SiteError: It holds something else.
    """
    table = from_body(body)
    if table is None:
        return None
    try:
        found = PartialTable.of(table)
        moments = table.schema.field(PANE).type
    except (TransomError, *_NONE) as error:
        raise SiteError(f"A parcel holds a table that is not one of partials: {error!r}.") from error
    if moments != pa.int64() or table.column(PANE).null_count:
        raise SiteError("A parcel holds partials without times.")
    return found


def difference(stream: RunningStream, found: PartialTable) -> str:
    """Return in which way partials that came are others than those of a stream here; empty if they are alike.

    It depends on the schema alone, which also says what is in them.
    """
    if not stream.compiled.stores:
        return ""
    _, origin, *_ = stream.compiled.stores[0]
    contents, schema = found.contents, found.table.schema
    if not contents.serves(origin):
        return (
            f"It has rows of {contents.origin.name} with {contents.conditions}, and {origin.name} is made here; the "
            "jobs, or the versions of Spark, differ."
        )
    types: dict[str, Any] = {}
    for _, _, keys, primitives in stream.compiled.stores:
        types.update({name: keys.field(name).type for name in keys.names})
        missing = [primitive.key for primitive in primitives if primitive.key not in contents.primitives]
        if missing:
            return f"It lacks {', '.join(missing)}."
        try:
            PartialTable(found.table.slice(0, 0), contents).states({each: each.key for each in primitives}, primitives)
        except TransomError as error:
            return error.message
        except _NONE as error:
            return f"Its columns are not those of states: {error!r}."
    if missing := [name for name in types if name not in schema.names]:
        return f"It lacks the columns {', '.join(missing)}."
    wrong = [name for name, kind in types.items() if schema.field(name).type != kind]
    return f"Its columns {', '.join(wrong)} have other types than here." if wrong else ""


def merged(gathered: FlowSender, bodies: Iterable[bytes]) -> bytes:
    """Return the body of several bodies of a flow, each of other rows, at a site that sends the flow, too.

    Raises:
        SiteError: They cannot be read, or differ from what is made here.
    """
    tables = [found for body in bodies if (found := partials_in(body)) is not None]
    try:
        return to_body(gathered.merged(tables))
    except TransomError as error:
        raise SiteError(
            f"The flow {gathered.flow!r} differs between the sites: {error.message}", error.remedy
        ) from error
    except _NONE as error:
        raise SiteError(f"What sites send of the flow {gathered.flow!r} cannot be merged: {error!r}.") from error


def merged_alike(flow: str, bodies: Iterable[bytes]) -> bytes:
    """Return the body of several bodies of a flow, each of other rows, by what they say themselves of what they are.

    Raises:
        SiteError: They cannot be read, differ, or have states that cannot be merged without the job.
    """
    tables = [found for body in bodies if (found := partials_in(body)) is not None]
    if not tables:
        return b""
    contents, schema = tables[0].contents, tables[0].table.schema
    alike = all(each.contents == contents and each.table.schema.equals(schema) for each in tables)
    if not alike or contents.direct or contents.absent or TAG in schema.names or len(contents.conditions) > 1:
        raise SiteError(f"What sites send of the flow {flow!r} is not of one kind.", "Let it go straight.")
    try:
        names = {primitive_of(key): key for key in contents.primitives}
        if len(names) < len(contents.primitives):
            raise ValueError("it has states twice")
        types = {primitive: _types(schema, number) for number, primitive in enumerate(names)}
        keys = pa.schema([each for each in schema if each.name != PANE and not re.match(r"_s\d+_", each.name)])
        store = PaneStore(AS_THEY_ARE, keys, types)
        for each in tables:
            store.add(each.panes(), each.table, each.states(names, types))
        return to_body(store_table(store, replace(contents.origin, condition=contents.conditions[0])))
    except (TransomError, *_NONE) as error:
        raise SiteError(f"What sites send of the flow {flow!r} cannot be merged here: {error}") from error


def _types(schema: pa.Schema, number: int) -> dict[str, pa.DataType]:
    """Return the types of the columns of a primitive's states."""
    prefix = state_name(number, "")
    return {each.name.removeprefix(prefix): each.type for each in schema if each.name.startswith(prefix)}
