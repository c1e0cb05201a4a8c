"""What a run that is to end waits for, and what people hear of it."""

from __future__ import annotations

import pytest

from transom.sites.waiting import ALONE, LONG, Passing, Telling, patience
from transom.widearea.carriers import Carrier
from transom.widearea.messages import Opened
from transom.widearea.parcels import Ack, Parcel, Part, Place, Standing
from transom.widearea.routes import Ends, Routes

FLOWS = {"f": Ends(("a", "b"), "home"), "g": Ends(("a", "b"), "b")}


def relaying() -> Carrier:
    """Return what a site is between, which has passed on a parcel of each flow."""
    made = Carrier("a", "boot", Routes("a", 1_000, FLOWS), lambda flow, bodies: b"", {"home": 1e6, "b": 1e6})
    made.opened("home", Opened("1"), 0)
    for flow in FLOWS:
        made._do(made.relay.received(Parcel(flow, 1, (Part("b", "i", 1, 0, 1, 1),), b"x"), "b", None, 0), 0)
    return made


def test_what_passes_is_waited_for_while_its_destination_is_there() -> None:
    here, passing = relaying(), Passing()
    (text,) = passing.look(here, True, 0)
    assert text == "home has not said what became of parcels of 'f' that pass here"
    here.heard("home", Ack(Standing("f", "b", "i", Place(1, 1, 1))), 0)
    assert passing.look(here, True, 0) == []
    here.opened("b", Opened("1"), 0)
    assert "'g'" in passing.look(here, True, 0)[0]
    here.closed("b")
    assert passing.look(here, True, 0) == []


def test_what_passes_is_not_waited_for_for_ever() -> None:
    """Those who sent it keep it; and they may send more for as long as they run."""
    here, passing = relaying(), Passing()
    assert passing.look(here, True, 5)
    assert passing.look(here, False, 5 + ALONE) == []
    assert passing.look(here, True, 6 + ALONE)
    assert passing.look(here, True, 6 + 2 * ALONE)
    assert passing.look(here, True, 7 + 2 * ALONE) == []


def test_people_hear_once_what_a_run_waits_for_long() -> None:
    telling = Telling()

    def look(now, *waits):
        telling.found(waits)
        return telling.look(now)

    assert look(0, "this", "that") == []
    assert look(LONG - 1, "this") == []
    (text,) = look(LONG, "this", "that")
    assert (text, telling.waits) == ("the end of the run has waited for 30 seconds: this", ("this", "that"))
    assert look(LONG + 1, "this") == []
    telling.found(())
    assert telling.waits == ()
    assert telling.look(LONG + 2) == []  # a cut is under way: it cannot end
    assert telling.waits == ()
    assert look(LONG + 3, "this") == []
    assert len(look(2 * LONG + 3, "this")) == 1


@pytest.mark.parametrize(
    ("absent_after", "lacks_rows", "was_heard", "wait"),
    [
        (None, False, True, 0),
        (None, True, True, None),
        (None, False, False, None),
        (5, True, False, 5),
        (5, False, True, 5),
    ],
)
def test_who_has_all_rows_and_is_gone_is_not_waited_for(absent_after, lacks_rows, was_heard, wait):
    assert patience(absent_after, lacks_rows, was_heard) == wait
