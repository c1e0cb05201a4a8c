"""Windows that grow from the beginning of a period."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import transom as tm
from transom.errors import DefinitionError
from transom.jobs.keys import Keys
from transom.jobs.windows import check_windows, make_window
from transom.model.window import WindowSpec, window_of, windows_of
from transom.windows.panes import Grid, closing_windows, windows_between


def test_they_all_begin_with_their_period() -> None:
    windows = windows_of(tm.cumulate(6_000, every=2_000, offset=1_000))
    assert [str(window) for window in windows] == [
        "2 ms every 6 ms offset 1 ms",
        "4 ms every 6 ms offset 1 ms",
        "6 ms offset 1 ms",
    ]


@given(
    st.sets(st.integers(-30, 30), min_size=1),
    st.integers(2, 5),
    st.integers(0, 7),
    st.integers(-40, 40),
    st.integers(0, 40),
)
def test_those_close_that_hold_a_row_and_whose_end_was_passed(
    rows: set[int], steps: int, offset: int, after: int, more: int
) -> None:
    ms = 1_000
    kinds = tm.cumulate(3 * steps * ms, every=3 * ms, offset=offset * ms).windows
    panes = np.unique(Grid.of(kinds).start(np.array(sorted(rows)) * ms))
    low, high = after * ms, (after + more) * ms
    found = {span for kind in kinds for span in closing_windows(kind, panes, low, high)}
    assert found == {
        (start * ms, (start + 3 * n) * ms)
        for start in range(-60 + (offset + 60) % (3 * steps) - 3 * steps, 60)
        for n in range(1, steps + 1)
        if (start - offset) % (3 * steps) == 0
        and low < (start + 3 * n) * ms <= high
        and any(start <= row < start + 3 * n for row in rows)
    }
    every = [span for kind in kinds for span in windows_between(kind, low, high)]
    assert found <= set(every)


@pytest.mark.parametrize(
    ("length", "every", "says"),
    [
        ("1 day", "7 hours", "no whole number"),
        ("1 hour", "1 hour", "no whole number"),
        ("1 hour", "2 hours", "no whole number"),
        ("1 day", "1 second", "more than 1,500 steps"),
        ("1 day", "0 hours", "shortest window"),
        ("1 day", "-1 hours", "shortest window|negative|duration"),
    ],
)
def test_what_makes_no_sense_is_refused(length: str, every: str, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        tm.cumulate(length, every=every)


def test_they_are_no_single_window_and_gaps_are_none_of_others() -> None:
    with pytest.raises(DefinitionError, match="several windows"):
        window_of(tm.cumulate("1 day", every="1 hour"))
    with pytest.raises(DefinitionError, match="longer than the length"):
        WindowSpec(1_000, 2_000)


def test_jobs_have_them() -> None:
    keys = Keys("job.toml", "[[query]]", {}, ())
    window = {"cumulate": "1 day", "every": "1 hour"}
    check_windows(keys, [window])
    assert make_window(window) == tm.cumulate("1 day", every="1 hour")
    with pytest.raises(DefinitionError, match="'every' is missing"):
        check_windows(keys, [{"cumulate": "1 day"}])
