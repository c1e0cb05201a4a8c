"""Results of any engine in one form, so that they can be compared exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.ysb import Query

_MOMENT = pa.timestamp("us")


def result_files(directory: Path) -> list[Path]:
    """Return the Parquet files under a sink's directory, without drafts and metadata."""
    return sorted(
        path
        for path in directory.rglob("*.parquet")
        if not any(part.startswith((".", "_")) for part in path.relative_to(directory).parts)
    )


def read(directory: Path) -> pa.Table:
    """Read all result files under a directory.

    Raises:
        FileNotFoundError: There is none.
    """
    files = result_files(directory)
    if not files:
        raise FileNotFoundError(f"{directory} holds no result.")
    tables = [pq.ParquetFile(path).read() for path in files]
    return pa.concat_tables(tables, promote_options="permissive")


def canonical(table: pa.Table, query: Query, end_ms: int, until_ms: int | None = None) -> pa.Table:
    """Return results as window_start, window_end (int64 microseconds), keys, values; sorted.

    Args:
        table: What an engine wrote, with more columns perhaps; `window_start` may be missing.
        query: Whose results they are.
        end_ms: Windows that start here or later hold only events of the closing file and are left out.
        until_ms: Leave out windows that end later than this too, where the input has no closing file.
    """
    if "window_start" not in table.column_names:
        length = pa.scalar(query.window * 1_000_000, pa.duration("us"))
        table = table.append_column("window_start", pc.subtract(table["window_end"].cast(_MOMENT), length))
    table = table.select(["window_start", "window_end", *query.keys, *query.values])
    kinds = {"campaign_id": pa.string(), "page_id": pa.string()}
    fields = []
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        fields.append(column.cast(kinds.get(name, pa.int64())).combine_chunks())
    table = pa.table(dict(zip(table.column_names, fields, strict=True)))
    table = table.filter(pc.less(table["window_start"], end_ms * 1_000))
    if until_ms is not None:
        table = table.filter(pc.less_equal(table["window_end"], until_ms * 1_000))
    return table.sort_by([(name, "ascending") for name in ("window_start", *query.keys)])


def differences(actual: pa.Table, expected: pa.Table) -> str:
    """Return the first difference between two canonical tables in words; empty when they are equal."""
    if actual.column_names != expected.column_names:
        return f"columns {actual.column_names} instead of {expected.column_names}"
    for name in actual.column_names:
        left, right = (t.column(name).combine_chunks() for t in (actual, expected))
        shared = min(len(left), len(right))
        wrong = pc.index(pc.equal(left.slice(0, shared), right.slice(0, shared)).fill_null(False), False).as_py()
        if wrong >= 0:
            pair = [t.slice(wrong, 1).to_pylist()[0] for t in (actual, expected)]
            return f"row {wrong}: {pair[0]} instead of {pair[1]}"
    if len(actual) != len(expected):
        return f"{len(actual)} rows instead of {len(expected)}"
    return ""


def check(
    label: str,
    directory: Callable[[Query], Path],
    queries: Sequence[Query],
    expected: dict[str, pa.Table],
    end_ms: int,
    until_ms: int | None = None,
) -> list[str]:
    """Compare the results of a run with the expected ones.

    Args:
        label: The engine, named in the sentences.
        directory: Where the results of a query are.
        queries: The queries that ran.
        expected: Canonical results by query name.
        end_ms: As in `canonical`.
        until_ms: As in `canonical`.

    Returns:
        One sentence per query that differs; empty when all are equal.
    """
    wrong = []
    for query in queries:
        try:
            wanted = canonical(expected[query.name], query, end_ms, until_ms)
            if len(wanted) == 0 and not result_files(directory(query)):
                continue
            actual = canonical(read(directory(query)), query, end_ms, until_ms)
            found = differences(actual, wanted)
        except (OSError, pa.ArrowException, KeyError) as error:
            found = str(error)
        if found:
            wrong.append(f"{label}, {query.name} ({query.describe()}): {found}")
    return wrong
