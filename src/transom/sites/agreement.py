"""Whether partials that another site made are those that the stream of a flow is made of; several of them as one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from transom.engine.partials.tables import PartialTable
from transom.engine.streams.sending import FlowSender
from transom.engine.streams.stream import RunningStream
from transom.errors import SiteError, TransomError
from transom.widearea.bodies import from_body, to_body


def difference(stream: RunningStream, body: bytes) -> str:
    """Return in which way partials that came are others than those of a stream here; empty if they are alike.

    Raises:
        SiteError: They cannot be read.
    """
    table = from_body(body)
    if table is None:
        return ""
    found = PartialTable.of(table)
    if not stream.compiled.stores:
        return ""
    _, origin, *_ = stream.compiled.stores[0]
    contents = found.contents
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
            PartialTable(table.slice(0, 0), contents).states({each: each.key for each in primitives}, primitives)
        except TransomError as error:
            return error.message
    wrong = [name for name, kind in types.items() if table.schema.field(name).type != kind]
    return f"Its columns {', '.join(wrong)} have other types than here." if wrong else ""


def merged(gathered: FlowSender, bodies: Iterable[bytes]) -> bytes:
    """Return the body of several bodies of a flow, each of other rows, at a site that sends the flow, too.

    Raises:
        SiteError: They cannot be read, or differ from what is made here.
    """
    tables = [PartialTable.of(table) for body in bodies if (table := from_body(body)) is not None]
    try:
        return to_body(gathered.merged(tables))
    except TransomError as error:
        raise SiteError(
            f"The flow {gathered.flow!r} differs between the sites: {error.message}", error.remedy
        ) from error
