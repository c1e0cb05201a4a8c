"""Whether partials that another site made are those that the stream of a flow is made of; several of them as one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from transom.engine.partials.tables import PANE, TAG, PartialTable, state_name, store_table
from transom.engine.state.stores import StoreShape
from transom.engine.streams.sending import FlowSender
from transom.errors import SiteError, TransomError
from transom.model.time import FIRST_EVENT, LAST_EVENT, LONGEST
from transom.widearea.bodies import from_body, to_body
from transom.widearea.parcels import Body
from transom.windows.aggregates.base import Primitive, Types
from transom.windows.aggregates.lasting import primitive_of
from transom.windows.components import ROWS
from transom.windows.panes import Grid
from transom.windows.store import PaneStore

AS_THEY_ARE = Grid(((1, 0),))
"""The grid of panes that are known by where they begin."""
_NONE = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError)
"""What comes of reading as partials what are none."""


def partials_in(body: Body) -> PartialTable | None:
    """Return the partials of a body; None where there are none.

    Raises:
        SiteError: It holds something else.
    """
    table = from_body(body)
    if table is None or not table.num_rows:
        return None
    names = table.schema.names
    try:
        found = PartialTable.of(table)
    except (TransomError, *_NONE) as error:
        raise SiteError(f"A parcel holds a table that is not one of partials: {error!r}.") from error
    origin, held = found.contents.origin, found.contents.primitives
    texts = (origin.branch, origin.only, *origin.keys, *found.contents.conditions)
    if not all(isinstance(each, str) for each in texts):
        raise SiteError("A parcel holds partials of which it does not say where they are from.")
    if TAG in names or len(set(names)) < len(names) or len(set(held)) < len(held):
        raise SiteError("A parcel holds partials of several kinds.")
    if PANE not in names or table.schema.field(PANE).type != pa.int64() or table.column(PANE).null_count:
        raise SiteError("A parcel holds partials without times.")
    first, last = pc.min_max(table.column(PANE)).as_py().values()
    if not FIRST_EVENT - LONGEST <= first <= last <= LAST_EVENT:
        raise SiteError(f"A parcel holds partials of times from {first} to {last}, microseconds.")
    return found


def difference(shapes: Sequence[StoreShape], found: PartialTable) -> str:
    """Return in which way partials that came are others than those of some stores here; empty if they are alike.

    It depends on the schema alone, which also says what is in them.
    """
    contents, schema = found.contents, found.table.schema
    for _, origin, keys, _ in shapes:
        if contents.direct or not contents.serves(origin):
            return (
                f"It has rows of {contents.origin.name} with {contents.conditions}, and {origin.name} is made here; "
                "the jobs, or the versions of Spark, differ."
            )
        if missing := [name for name in keys.names if name not in schema.names]:
            return f"It lacks the columns {', '.join(missing)}."
        if wrong := [name for name in keys.names if schema.field(name).type != keys.field(name).type]:
            return f"Its columns {', '.join(wrong)} have other types than here."
    for primitive, types in _kept(shapes).items():
        if primitive.key not in contents.primitives:
            return f"It lacks {primitive.key}."
        there = {name: column.type for name, column in found.columns_of(primitive.key).items()}
        if there != dict(types):
            return f"Its states {primitive.key} are {_told(there)}, and {_told(types)} here."
    return ""


def flaw(shapes: Sequence[StoreShape], found: PartialTable) -> str:
    """Return what no rows make, of the values of partials in which `difference` found none; empty if there is nothing.

    Who has a certificate may have damaged memory, or another program: what was merged cannot be taken out again.
    """
    return _flaw(found, {primitive: primitive.key for primitive in _kept(shapes)})


def _together(tables: Sequence[PartialTable], kept: Iterable[Primitive]) -> Sequence[PartialTable]:
    """Return tables of other rows each as one, where they have the same columns; else as they are.

    So they are where states are large: to merge many rows at once copies them, a table after another does not.
    """
    if len(tables) < 2 or not all(primitive.small for primitive in kept):
        return tables
    schema = tables[0].table.schema
    if not all(each.table.schema.equals(schema, check_metadata=True) for each in tables):
        return tables
    return [PartialTable.of(pa.concat_tables(each.table for each in tables).combine_chunks())]


def _kept(shapes: Sequence[StoreShape]) -> dict[Primitive, Types]:
    """Return all that is kept in some stores; how many rows there are is always needed, to count late ones."""
    kept: dict[Primitive, Types] = {ROWS: {"count": pa.int64()}}
    for _, _, _, primitives in shapes:
        kept.update(primitives)
    return kept


def _flaw(found: PartialTable, names: Mapping[Primitive, str]) -> str:
    """Return what no rows make of the states of some primitives, given their lasting names; empty for nothing."""
    for primitive, name in names.items():
        columns = found.columns_of(name)
        try:
            if wrong := primitive.flaw(columns):
                return f"Its states {name} are damaged: {wrong}."
            found.read[name] = primitive.decode(columns)
        except Exception as error:  # libraries raise what they like
            return f"Its states {name} are damaged: {error!r}."
    return ""


def _told(types: Types) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in types.items())


def merged(gathered: FlowSender, bodies: Iterable[Body]) -> Body:
    """Return the body of several bodies of a flow, each of other rows, at a site that sends the flow, too.

    Raises:
        SiteError: They cannot be read, or differ from what is made here.
    """
    tables: Sequence[PartialTable] = [found for body in bodies if (found := partials_in(body)) is not None]
    shapes, alike = [gathered.shape], None
    tables = _together(tables, _kept(shapes))
    for each in tables:
        known = alike is not None and alike.equals(each.table.schema, check_metadata=True)
        if wrong := ("" if known else difference(shapes, each)) or flaw(shapes, each):
            raise SiteError(f"What sites send of the flow {gathered.flow!r} cannot be merged: {wrong}")
        alike = each.table.schema
    try:
        return to_body(gathered.merged(tables))
    except TransomError as error:
        raise SiteError(
            f"The flow {gathered.flow!r} differs between the sites: {error.message}", error.remedy
        ) from error
    except _NONE as error:
        raise SiteError(f"What sites send of the flow {gathered.flow!r} cannot be merged: {error!r}.") from error


def merged_alike(flow: str, bodies: Iterable[Body]) -> Body:
    """Return the body of several bodies of a flow, each of other rows, by what they say themselves of what they are.

    Raises:
        SiteError: They cannot be read, differ, or have states that cannot be merged without the job.
    """
    tables = [found for body in bodies if (found := partials_in(body)) is not None]
    if not tables:
        return b""
    contents, schema = tables[0].contents, tables[0].table.schema
    alike = all(each.contents == contents and each.table.schema.equals(schema) for each in tables)
    if not alike or contents.direct or contents.absent or len(contents.conditions) > 1:
        raise SiteError(f"What sites send of the flow {flow!r} is not of one kind.", "Let it go straight.")
    try:
        names = {primitive_of(key): key for key in contents.primitives}
        types = {primitive: _types(schema, number) for number, primitive in enumerate(names)}
        keys = pa.schema([each for each in schema if each.name != PANE and not re.match(r"_s\d+_", each.name)])
        store = PaneStore(AS_THEY_ARE, keys, types)
        for each in _together(tables, names):
            if wrong := _flaw(each, names):
                raise ValueError(wrong)
            store.add(each.panes(), each.table, each.states(names, types))
        return to_body(store_table(store, replace(contents.origin, condition=contents.conditions[0])))
    except (TransomError, *_NONE) as error:
        raise SiteError(f"What sites send of the flow {flow!r} cannot be merged here: {error}") from error


def _types(schema: pa.Schema, number: int) -> dict[str, pa.DataType]:
    """Return the types of the columns of a primitive's states."""
    prefix = state_name(number, "")
    return {each.name.removeprefix(prefix): each.type for each in schema if each.name.startswith(prefix)}
