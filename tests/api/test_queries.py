"""The queries of an application, from any thread."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from pyspark.sql.types import StructField, StructType, TimestampType

import transom as tm
from transom.api.queries import Queries
from transom.engine.changes.requests import Change, ChangeRequest


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
