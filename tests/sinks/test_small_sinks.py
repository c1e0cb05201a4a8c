from __future__ import annotations

import io
import threading
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from transom.errors import DefinitionError
from transom.sinks.base import WindowResults
from transom.sinks.calling import foreach
from transom.sinks.inmemory import memory
from transom.sinks.printing import console


def results(query: str, cut: int, *values: int) -> WindowResults:
    return WindowResults(query, cut, pa.table({"n": pa.array(values, pa.int64())}))


def test_memory_replaces_recovers_and_orders_by_cut() -> None:
    sink = memory()
    sink.open("q")
    assert sink.to_table("q") is None
    sink.write(results("q", 10, 5))
    sink.write(results("q", 2, 1))
    sink.write(results("other", 3, 9))
    sink.write(results("q", 2, 2, 3))
    assert sink.rows("q") == [{"n": 2}, {"n": 3}, {"n": 5}]
    assert list(sink.tables) == [("other", 3), ("q", 2), ("q", 10)]
    sink.recover("q", 10)
    assert sink.rows("q") == [{"n": 2}, {"n": 3}]
    assert sink.rows("other") == [{"n": 9}]


def test_memory_may_be_read_while_it_is_written() -> None:
    sink = memory()
    threads = [
        threading.Thread(target=lambda k=k: [sink.write(results(f"q{k}", i, i)) for i in range(200)]) for k in range(4)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        sink.rows("q0")
    assert [row["n"] for row in sink.rows("q3")] == list(range(200))


def test_foreach_hands_over_the_results() -> None:
    seen: list[WindowResults] = []
    sink = foreach(seen.append)
    sink.open("q")
    one = results("q", 1, 1)
    sink.write(one)
    assert seen == [one]
    assert "append" in sink.describe()
    with pytest.raises(DefinitionError, match="no function"):
        foreach("x")  # type: ignore[arg-type]


def test_console_prints_an_aligned_table() -> None:
    stream = io.StringIO()
    edge = datetime(2026, 1, 1, tzinfo=UTC)
    table = pa.table(
        {
            "window_end": pa.array([edge] * 3, pa.timestamp("us", "UTC")),
            "zone": ["A", None, "long"],
            "fare": [1.5, float("nan"), 1234567.0],
        }
    )
    console(limit=2, stream=stream).write(WindowResults("fares", 4, table))
    assert stream.getvalue() == (
        "fares (cut 4): 3 rows\n"
        "  window_end            zone  fare\n"
        "  2026-01-01 00:00:00Z  A      1.5\n"
        "  2026-01-01 00:00:00Z  null   nan\n"
        "  and 1 more\n"
    )
    with pytest.raises(DefinitionError):
        console(limit=-1)


def test_console_prints_results_in_one_piece() -> None:
    """Other queries print from threads of their own."""
    pieces: list[str] = []

    class Pieces(io.StringIO):
        def write(self, text: str, /) -> int:
            pieces.append(text)
            return len(text)

    console(stream=Pieces()).write(WindowResults("q", 1, pa.table({"n": [1]})))
    assert [piece for piece in pieces if piece] == ["q (cut 1): 1 row\n  n\n  1\n"]
