"""Databases that tests leave open end with them, as they would with a process; Python 3.13 warns of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from transom.sinks.databases import SqliteSink


@pytest.fixture(autouse=True)
def sinks_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    opened = []
    really_open = SqliteSink.open

    def noting(sink: SqliteSink, query: str) -> None:
        opened.append(sink)
        really_open(sink, query)

    monkeypatch.setattr(SqliteSink, "open", noting)
    yield
    for sink in opened:
        sink.close()
