"""Versions of a table: which one a cut sees, and when it is another one; without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

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
    monkeypatch.setattr(tableversions, "in_background", lambda work: work())
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
    versions.committed()
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
    again.settle([lookup(Changing("names", []))], named, lambda: None)
    same, other = lookup(Changing("names", [("a", 2)])), lookup(Changing("others", [("a", 3)]))
    assert again.frames([same], named, 0) == {same: [("a", 1)]}
    assert again.frames([other], named, 0) == {other: [("a", 3)]}
    other.table.rows = [("a", 4)]  # type: ignore[attr-defined]
    assert again.frames([other], named, 0) == {other: [("a", 3)]}, "all jobs of the cut see the same"
