"""A test closes the databases that its sinks have opened, also where opening one failed."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from transom.sinks import databases


def is_open(connection: sqlite3.Connection) -> bool:
    try:
        connection.total_changes
    except sqlite3.ProgrammingError:
        return False
    return True


@pytest.fixture(autouse=True)
def sinks_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    opened = []
    really_connect = sqlite3.connect

    def noting(*args: Any, **options: Any) -> sqlite3.Connection:
        opened.append(really_connect(*args, **options))
        return opened[-1]

    monkeypatch.setattr(databases.sqlite3, "connect", noting)
    yield
    left = [connection for connection in opened if is_open(connection)]
    for connection in left:
        connection.close()
    assert not left, "a database is still open"


@pytest.fixture
def postgres_table() -> str:
    """The name of a table that no other test has."""
    return f"t{next(_numbers)}"


_numbers = itertools.count()
