"""Rows per second into each sink, beside a bare client that writes the same rows, and the time for a small result.

A sink's rows are durable and noted as written once when `write` returns; a bare client's are only written.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from tests.sinks.postgres_server import postgres_server, why_not

import transom as tm
from benchmarks.harness import Run, benchmark, paired_ratio
from transom.sinks.base import Sink, WindowResults
from transom.sinks.owner import Claim, Owner

ROWS, QUICK_ROWS, SMALL = 100_000, 50_000, 100
KEYS = ("window_start", "window_end", "campaign")
MINUTE = 60_000_000
REDUCED = f"{QUICK_ROWS:,} rows instead of {ROWS:,}, at most 3 repeats instead of 7"


@dataclass
class Kind:
    """A sink, and the bare client beside it."""

    sink: Sink
    bare: Callable[[pa.Table, int], None]
    """Writes rows; the number is another one each time."""
    count: Callable[[], int]
    """Returns how many rows the sink has."""


def rows(count: int, window: int) -> pa.Table:
    """Return the results of a window of a minute: a count and a mean for each campaign."""
    start = np.full(count, 1_700_000_000_000_000 + window * MINUTE)
    kind = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "window_start": pa.array(start, kind),
            "window_end": pa.array(start + MINUTE, kind),
            "campaign": pa.array([f"campaign-{number}" for number in range(count)]),
            "views": pa.array(np.arange(count) % 97),
            "mean": pa.array(np.random.default_rng(window).random(count)),
        }
    )


def named(table: pa.Table) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """Return the columns with their names."""
    return zip(table.column_names, table.columns, strict=True)


def counted(text: str) -> int:
    """Return the number that a statement of DuckDB gives."""
    import duckdb

    return int(duckdb.sql(text).fetchall()[0][0])


def file_kinds(folder: Path) -> Iterator[tuple[str, Kind]]:
    """Yield the sinks that write files."""
    import polars

    for name in ("parquet", "json", "csv", "bare"):
        (folder / name).mkdir(parents=True)
    bare = folder / "bare"
    yield (
        "parquet",
        Kind(
            tm.sinks.parquet(folder / "parquet"),
            lambda table, number: pq.write_table(table, bare / f"{number}.parquet", compression="zstd"),
            lambda: counted(f"SELECT count(*) FROM '{folder}/parquet/*.parquet'"),
        ),
    )
    yield (
        "json",
        Kind(
            tm.sinks.json(folder / "json"),
            lambda table, number: polars.from_arrow(table).write_ndjson(bare / f"{number}.json"),  # type: ignore[union-attr]
            lambda: counted(f"SELECT count(*) FROM '{folder}/json/*.json'"),
        ),
    )
    yield (
        "csv",
        Kind(
            tm.sinks.csv(folder / "csv"),
            lambda table, number: pyarrow.csv.write_csv(table, bare / f"{number}.csv"),
            lambda: counted(f"SELECT count(*) FROM '{folder}/csv/*.csv'"),
        ),
    )


def sqlite_kind(folder: Path) -> Kind:
    """Return SQLite, beside Python's module with one transaction."""
    path = folder / "bare.db"
    columns = ", ".join(f"{name} TEXT" for name in KEYS) + ", views INTEGER, mean REAL"
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE TABLE t ({columns})")

    def bare(table: pa.Table, number: int) -> None:
        columns = [column.cast(pa.string()) if name in KEYS else column for name, column in named(table)]
        values = zip(*[column.to_pylist() for column in columns], strict=True)
        with closing(sqlite3.connect(path)) as database, database:
            database.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", values)

    def count() -> int:
        with closing(sqlite3.connect(folder / "sink.db")) as database:
            return int(database.execute("SELECT count(*) FROM t").fetchone()[0])

    return Kind(tm.sinks.sqlite(folder / "sink.db", "t"), bare, count)


def delta_kind(folder: Path) -> Kind:
    """Return Delta, beside deltalake's append."""
    from deltalake import DeltaTable, write_deltalake

    return Kind(
        tm.sinks.delta(folder / "delta"),
        lambda table, number: write_deltalake(str(folder / "bare-delta"), table, mode="append"),
        lambda: int(DeltaTable(str(folder / "delta")).count()),
    )


