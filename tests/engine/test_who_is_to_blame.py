"""What fails while queries are compiled: theirs if they may be to blame, else the end of the run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from transom.engine.changes.membership import propose
from transom.engine.changes.records import KnownQuery
from transom.engine.loop.unstartable import unstartable
from transom.errors import DefinitionError, SessionError


def raising(error: Exception) -> Any:
    def compiles(_: Any) -> None:
        raise error

    return compiles


def test_queries_that_cannot_start_any_more() -> None:
    definition: Any = SimpleNamespace(queries=[SimpleNamespace(name="q"), SimpleNamespace(name="r")])
    known = {"q": KnownQuery("s", {}, failure="why"), "r": KnownQuery("s", {})}
    assert unstartable(definition, known, raising(ValueError("no"))) == {"q": "ValueError: no"}
    with pytest.raises(SessionError, match="Compiling query 'q' failed, as memory ran out"):
        unstartable(definition, known, raising(MemoryError()))


def test_a_change_that_cannot_be_compiled() -> None:
    def stream(error: Exception) -> Any:
        state = SimpleNamespace(running=list)
        return SimpleNamespace(state=state, compiler=SimpleNamespace(shape=raising(error)))

    with pytest.raises(DefinitionError, match=r"query 'q': its transformations fail: ValueError: no.*Correct its map"):
        propose(stream(ValueError("no")), added=["q"])
    with pytest.raises(SessionError, match="Compiling query 'q' failed, as memory ran out"):
        propose(stream(MemoryError()), added=["q"])
