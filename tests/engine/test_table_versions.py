"""Versions of a table: which one a cut sees, and when it is another one; without Spark."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType
from tests.at_once import at_once

from transom.engine.spark.lookups import LookupTable
from transom.engine.streams import tableversions
from transom.engine.streams.tableversions import TableVersions

SCHEMA = StructType([StructField("k", StringType()), StructField("v", LongType())])
Values = list[tuple[str, int]]


class Frame:
    """What Spark would make of a table."""

    schema = SCHEMA

    def __init__(self, rows: Values) -> None:
        self._rows = rows

    def select(self, _: str) -> Frame:
        return self

    def toArrow(self) -> pa.Table:
        return pa.table({"k": [k for k, _ in self._rows], "v": [v for _, v in self._rows]})


class Changing:
    """A table whose rows the test sets; an error instead if there are none."""

    def __init__(self, what: str, rows: Values | None) -> None:
        self.what, self.rows, self.reads = what, rows, 0

    def read(self, spark: Any) -> Any:
        self.reads += 1
        if self.rows is None:
            raise RuntimeError("it is away")
        return Frame(self.rows)

    def describe(self) -> str:
        return self.what


class Session:
    """Its DataFrames are the rows themselves."""

    def createDataFrame(self, rows: pa.Table, schema: StructType) -> Values:
        return sorted((row["k"], row["v"]) for row in rows.to_pylist())


def lookup(table: Any, refresh: int | None = 10) -> LookupTable:
    found = LookupTable("table1", table, refresh)
    found._schema = SCHEMA
    return found


@pytest.fixture
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TableVersions:
    monkeypatch.setattr(tableversions, "aside", at_once)
    return TableVersions(Session(), lambda: tmp_path)  # type: ignore[arg-type]


def test_rows_in_another_order_are_no_other_version(versions: TableVersions, tmp_path: Path) -> None:
    changing = Changing("names", [("a", 1), ("b", 2), ("b", 1)])
    table = lookup(changing)
    first = versions.newest([table], 0)
    changing.rows = [("b", 2), ("b", 1), ("a", 1)]
    assert versions.newest([table], 10) == first
    changing.rows = [("b", 2), ("b", 2), ("a", 1)]
    assert versions.newest([table], 20) != first
    assert changing.reads == 3
    assert len(list(tmp_path.iterdir())) == 2


def test_a_cut_sees_what_it_names_until_its_commit(versions: TableVersions, tmp_path: Path) -> None:
    changing = Changing("names", [("a", 1)])
    table = lookup(changing)
    named = versions.newest([table], 0)
    changing.rows = [("a", 2)]
    newer = versions.newest([table], 10)
    assert versions.frames([table], named, 0) == {table: [("a", 1)]}
    assert versions.frames([table], named, 0) == {table: [("a", 1)]}, "another try"
    assert len(list(tmp_path.iterdir())) == 2
    versions.committed([table])
    assert [file.name for file in tmp_path.iterdir()] == [newer["table1"].file]
    assert versions.frames([table], newer, 10) == {table: [("a", 2)]}


def test_a_table_that_is_away_is_tried_again_when_it_is_due_again(versions: TableVersions, caplog: Any) -> None:
    changing = Changing("names", [("a", 1)])
    table = lookup(changing)
    first = versions.newest([table], 0)
    changing.rows = None
    assert [versions.newest([table], now) for now in (1_000, 1_001, 1_009)] == [first] * 3
    assert changing.reads == 2
    assert "The table table1 stays as it was" in caplog.text
    changing.rows = [("a", 2)]
    assert versions.newest([table], 1_010) != first


def test_a_cut_that_is_done_again_after_a_restart(versions: TableVersions, tmp_path: Path) -> None:
    """The copy that it names is that of the same table only, not of one which had its name in the job as it was."""
    named = versions.newest([lookup(Changing("names", [("a", 1)]))], 0)
    again = TableVersions(versions._session, lambda: tmp_path)
    (tmp_path / "left.tables").touch()
    again.settle([file.name for file in tmp_path.iterdir()], named, lambda: None)
    assert [file.name for file in tmp_path.iterdir()] == [named["table1"].file]
    same, other = lookup(Changing("names", [("a", 2)])), lookup(Changing("others", [("a", 3)]))
    assert again.frames([same], named, 0) == {same: [("a", 1)]}
    assert again.frames([other], named, 0) == {other: [("a", 3)]}
    other.table.rows = [("a", 4)]  # type: ignore[attr-defined]
    assert again.frames([other], named, 0) == {other: [("a", 3)]}, "all jobs of the cut see the same"


def test_a_table_that_no_query_needs_is_forgotten(
    versions: TableVersions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows, its copy, and what is still being read of it, which must not pass for newer if it is needed again."""
    later: list[Callable[[], None]] = []

    def afterwards(work: Callable[[], Any], name: str) -> Future[Any]:
        future = Future[Any]()
        later.append(lambda: future.set_result(work()))
        return future

    monkeypatch.setattr(tableversions, "aside", afterwards)
    changing, other = Changing("names", [("a", 1)]), lookup(Changing("others", [("b", 1)]))
    table = lookup(changing)
    other.name = "table2"
    versions.frames([table], versions.newest([table, other], 0), 0)
    changing.rows = [("a", 2)]
    kept = versions.newest([table, other], 10)
    versions.committed([other])
    assert [file.name for file in tmp_path.iterdir()] == [kept["table2"].file]
    assert not versions._frames
    changing.rows = [("a", 3)]
    named = versions.newest([table], 20)
    for work in later:
        work()
    assert versions.newest([table], 21) == named
    versions.committed([])
    assert list(tmp_path.iterdir()) == []
