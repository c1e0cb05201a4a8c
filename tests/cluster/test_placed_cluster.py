"""Placed partitions on several executors: where tasks run, what is exchanged, what moves."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.slow


def test_questions_and_derived_datasets_exchange_nothing_and_run_where_their_partitions_are(
    together: dict[str, Any],
) -> None:
    assert together["plain"], "equal to Spark's"
    assert (together["executors"], together["processes"]) == (3, 3)
    assert together["alike"], "corresponding partitions of all datasets are at the same executor"
    assert together["shuffled"] == 0
    assert together["stages"].keys() == {"shuffle", "PROCESS_LOCAL"}
    assert together["stages"]["shuffle"] == 0


def test_what_a_killed_executor_held_comes_back_from_its_frames_and_from_a_checkpoint(together: dict[str, Any]) -> None:
    assert together["lost"] >= 12
    assert together["same"]
    assert together["homes"]
    assert together["written"] >= 12, "at least one dataset was checkpointed"
    assert together["left"] == 0
    assert together["seconds"] < 30


def test_tasks_run_where_their_partitions_are_and_exchange_nothing(seen: dict[str, Any]) -> None:
    found = seen["placement"]
    assert found["found"] == found["frame"] == found["plain"] > 0
    assert (found["executors"], found["processes"]) == (3, 3)
    assert found["alike"], "corresponding partitions of all datasets are at the same executor"
    assert found["local"]
    assert found["stages"] == {"shuffle": 0, "PROCESS_LOCAL": 12}
    wanted = [[f"ExecutorCacheTaskLocation(127.0.0.1, {home})"] for home in found["homes"]]
    assert [[one.replace("executor_127.0.0.1_", "") for one in each] for each in found["preferred"]] in (
        [[home] for home in found["homes"]],
        wanted,
    )


def test_partitions_move_to_other_executors(seen: dict[str, Any]) -> None:
    assert seen["moving"] == {"alike": True, "homes": True, "left": 0, "there": 12}


def test_a_killed_executor_takes_no_row_with_it(seen: dict[str, Any]) -> None:
    found = seen["killed"]
    assert found["same"]
    assert found["homes"]
    assert (found["rows"], found["lost"]) == (60_000, 12)


def test_a_group_that_many_ask_for_is_copied_and_copies_spare_computing_and_go_when_cold(seen: dict[str, Any]) -> None:
    found = seen["copies"]
    assert found["idle"], "nothing counts as busy before anything was asked"
    assert all(found["equal"])
    assert found["executors"][0] == 1
    assert found["executors"][1] >= 2, "questions spread over the copies"
    assert all(found["copied"])
    assert found["bytes"], "the collection counts them"
    assert found["elsewhere"]
    assert found["home"], "the killed executor is no home any more"
    assert found["computed"] == 0, "what it had is taken from the copies"
    assert found["cold"] == [True, 0]
    assert found["deleted"]


def test_while_executors_are_killed_every_question_is_answered_and_right(kills: dict[str, Any]) -> None:
    found = kills["collection_kills"]
    assert found["kills"] >= 12
    assert found["wrong"] == []
    assert found["answers"] >= 20
