"""Sites of one process: a run that begins in place of another one hears nothing of what was said to that."""

from __future__ import annotations

from itertools import count

from transom.sites.inprocess import Desk, Hall
from transom.widearea.carriers import Carrier
from transom.widearea.messages import Opened, Opening
from transom.widearea.parcels import Parcel, Part
from transom.widearea.routes import Ends, Routes

FLOWS = {"f": Ends(("north",), "home")}
BOOTS = count()


class Run:
    """A run of a site; its links are thin, so that a parcel is several frames."""

    def __init__(self, hall: Hall, site: str) -> None:
        rates = {other: 20_000.0 for other in ("north", "home") if other != site}
        self.carrier = Carrier(site, f"{next(BOOTS)}", Routes(site, 1_000, FLOWS), lambda flow, bodies: b"", rates)
        self.desk: Desk = hall.desk(site)
        self.desk.begin(self.carrier, tuple, lambda: None, {})

    def sends(self, size: int) -> None:
        self.carrier._queue(Parcel("f", 1, (Part("north", "i", 1, 0, 1, 1),), b"x" * size), "home", 0)


def test_a_parcel_that_was_under_way_comes_to_the_next_run_as_a_whole() -> None:
    hall = Hall()
    north, home = Run(hall, "north"), Run(hall, "home")
    for _ in range(2):
        for run in (north, home):
            run.desk.look(0)
    north.sends(20_000)
    for run in (north, home, north):
        run.desk.look(0)
    assert home.carrier._neighbours["north"].into.nbytes > 0  # a part of it has come
    home.desk.end()
    again = Run(hall, "home")
    for frame in north.carrier.frames("home", 0):  # north has not heard of it yet
        north.desk._say("home", frame)
    north.desk._say("home", Opened("late"))
    assert not again.desk._came
    while not again.carrier.arrivals:
        for run in (north, again):
            run.desk.look(0)
    assert [len(parcel.body) for parcel, _ in again.carrier.arrivals] == [20_000]
    assert north.carrier.reopened == [("home", False), ("home", True)]


def test_what_a_run_said_before_it_ended_comes_and_what_comes_of_it_later_does_not() -> None:
    hall = Hall()
    home, north = Run(hall, "home"), Run(hall, "north")
    for run in (home, north, home, north):
        run.desk.look(0)
    before = north.desk
    before.end()
    after = Run(hall, "north")
    for run in (home, after, home, after):
        run.desk.look(0)
    assert (home.carrier.open, after.carrier.open) == (("north",), ("home",))
    home.desk.put(before, Opening("late"))
    home.desk.look(0)
    after.desk.look(0)
    assert len(after.carrier.reopened) == 1
