"""When rows may be left out at all, and what is learned from cuts, one step at a time."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from overloaded import FIXED, NOON, ROW, SECOND, PacedSource, PacedStream

from transom.engine.control.estimates import StreamEstimate
from transom.engine.control.overload import Overload
from transom.engine.control.waiting import Delays
from transom.engine.spark.cutstats import CutStats
from transom.engine.streams.cuts import CutOutcome, LoggedCut, Shed
from transom.engine.streams.stream import RunningStream
from transom.model.time import MIN_TIME, Micros
from transom.model.window import tumbling
from transom.scheduling.arrivals import DelayMoments
from transom.scheduling.inflow import Inflow
from transom.windows.query import LatencyTarget, WindowedQuery

LIMIT = 3 * SECOND
RATE = 2_000
"""Rows a second, twice what one core does."""
ENDLESS = 1 << 40
SHEDS, DELAYS = LatencyTarget(LIMIT, 0.9, 0.1), LatencyTarget(LIMIT, 0.9)


class Steps:
    """A stream that begins at noon, of which costs and delays are known."""

    def __init__(self, began: Micros = NOON) -> None:
        source = PacedSource({0: RATE}, 30, SECOND // 20, 0)
        self.stream = PacedStream(source, [tumbling("1 second")], LatencyTarget(LIMIT, 0.9, 0.1), 0)
        self.estimate = StreamEstimate(cast(RunningStream, self.stream), NOON)
        runs = self.estimate.runs
        runs.fixed, runs.row, runs.partial, runs._count = FIXED, ROW, 0.0, 100
        runs.last.ran(1_000, 1_000, FIXED + 1_000 * ROW)
        self.notes: list[str] = []
        self.overload = Overload({"clicks": self.estimate}, lambda: 1, self.notes.append)
        self.take(began)
        self.known = self.overload._known["clicks"]
        self.known.delays = Delays(steady=True)

    def take(self, at: Micros, most: int = ENDLESS, wall: Micros | None = None) -> tuple[int, int]:
        """Return how many rows the next piece has that are read, and that are left out."""
        self.stream.look(at)
        self.stream.source.seen = max(1, self.stream.source.seen)
        piece = self.stream.source.cut(self.stream.state.offset, ENDLESS)
        piece, self.shed = self.overload.take(self.estimate, piece, most, at, at if wall is None else wall)
        return piece.rows, 0 if self.shed is None else self.shed.rows

    def query(self, keep: float | None) -> WindowedQuery:
        return WindowedQuery("all", 0, (), (tumbling("1 second"),), (), LatencyTarget(LIMIT, 0.9, keep))

    def read(self, arrived: Micros, newest: Micros, delays: DelayMoments | None = None, left_out: int = 0) -> None:
        """A cut of ten rows is read, the newest of which happened and arrived then."""
        shed = Shed(("a",), left_out, ()) if left_out else None
        cut = LoggedCut(1, 0, 10, 10, MIN_TIME, MIN_TIME, None, arrived, None, shed)
        stats = CutStats(rows=10, newest=(newest, None), delays=delays or DelayMoments())
        stream = SimpleNamespace(
            name="clicks", source=SimpleNamespace(ingested_at=lambda start, end: arrived), state=self.stream.state
        )
        self.overload.read(cast(RunningStream, stream), CutOutcome(cut, stats=stats))


LATE = NOON + 4 * SECOND
"""8,000 rows wait then, and 3,000 are in time."""


def test_pieces_are_left_out_of_what_came_since_the_start() -> None:
    read, left_out = Steps().take(LATE)
    assert read > 0
    assert left_out > 0


def test_what_came_before_the_start_is_read() -> None:
    assert Steps(began=LATE).take(LATE) == (4 * RATE, 0)


def test_what_came_as_it_began_is_read() -> None:
    steps = Steps(began=NOON + SECOND // 20)
    assert steps.stream.source.ingested_at(0, 1) == steps.known.began
    assert steps.take(LATE) == (4 * RATE, 0)


def test_nothing_is_left_out_of_input_that_is_there_at_once() -> None:
    assert Steps().take(LATE, most=0) == (4 * RATE, 0)


def test_a_source_that_cannot_be_divided_is_read_as_it_is() -> None:
    steps = Steps()
    steps.stream.source.pieces = 1
    assert steps.take(LATE) == (4 * RATE, 0)


def test_nothing_is_left_out_before_it_is_known_what_a_row_takes() -> None:
    steps = Steps()
    steps.estimate.runs._count = 0
    assert steps.take(LATE)[1] == 0
    steps = Steps()
    steps.known.delays = None
    assert steps.take(LATE)[1] == 0


def test_a_cut_is_not_larger_than_it_may_be() -> None:
    assert Steps().take(NOON + SECOND // 2, most=10) == (10, 0)
    assert 0 < Steps().take(LATE, most=200)[0] <= 200


def test_overload_ends_where_all_that_waits_is_in_time_again() -> None:
    steps = Steps()
    steps.take(LATE)
    assert steps.known.active
    steps.stream.state.offset = 4 * RATE
    assert steps.take(LATE + SECOND // 10) == (RATE // 10, 0)
    assert not steps.known.active
    assert [note.split(" has ")[0] for note in steps.notes] == ["clicks", "clicks reads everything again."]


@pytest.mark.parametrize(("millis", "goes_on"), [(1_160, False), (1_370, True)])
def test_overload_goes_on_where_there_is_no_time_to_spare(millis: int, goes_on: bool) -> None:
    """Nothing is left out, as all fits; but with a fifth more it would not."""
    steps = Steps()
    assert steps.take(NOON + 1_000 * millis)[1] == 0
    assert not steps.known.active
    steps.known.active = True
    assert steps.take(NOON + 1_000 * millis)[1] == 0
    assert steps.known.active == goes_on


@pytest.mark.parametrize("ahead", [-3_600 * SECOND, 3_600 * SECOND])
def test_a_wall_clock_that_was_set_begins_anew(ahead: Micros) -> None:
    """What arrived by another clock is not older or newer than what arrives now."""
    steps = Steps()
    steps.known.inflow.came(NOON - SECOND, -SECOND)
    steps.take(NOON + SECOND)
    before = steps.known.inflow
    steps.take(NOON + SECOND, wall=NOON + SECOND + ahead)
    assert (steps.known.began, steps.known.ahead) == (NOON + SECOND + ahead, ahead)
    assert steps.known.inflow is not before


def test_a_clock_that_is_a_little_off_was_not_set() -> None:
    steps = Steps()
    assert steps.take(LATE, wall=LATE + SECOND)[1] > 0
    assert steps.known.began == NOON


def test_a_stream_whose_queries_do_not_allow_it_for_a_while_begins_anew() -> None:
    steps = Steps()
    shedding, steps.stream.queries = steps.stream.queries, [steps.query(None)]
    assert steps.take(LATE) == (4 * RATE, 0)
    assert steps.shed is None
    steps.stream.queries = shedding
    assert steps.take(LATE) == (4 * RATE, 0)


@pytest.mark.parametrize("other", ["query", "reader", "buffer"])
def test_nothing_is_left_out_where_something_wants_all_rows(other: str) -> None:
    steps = Steps()
    stream = steps.stream
    if other == "query":
        stream.queries = [*stream.queries, steps.query(None)]
    elif other == "reader":
        stream.readers = (object(),)
    else:
        stream.buffers = (object(),)
    assert steps.take(LATE)[1] == steps.take(LATE)[1] == 0
    assert len(steps.notes) == 1, "once"
    assert "wants all rows" in steps.notes[0]


def test_nothing_is_left_out_where_it_would_not_help() -> None:
    steps = Steps()
    steps.estimate.runs.fixed = 2 * LIMIT
    assert steps.take(LATE)[1] == 0
    assert [note for note in steps.notes if "would not help" in note] == steps.notes
    assert len(steps.notes) == 1


def test_rows_are_those_since_what_was_read() -> None:
    steps = Steps()
    steps.known.read_until = NOON + SECOND // 4
    steps.take(NOON + SECOND // 2)
    assert steps.shed is not None
    assert [(each.first, each.last) for each in steps.shed.stretches] == [(NOON + SECOND // 4, NOON + SECOND // 2)]


def test_leads_are_the_median_of_the_last_cuts_and_steady_where_they_hardly_differ() -> None:
    steps = Steps()
    for lead in (100_000, 500_000, 200_000):
        steps.read(LATE, LATE - lead)
    assert steps.known.delays == Delays(200_000, 200_000, 0.0, steady=True)
    steps.read(LATE, LATE - 1_600_000)
    assert steps.known.delays is not None
    assert steps.known.delays.steady, "by half the limit"
    steps.read(LATE, LATE - 1_600_001)
    assert not steps.known.delays.steady, "they differ by more than half the limit"


def test_leads_of_long_ago_are_forgotten() -> None:
    steps = Steps()
    for lead in (*[1_700_000] * 8, *[100_000] * 8):
        steps.read(LATE, LATE - lead)
    assert steps.known.delays == Delays(100_000, 100_000, 0.0, steady=True)


def test_rows_are_on_average_not_sooner_there_than_those_that_bring_watermarks() -> None:
    steps = Steps()
    steps.read(LATE, LATE - 300_000, DelayMoments.of(np.array([100_000.0, 140_000.0])))
    assert steps.known.delays == Delays(300_000, 300_000, pytest.approx(20_000), steady=True)
    steps.read(LATE, LATE - 300_000, DelayMoments.of(np.array([400_000.0, 440_000.0])))
    assert steps.known.delays == Delays(300_000, 420_000, pytest.approx(20_000), steady=True)


def test_rows_that_are_read_or_left_out_have_come() -> None:
    steps = Steps()
    steps.read(LATE, LATE)
    steps.read(LATE - SECOND, LATE - SECOND, left_out=5)
    assert steps.known.rows == 25
    assert steps.known.read_until == LATE, "an older arrival does not take it back"
    before = Inflow()
    before.came(NOON, 1)
    steps.known.inflow = before
    steps.take(LATE)
    assert before._rows[-1] == 25 + 4 * RATE


def test_where_rows_are_thinned_all_are_read_and_a_part_goes_on() -> None:
    """A row of which nothing goes on takes a fifth of the time, so that a run reads more of them."""
    steps = Steps()
    steps.stream.source.pieces, steps.stream.compiled.plan.thins = 1, {0}
    read, left_out = steps.take(LATE)
    assert steps.shed is not None
    sixteenths = steps.shed.sixteenths
    assert left_out == 0
    assert 0 < sixteenths < 16
    assert sum(each.kept for each in steps.shed.stretches) == pytest.approx(read * sixteenths / 16)
    assert sum(each.dropped for each in steps.shed.stretches) == pytest.approx(read * (1 - sixteenths / 16))
    weight = steps.estimate.runs.weight(sixteenths / 16)
    assert weight * read <= 1_400 < read, "of which a run of half the limit does 1,400"


@pytest.mark.parametrize("pieces", [7, 8, 64])
def test_of_many_pieces_some_are_left_out_also_where_rows_could_be_thinned(pieces: int) -> None:
    """A piece that is not read costs nothing, a row that is thinned is read and parsed; of few, one is too much."""
    steps = Steps()
    steps.stream.source.pieces, steps.stream.compiled.plan.thins = pieces, {0}
    left_out = steps.take(LATE)[1]
    assert steps.shed is not None
    assert (left_out > 0, steps.shed.sixteenths == 16) == ((True, True) if pieces >= 8 else (False, False))


@pytest.mark.parametrize("pieces", [1, 64])
@pytest.mark.parametrize(
    ("others", "thins"),
    [
        ([(1, DELAYS)], True),  # it is not behind the costly map, and has all rows
        ([(1, DELAYS), (0, SHEDS)], True),
        ([(0, DELAYS)], False),  # it is, and wants all
        ([(1, SHEDS), (1, DELAYS)], False),  # what is thinned elsewhere would be missing in its share
    ],
)
def test_rows_are_thinned_for_the_queries_behind_a_costly_map_where_these_alone_allow_it(
    others: list[tuple[int, LatencyTarget]], thins: bool, pieces: int
) -> None:
    steps = Steps()
    steps.stream.source.pieces, steps.stream.compiled.plan.thins = pieces, {0}
    (query,) = steps.stream.queries
    steps.stream.queries += [
        replace(query, name=f"other{number}", branch=branch, target=target)
        for number, (branch, target) in enumerate(others)
    ]
    left_out = steps.take(LATE)[1]
    assert left_out == 0
    assert steps.shed is not None
    assert (steps.shed.sixteenths < 16) is thins
    assert any("wants all rows" in note for note in steps.notes) is (pieces > 1 and not thins)
