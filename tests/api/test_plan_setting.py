"""The setting `plan`: what it needs, what it does not go with, and profiles that are not of this application."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from transom.api.planning import profile_to_begin
from transom.errors import DefinitionError
from transom.planning.profile import Equipment
from transom.settings import Settings

sys.path.insert(0, str(Path(__file__).parent.parent / "planning"))
from profiles import profile


def session(cores: int = 2, master: str = "spark://head:7077", **conf: str) -> Any:
    context = SimpleNamespace(defaultParallelism=cores, getConf=lambda: conf, master=master)
    return SimpleNamespace(sparkContext=context, version="4.0.0", _jsparkSession=None)


def test_it_is_refused_on_connect() -> None:
    with pytest.raises(DefinitionError, match="plan: a Spark Connect session does not tell"):
        profile_to_begin("auto", SimpleNamespace(), ["s"])  # type: ignore[arg-type]


def test_without_a_plan_nothing_is_asked_for() -> None:
    dynamic = {"spark.dynamicAllocation.enabled": "true"}
    assert profile_to_begin("off", session(**dynamic), ["s"]) is None
    assert profile_to_begin("auto", session(), ["s"]) is None


def test_it_is_refused_beside_dynamic_allocation() -> None:
    with pytest.raises(DefinitionError, match=r"plan: Spark's dynamic allocation sets the number of executors, too"):
        profile_to_begin("auto", session(**{"spark.dynamicAllocation.enabled": "true"}), ["s"])


def test_in_local_mode_nothing_is_allocated_whatever_the_settings_say() -> None:
    local = session(master="local[2]", **{"spark.dynamicAllocation.enabled": "true"})
    assert profile_to_begin("auto", local, ["s"]) is None


def test_a_profile_of_this_application_is_begun_with(tmp_path: Path) -> None:
    path = tmp_path / "made.json"
    path.write_text(profile().to_json())
    assert profile_to_begin(str(path), session(), ["s"]) == profile()


@pytest.mark.parametrize(
    "cores, versions, streams, named",
    [
        (4, {}, ["s"], "2 cores, here 4"),
        (2, {"Spark": "3.5.0"}, ["s"], "Spark 3.5.0, here 4.0.0"),
        (2, {}, ["s", "t"], "it has no stream 't'"),
    ],
)
def test_a_profile_of_something_else_is_refused_with_what_differs(
    cores: int, versions: dict[str, str], streams: list[str], named: str, tmp_path: Path
) -> None:
    path = tmp_path / "made.json"
    path.write_text(replace(profile(), equipment=Equipment(2, True, 0.0, versions)).to_json())
    with pytest.raises(DefinitionError) as refused:
        profile_to_begin(str(path), session(cores), streams)
    assert named in str(refused.value)
    assert "made.json was made elsewhere, or of another job" in str(refused.value)


@pytest.mark.parametrize("text", [None, "", "{}", json.dumps({"format": 1}), "\x00"])
def test_what_is_no_profile_is_refused(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "made.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DefinitionError, match=r"made\.json"):
        profile_to_begin(str(path), session(), ["s"])


@pytest.mark.parametrize("value", [1, None, True])
def test_a_plan_is_a_name_or_a_path(value: Any) -> None:
    with pytest.raises(DefinitionError, match="settings: plan is"):
        Settings.of({"plan": value})


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"max_executors": 4}, "only plans ask for executors"),
        ({"max_executors": 4, "plan": "off"}, "only plans ask for executors"),
        ({"max_executors": 0, "plan": "auto"}, "max_executors is 0"),
        ({"max_executors": 1_001, "plan": "auto"}, "whole number from 1 to 1,000"),
        ({"max_executors": 2.5, "plan": "auto"}, "max_executors is 2.5"),
        ({"max_executors": "4", "plan": "auto"}, "max_executors is '4'"),
        ({"max_executors": True, "plan": "auto"}, "max_executors is True"),
    ],
)
def test_what_is_no_number_of_executors_is_refused(values: dict[str, Any], named: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        Settings.of(values)
    assert named in str(refused.value)


def test_executors_are_asked_for_with_a_profile_too() -> None:
    assert Settings.of({"max_executors": 4, "plan": "made.json"}).max_executors == 4
    assert Settings.of({"plan": "auto"}).max_executors is None


def test_where_executors_come_and_go_a_profile_may_be_of_another_number_of_cores(tmp_path: Path) -> None:
    path = tmp_path / "made.json"
    path.write_text(profile().to_json())
    assert profile_to_begin(str(path), session(cores=6), ["s"], any_cores=True) == profile()
