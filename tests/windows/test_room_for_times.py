"""Times at the ends of what is taken leave room for every window, gap and delay: nothing leaves 64 bits."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import transom as tm
from transom.errors import DefinitionError
from transom.model.time import FIRST_EVENT, LAST_EVENT, LONGEST, MAX_TIME, MIN_TIME, parse_duration
from transom.model.window import SessionSpec, WindowSpec
from transom.windows.intervals import TIMES
from transom.windows.panes import Grid, closing_windows, windows_between
from transom.windows.sessions import SessionStore

TIMES_TAKEN = st.one_of(
    st.sampled_from([FIRST_EVENT, FIRST_EVENT + 1, -1, 0, LAST_EVENT - 1, LAST_EVENT]),
    st.integers(FIRST_EVENT, LAST_EVENT),
)
LENGTHS = st.one_of(st.sampled_from([1_000, LONGEST - 1, LONGEST]), st.integers(1_000, LONGEST))
WATERMARKS = st.one_of(TIMES_TAKEN, TIMES_TAKEN.map(lambda time: time - 2 * LONGEST))


@st.composite
def fixed(draw: st.DrawFn) -> WindowSpec:
    length = draw(LENGTHS)
    return WindowSpec(length, -(-length // draw(st.integers(1, 3))), draw(st.integers(-LONGEST, LONGEST)))


@given(st.lists(TIMES_TAKEN, min_size=1, max_size=4), st.lists(fixed(), min_size=1, max_size=3), WATERMARKS)
def test_fixed_windows_hold_their_rows(times: list[int], windows: list[WindowSpec], watermark: int) -> None:
    starts = Grid.of(windows).start(np.array(sorted(times), np.int64))
    for window in windows:
        for after, until in ((MIN_TIME, MAX_TIME), (MIN_TIME, watermark), (watermark, MAX_TIME)):
            found = closing_windows(window, starts, after, until)
            wanted = set()
            for time in times:
                start = window.last_start(time)
                while start + window.length > time:
                    wanted.add((start, start + window.length))
                    start -= window.slide
            assert found == sorted(span for span in wanted if after < span[1] <= until)
            assert MIN_TIME < window.last_end(times[0]) < MAX_TIME
        assert MIN_TIME < window.late_before(watermark) < MAX_TIME
    close = [max(times) - 2 * windows[0].slide, max(times)]
    spans = windows_between(windows[0], *close)
    assert all(end - start == windows[0].length for start, end in spans)


@given(st.lists(TIMES_TAKEN, min_size=1, max_size=6), LENGTHS, WATERMARKS, st.sampled_from([None, LONGEST]))
def test_sessions_hold_their_rows(times: list[int], gap: int, watermark: int, longest: int | None) -> None:
    spec = SessionSpec(gap, longest)
    store = SessionStore(spec, pa.schema([]), {})
    moments = np.array(times, np.int64)
    store.add(pa.table({"_": moments}), {TIMES: {"first": moments, "last": moments}}, MIN_TIME)
    runs: list[list[int]] = []
    for time in sorted(times):
        if runs and time - runs[-1][1] <= gap and (longest is None or time < runs[-1][2]):
            runs[-1][1] = time
        else:
            runs.append([time, time, time // spec.unit * spec.unit + LONGEST])
    ended = store.take(watermark)
    ends = [min(last + gap, limit) if longest else last + gap for _, last, limit in runs]
    assert sorted(ended.last.tolist()) == [run[1] for run, end in zip(runs, ends, strict=True) if end < watermark]
    rest = store.take(MAX_TIME)
    assert sorted(ended.first.tolist() + rest.first.tolist()) == [first for first, *_ in runs]


@pytest.mark.parametrize("unit", ["hour", "day", "week", "month", "quarter", "year"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu"])
def test_calendar_windows_hold_their_rows(unit: str, zone: str) -> None:
    window = tm.calendar(unit, zone=zone)
    for time in (FIRST_EVENT, -1, LAST_EVENT):
        ((start, end),) = closing_windows(
            window, [int(Grid.of([window]).start(np.array([time]))[0])], MIN_TIME, MAX_TIME
        )
        assert start <= time < end < start + 367 * 86_400_000_000
        assert window.late_before(time) == start


@pytest.mark.parametrize("value", ["10000 weeks", LONGEST, -LONGEST])
def test_durations_have_a_bound(value: str | int) -> None:
    assert abs(parse_duration(value, "window length")) <= LONGEST


@pytest.mark.parametrize(
    "value", ["1000000 weeks", LONGEST + 1, -LONGEST - 1, "9999999999999999 weeks", f"{'9' * 40}.5 s"]
)
def test_longer_durations_are_refused(value: str | int) -> None:
    with pytest.raises(DefinitionError, match=r"window length: .* is longer than 9,000 years"):
        parse_duration(value, "window length")
