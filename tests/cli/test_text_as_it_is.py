"""Names and messages of a user's own are shown as they are, brackets and all, and leave the terminal alone."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from transom.checkpoint.store import Checkpoint
from transom.cli import standing
from transom.cli.main import cli
from transom.engine.changes.records import SetChange
from transom.model.time import MIN_TIME, SystemClock

NAME, WHY = "fares of m[key]", "there is no :key: in [/tmp/x]\x1b[2J"
SHOWN = WHY.replace("\x1b", "\\x1b")


@pytest.fixture
def invoke(monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    return lambda *arguments: CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
def checkpoint(tmp_path):
    with Checkpoint.open(tmp_path, SystemClock()) as open_one:
        added = SetChange("trips", {NAME: MIN_TIME, "gone[0]": MIN_TIME}, {NAME: {}, "gone[0]": {}})
        open_one.append(added.to_json(), sync=True)
        open_one.append(SetChange("trips", removed=("gone[0]",)).to_json(), sync=True)
        open_one.append({"type": "failed", "query": NAME, "error": WHY}, sync=True)
    return tmp_path


def test_queries(invoke, checkpoint):
    shown = invoke("queries", checkpoint)
    assert shown.exit_code == 0, shown.exception
    assert NAME in shown.output
    assert f"failed: {SHOWN}" in shown.output
    assert "gone[0]" in shown.output


def test_checkpoint(invoke, checkpoint):
    shown = invoke("checkpoint", checkpoint)
    assert shown.exit_code == 0, shown.exception
    assert json.dumps(WHY) in shown.output


def test_no_dead_letters_in_a_directory_with_brackets(invoke, tmp_path):
    directory = tmp_path / "[of] a"
    directory.mkdir()
    assert str(directory) in invoke("dead-letters", directory).output


def test_sites(invoke, checkpoint, monkeypatch):
    monkeypatch.setattr(standing, "load_site", lambda path: SimpleNamespace(checkpoint=checkpoint))
    link = {"to": "home[a]", "open": True, "queued_bytes": 0}
    leaving = {
        "flow": "f[b]", "queries": [NAME], "tree": [], "destination": "home[a]", "arrived_cut": 1, "committed_cut": 2,
        "interval_micros": 1_000_000, "outbox_bytes": 0, "refused": WHY, "latency_seconds": 0, "limit_micros": None,
    }  # fmt: skip
    status = {"site": "north[c]", "at": 0, "links": [link], "leaving": [leaving], "arriving": []}
    status |= {"coordinator": "no answer from [/c]", "plan": None, "waits": ["[d] has not said so"]}
    (checkpoint / "sites").mkdir()
    (checkpoint / "sites" / "status.json").write_text(json.dumps(status))
    shown = invoke("sites", "north.toml")
    assert shown.exit_code == 0, shown.exception
    assert all(text in shown.output for text in ("north[c]", "home[a]", "f[b]", NAME, SHOWN, "[/c]"))
    assert "the end of its run waits: [d] has not said so" in shown.output
