"""Sources of streams that leave at ticks are not looked at where nothing could follow from it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from transom.engine.loop.starting import Starter
from transom.engine.streams.sending import Leaving
from transom.widearea.ticks import Ticks

SECOND = 1_000_000


def starter(stream: Any, started: list[int | None]) -> Starter:
    """Return what starts the cuts of one stream."""
    nothing = SimpleNamespace(looked=lambda *given: None, waits=lambda *given: None)
    scheduler = SimpleNamespace(
        max_rows=lambda now: {"rows": 10}, taking=lambda *given: None, looked=lambda *given: None, once=False
    )
    cuts = SimpleNamespace(busy=frozenset(), started_at=lambda name: started[0], took=lambda name: 0)
    parts: dict[str, Any] = {
        "streams": {"rows": stream},
        "scheduler": scheduler,
        "cuts": cuts,
        "changer": SimpleNamespace(held=frozenset()),
        "backpressure": SimpleNamespace(hold_up=lambda each: False),
        "snapshots": SimpleNamespace(waits=False),
        "metrics": nothing,
        "phases": nothing,
    }
    others = dict.fromkeys(("delivery", "quarantine", "journal", "clock"))
    return Starter(**parts, **others)


def test_it_is_looked_once_after_a_cut_and_then_at_the_next_tick() -> None:
    looks: list[int] = []
    seen = SimpleNamespace(looked_from=None, more=False, away=None)
    stream = SimpleNamespace(name="rows", leaves=True, halted=None, seen=seen, closes_all=False)
    stream.state = SimpleNamespace(runs=True, offset=0)
    stream.definition = SimpleNamespace(leaving=Leaving(("f",), Ticks(2 * SECOND)))

    def next_cut(wall: int, *given: object) -> None:
        looks.append(wall)
        seen.looked_from = stream.state.offset

    stream.next_cut = next_cut
    started: list[int | None] = [None]
    starts = starter(stream, started)

    def look(now: int) -> int:
        before = len(looks)
        starts._possible_cuts(now, now)
        return len(looks) - before

    assert [look(at * SECOND // 4) for at in range(4)] == [1] * 4, "as long as nothing was found"
    started[0], stream.state.offset = SECOND, 5
    assert [look(at * SECOND // 4) for at in range(5, 10)] == [1, 0, 0, 1, 1], "it says who is idle after the cut"
    started[0], stream.state.offset = 3 * SECOND, 6
    seen.looked_from, seen.more = 6, True
    assert look(3 * SECOND + 1) == 1, "where more waits, a cut begins at once"
