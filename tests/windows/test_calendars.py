"""Calendar windows: edges against zoneinfo by brute force, against values known from history, and against Spark."""

import itertools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.interpreting import interpreting

import transom as tm
from transom.errors import DefinitionError
from transom.model.calendar import DAY, UNITS, WEEKDAYS, CalendarSpec
from transom.model.time import MAX_TIME, MIN_TIME
from transom.windows.panes import Grid, closing_windows, windows_between

HOUR = DAY // 24
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(*date: int, zone: str = "UTC") -> int:
    return (datetime(*date, tzinfo=ZoneInfo(zone)) - EPOCH) // timedelta(microseconds=1)


def local(moment: int, zone: str) -> datetime:
    return (EPOCH + timedelta(microseconds=moment)).astimezone(ZoneInfo(zone))


ODD_ZONES = (
    "America/Sao_Paulo",  # midnights that do not exist, until 2018
    "Asia/Beirut",
    "Africa/Cairo",
    "America/Havana",  # midnights that exist twice
    "America/St_Johns",  # clocks that went back over midnight, until 2011
    "America/Toronto",  # a gap over midnight in 1919
    "Pacific/Apia",  # a day that did not exist, and one that came twice
    "Pacific/Kwajalein",
    "America/Juneau",
    "Asia/Manila",
    "Africa/Casablanca",  # four changes a year
    "Antarctica/Troll",  # clocks that change by two hours
    "Australia/Lord_Howe",  # and by half an hour
    "America/Montevideo",  # and once by an hour and a half
    "Europe/Dublin",
    "Asia/Kathmandu",
)
ZONES = st.sampled_from(("UTC", "Europe/Berlin", "America/New_York", *ODD_ZONES, *ODD_ZONES))


