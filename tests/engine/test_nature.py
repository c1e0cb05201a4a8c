"""What definitions say of costs: moments at which windows of several queries end, and panes."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

import transom as tm
from transom.engine.control.nature import MOST_EDGES, _apart, nature
from transom.engine.streams.feed import OUTSIDE
from transom.model.window import WindowKind


def of(*windows: WindowKind) -> SimpleNamespace:
    return SimpleNamespace(queries=[SimpleNamespace(windows=windows, target=None)], feed=OUTSIDE)


def said(*windows: WindowKind) -> tuple[float, float, float, float]:
    found = nature(of(*windows), 50_000)  # type: ignore[arg-type]
    return found.closing, found.windows, found.pane, found.span


def test_windows_of_one_length_end_at_offsets_of_their_own() -> None:
    four = [tm.tumbling("1 second", offset=f"{250 * i} ms") for i in range(4)]
    assert said(*four) == (0.25, 1.0, 0.25, 1.0)
    assert said(four[0], four[0]) == (1.0, 2.0, 1.0, 1.0)


def test_windows_that_overlap_have_two_edges_in_each_period() -> None:
    assert said(tm.sliding("10 seconds", every="3 seconds")) == (3.0, 1.0, 1.5, 10.0)
    assert said(tm.sliding("10 seconds", every="5 seconds")) == (5.0, 1.0, 5.0, 10.0)


def test_sessions_end_at_any_time() -> None:
    assert said(tm.session_window("10 seconds")) == (0.05, 0.0, 0.0, 10.0)


def test_a_stream_without_windows_says_little() -> None:
    assert said() == (0.05, 1.0, 0.0, 0.0)


def test_so_many_edges_are_taken_to_be_apart() -> None:
    many = [(1_000_003 + 2 * i, 0) for i in range(4)]
    assert math.lcm(*(period for period, _ in many)) // 1_000_003 > MOST_EDGES
    assert _apart(many) == pytest.approx(1 / sum(1 / period for period, _ in many))


def test_longer_windows_that_end_with_shorter_ones_add_no_moment() -> None:
    found = said(tm.tumbling("1 second"), tm.sliding("10 seconds", every="5 seconds"), tm.calendar("day"))
    assert found[0] == found[2] == 1.0
    assert found[1] == pytest.approx(1 + 1 / 5 + 1 / 86_400)
