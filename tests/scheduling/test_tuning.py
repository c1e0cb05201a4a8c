"""The values that can be set while an application runs, and those that are measured."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.errors import DefinitionError
from transom.model.phases import CutPhases, Phase, StageTasks
from transom.model.tuning import StreamTuning, Tuning

numbers = st.none() | st.integers(1, 100_000)
stream_tunings = st.builds(StreamTuning, st.integers(0, 10**9), numbers, numbers, numbers)
streams = st.dictionaries(st.text(max_size=3), stream_tunings, max_size=4)
tunings = st.builds(Tuning, st.integers(1, 50), streams, st.none() | st.integers(1, 1_000))


@given(tunings)
def test_json_both_ways(tuning: Tuning) -> None:
    again = Tuning.from_json(json.loads(json.dumps(tuning.to_json())))
    assert again == tuning
    assert hash(again) == hash(tuning)


@given(tunings, tunings)
def test_changes_tell_whether_two_are_the_same(tuning: Tuning, before: Tuning) -> None:
    assert not tuning.changes(tuning)
    whole = Tuning(tuning.slots, {**before.streams, **tuning.streams}, tuning.executors)
    same_streams = all(before.streams.get(name, each) == each for name, each in whole.streams.items())
    assert bool(whole.changes(before)) == (
        not same_streams or tuning.slots != before.slots or tuning.executors != before.executors
    )
    assert Tuning(1, {}, None).over(before).executors == before.executors
    assert tuning.only(before.streams).over(before).streams.keys() == before.streams.keys()


@given(stream_tunings, st.integers(1, 10**6))
def test_triggers_become_whole_numbers_of_looks(tuning: StreamTuning, poll: int) -> None:
    after = tuning.on_looks(poll)
    assert after.trigger % poll == 0
    assert 0 <= after.trigger - tuning.trigger < poll
    assert after.on_looks(poll) == after


@given(st.integers(1, 10**7), st.integers(1, 10**7))
def test_rows_per_task_bounds_the_tasks(rows: int, per_task: int) -> None:
    tasks = StreamTuning(rows_per_task=per_task).tasks(rows)
    assert tasks is not None
    assert (tasks - 1) * per_task < rows <= tasks * per_task
    assert StreamTuning().tasks(rows) == (1 if rows <= 50_000 else None)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"slots": 0}, "slots is 0"),
        ({"slots": True}, "slots is True"),
        ({"slots": 1e9}, "slots is 1000000000.0"),
        ({"slot": 2}, "there is no 'slot'"),
        ({"executors": 0}, "executors is 0"),
        ({"executors": 1_001}, "executors is 1001"),
        ({"executors": True}, "executors is True"),
        ({"streams": [1]}, "streams is [1]"),
        ({"streams": {"a": 3}}, "3 is no object"),
        ({"streams": {"a": {"trigger": -1}}}, "trigger is -1"),
        ({"streams": {"a": {"trigger": 0.2}}}, "trigger is 0.2"),
        ({"streams": {"a": {"rows_per_cut": 0}}}, "rows_per_cut is 0"),
        ({"streams": {"a": {"rows_per_task": float("nan")}}}, "rows_per_task is nan"),
        ({"streams": {"a": {"partitions": 1 << 40}}}, "partitions is"),
        ({"streams": {"a": {"partition": 1}}}, "there is no 'partition'"),
        (None, "None is no object"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(value: Any, said: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        Tuning.from_json(value)
    assert said in str(raised.value)


def test_a_stream_that_is_not_there_is_refused() -> None:
    with pytest.raises(DefinitionError, match="no stream 'click'"):
        Tuning(2, {"click": StreamTuning()}).over(Tuning(2, {"clicks": StreamTuning()}))


def test_phases_as_json_both_ways() -> None:
    stage = StageTasks(2, 0.3, 0.01, 0.5, 0.4, 1_000, 5_000, 300)
    phases = CutPhases(
        "a", 3, 1_000, {Phase.LOOK: 0.02, Phase.MAP: 0.3, Phase.COMMIT: 0.01}, 0.4, 2, (stage,), 20, 3, 1.5
    )
    assert CutPhases.from_json(json.loads(json.dumps(phases.to_json()))) == phases
    assert phases.total == pytest.approx(0.43)