@st.composite
def calendars(draw: st.DrawFn) -> CalendarSpec:
    unit = draw(st.sampled_from(sorted(UNITS)))
    offsets = [0, 0, 1, HOUR // 2, HOUR - 1] if unit == "hour" else [0, 0, 1, 4 * HOUR, 2 * HOUR + HOUR // 2, DAY - 1]
    offset = draw(st.sampled_from(offsets))
    return CalendarSpec(unit, draw(ZONES), offset, draw(st.sampled_from(WEEKDAYS)) if unit == "week" else "monday")


CHANGES = st.sampled_from(
    [
        *(micros(2018, 11, 4), micros(2021, 3, 14), micros(2021, 11, 7), micros(2010, 11, 7), micros(1919, 3, 31)),
        *(micros(2011, 12, 30), micros(1892, 7, 4), micros(1867, 10, 18), micros(1844, 12, 31), micros(1993, 8, 21)),
        *(micros(2024, 3, 31), micros(2024, 10, 27), micros(2023, 4, 28), micros(2023, 3, 26), micros(1969, 9, 30)),
        *(micros(1974, 1, 13, 3), micros(2024, 4, 6, 15), micros(2024, 10, 5, 15, 30)),
    ]
)
MOMENTS = st.one_of(
    st.integers(micros(1840, 1, 1), micros(2120, 1, 1)),
    st.builds(lambda change, by: change + by, CHANGES, st.integers(-3 * DAY, 3 * DAY)),
    st.builds(lambda change, by: change + by * HOUR // 2, CHANGES, st.integers(-100, 100)),
)


def first_of(spec: CalendarSpec, day: datetime) -> datetime:
    """The first day of the unit that holds a day, by the standard library's dates."""
    if spec.unit == "week":
        return day - timedelta(days=(day.weekday() - WEEKDAYS.index(spec.week_start)) % 7)
    month = {"day": day.month, "month": day.month, "quarter": day.month - (day.month - 1) % 3, "year": 1}[spec.unit]
    return day if spec.unit == "day" else day.replace(month=month, day=1)


def brute_edges(spec: CalendarSpec, moment: int) -> set[datetime]:
    """An edge for every day or hour around a moment."""
    zone, offset = ZoneInfo(spec.zone), timedelta(microseconds=spec.offset)
    midnight = (EPOCH + timedelta(microseconds=moment - spec.offset)).replace(
        hour=0, minute=0, second=0, microsecond=0, tzinfo=None
    )
    if spec.unit != "hour":
        reach = UNITS[spec.unit] // DAY + 10
        firsts = {first_of(spec, midnight + timedelta(days=n)) for n in range(-reach, reach)}
        return {(first + offset).replace(tzinfo=zone) for first in firsts}
    hours = [midnight + timedelta(hours=n) + offset for n in range(-72, 96)]
    first = [hour.replace(tzinfo=zone) for hour in hours]
    second = [clock.replace(fold=1) for clock in first]
    both = list(zip(first, second, strict=True))
    shown = {clock.astimezone(UTC) for a, b in both for clock in (a, b) if a.utcoffset() >= b.utcoffset()}
    skipped = {a.astimezone(UTC) for a, b in both if a.utcoffset() < b.utcoffset()}

    def ahead(edge: datetime) -> timedelta | None:
        return edge.astimezone(zone).utcoffset()

    near = {m: {e for e in shown if m - timedelta(hours=1) < e < m and ahead(e) == ahead(m)} for m in skipped}
    return shown | {moved for moved in skipped if not near[moved]}


def brute_window(spec: CalendarSpec, moment: int) -> tuple[int, int]:
    """The window of a moment, from an edge for every day or hour around it."""
    edges = {(edge - EPOCH) // timedelta(microseconds=1) for edge in brute_edges(spec, moment)}
    return max(e for e in edges if e <= moment), min(e for e in edges if e > moment)


@given(calendars(), st.lists(MOMENTS, min_size=1, max_size=5))
def test_the_window_of_a_moment_lies_between_two_beginnings_by_the_wall_clock(spec, moments):
    starts, ends = spec.windows(np.array(moments))
    wanted = [brute_window(spec, moment) for moment in moments]
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == wanted
    grid = Grid.of([spec])
    assert grid.start(np.array(moments)).tolist() == [start for start, _ in wanted]
    for moment, (start, end) in zip(moments, wanted, strict=True):
        assert (grid.end(moment), spec.last_end(moment), spec.late_before(moment)) == (end, end, start)


@given(
    calendars(),
    st.lists(st.integers(-800, 800), min_size=1, max_size=8),
    st.integers(-800, 800),
    st.integers(-800, 800),
    CHANGES,
)
def test_the_windows_that_close_are_those_with_rows_that_end_between_two_watermarks(spec, days, after, until, change):
    times = np.array([change + day * DAY + 11 * HOUR for day in sorted(days)])
    after, until = change + after * DAY, change + until * DAY
    panes = np.unique(Grid.of([spec, tm.tumbling("1 hour")]).start(times))
    held = sorted(set(zip(*(array.tolist() for array in spec.windows(times)), strict=True)))
    assert closing_windows(spec, panes, after, until) == [w for w in held if after < w[1] <= until]
    assert closing_windows(spec, panes, MIN_TIME, MAX_TIME) == held
    every = windows_between(spec, held[0][1] - 1, held[-1][1])
    assert (every[0], every[-1]) == (held[0], held[-1])
    assert all(a[1] == b[0] and a[0] < a[1] for a, b in itertools.pairwise(every))
    assert set(held) <= set(every)
    some = windows_between(spec, after, until)
    assert [w for w in every if after < w[1] <= until] == [w for w in some if held[0][0] <= w[0] <= held[-1][0]]
    assert all(after < w[1] <= until for w in some)


@pytest.mark.parametrize(
    ("spec", "inside", "start", "end"),
    [
        # Clocks went forward in Copenhagen on 2021-03-28 and back on 2021-10-31.
        (tm.calendar("day", zone="Europe/Copenhagen"), (2021, 3, 28, 12), (2021, 3, 27, 23), (2021, 3, 28, 22)),
        (tm.calendar("day", zone="Europe/Copenhagen"), (2021, 10, 31, 12), (2021, 10, 30, 22), (2021, 10, 31, 23)),
        # 2018-11-04 began at 01:00 in Sao Paulo.
        (tm.calendar("day", zone="America/Sao_Paulo"), (2018, 11, 4, 12), (2018, 11, 4, 3), (2018, 11, 5, 2)),
        # The midnight of 2021-11-07 came twice in Havana; the day has 25 hours.
        (tm.calendar("day", zone="America/Havana"), (2021, 11, 7, 12), (2021, 11, 7, 4), (2021, 11, 8, 5)),
        # There was no 2011-12-30 in Samoa.
        (tm.calendar("day", zone="Pacific/Apia"), (2011, 12, 30, 9, 59), (2011, 12, 29, 10), (2011, 12, 30, 10)),
        (tm.calendar("day", zone="Pacific/Apia"), (2011, 12, 30, 10), (2011, 12, 30, 10), (2011, 12, 31, 10)),
        (
            tm.calendar("week", zone="America/New_York", week_start="sunday", offset="4 hours"),
            (2024, 3, 10, 8),  # 04:00 on the Sunday of the change
            (2024, 3, 10, 8),
            (2024, 3, 17, 8),
        ),
        (
            tm.calendar("week", zone="America/New_York", week_start="sunday", offset="4 hours"),
            (2024, 3, 10, 7, 59),
            (2024, 3, 3, 9),
            (2024, 3, 10, 8),
        ),
        (tm.calendar("hour", zone="Asia/Kolkata"), (2024, 5, 1, 12, 29), (2024, 5, 1, 11, 30), (2024, 5, 1, 12, 30)),
        # 01:00 to 02:00 came twice in New York.
        (tm.calendar("hour", zone="America/New_York"), (2024, 11, 3, 5, 59), (2024, 11, 3, 5), (2024, 11, 3, 6)),
        (tm.calendar("hour", zone="America/New_York"), (2024, 11, 3, 6), (2024, 11, 3, 6), (2024, 11, 3, 7)),
        # 01:30 to 02:00 came twice on Lord Howe Island, 02:00 to 02:30 did not come in October.
        (tm.calendar("hour", zone="Australia/Lord_Howe"), (2024, 4, 6, 15, 10), (2024, 4, 6, 14), (2024, 4, 6, 15, 30)),
        (
            tm.calendar("hour", zone="Australia/Lord_Howe"),
            (2024, 10, 5, 15, 30),
            (2024, 10, 5, 15, 30),
            (2024, 10, 5, 16),
        ),
        (tm.calendar("month"), (2024, 2, 29, 23), (2024, 2, 1), (2024, 3, 1)),
        (tm.calendar("quarter"), (1969, 12, 31), (1969, 10, 1), (1970, 1, 1)),
        (tm.calendar("year", offset="1 day"), (2024, 1, 1), (2023, 1, 2), (2024, 1, 2)),
    ],
    ids=str,
)
def test_known_windows(spec, inside, start, end):
    starts, ends = spec.windows(np.array([micros(*inside)]))
    assert (starts[0], ends[0]) == (micros(*start), micros(*end))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_the_first_and_the_last_years(zone):
    spec = tm.calendar("year", zone=zone)
    far = np.array([micros(1, 1, 5), micros(9999, 7, 1), micros(9999, 7, 1) + 400 * 365 * DAY])
    starts, ends = spec.windows(far)
    assert (starts <= far).all()
    assert (far < ends).all()
    assert set(((ends - starts) // DAY).tolist()) <= {365, 366}
    assert local(int(starts[1]), zone).timetuple()[:5] == (9999, 1, 1, 0, 0)


def test_panes_are_shared_with_fixed_windows():
    berlin, hourly = tm.calendar("day", zone="Europe/Berlin"), tm.tumbling("1 hour")
    grid = Grid.of([berlin, hourly, tm.tumbling("1 day"), berlin, tm.session_window("3 hours")])
    assert grid == Grid(((HOUR, 0),), (berlin,))
    kathmandu = Grid.of([tm.calendar("day", zone="Asia/Kathmandu"), hourly])
    begin = micros(2024, 5, 4, 18)
    times = np.arange(begin, begin + HOUR, HOUR // 60)
    assert np.unique(kathmandu.start(times)).tolist() == [begin, begin + HOUR // 4]


@given(st.data(), st.lists(calendars(), min_size=1, max_size=3, unique=True))
def test_every_window_is_a_whole_number_of_panes(data, specs):
    grid = Grid.of([*specs, tm.sliding("5 hours", every="3 hours")])
    moment = data.draw(MOMENTS)
    start, end = int(grid.start(np.array([moment]))[0]), grid.end(moment)
    assert start <= moment < end
    for spec in specs:
        window = brute_window(spec, moment)
        assert window[0] <= start
        assert end <= window[1]


@pytest.fixture(scope="module")
def drawn() -> list[tuple[CalendarSpec, list[int]]]:
    """Windows and moments that Hypothesis finds worth looking at: one job of Spark compares them all."""
    found: list[tuple[CalendarSpec, list[int]]] = []

    @settings(max_examples=60, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(calendars(), st.lists(MOMENTS, min_size=5, max_size=40))
    def collect(spec, moments):
        found.append((spec, moments))

    collect()
    return found


@pytest.mark.parametrize(
    ("zone", "ansi"), [("Asia/Tokyo", "true"), pytest.param("America/Sao_Paulo", "false", marks=pytest.mark.slow)]
)
def test_spark_has_the_same_edges_whatever_the_zone_of_its_session(spark, drawn, zone, ansi):
    from pyspark.sql import functions as F

    own = interpreting(spark, {"spark.sql.session.timeZone": zone, "spark.sql.ansi.enabled": ansi})
    specs = list(dict.fromkeys(spec for spec, _ in drawn))
    moments = sorted({moment for _, moments in drawn for moment in moments})
    edges = np.concatenate([spec.edges_around(np.array(some)) for spec, some in drawn])
    times = np.unique(np.concatenate([moments, edges, edges - 1]))
    rows = own.createDataFrame([(int(t),) for t in times] + [(None,)], "t bigint").coalesce(1)
    columns = [F.expr(Grid.of([spec]).start_sql("t")).alias(f"s{i}") for i, spec in enumerate(specs)]
    table = rows.select(*columns).toArrow()
    for i, spec in enumerate(specs):
        column = table.column(f"s{i}")
        assert column[len(times)].as_py() is None
        got, wanted = column.to_numpy()[:-1].astype(np.int64), spec.windows(times)[0]
        assert (got == wanted).all(), (str(spec), times[got != wanted][:3].tolist())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tm.calendar("day", zone="Europe/Kopenhagen"), "no time zone 'Europe/Kopenhagen'.*Europe/Copenhagen"),
        (lambda: tm.calendar("day", zone="copenhagen"), "no time zone 'copenhagen'"),
        (lambda: tm.calendar("day", zone=""), "no time zone ''"),
        (lambda: tm.calendar("day", zone="../etc/passwd"), "no time zone"),
        (lambda: tm.calendar("Day"), "unit 'Day' is unknown.*'day'"),
        (lambda: tm.calendar("decade"), "unit 'decade' is unknown.*day, week, month"),
        (lambda: tm.calendar("hours"), "unit 'hours' is unknown.*'hour'"),
        (lambda: tm.calendar("minutes"), "the unit 'minutes' is as long in every zone"),
        (lambda: tm.calendar("hour", offset="1 hour"), "offset of 1 hour is not between.*15 minutes"),
        (lambda: tm.calendar("week", week_start="sonntag"), "first day of the week 'sonntag' is unknown"),
        (lambda: tm.calendar("month", week_start="monday"), "months have no first day"),
        (lambda: tm.calendar("day", offset="1 day"), "offset of 1 day is not between"),
        (lambda: tm.calendar("day", offset="-1 hour"), "offset of -1 hour is not between"),
        (lambda: tm.session_window("0 seconds"), "shortest gap is 1 ms"),
        (lambda: tm.session_window("a while"), "session gap: 'a while' is not a duration"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(DefinitionError, match=message):
        make()


def test_the_texts_of_windows():
    week = tm.calendar("week", zone="America/New_York", week_start="sunday", offset="4 hours")
    assert str(week) == "week from sunday in America/New_York offset 4 hours"
    assert str(tm.calendar("day", zone="Europe/Berlin")) == "day in Europe/Berlin"
    assert str(tm.session_window("90 seconds")) == "session 1 minute 30 seconds"
