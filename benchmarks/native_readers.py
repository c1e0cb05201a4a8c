"""Ways to make the partials of the benchmark's queries in one Python process, with one thread and without Spark.

Each takes a file of events and gives what a task of a cut gives: for each pane of ten seconds and key the
number of views, perhaps their last event time, and how many rows there were at all, with the newest event time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from benchmarks import ysb
from transom.native.lines import LineReader

PANE_MS = ysb.PANE * 1_000
BLOCK = 4 << 20
SCHEMA = pa.schema(
    [("page_id", pa.string()), ("ad_id", pa.string()), ("event_type", pa.string()), ("event_time", pa.int64())]
)
_COLUMNS = {"page_id": "VARCHAR", "ad_id": "VARCHAR", "event_type": "VARCHAR", "event_time": "BIGINT"}
_POLARS = {"page_id": pl.String, "ad_id": pl.String, "event_type": pl.String, "event_time": pl.Int64}


class RefusedError(Exception):
    """A reader did not take a file."""


@dataclass(frozen=True)
class Task:
    """What partials hold."""

    by_page: bool
    last: bool

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the keys."""
        return ("campaign_id", "page_id") if self.by_page else ("campaign_id",)


TASKS = {1: Task(False, False), 4: Task(True, False), 16: Task(True, True)}
"""By number of queries: the finest keys and all aggregates of the first ones."""


@dataclass(frozen=True)
class Partials:
    """What a task gives.

    Args:
        groups: pane, the keys, n, perhaps last.
        rows: Of the file.
        newest: Event time, milliseconds.
    """

    groups: pa.Table
    rows: int
    newest: int

    @cached_property
    def sorted(self) -> pa.Table:
        """The groups in one order, to be compared."""
        names = [name for name in ("pane", "campaign_id", "page_id", "n", "last") if name in self.groups.column_names]
        table = self.groups.select(names)
        kinds = {name: pa.string() if name.endswith("_id") else pa.int64() for name in names}
        table = table.cast(pa.schema(list(kinds.items())))
        return table.sort_by([(name, "ascending") for name in names]).combine_chunks()


Reader = Callable[[Path, Task], Partials]


@cache
def _ads() -> pa.Table:
    return ysb.ads().combine_chunks()


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.register("ads_given", _ads())
    connection.execute("CREATE TABLE ads AS SELECT * FROM ads_given")
    return connection


def _by_sql(rows: str, task: Task) -> Partials:
    """Return the partials of rows that DuckDB reads; one pass, in which those of no use are one group."""
    used = "event_type = 'view' AND campaign_id IS NOT NULL"
    keys = ", ".join(f"CASE WHEN {used} THEN {name} END AS {name}" for name in task.keys)
    table = (
        _connection()
        .sql(
            f"""SELECT CASE WHEN {used} THEN event_time // {PANE_MS} END AS pane, {keys}, count(*) AS n,
        max(event_time) AS last FROM {rows} LEFT JOIN ads USING (ad_id) GROUP BY ALL"""
        )
        .to_arrow_table()
    )
    groups = table.filter(pc.is_valid(table["pane"]))
    groups = groups if task.last else groups.drop_columns("last")
    return Partials(groups, pc.sum(table["n"]).as_py(), pc.max(table["last"]).as_py())


def duckdb_reader(path: Path, task: Task) -> Partials:
    """Use DuckDB's reader of JSON."""
    columns = ", ".join(f"{name}: '{kind}'" for name, kind in _COLUMNS.items())
    return _by_sql(f"read_json('{path}', format = 'newline_delimited', columns = {{{columns}}})", task)


def duckdb_strict(path: Path, task: Task) -> Partials:
    """Give DuckDB the lines as a column, and let it take them apart strictly."""
    _connection().register("lines", pa.table({"line": _lines(path.read_bytes())}))
    form = "{" + ", ".join(f'"{name}": "{kind}"' for name, kind in _COLUMNS.items()) + "}"
    return _by_sql(f"(SELECT unnest(from_json_strict(line, '{form}')) FROM lines)", task)


def _lines(lines: bytes) -> pa.StringArray:
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == 10).astype(np.int32) + 1
    edges = np.concatenate([np.zeros(1, np.int32), ends])
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(edges), pa.py_buffer(lines))


def _read_by_arrow(path: Path) -> pa.Table:
    reading = arrow_json.ReadOptions(use_threads=False, block_size=1 << 20)
    parsing = arrow_json.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="ignore")
    try:
        return arrow_json.read_json(path, reading, parsing)
    except pa.ArrowInvalid as error:
        raise RefusedError(str(error)) from error


def arrow_and_duckdb(path: Path, task: Task) -> Partials:
    """Read with Arrow, and ask DuckDB."""
    _connection().register("read", _read_by_arrow(path))
    return _by_sql("read", task)


