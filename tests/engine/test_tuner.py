"""What a restart makes of what was tuned: it goes on with it, but the settings come first where people gave them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from transom.engine.control.scheduler import tuning_of
from transom.engine.loop.logrecords import Tuned
from transom.engine.loop.tuning import Tuner
from transom.engine.streams.cuts import JobOptions
from transom.model.time import ManualClock
from transom.model.tuning import StreamTuning, Tuning
from transom.settings import Settings

FOUND = Tuning(4, {"s": StreamTuning(500_000, 1_000_000, 2_000, 2)})


class Run:
    """A run that begins with what an earlier one had tuned."""

    def __init__(self, *changes: Tuned, **given: Any) -> None:
        settings = Settings.of(given)
        self.notes: list[str] = []
        self.stream = SimpleNamespace(session=SimpleNamespace(_jsparkSession=None), options=JobOptions())
        scheduler = SimpleNamespace(tuning=tuning_of(settings, ["s"]), slots=0)
        scheduler.tune = lambda tuning: scheduler.__dict__.update(tuning=tuning, slots=tuning.slots)
        journal, runner = SimpleNamespace(note=self.notes.append), SimpleNamespace(allow=lambda slots: None)
        parts: Any = ({"s": self.stream}, settings, journal, scheduler, runner, ManualClock())
        self.tuner = Tuner(*parts, given.keys())
        self.tuner.begin(changes)

    @property
    def tuning(self) -> Tuning:
        return self.tuner.tuning


def tuned(planned: bool, **settings: Any) -> Tuned:
    return Tuned(FOUND, tuning_of(Settings.of(settings), ["s"]), "a reason", 7, planned)


@pytest.mark.parametrize("planned", [False, True])
def test_it_is_gone_on_with(planned: bool) -> None:
    run = Run(tuned(planned), plan="auto")
    assert run.tuning == FOUND
    assert run.stream.options.tuning == FOUND.of("s")
    assert run.notes == []
    again = Tuned.from_json(tuned(planned).to_json())
    assert again == tuned(planned)


def test_a_record_of_an_older_transom_is_of_no_plan() -> None:
    record = tuned(True).to_json()
    del record["planned"]
    again = Tuned.from_json(record)
    assert again is not None
    assert not again.planned


def test_without_a_plan_the_settings_hold_again() -> None:
    run = Run(tuned(True))
    assert run.tuning == tuning_of(Settings(), ["s"])
    assert "does not plan any more" in run.notes[0]
    assert run.tuner.changes[-1].tuning == run.tuning
    assert Run(tuned(False)).tuning == FOUND


@pytest.mark.parametrize("planned", [False, True])
def test_what_the_user_has_given_since_then_holds_though_it_is_the_default(planned: bool) -> None:
    run = Run(tuned(planned), plan="auto", trigger="200 ms", slots=2)
    expected = Tuning(2, {"s": StreamTuning(200_000, 1_000_000, 2_000, 2)})
    assert run.tuning == (expected if planned else FOUND)


def test_with_other_settings_all_is_set_anew() -> None:
    run = Run(tuned(True, trigger="1 second"), plan="auto")
    assert run.tuning == tuning_of(Settings(), ["s"])
    assert "the settings are others" in run.notes[0]


class Asked:
    """Executors that keep what they are asked for."""

    def __init__(self) -> None:
        self.asked, self.requests = 2, list[int]()

    def ask(self, total: int) -> None:
        self.asked = total
        self.requests.append(total)


def test_executors_are_asked_for_after_the_change_was_logged_and_told() -> None:
    run, logged = Run(plan="auto", max_executors=4), list[Any]()
    executors: Any = Asked()
    run.tuner.executors = executors
    journal: Any = run.tuner.journal
    journal.log = lambda record, sync: logged.append((record, list(executors.requests)))
    journal.step = lambda name: None
    assert run.tuner.change(Tuning(2, {}, executors=4), "as it needs them", planned=True)
    ((record, before),) = logged
    assert before == []
    assert record["tuning"]["executors"] == 4
    assert executors.requests == [4]
    assert run.notes == ["Tuned, as it needs them: executors 2 -> 4."]
    assert not run.tuner.change(Tuning(2, {}, executors=4), "as it needs them", planned=True)
    assert run.tuner.change(Tuning(3, {}), "another thing")
    assert run.tuning.executors == 4
    assert run.tuner.tuned is not None
    assert Tuned.from_json(run.tuner.tuned.to_json()) == run.tuner.tuned


def test_a_restart_begins_with_the_executors_that_it_is_given() -> None:
    before = Tuned(replace(FOUND, executors=4), tuning_of(Settings(), ["s"]), "a reason", 7, planned=True)
    run = Run(before, plan="auto", max_executors=4)
    assert run.tuning == FOUND
    assert run.notes == []
