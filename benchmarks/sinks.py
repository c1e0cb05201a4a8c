"""Rows per second into each sink, beside a bare client that writes the same rows, and the time for a small result.

A sink's rows are durable and noted as written once when `write` returns. A bare client's are as durable (files have
their names then, and both are on disk; rows and messages are one transaction), and noted nowhere.
"""

from __future__ import annotations

import io
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from tests.kafka import broker
from tests.sinks import postgres_server
from tests.storage import moto_server

import transom as tm
from benchmarks.harness import Run, benchmark, mean_interval, paired_ratio
from transom.sinks.base import Sink, WindowResults
from transom.sinks.owner import Claim, Owner
from transom.storage.durable import names_in
from transom.storage.places import ObjectPath

ROWS, QUICK_ROWS, SMALL = 100_000, 50_000, 100
KEYS = ("window_start", "window_end", "campaign")
MINUTE = 60_000_000
REPEATS = 7
FAST = {"postgres": 100_000}
"""Rows per second that a sink takes at least."""
REDUCED = f"{QUICK_ROWS:,} rows instead of {ROWS:,}"


@dataclass
class Kind:
    """A sink, and the bare client beside it."""

    sink: Sink
    bare: Callable[[pa.Table, int], None]
    """Writes rows; the number is another one each time."""
    count: Callable[[], tuple[int, int]]
    """Returns how many rows the sink has, and how many the bare client wrote."""


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