def arrow(path: Path, task: Task) -> Partials:
    """Read with Arrow, and use its functions."""
    return _by_arrow(_read_by_arrow(path), task)


def arrow_shapes(path: Path, task: Task) -> Partials:
    """Read lines of one shape, and use Arrow's functions."""
    reader, batches, buffer = LineReader(SCHEMA), [], bytearray(BLOCK)
    with open(path, "rb", buffering=0) as file:
        kept = 0
        while count := file.readinto(memoryview(buffer)[kept:]):
            filled = kept + count
            end = buffer.rfind(b"\n", 0, filled) + 1
            batch = reader.read(memoryview(buffer)[:end])
            if batch is None:
                raise RefusedError("to be judged by Spark")
            batches.append(batch)
            kept = filled - end
            buffer[:kept] = buffer[end:filled]
    return _by_arrow(pa.Table.from_batches(batches), task)


def _by_arrow(table: pa.Table, task: Task) -> Partials:
    newest = pc.max(table["event_time"]).as_py()
    views = table.filter(pc.equal(table["event_type"], "view"))
    ad = pc.index_in(views["ad_id"], value_set=_ads()["ad_id"])
    rows = pa.table({"ad": ad, "page": views["page_id"], "time": views["event_time"]}).drop_null()
    campaign = np.arange(ysb.ADS)[rows["ad"].to_numpy()] // (ysb.ADS // ysb.CAMPAIGNS)
    columns = {"pane": pa.array(rows["time"].to_numpy() // PANE_MS), "campaign": pa.array(campaign)}
    pages = None
    if task.by_page:
        coded = rows["page"].combine_chunks().dictionary_encode()
        columns["page"], pages = coded.indices, coded.dictionary
    keys = list(columns)
    columns["last"] = rows["time"].combine_chunks()
    asked: list[tuple[list[str] | str, str]] = [([], "count_all")]
    asked += [("last", "max")] if task.last else []
    found = pa.TableGroupBy(pa.table(columns), keys, use_threads=False).aggregate(asked)
    names = _ads()["campaign_id"].take(pa.array(np.arange(ysb.CAMPAIGNS) * (ysb.ADS // ysb.CAMPAIGNS)))
    groups = {"pane": found["pane"], "campaign_id": names.take(found["campaign"])}
    if pages is not None:
        groups["page_id"] = pages.take(found["page"].combine_chunks())
    groups["n"] = found["count_all"]
    if task.last:
        groups["last"] = found["last_max"]
    return Partials(pa.table(groups), len(table), newest)


def polars(path: Path, task: Task) -> Partials:
    """Use Polars for all."""
    rows = pl.read_ndjson(path, schema=_POLARS)
    groups = (
        rows.lazy()
        .filter(pl.col("event_type") == "view")
        .join(pl.from_arrow(_ads()).lazy(), on="ad_id")  # type: ignore[union-attr]
        .group_by((pl.col("event_time") // PANE_MS).alias("pane"), *task.keys)
        .agg(n=pl.len().cast(pl.Int64), **({"last": pl.col("event_time").max()} if task.last else {}))
        .collect()
    )
    newest = rows["event_time"].max()
    return Partials(groups.to_arrow(), len(rows), newest)  # type: ignore[arg-type]


READERS: dict[str, Reader] = {
    "duckdb": duckdb_reader,
    "duckdb_strict": duckdb_strict,
    "arrow_and_duckdb": arrow_and_duckdb,
    "arrow": arrow,
    "polars": polars,
    "arrow_shapes": arrow_shapes,
}


def expected(events: ysb.Events, file: int, task: Task) -> pa.Table:
    """Return the groups of a file, made of the generator's numbers with numpy."""
    values = ysb.columns(events, file)
    views = values.views
    campaign = values.ad[views] // (ysb.ADS // ysb.CAMPAIGNS)
    page = values.page[views] if task.by_page else np.zeros(len(campaign), np.int64)
    times = values.time_ms[views]
    key = (times // PANE_MS * ysb.CAMPAIGNS + campaign) * ysb.PAGES + page
    found, where, n = np.unique(key, return_inverse=True, return_counts=True)
    last = np.zeros(len(found), np.int64)
    np.maximum.at(last, where, times)
    codes = found // ysb.PAGES
    groups = {
        "pane": pa.array(codes // ysb.CAMPAIGNS),
        "campaign_id": ysb.names("campaign", ysb.CAMPAIGNS).take(pa.array(codes % ysb.CAMPAIGNS)),
    }
    if task.by_page:
        groups["page_id"] = ysb.names("page", ysb.PAGES).take(pa.array(found % ysb.PAGES))
    groups["n"] = pa.array(n)
    if task.last:
        groups["last"] = pa.array(last)
    return Partials(pa.table(groups), events.per_file, 0).sorted
