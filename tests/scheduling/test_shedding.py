"""What is left out of a backlog: never what fits, never too much of a window, and evenly, against all other choices."""

from __future__ import annotations

import itertools
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from transom.scheduling.shedding import TO_SPARE, Due, Piece, chosen, fits, thinned

KEEPS = st.sampled_from([0.01, 0.1, 0.5, 1.0])


@st.composite
def backlogs(draw: st.DrawFn, most: int = 30, past: bool = True) -> tuple[list[Piece], list[Due]]:
    groups = draw(st.integers(1, 5))
    number = draw(st.integers(1, most))
    at = sorted(draw(st.lists(st.integers(0, groups - 1), min_size=number, max_size=number)))
    pieces = [Piece(draw(st.integers(1, 50)), due, draw(st.integers(0, 9)) == 0) for due in at]
    total = sum(piece.rows for piece in pieces)
    rooms = accumulate(draw(st.lists(st.floats(0, total / 2), min_size=groups, max_size=groups)))
    start = draw(st.sampled_from([0.0, 0.0, -float(total) / 3]))
    counts = st.integers(0, 100) if past else st.just(0)
    return pieces, [Due(start + room, draw(counts), draw(counts)) for room in rooms]


def read_of(pieces: list[Piece], read: list[bool], due: int) -> int:
    return sum(piece.rows for piece, taken in zip(pieces, read, strict=True) if taken and piece.due == due)


def rows_of(pieces: list[Piece], due: int) -> int:
    return sum(piece.rows for piece in pieces if piece.due == due)


def forced(pieces: list[Piece], dues: list[Due], keep: float) -> list[float]:
    """Rows of each `Due` that are read in any case."""
    found = []
    for index, due in enumerate(dues):
        new = rows_of(pieces, index)
        needed = sum(piece.rows for piece in pieces if piece.due == index and piece.needed)
        found.append(min(new, max(needed, keep * (due.kept + due.dropped + new) - due.kept)))
    return found


def largest(pieces: list[Piece] | None = None) -> int:
    return max((piece.rows for piece in pieces or ()), default=0)


@given(backlogs(), KEEPS)
def test_nothing_is_left_out_that_fits(backlog: tuple[list[Piece], list[Due]], keep: float) -> None:
    pieces, dues = backlog
    if fits(pieces, dues):
        assert all(chosen(pieces, dues, keep))
    total = float(sum(piece.rows for piece in pieces))
    assert all(chosen(pieces, [Due(total, due.kept, due.dropped) for due in dues], keep))


@given(backlogs(), KEEPS)
def test_what_carries_the_watermark_and_the_least_share_are_always_read(
    backlog: tuple[list[Piece], list[Due]], keep: float
) -> None:
    pieces, dues = backlog
    read = chosen(pieces, dues, keep)
    assert all(taken for piece, taken in zip(pieces, read, strict=True) if piece.needed)
    for index, bound in enumerate(forced(pieces, dues, keep)):
        assert read_of(pieces, read, index) >= bound - 1e-6


@given(backlogs(), KEEPS)
def test_no_more_is_read_than_fits_but_for_what_must_be(backlog: tuple[list[Piece], list[Due]], keep: float) -> None:
    pieces, dues = backlog
    read = chosen(pieces, dues, keep)
    must = list(accumulate(forced(pieces, dues, keep)))
    so_far = 0
    for index, due in enumerate(dues):
        so_far += read_of(pieces, read, index)
        # The least share is of whole pieces: up to one more for each that is due by then.
        assert so_far <= max(due.room, must[index]) + (index + 1) * largest(pieces) + 1e-6


@given(backlogs(past=False))
def test_with_nothing_forced_the_room_is_never_exceeded(backlog: tuple[list[Piece], list[Due]]) -> None:
    pieces, dues = backlog
    pieces = [Piece(piece.rows, piece.due) for piece in pieces]
    dues = [Due(max(0.0, due.room)) for due in dues]
    read = chosen(pieces, dues, 1e-12)
    less_forced = [0, *accumulate(read_of(pieces, read, index) for index in range(len(dues)))]
    for index, due in enumerate(dues):
        lifted = sum(1 for at in range(index + 1) if rows_of(pieces, at))  # `keep` of nearly nothing is one piece
        assert less_forced[index + 1] <= due.room + lifted * largest(pieces) + 1e-6


@given(backlogs(), KEEPS)
def test_the_least_share_is_within_a_piece_of_the_optimum(backlog: tuple[list[Piece], list[Due]], keep: float) -> None:
    pieces, dues = backlog
    here = [index for index in range(len(dues)) if rows_of(pieces, index)]
    bounds = forced(pieces, dues, keep)
    must = list(accumulate(bounds))
    # Unknowns: the rows read of each, and the least share.
    whole = [due.kept + due.dropped + rows_of(pieces, index) for index, due in enumerate(dues)]
    above, right = [], []
    for index, due in enumerate(dues):
        above.append([*(float(at <= index) for at in range(len(dues))), 0.0])
        right.append(max(due.room, must[index]))
        if index in here:
            above.append([*(-float(at == index) for at in range(len(dues))), float(whole[index])])
            right.append(due.kept)
    between = [*((bound, rows_of(pieces, index)) for index, bound in enumerate(bounds)), (0, 1)]
    best = linprog([0.0] * len(dues) + [-1.0], above, right, bounds=between, method="highs")
    assert best.success
    read = chosen(pieces, dues, keep)
    for index in here:
        share = (dues[index].kept + read_of(pieces, read, index)) / whole[index]
        piece = 2 * largest(pieces) / whole[index]  # whole pieces: one is lost here, one was lost before
        assert share >= min(best.x[-1], 1.0) - piece - 1e-6


