"""The queries of an application, from any thread."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

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
