"""The queries that a checkpoint knows: those that left are known by name for a while, however many come and go."""

from __future__ import annotations

import json

import pytest

from transom.engine.changes.records import MOST_GONE, Register, SetChange, fate
from transom.model.time import MIN_TIME

DEFINITION = {"rows": "trips", "results": {}}
JOB = {"lasting": {"stream": "s", **DEFINITION}}


def after_many(removed: bool) -> Register:
    """Return the register after a query of the job was removed, and three times as many others came and left."""
    register = Register(job=JOB.keys())
    for number, name in enumerate(["lasting", *(f"q{each}" for each in range(3 * MOST_GONE))]):
        register.take(SetChange("s", {name: MIN_TIME}, {name: DEFINITION}).to_json())
        register.take({"type": "cut", "stream": "s", "cut": {"number": number}})
        ends = {"removed" if removed or name == "lasting" else "left": (name,)}
        register.take(SetChange("s", **ends).to_json())
    return register


@pytest.mark.parametrize("removed", [True, False])
def test_queries_that_come_and_go_do_not_pile_up(removed: bool) -> None:
    register = after_many(removed)
    assert len(register.gone) == MOST_GONE
    assert len(json.dumps(register.gone)) < 200 * MOST_GONE
    saved = json.loads(json.dumps({"gone": register.gone, "forgotten": register.forgotten}))
    for known in (register, Register.of({**saved, "streams": {}})):
        assert known.last_cut(f"q{3 * MOST_GONE - 1}") == 3 * MOST_GONE
        assert all(known.last_cut(f"q{each}") > each for each in range(3 * MOST_GONE)), "results have numbers of cuts"
    assert fate(register, JOB).dismissed == ("lasting",), "the job still has what a command removed"


def test_a_query_that_is_known_goes_on_with_the_cuts_of_its_stream() -> None:
    register = after_many(removed=True)
    register.take(SetChange("s", {"q0": MIN_TIME}, {"q0": DEFINITION}).to_json())
    assert register.forgotten > 0
    assert register.last_cut("q0") == 0