@contextmanager
def durable(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that is on disk under its name at the end, as a sink's is."""
    hidden = path.with_name(f".{path.name}.tmp")
    with hidden.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    hidden.rename(path)
    handle = os.open(path.parent, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def file_kinds(folder: Path) -> Iterator[tuple[str, Kind]]:
    """Yield the sinks that write files."""
    for name in ("parquet", "json", "csv", "bare"):
        (folder / name).mkdir(parents=True)

    def bare(write: Callable[[pa.Table, IO[bytes]], object], suffix: str) -> Callable[[pa.Table, int], None]:
        def written(table: pa.Table, number: int) -> None:
            with durable(folder / "bare" / f"{number}.{suffix}") as file:
                write(table, file)

        return written

    def count(name: str) -> Callable[[], tuple[int, int]]:
        def both() -> tuple[int, int]:
            ours, bare = (counted(f"SELECT count(*) FROM '{folder}/{at}/*.{name}'") for at in (name, "bare"))
            return ours, bare

        return both

    yield "parquet", Kind(tm.sinks.parquet(folder / "parquet"), bare(parquet, "parquet"), count("parquet"))
    yield "json", Kind(tm.sinks.json(folder / "json"), bare(json_lines, "json"), count("json"))
    yield "csv", Kind(tm.sinks.csv(folder / "csv"), bare(pyarrow.csv.write_csv, "csv"), count("csv"))


def parquet(table: pa.Table, file: IO[bytes]) -> None:
    """Write Parquet by pyarrow."""
    pq.write_table(table, file, compression="zstd")


def json_lines(table: pa.Table, file: IO[bytes]) -> None:
    """Write JSON lines by polars."""
    import polars

    polars.from_arrow(table).write_ndjson(file)  # type: ignore[union-attr]


@contextmanager
def s3_kind(folder: Path) -> Iterator[Kind]:
    """Yield Parquet in S3 (moto's, on this machine), beside pyarrow and a put of obstore."""
    import obstore

    with moto_server.s3_server(folder / "moto.log") as told:
        os.environ.update(told)
        store = obstore.store.S3Store.from_url(f"{moto_server.BUCKET}/bare", client_options={"allow_http": True})
        results, beside = (ObjectPath(moto_server.BUCKET, name) for name in ("sink", "bare"))

        def bare(table: pa.Table, number: int) -> None:
            file = io.BytesIO()
            parquet(table, file)
            obstore.put(store, f"{number}.parquet", file.getvalue())

        def count(folder: ObjectPath) -> int:
            parts = [folder / name for name in names_in(folder) if name.endswith(".parquet")]
            return sum(pq.read_metadata(io.BytesIO(part.read_bytes())).num_rows for part in parts)

        yield Kind(tm.sinks.parquet(str(results)), bare, lambda: (count(results), count(beside)))


@contextmanager
def kafka_kind(folder: Path) -> Iterator[Kind]:
    """Yield a topic of three partitions, beside confluent-kafka and polars, with one transaction."""
    from confluent_kafka import Producer

    with broker.running(folder / "broker") as server:
        ours, theirs = server.topic(3), server.topic(3)
        more = {"compression.type": "lz4", "linger.ms": 5, "queue.buffering.max.messages": 1_000_000, "log_level": "0"}
        producer = Producer({"bootstrap.servers": server.servers, "transactional.id": "bare", **more})
        producer.init_transactions()

        def bare(table: pa.Table, number: int) -> None:
            file = io.BytesIO()
            json_lines(table, file)
            producer.begin_transaction()
            values = file.getvalue().splitlines()
            for key, value in zip(table["campaign"].to_pylist(), values, strict=True):
                producer.produce(theirs, value, key)
            producer.commit_transaction()

        sink = tm.sinks.kafka(server.servers, ours, key=["campaign"])
        yield Kind(sink, bare, lambda: (len(server.read(ours)), len(server.read(theirs))))


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

    def count(file: Path) -> int:
        with closing(sqlite3.connect(file)) as database:
            return int(database.execute("SELECT count(*) FROM t").fetchone()[0])

    sink = tm.sinks.sqlite(folder / "sink.db", "t")
    return Kind(sink, bare, lambda: (count(folder / "sink.db"), count(path)))


def delta_kind(folder: Path) -> Kind:
    """Return Delta, beside deltalake's append."""
    from deltalake import DeltaTable, write_deltalake

    beside = str(folder / "bare-delta")
    return Kind(
        tm.sinks.delta(folder / "delta"),
        lambda table, number: write_deltalake(beside, table, mode="append"),
        lambda: (int(DeltaTable(str(folder / "delta")).count()), int(DeltaTable(beside).count())),
    )


@contextmanager
def postgres_kind() -> Iterator[Kind]:
    """Yield PostgreSQL, beside a binary COPY by psycopg into a table with the same unique index."""
    import psycopg

    with postgres_server.postgres_server() as server, psycopg.connect(server.dsn, autocommit=True) as connection:
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

        def count() -> tuple[int, int]:
            found = connection.execute("SELECT (SELECT count(*) FROM sink), (SELECT count(*) FROM bare)").fetchone()
            return found or (0, 0)

        yield Kind(tm.sinks.postgres(server.dsn, "sink", create=True), bare, count)


def measure(run: Run, name: str, kind: Kind, count: int) -> list[object]:
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

    for cut in range(1, REPEATS + 2):  # the first time warms up
        table, few = rows(count, cut), rows(SMALL, 1_000 + cut)
        both = [
            (ours, lambda table=table, cut=cut: sink.write(WindowResults("q", 2 * cut, table, KEYS))),
            (theirs, lambda table=table, cut=cut: kind.bare(table, cut)),
        ]
        for times, call in both if cut % 2 else reversed(both):
            times.append(timed(call))
        small.append(timed(lambda few=few, cut=cut: sink.write(WindowResults("q", 2 * cut + 1, few, KEYS))))
    sink.close()
    expected, found = ((REPEATS + 1) * (count + SMALL), (REPEATS + 1) * count), kind.count()
    run.check([] if found == expected else [f"{name} and its bare client have {found} rows instead of {expected}"])
    share = paired_ratio(theirs[1:], ours[1:])
    run.figure(f"{name}.rows_per_s", count / median(ours[1:]))
    run.figure(f"{name}.small_ms", median(small[1:]) * 1_000)
    run.figure(f"{name}.share", share.median)
    run.verdict(f"{name}: the bare client is at most 1.43 times as fast", (1 / share.high, 1 / share.low), 1 / 0.7)
    if name in FAST:
        mean, half = mean_interval(ours[1:])
        bar = count / FAST[name]
        run.verdict(f"{name}: {count:,} rows take at most {bar:g} s", (mean - half, mean + half), bar)
    return [name, count / median(ours[1:]), count / median(theirs[1:]), str(share), median(small[1:]) * 1_000]


def others(folder: Path) -> Iterator[tuple[str, str | None, AbstractContextManager[Kind]]]:
    """Yield the other sinks: name, why there is none here, and what makes it."""
    yield "sqlite", None, nullcontext(sqlite_kind(folder))
    yield "delta", None, nullcontext(delta_kind(folder))
    yield "s3", moto_server.why_not(), s3_kind(folder)
    yield "kafka", broker.why_not(), kafka_kind(folder)
    yield "postgres", postgres_server.why_not(), postgres_kind()


def main() -> None:
    """Run the benchmark."""
    with benchmark("sinks", REDUCED) as run:
        count = QUICK_ROWS if run.quick else ROWS
        folder = run.fresh("sinks")
        table = [measure(run, name, kind, count) for name, kind in file_kinds(folder)]
        for name, why, making in others(folder):
            if why is not None:
                run.say(f"{name}: {why}")
                continue
            with making as kind:
                table.append(measure(run, name, kind, count))
        columns = ["sink", "rows/s", "bare rows/s", "share", f"ms for {SMALL} rows"]
        run.table(f"{count:,} rows at once, load {os.getloadavg()[0]:.0f}", columns, table)


if __name__ == "__main__":
    main()
