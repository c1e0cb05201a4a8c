"""Who is left out of windows as nothing is heard of it, and which results lack whom."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import transom as tm
from transom.engine.state.absence import (
    Heard,
    LeftOut,
    missing_from_json,
    missing_now,
    missing_to_json,
    partitions_out,
    with_missing,
)
from transom.engine.state.watermarks import WatermarkState
from transom.engine.streams.cuts import LoggedCut
from transom.errors import DefinitionError
from transom.model.time import MIN_TIME

S = 1_000_000
POLICY = tm.watermark("1 second", idle_after="20 seconds", absent_after="1 minute")
OWNERS = ("north", "south", "south")


def now(newest, silence, before=None, idle=(None, None, None), waited=90, value=MIN_TIME):
    heard = Heard(OWNERS, {site: length * S for site, length in silence.items()}, waited * S)
    watermark = WatermarkState(tuple(None if t is None else t * S for t in newest), value=value)
    return missing_now(POLICY, watermark, idle, heard, before or {})


@pytest.mark.parametrize(
    ("newest", "silence", "expected"),
    [
        ((50, 50, 50), {"north": 1, "south": 59}, {}),
        ((50, 40, 30), {"north": 1, "south": 60}, {"south": LeftOut(29 * S, True)}),
        ((50, 40, None), {"north": 1, "south": 60}, {"south": LeftOut(MIN_TIME, True)}),
        ((50,), {"north": 1}, {"south": LeftOut(MIN_TIME, True)}),  # never heard
        ((50, 1, 2), {}, {"north": LeftOut(49 * S, True), "south": LeftOut(0, True)}),
    ],
)
def test_who_is_silent_for_too_long_is_left_out(newest, silence, expected):
    assert now(newest, silence) == expected


def test_who_was_never_heard_has_as_long_as_anybody():
    assert now((50,), {"north": 1}, waited=59) == {}


def test_who_was_left_out_stays_so_in_the_next_run_until_it_is_heard():
    before = {"south": LeftOut(29 * S, True)}
    assert now((50, 40, 30), {"north": 0}, before, waited=1) == before
    assert now((50, 40, 30), {"north": 0, "south": 0}, before, waited=1, value=49 * S) == {
        "south": LeftOut(29 * S, False)
    }


def test_who_is_back_is_behind_until_the_watermark_does_not_wait_for_it():
    behind = {"south": LeftOut(29 * S, False)}
    heard = {"north": 0, "south": 0}
    assert now((90, 50, 60), heard, behind, value=50 * S) == {"south": LeftOut(49 * S, False)}
    assert now((90, 51, 60), heard, behind, value=50 * S) == {}
    idle = (None, 20 * S, None)  # the first partition of south is empty, as it says
    assert now((90, 10, 60), heard, behind, idle, value=50 * S) == {}


def test_without_absent_after_nobody_is_left_out():
    heard = Heard(OWNERS, {}, 10**15)
    assert missing_now(tm.watermark(0), WatermarkState((None,) * 3), (None,) * 3, heard, {}) == {}


def test_the_watermark_goes_on_without_partitions():
    state = WatermarkState((50 * S, 10 * S, None))
    assert state.advanced(POLICY, (None,) * 3).value == MIN_TIME
    out = partitions_out(OWNERS, {"south": LeftOut(0, True), "north": LeftOut(0, False)})
    assert out == {1, 2}
    assert state.advanced(POLICY, (None,) * 3, out).value == 49 * S
    assert state.advanced(POLICY, (None,) * 3, {0, 1, 2}) == state  # nobody is left to go by
    assert WatermarkState((50 * S,)).advanced(POLICY, (), {1, 2}).value == 49 * S  # before others were known


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 100)), min_size=3, max_size=3),
    st.sets(st.integers(0, 2)),
    st.integers(0, 100),
)
def test_leaving_out_never_moves_the_watermark_back_or_beyond_those_who_are_there(newest, out, value):
    state = WatermarkState(tuple(newest), value=value)
    policy = tm.watermark(0, max_ahead=None)
    after = state.advanced(policy, (None,) * 3, out).value
    there = [newest[index] for index in range(3) if index not in out]
    bound = min((-1 if t is None else t for t in there), default=-1)
    assert after == max(value, bound)


def test_results_name_the_sites_that_had_not_come_to_the_end_of_their_window():
    ends = pa.array([10 * S, 20 * S, 30 * S]).cast(pa.timestamp("us", "UTC"))
    table = pa.table({"window_end": ends, "n": [1, 2, 3]})
    missing = {"south": LeftOut(10 * S, True), "east": LeftOut(20 * S, False)}
    assert with_missing(table, missing).column("missing").to_pylist() == [[], ["south"], ["east", "south"]]
    assert with_missing(table, {}).column("missing").to_pylist() == [[], [], []]
    assert with_missing(table.slice(0, 0), missing).column("missing").type == pa.list_(pa.string())


def test_it_stands_in_the_log_with_the_cut():
    missing = {"south": LeftOut(10, True), "east": LeftOut(MIN_TIME, False)}
    assert missing_from_json(missing_to_json(missing)) == missing
    cut = LoggedCut(1, 0, 2, 5, 7, 7, None, 9, missing=missing)
    assert LoggedCut.from_json(cut.to_json()) == cut
    assert "missing" not in LoggedCut(1, 0, 2, 5, 7, 7, None, 9).to_json()


def test_a_watermark_of_the_source_does_not_say_how_far_each_site_is():
    with pytest.raises(DefinitionError, match="absent_after"):
        tm.watermark(0, from_source=True, absent_after="1 minute")
