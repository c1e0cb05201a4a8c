"""The partials of a job, written by its tasks into files by key group instead of brought to the driver."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from transom.engine.cluster.files import PartialFiles, Slice, files_of, summary_of, write_slices
from transom.engine.partials.contents import Contents, TableNote
from transom.engine.partials.tables import LENGTH, PANE, TAG, describe_table, state_name
from transom.engine.spark.plan import utc
from transom.model.time import Micros
from transom.storage.places import Place
from transom.windows.components import ROWS, Component
from transom.windows.intervals import TIMES
from transom.windows.panes import Grid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from transom.engine.spark.jobs import CutPartials

GROUP = "_key_group"

Timeless: TypeAlias = "dict[int, int]"
"""Rows that have no pane, by their tag; by 0 where a component has one condition."""


@dataclass(frozen=True)
class Packing:
    """The place where the tasks of a cut write the partials of a component."""

    directory: Place
    cut: int
    groups: int
    """Number of key groups."""
    moments: tuple[Micros, ...] = ()
    """Rows before them are late for sessions; ascending. What is told of the files tells those before from those after
    (`summary_of`)."""


def named(table: pa.Table, component: Component) -> tuple[pa.Table, Timeless]:
    """Return the partials, with the keys under their names and timestamps labelled UTC, and the rows without a pane.

    A row has none when a transformation gave it no event time, or one that cannot be used.
    """
    return _named(table, [key.name for key in component.keys], _counts(component))


def _named(table: pa.Table, keys: Sequence[str], counts: str) -> tuple[pa.Table, Timeless]:
    import pyarrow.compute as pc

    timeless: Timeless = {}
    if table.column(PANE).null_count:
        without = table.filter(pc.is_null(table.column(PANE)))
        rows = without.column(counts).to_pylist()
        tags = without.column(TAG).to_pylist() if TAG in table.column_names else [0] * len(rows)
        timeless = merged(zip(tags, rows, strict=True))
        table = table.filter(pc.is_valid(table.column(PANE)))
    names = {f"_k{i}": name for i, name in enumerate(keys)}
    table = table.rename_columns([names.get(name, name) for name in table.column_names])
    schema = utc(table.schema)
    return (table if schema == table.schema else table.cast(schema)), timeless


def merged(pairs: Iterable[tuple[int, int]]) -> Timeless:
    """Return the sum of the rows of each tag."""
    timeless: Timeless = {}
    for tag, rows in pairs:
        timeless[tag] = timeless.get(tag, 0) + rows
    return timeless


def packed(aggregated: DataFrame, component: Component, packing: Packing) -> DataFrame:
    """Return what the tasks tell of the files that they write: one row per file, JSON text.

    No exchange is added: a task writes what the aggregation gave it, one file with a part for each key group.

    Args:
        aggregated: What `Aggregation` returns.
        component: The component.
        packing: Where to.
    """
    from pyspark.sql import functions as F

    keys = [F.col(f"_k{i}") for i in range(len(component.keys))]
    group = F.pmod(F.hash(*keys), F.lit(packing.groups)) if keys else F.lit(0)
    told = None if component.told == component.grid else component.told
    write = _writer(packing, [key.name for key in component.keys], _counts(component), _times(component), told)
    return aggregated.withColumn(GROUP, group).mapInArrow(write, "written string")


def _writer(
    packing: Packing, keys: Sequence[str], counts: str, times: tuple[str, str] | None, panes: Grid | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        some = [batch for batch in batches if batch.num_rows]
        if not some:
            return
        table, timeless = _named(pa.Table.from_batches(some), keys, counts)
        if not table.num_rows:
            if timeless:
                yield pa.RecordBatch.from_pydict({"written": [json.dumps({"timeless": list(timeless.items())})]})
            return
        groups = table.column(GROUP).to_numpy().astype(np.int64)
        table = table.drop_columns([GROUP])
        name = f"{packing.cut:012d}-{uuid.uuid4().hex}.partials"
        slices = write_slices(packing.directory, name, table, groups)
        if panes is not None:
            place = table.column_names.index(PANE)
            table = table.set_column(place, PANE, pa.array(panes.start(table.column(PANE).to_numpy())))
        summary = summary_of(table, counts, times, packing.moments)
        told = {
            "slices": [[s.file, s.group, s.offset, s.length, s.crc, s.rows] for s in slices],
            "summary": summary.to_pydict(),
            "timeless": list(timeless.items()),
        }
        yield pa.RecordBatch.from_pydict({"written": [json.dumps(told)]})

    return write


def _counts(component: Component) -> str:
    """Return the column with the number of rows."""
    return state_name(component.primitives.index(ROWS), "count")


def _times(component: Component) -> tuple[str, str] | None:
    """Return the columns with the first and the last event time; None if no sessions need them."""
    if TIMES not in component.primitives:
        return None
    index = component.primitives.index(TIMES)
    return state_name(index, "first"), state_name(index, "last")


def told(written: pa.Table, component: Component) -> tuple[list[Slice], pa.Table, Timeless]:
    """Return the slices that the tasks wrote, what is in each pane (`summary_of`), and the rows that have none."""
    every: list[dict[str, Any]] = [json.loads(text) for text in written.column("written").to_pylist()]
    timeless = merged((tag, rows) for text in every for tag, rows in text["timeless"])
    texts = [text for text in every if "slices" in text]
    slices = [Slice(*piece) for text in texts for piece in text["slices"]]
    groups = [PANE, *([TAG] if len(component.conditions) > 1 else []), *([LENGTH] if component.direct else [])]
    columns = [*groups, _counts(component), *(_times(component) or ())]
    values = {name: [value for text in texts for value in text["summary"][name]] for name in columns}
    types = {TAG: pa.int32()}
    summary = pa.table({name: pa.array(values[name], types.get(name, pa.int64())) for name in columns})
    return slices, summary, timeless


def with_notes(
    notes: Sequence[TableNote], partials: CutPartials, cut: int
) -> tuple[tuple[pa.Table, ...], tuple[PartialFiles, ...]]:
    """Return partials with a note of what they hold: those that came to the driver, and those in files.

    Args:
        notes: Of each component.
        partials: The partials.
        cut: Number of the cut.
    """
    tables, files = [], []
    for note, table, slices in zip(notes, partials.tables, partials.slices or (None,) * len(notes), strict=True):
        if slices is None:
            tables.append(describe_table(table, note))
        elif slices:
            files.append(files_written(slices, table, note, cut))
    return tuple(tables), tuple(files)


def files_written(slices: Sequence[Slice], summary: pa.Table, note: TableNote, cut: int) -> PartialFiles:
    """Return the partials that a component's tasks wrote."""
    return files_of(Contents.of(note.to_json(), LENGTH in summary.column_names), cut, slices, summary)
