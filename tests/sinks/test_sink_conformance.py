"""Every sink passes the suite that packages with sinks of their own use."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import transom as tm
from transom.testing import SinkCase, SinkSuite


def parquet_rows(folder: Path):
    tables = [pq.read_table(path) for path in folder.glob("*.parquet")]
    return [(row["zone"], row["n"]) for table in tables for row in table.to_pylist()]


def json_rows(folder: Path):
    lines = [line for path in folder.glob("*.json") for line in path.read_text().splitlines()]
    return [(row["zone"], row["n"]) for row in map(json.loads, lines)]


def csv_rows(folder: Path):
    """Python's reader does not tell null from an empty text; the number tells which it was."""
    found = []
    for path in folder.glob("*.csv"):
        with open(path, newline="") as file:
            found += [(row["zone"], int(row["n"])) for row in csv.DictReader(file)]
        unquoted = [int(line.split(",")[3]) for line in path.read_text().splitlines()[1:] if line.count(",,") == 1]
        found = [(None if n in unquoted and not zone else zone, n) for zone, n in found]
    return found


def sqlite_rows(path: Path):
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT zone, n FROM fares").fetchall()


def postgres_rows(dsn: str, table: str):
    import psycopg

    with psycopg.connect(dsn) as connection:
        return connection.execute(f"SELECT zone, n FROM {table}").fetchall()


CASES: dict[str, Callable[..., SinkCase]] = {
    "parquet": lambda path: SinkCase(lambda: tm.sinks.parquet(path / "out"), lambda: parquet_rows(path / "out")),
    "json": lambda path: SinkCase(lambda: tm.sinks.json(path / "out"), lambda: json_rows(path / "out")),
    "csv": lambda path: SinkCase(lambda: tm.sinks.csv(path / "out"), lambda: csv_rows(path / "out")),
    "delta": lambda path: SinkCase(lambda: tm.sinks.delta(path / "out"), lambda: delta_rows(path / "out")),
    "sqlite": lambda path: SinkCase(
        lambda: tm.sinks.sqlite(path / "results.db", "fares"), lambda: sqlite_rows(path / "results.db"), replaces=True
    ),
}


def delta_rows(path: Path):
    deltalake = pytest.importorskip("deltalake")
    if not deltalake.DeltaTable.is_deltatable(str(path)):
        return []
    return [(row["zone"], row["n"]) for row in deltalake.DeltaTable(str(path)).to_pyarrow_table().to_pylist()]


def memory_case() -> SinkCase:
    sink = tm.sinks.memory()
    return SinkCase(
        lambda: sink, lambda: [(row["zone"], row["n"]) for row in sink.rows("fares")], claims=False, recovers=True
    )


class TestSinks(SinkSuite):
    @pytest.fixture(params=[*CASES, "memory", "postgres"])
    def case(self, request: pytest.FixtureRequest, tmp_path: Path) -> SinkCase:
        if request.param == "memory":
            return memory_case()
        if request.param == "postgres":
            server, table = request.getfixturevalue("postgres"), request.getfixturevalue("postgres_table")
            return SinkCase(
                lambda: tm.sinks.postgres(server.dsn, table, create=True),
                lambda: postgres_rows(server.dsn, table),
                replaces=True,
            )
        return CASES[request.param](tmp_path)