@contextmanager
def postgres_kind() -> Iterator[Kind]:
    """Yield PostgreSQL, beside a binary COPY by psycopg into a table with the same unique index."""
    import psycopg

    with postgres_server() as server, psycopg.connect(server.dsn, autocommit=True) as connection:
        columns = "window_start timestamptz, window_end timestamptz, campaign text, views bigint, mean double precision"
        connection.execute(f"CREATE TABLE bare ({columns})")
        connection.execute(f"CREATE UNIQUE INDEX ON bare ({', '.join(KEYS)}) NULLS NOT DISTINCT")

        def bare(table: pa.Table, number: int) -> None:
            types = ["timestamptz", "timestamptz", "text", "int8", "float8"]
            values = zip(*[column.to_pylist() for column in table.columns], strict=True)
            statement = "COPY bare FROM STDIN (FORMAT BINARY)"
            with connection.transaction(), connection.cursor() as cursor, cursor.copy(statement) as copy:
                copy.set_types(types)
                for row in values:
                    copy.write_row(row)

        def count() -> int:
            found = connection.execute("SELECT count(*) FROM sink").fetchone()
            return int(found[0]) if found else 0

        yield Kind(tm.sinks.postgres(server.dsn, "sink", create=True), bare, count)


def measure(run: Run, name: str, kind: Kind, count: int, most: int) -> list[object]:
    """Write the same rows by sink and bare client in turn; keep the figures, and return a row of the table."""
    sink = kind.sink
    sink.open("q")
    sink.claim(Claim(Owner("checkpoint", "q", "/checkpoint"), is_new=True))
    sink.recover("q", 1)
    ours: list[float] = []
    theirs: list[float] = []
    small: list[float] = []

    def timed(call: Callable[[], None]) -> float:
        before = time.perf_counter()
        call()
        return time.perf_counter() - before

    for cut in range(1, most + 2):  # the first time warms up
        table, few = rows(count, cut), rows(SMALL, 1_000 + cut)
        ours.append(timed(lambda table=table, cut=cut: sink.write(WindowResults("q", 2 * cut, table, KEYS))))
        theirs.append(timed(lambda table=table, cut=cut: kind.bare(table, cut)))
        small.append(timed(lambda few=few, cut=cut: sink.write(WindowResults("q", 2 * cut + 1, few, KEYS))))
    sink.close()
    expected, found = (most + 1) * (count + SMALL), kind.count()
    run.check([] if found == expected else [f"{name} has {found:,} rows instead of {expected:,}"])
    share = paired_ratio(theirs[1:], ours[1:])
    run.figure(f"{name}.rows_per_s", count / median(ours[1:]))
    run.figure(f"{name}.small_ms", median(small[1:]) * 1_000)
    run.figure(f"{name}.share", share.median)
    run.verdict(f"{name}: the bare client is at most 1 / 0.7 as fast", (1 / share.high, 1 / share.low), 1 / 0.7)
    return [name, count / median(ours[1:]), count / median(theirs[1:]), str(share), median(small[1:]) * 1_000]


def main() -> None:
    """Run the benchmark."""
    with benchmark("sinks", REDUCED) as run:
        count, most = (QUICK_ROWS, 3) if run.quick else (ROWS, 7)
        folder = run.fresh("sinks")
        table = [measure(run, name, kind, count, most) for name, kind in file_kinds(folder)]
        table.append(measure(run, "sqlite", sqlite_kind(folder), count, most))
        table.append(measure(run, "delta", delta_kind(folder), count, most))
        why = why_not()
        if why is None:
            with postgres_kind() as kind:
                table.append(measure(run, "postgres", kind, count, most))
        else:
            run.say(f"postgres: {why}")
        columns = ["sink", "rows/s", "bare rows/s", "share", f"ms for {SMALL} rows"]
        run.table(f"{count:,} rows at once, load {os.getloadavg()[0]:.0f}", columns, table)


if __name__ == "__main__":
    main()
