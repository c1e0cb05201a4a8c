"""The pane rule and the closing of windows, against brute force."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from transom.model.time import MAX_TIME, MIN_TIME
from transom.model.window import WindowSpec, sliding, tumbling, window_of
from transom.windows.panes import Grid, closing_windows

MS = 1_000


@st.composite
def specs(draw):
    slide = draw(st.integers(1, 12)) * MS
    length = max(slide, draw(st.integers(1, 30)) * MS)
    return WindowSpec(length, slide, draw(st.integers(0, 20)) * MS)


def windows_of(spec, t):
    start = spec.last_start(t)
    while start + spec.length > t:
        yield (start, start + spec.length)
        start -= spec.slide


@given(st.lists(specs(), min_size=1, max_size=4), st.integers(-100 * MS, 100 * MS))
def test_pane_starts_at_the_greatest_edge_and_lies_inside_every_window_of_the_moment(chosen, t):
    grid = Grid.of(spec for spec in chosen)
    start = int(grid.start(np.array([t]))[0])
    edges = {
        e for s in chosen for k in range(-200, 300) for e in (s.offset + k * s.slide, s.offset + k * s.slide + s.length)
    }
    assert start == max(e for e in edges if e <= t)
    assert grid.end(t) == min(e for e in edges if e > t)
    for spec in chosen:
        for begin, end in windows_of(spec, t):
            assert begin <= start < grid.end(t) <= end


@given(
    specs(),
    st.lists(st.integers(-60 * MS, 120 * MS), max_size=12),
    st.integers(-80 * MS, 150 * MS),
    st.integers(-80 * MS, 150 * MS),
)
def test_closing_windows_are_those_with_rows_that_end_between_two_watermarks(spec, times, after, until):
    panes = sorted({int(p) for p in Grid.of([spec]).start(np.array(times, dtype=np.int64))})
    everything = {w for t in times for w in windows_of(spec, t)}
    assert closing_windows(spec, panes, after, until) == sorted(w for w in everything if after < w[1] <= until)
    assert closing_windows(spec, panes, MIN_TIME, MAX_TIME) == sorted(everything)


@given(specs(), st.integers(-100 * MS, 100 * MS), st.integers(-100 * MS, 100 * MS))
def test_a_row_is_late_when_all_its_windows_are_closed(spec, t, watermark):
    late = all(end <= watermark for _, end in windows_of(spec, t))
    assert (t < spec.late_before(watermark)) == late


def test_pairs_need_two_panes_per_slide():
    grid = Grid.of([sliding("5 seconds", "3 seconds")])
    panes = np.unique(grid.start(np.arange(0, 30_000_000, 1000, dtype=np.int64)))
    assert set(np.diff(panes)) == {1_000_000, 2_000_000}


def test_edges_of_finer_windows_cover_those_of_coarser_ones():
    assert Grid.of([tumbling("10 seconds"), tumbling("1 minute"), sliding("5 minutes", "10 seconds")]).edges == (
        (10_000_000, 0),
    )


def test_windows_are_read_as_users_write_them():
    assert window_of("1 minute") == tumbling("60 seconds")
    assert str(sliding("1 hour", every="1 minute")) == "1 hour every 1 minute"
    assert str(tumbling("1 day", offset="4 hours")) == "1 day offset 4 hours"
