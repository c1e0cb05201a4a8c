"""`transom plan APP` without Spark: what it prints of what an application answers, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.planning.profiles import profile, stream
from typer.testing import CliRunner

from transom.checkpoint.control import Asked
from transom.cli import expectations
from transom.cli.main import cli
from transom.engine.changes.remote import Remote
from transom.errors import DefinitionError
from transom.model.phases import Phase
from transom.model.time import ManualClock

PHASES = {str(phase): 0.01 for phase in Phase}


def answer(**values: Any) -> dict[str, Any]:
    one = {
        "rate": 1_000.0,
        "tuning": {"trigger": 200_000},
        "unknown": None,
        "measured": {"phases": {**PHASES, "map": 0.033}, "mean": 0.2, "results": 400, "quantile": 0.31},
        "expected": {"keeps_up": True, "phases": PHASES, "mean": 0.19, "quantile": 0.28, "form": "normal"},
        **values,
    }
    changes = [{"at": 1_750_000_000_000_000, "reason": "a test", "changes": ["slots 2 -> 3"]}]
    known = json.loads(profile(clicks=stream()).to_json())
    return {"slots": 2, "cores": 2, "streams": {"clicks": one}, "changes": changes, "profile": known}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("COLUMNS", "200")

    def invoke(told: dict[str, Any], *options: str) -> Any:
        monkeypatch.setattr(expectations, "ask", lambda *_: told)
        return CliRunner().invoke(cli, ["plan", str(tmp_path), *options])

    return invoke


def test_prediction_stands_beside_measurement_and_changes_below(run) -> None:
    shown = run(answer())
    assert shown.exit_code == 0, shown.output
    assert "clicks: expected" in shown.output
    row = next(line for line in shown.output.splitlines() if line.startswith("map "))
    assert row.split()[1:3] == ["10", "33"]
    assert "0.99 of the last 400 results within 310 ms; expected were 280 ms (normal)." in shown.output
    assert "slots 2 -> 3 (a test)" in shown.output
    assert json.loads(run(answer(), "--json").stdout)["streams"]["clicks"]["expected"]["mean"] == 0.19


@pytest.mark.parametrize(
    ("executors", "said"),
    [
        (None, "slots = 2; of each stream"),
        ({"there": 0, "asked": None, "most": 4}, "slots = 2; of each stream"),
        ({"there": 3, "asked": 3, "most": 4}, "slots = 2, executors = 3; of each stream"),
        ({"there": 2, "asked": 3, "most": 4}, "slots = 2, executors = 3 (2 there); of each stream"),
    ],
)
def test_executors_that_plans_ask_for_are_said(run, executors: dict[str, int | None] | None, said: str) -> None:
    assert said in run({**answer(), "executors": executors}).output


def test_what_is_not_known_yet_is_said(run) -> None:
    unknown = answer(expected=None, unknown="profile: of 'clicks' 3 cuts were measured, and 16 are needed.")
    assert "nothing is expected yet. profile: of 'clicks' 3 cuts were measured" in run(unknown).output
    refused = run(unknown, "--rate", "100", "--within", "2s")
    assert refused.exit_code == 1
    assert "does not know yet what it costs" in refused.output
    behind = answer(expected={"keeps_up": False, "phases": {}, "mean": None, "quantile": None, "form": "normal"})
    assert "it does not keep up" in run(behind).output


def test_a_plan_is_made_by_the_profile_of_what_runs(run) -> None:
    shown = run(answer(), "--rate", "2000", "--within", "5s", "--quantile", "0.9")
    assert shown.exit_code == 0, shown.output
    assert "within 5 s: 1 core suffices." in shown.output


def test_no_application_is_said_with_a_remedy(tmp_path: Path) -> None:
    shown = CliRunner().invoke(cli, ["plan", str(tmp_path / "none")])
    assert shown.exit_code == 1
    assert "There is no file or directory" in shown.output
    job = tmp_path / "job.toml"
    job.write_text('checkpoint = "nowhere"\n[source]\nfiles = "in/*.json"\n')
    shown = CliRunner().invoke(cli, ["plan", str(job), "--rate", "5"])
    assert shown.exit_code == 1
    assert "there is no profile job.profile.json" in shown.output
    assert f"transom profile {job}" in shown.output.replace("\n", "")


class _Inbox:
    def __init__(self) -> None:
        self.answers: list[Any] = []

    def take(self) -> list[Asked]:
        return [Asked("1", {"operation": "plan", "names": []})]

    def answer(self, asked: Asked, answer: Any) -> None:
        self.answers.append(answer)


def test_the_application_answers_at_once_and_errors_are_answers() -> None:
    def broken() -> dict[str, Any]:
        raise DefinitionError("It cannot.", "Do something else.")

    for tell, told in ((lambda: {"slots": 2}, {"slots": 2}), (broken, None)):
        inbox = _Inbox()
        Remote(inbox, ManualClock(0), lambda _: [], tell={"plan": tell}).look()  # type: ignore[arg-type]
        assert inbox.answers == [told or {"error": {"message": "It cannot.", "remedy": "Do something else."}}]
