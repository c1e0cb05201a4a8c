"""The work of a cut whose source brings partials: they are put one behind the other, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from transom.engine.partials.late import late_moments
from transom.engine.partials.tables import PartialTable, state_name, together
from transom.engine.spark.cutstats import CutStats
from transom.engine.streams.cuts import CutJob, CutOutcome
from transom.engine.streams.partialsource import PartialSource, Taken
from transom.model.time import MIN_TIME, Micros
from transom.windows.aggregates.base import Types
from transom.windows.components import ROWS


def take_partials(source: PartialSource, job: CutJob) -> CutOutcome:
    """Return what a cut brings; called on a worker thread, changes no state. O(partials).

    Lateness is decided here, by pane: the moment before which rows of a query are late is an edge of its windows, and
    so of panes. Late partials are counted, and go where any others go: into panes of which no window is left.

    Raises:
        SourceLostError: Something that came is gone.
        JobChangedError: Partials of several sites do not go together.
    """
    cut, queries = job.cut, [known.query for known in job.compiled.queries.values()]
    before = late_moments(queries, cut.watermark)
    stats, late, failed = CutStats(), Counter[str](), dict[str, str]()
    tables: list[pa.Table] = []
    anew = False
    taken: list[Taken] = []
    for brought in source.partials(cut.start, cut.end):
        stats += brought.stats
        anew = anew or brought.anew
        failed.update({query: why for query, why in brought.failed.items() if query in before})
        mine = {} if brought.table is None else _late(PartialTable.of(brought.table), before)
        late.update(mine)
        taken.append(Taken(brought.cuts, mine))
        if brought.table is not None:
            tables.append(brought.table)
    keys: dict[str, pa.DataType] = {}
    names: dict[str, Types] = {ROWS.key: {"count": pa.int64()}}
    for _, _, schema, primitives in job.compiled.stores:
        keys.update({field.name: field.type for field in schema})
        names.update({primitive.key: types for primitive, types in primitives.items()})
    whole = (together(tables, keys, names),) if tables and queries else ()
    return CutOutcome(cut, whole, stats, failures=failed, late=dict(late), taken=tuple(taken), anew=anew)


def _late(partials: PartialTable, before: Mapping[str, Micros]) -> dict[str, int]:
    """Return how many rows in some partials are late for each query; none where there are none."""
    moments = {query: moment for query, moment in before.items() if moment > MIN_TIME}
    if not moments:
        return {}
    counts = partials.table.column(state_name(partials.contents.primitives.index(ROWS.key), "count")).to_numpy()
    panes = partials.panes()
    found = {query: int(counts[panes < moment].sum()) for query, moment in moments.items()}
    return {query: rows for query, rows in found.items() if rows}
