"""The queries of an application, from any thread."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StructField, StructType, TimestampType

import transom as tm
from transom.api.queries import Queries
from transom.engine.changes.requests import Change, ChangeRequest
from transom.errors import DefinitionError
from transom.sinks import outlets


def test_a_run_does_not_end_between_a_query_and_its_request() -> None:
    """Else nobody would answer it, and the next run would find two queries of its name."""
    queries, free = Queries(), list[bool]()
    queries.running = True

    def ask(request: ChangeRequest) -> Change:
        other = threading.Thread(target=lambda: free.append(queries._lock.acquire(blocking=False)))
        other.start()
        other.join()
        return request.change

    queries.requests.ask = ask  # type: ignore[method-assign]
    stream: Any = SimpleNamespace(_queries=[], name="s", _rows=None)
    made: Any = SimpleNamespace(name="q")
    change = queries.add(stream, [tm.sinks.memory()], "q", lambda name: made)
    assert (change.query, stream._queries) == ("q", [made])
    assert free == [False]


def test_transformations_of_queries_that_came_and_went_do_not_pile_up(tmp_path: Any) -> None:
    spark: Any = SimpleNamespace(createDataFrame=None)
    app = tm.App(spark, tmp_path)
    rows = app.stream(tm.sources.memory(StructType([StructField("at", TimestampType())])), event_time="at")
    lasting = rows.map(lambda df: df.where("at > '2020-01-01'"))
    lasting.window("1 minute").agg(n=tm.count()).to(tm.sinks.memory(), "lasting")
    for number in range(10):
        rows.map(lambda df, number=number: df.limit(number)).window("1 minute").agg(n=tm.count()).to(
            tm.sinks.memory(), f"q{number}"
        )
        if number:
            app._queries.forget(f"q{number - 1}")
    chains = rows._rows.branches
    assert len(chains) == 3
    assert next(chains[query.branch] for query in rows._queries) == lasting.chain
    assert rows.map(lambda df: df).window("1 minute").agg(n=tm.count()) is not None
    assert rows._rows.branches == chains, "only what a query has counts"


def test_tables_of_queries_that_came_and_went_do_not_pile_up(tmp_path: Any) -> None:
    """Their names can be used again; who has kept the rows of one cannot have them beside another of its name."""
    spark: Any = SimpleNamespace(createDataFrame=None)
    app = tm.App(spark, tmp_path)
    rows = app.stream(tm.sources.memory(StructType([StructField("at", TimestampType())])), event_time="at")

    def looked_up(number: int, name: str | None = None) -> Any:
        return rows.lookup(tm.tables.parquet(tmp_path / f"{number}.parquet"), on="zone", name=name)

    def begin(looked: Any, name: str) -> None:
        looked.window("1 minute").agg(n=tm.count()).to(tm.sinks.memory(), name)

    lasting = looked_up(0)
    begin(lasting, "lasting")
    kept = [looked_up(number) for number in range(1, 10)]
    for number, looked in enumerate(kept):
        begin(looked, f"q{number}")
    begin(looked_up(0), "also lasting")
    assert rows._tables.names == [f"table{number}" for number in range(1, 11)]
    for number in range(9):
        app._queries.forget(f"q{number}")
    app._queries.forget("also lasting")
    assert rows._tables.names == ["table1"]
    begin(kept[0], "again")
    begin(kept[0], "and again")
    app._queries.forget("and again")
    assert rows._tables.names == ["table1", "table2"]
    app._queries.forget("again")
    begin(looked_up(11), "another")
    with pytest.raises(tm.DefinitionError, match="two tables 'table2'"):
        begin(kept[0], "beside it")
    assert [query.name for query in rows._queries] == ["lasting", "another"]
    begin(looked_up(20), "third")
    app._queries.forget("another")
    begin(looked_up(21), "fourth")
    assert rows._tables.names == ["table1", "table3", "table4"]
    for number in range(12, 20):
        begin(looked_up(number, "zones"), "comes and goes")
        app._queries.forget("comes and goes")
    assert rows._tables.names == ["table1", "table3", "table4"]


def test_names_and_directories_are_free_again_when_their_queries_have_left(tmp_path: Any) -> None:
    spark: Any = SimpleNamespace(createDataFrame=None)
    app = tm.App(spark, tmp_path / "checkpoint")
    rows = app.stream(tm.sources.memory(StructType([StructField("at", TimestampType())])), event_time="at")
    counts = rows.window("1 minute").agg(n=tm.count())

    def files(name: str) -> Any:
        return tm.sinks.parquet(str(tmp_path / name))

    for name in ("a", "b", "c"):
        counts.to(files(name))
    assert app.names == ("query1", "query2", "query3")
    for wrong in (files("b"), [files("d"), files("d")], [tm.sinks.memory(), tm.sinks.json(str(tmp_path / "c"))]):
        with pytest.raises(DefinitionError, match="directory of its own"):
            counts.to(wrong)
    with pytest.raises(DefinitionError, match="two queries 'query2'"):
        counts.to(files("d"), "query2")
    assert app.names == ("query1", "query2", "query3")
    app._queries.forget("query2")
    counts.to(files("d"))
    assert set(app.names) == {"query1", "query2", "query3"}
    change = counts.to(files("b"), "again")
    with pytest.raises(DefinitionError, match="'query3' writes"):
        change.to(files("c"))
    app._queries.mute()
    counts.to(files("a"), "after")


def test_the_work_to_add_a_query_does_not_grow_with_those_that_there_are(tmp_path: Any, monkeypatch: Any) -> None:
    spark: Any = SimpleNamespace(createDataFrame=None)
    app = tm.App(spark, tmp_path / "checkpoint")
    rows = app.stream(tm.sources.memory(StructType([StructField("at", TimestampType())])), event_time="at")
    counts, looked = rows.window("1 minute").agg(n=tm.count()), list[object]()
    original = outlets.place
    monkeypatch.setattr(outlets, "place", lambda path, *others: looked.append(path) or original(path, *others))
    for number in range(20):
        before = len(looked)
        counts.to(tm.sinks.parquet(str(tmp_path / f"{number}")))
        assert len(looked) - before <= 2