@given(backlogs(most=8, past=False))
def test_no_other_choice_of_pieces_is_better_by_more_than_a_piece(backlog: tuple[list[Piece], list[Due]]) -> None:
    pieces, dues = backlog
    dues = [Due(max(0.0, due.room)) for due in dues]
    here = [index for index in range(len(dues)) if rows_of(pieces, index)]
    bounds = list(accumulate(forced(pieces, dues, 0.1)))

    def least(read: list[bool]) -> float:
        return min(read_of(pieces, read, index) / rows_of(pieces, index) for index in here)

    def allowed(read: list[bool]) -> bool:
        sums = accumulate(read_of(pieces, read, index) for index in range(len(dues)))
        return all(rows <= max(due.room, bound) for rows, due, bound in zip(sums, dues, bounds, strict=True))

    every = (list(read) for read in itertools.product([False, True], repeat=len(pieces)))
    best = max((least(read) for read in every if allowed(read)), default=0.0)
    found = chosen(pieces, dues, 0.1)
    slack = max(2 * largest(pieces) / rows_of(pieces, index) for index in here)
    assert least(found) >= best - slack - 1e-6


def test_pieces_that_are_left_out_are_spread_evenly() -> None:
    pieces = [Piece(10, 0) for _ in range(100)]
    read = chosen(pieces, [Due(250.0)], 0.1)
    at = np.flatnonzero(read)
    assert len(at) == 25
    assert set(np.diff(at)) == {4}


def test_nothing_that_fits_is_lost_to_rounding() -> None:
    """Three of the 3.3 rows that there will be are 2.9999999999999996."""
    assert all(chosen([Piece(1, 0)] * 3, [Due(100.0, coming=0.3)], 0.1))


def test_a_window_that_lost_before_is_made_up_for() -> None:
    """Half of each window is read in all: everything of one that lost its first half, nothing more of the other."""
    pieces = [Piece(1, 0) for _ in range(100)] + [Piece(1, 1) for _ in range(100)]
    read = chosen(pieces, [Due(100.0, kept=0, dropped=100), Due(100.0, kept=100, dropped=0)], 0.1)
    assert (read_of(pieces, read, 0), read_of(pieces, read, 1)) == (100, 0)


def test_of_what_is_too_late_the_last_piece_is_read() -> None:
    assert chosen([Piece(10, 0)] * 3, [Due(0.0)], 0.1) == [False, False, True]


@pytest.mark.parametrize(("room", "spares"), [(79.0, None), (80.0, False), (95.0, False), (96.0, True)])
def test_what_fits_and_what_does_with_a_fifth_to_spare(room: float, spares: bool | None) -> None:
    pieces, dues = [Piece(10, 0)] * 8, [Due(room)]
    assert fits(pieces, dues) == (spares is not None)
    assert fits(pieces, dues, TO_SPARE) == bool(spares)


def test_what_is_coming_takes_its_part_of_the_room() -> None:
    """As many rows are to come as wait, and half of all can be read: half of what waits is, the rest for the others."""
    pieces = [Piece(1, 0) for _ in range(100)]
    assert sum(chosen(pieces, [Due(100.0, coming=100.0)], 0.1)) == 50
    assert sum(chosen(pieces, [Due(100.0)], 0.1)) == 100


def test_a_time_that_is_too_late_matters_only_to_rows_that_are_due_then() -> None:
    assert fits([Piece(5, 1)], [Due(-3.0), Due(10.0)])
    assert not fits([Piece(1, 0), Piece(4, 1)], [Due(-3.0), Due(10.0)])


def test_a_window_of_which_too_much_is_gone_takes_no_more_room_than_its_rows() -> None:
    """A tenth of the first would be a hundred rows, and it has one."""
    pieces = [Piece(1, 0), *(Piece(1, 1) for _ in range(100))]
    read = chosen(pieces, [Due(0.0, dropped=1_000), Due(20.0)], 0.1)
    assert (read_of(pieces, read, 0), read_of(pieces, read, 1)) == (1, 19)


def test_windows_that_are_overdue_give_way_to_those_that_are_not() -> None:
    pieces = [Piece(1, 0) for _ in range(100)] + [Piece(1, 1) for _ in range(100)]
    read = chosen(pieces, [Due(-500.0), Due(70.0)], 0.1)
    assert (read_of(pieces, read, 0), read_of(pieces, read, 1)) == (10, 60)


@given(backlogs(), KEEPS, st.floats(0.0, 0.98))
def test_rows_are_thinned_as_little_as_is_needed(
    backlog: tuple[list[Piece], list[Due]], keep: float, behind: float
) -> None:
    pieces, dues = backlog

    def weight(part: float) -> float:
        return 1 - behind * (1 - part)

    found = thinned(pieces, dues, 16, keep, weight)
    assert max(1, 16 * keep - 1e-6) <= found <= 16
    if found < 16:
        assert not fits(pieces, dues, weight((found + 1) / 16))
    if found > max(1, 16 * keep + 1):
        assert fits(pieces, dues, weight(found / 16))
