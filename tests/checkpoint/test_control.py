"""Requests through the files of a checkpoint: who asks and gets no answer, and what becomes of what nobody takes."""

from __future__ import annotations

import json
import threading

import pytest

from transom.checkpoint.control import Inbox, ask
from transom.checkpoint.store import Checkpoint
from transom.errors import CheckpointError, ControlError
from transom.model.time import ManualClock, SystemClock

SECOND = 1_000_000


def test_a_request_is_taken_once_and_answered(tmp_path):
    with Checkpoint.open(tmp_path / "c", ManualClock()) as checkpoint:
        inbox, answers = Inbox(checkpoint.path, SystemClock()), []
        asking = threading.Thread(
            target=lambda: answers.append(ask(tmp_path / "c", {"names": ["é"]}, SystemClock(), 600 * SECOND))
        )
        asking.start()
        taken = []
        while not taken:
            taken = inbox.take()
        assert inbox.take() == []
        assert taken[0].request["names"] == ["é"]
        inbox.answer(taken[0], {"fine": True})
        asking.join()
        assert answers == [{"fine": True}]
        assert list((checkpoint.path / "control").iterdir()) == []


def test_nobody_is_there(tmp_path):
    with pytest.raises(CheckpointError, match="There is no checkpoint"):
        ask(tmp_path / "c", {}, ManualClock(), SECOND)
    Checkpoint.open(tmp_path / "c", ManualClock()).close()
    with pytest.raises(ControlError, match="No application runs on the checkpoint"):
        ask(tmp_path / "c", {}, ManualClock(), SECOND)


def test_an_application_that_does_not_look(tmp_path):
    with (
        Checkpoint.open(tmp_path / "c", ManualClock()) as checkpoint,
        pytest.raises(ControlError, match=r"did not answer in time; nothing was changed\."),
    ):
        ask(checkpoint.path, {}, ManualClock(), SECOND)
    assert list((tmp_path / "c" / "control").iterdir()) == []


class Taking(ManualClock):
    """A clock during whose first wait the request is taken."""

    inbox: Inbox

    def wait(self, until, wake):
        self.inbox.take()
        super().wait(until, wake)


def test_an_application_that_takes_it_and_does_not_answer(tmp_path):
    clock = Taking(5)
    with Checkpoint.open(tmp_path / "c", clock) as checkpoint:
        clock.inbox = Inbox(checkpoint.path, clock)
        with pytest.raises(ControlError, match="did not answer in time, but it has the request"):
            ask(checkpoint.path, {}, clock, SECOND)


def test_what_is_old_or_damaged_is_removed(tmp_path):
    control = tmp_path / "c" / "control"
    with Checkpoint.open(tmp_path / "c", ManualClock()) as checkpoint:
        control.mkdir()
        (control / "1.request.json").write_text("{}")
        (control / "0.answer.json").write_text("{}")
        clock = ManualClock(1_000 * SECOND)
        inbox = Inbox(checkpoint.path, clock)
        assert list(control.iterdir()) == []
        (control / "2.request.json").write_text(json.dumps({"until": 999 * SECOND}))
        (control / "3.request.json").write_text("{")
        (control / "4.request.json").write_text("[]")
        (control / "5.request.json").write_text(json.dumps({"until": 1_001 * SECOND}))
        (asked,) = inbox.take()
        assert asked.id == "5"
        inbox.answer(asked, {})
        assert [path.name for path in control.iterdir()] == ["5.answer.json"]
        clock.advance(61 * SECOND)
        assert inbox.take() == []
        assert list(control.iterdir()) == []
