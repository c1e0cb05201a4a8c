"""Calendar windows in Spark SQL: the same edges as `CalendarSpec` has, computed row by row in the executors."""

from __future__ import annotations

from transom.model.calendar import DAY, HOUR, MARGIN, CalendarSpec

_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def calendar_start_sql(spec: CalendarSpec, time: str) -> str:
    """Return the start of the window of a moment as Spark SQL, whatever the time zone of the session.

    Wall times are bigints of microseconds as if they were UTC.

    Args:
        spec: The windows.
        time: A bigint column of microseconds since the epoch; the result is null where it is.
    """
    return _hour_start(spec, time) if spec.unit == "hour" else _unit_start(spec, time)


def _hour_start(spec: CalendarSpec, time: str) -> str:
    """Return the start of the hour of a moment.

    It is the last full hour by the clock as it goes now, unless that began to go so only later, so less than an hour
    ago. Then it is the last full hour by the clock as it went before; if that one was neither shown nor skipped, since
    the clock went back before, it is the hour before.
    """
    wall = _wall(spec, time)
    shown = f"({wall} - pmod({wall} - {spec.offset}L, {HOUR}L))"
    now = f"({shown} - ({wall} - {time}))"
    old = f"({_wall(spec, now)} - {now})"
    shown_before = f"({time} + {old} - pmod({time} + {old} - {spec.offset}L, {HOUR}L))"
    before = f"({shown_before} - {old})"
    return (
        f"CASE WHEN {_wall(spec, now)} = {shown} THEN {now} "
        f"WHEN {_moment(spec, shown_before)} = {before} THEN {before} "
        f"WHEN {time} IS NOT NULL THEN {before} - {HOUR}L END"
    )


def _unit_start(spec: CalendarSpec, time: str) -> str:
    """Return the start of the day, week, month, quarter or year of a moment.

    The unit that the zone's clock shows begins at or before the moment, except that clocks which went back may show
    the previous unit again (Newfoundland, until 2011, at 00:01), and clocks which went forward may have skipped the
    unit's first time (Toronto, 1919-03-30); then its neighbours are looked at. No zone's clock ever changed twice
    within six days, so a clock that is as far ahead of UTC as at the unit's beginning did not go back over the next
    one's, unless that is near and the unit long.
    """
    wall = _wall(spec, time)
    before, current, after = _walls(spec, wall)
    start = _moment(spec, current)
    steady = f"{start} = {current} - ({wall} - {time})"
    if spec.unit != "day":
        steady += f" AND {wall} < {after} - {MARGIN}L"
    return (
        f"CASE WHEN {steady} THEN {start} WHEN {_moment(spec, after)} <= {time} THEN {_moment(spec, after)} "
        f"WHEN {start} <= {time} THEN {start} WHEN {time} IS NOT NULL THEN {_moment(spec, before)} END"
    )


def _wall(spec: CalendarSpec, time: str) -> str:
    """Return what the zone's clock shows at a moment."""
    return f"unix_micros(from_utc_timestamp(timestamp_micros({time}), '{spec.zone}'))"


def _moment(spec: CalendarSpec, wall: str) -> str:
    """Return the moment of a wall time; Spark resolves skipped and repeated ones as Java does, as we want it."""
    return f"unix_micros(to_utc_timestamp(timestamp_micros({wall}), '{spec.zone}'))"


def _walls(spec: CalendarSpec, wall: str) -> tuple[str, str, str]:
    """Return the beginnings of the previous, the current and the next unit by the wall clock."""
    if spec.unit in ("day", "week"):
        days = 1 if spec.unit == "day" else 7
        first = spec.offset + (spec.first_week * DAY if days == 7 else 0)
        current = f"({wall} - pmod({wall} - {first}L, {days * DAY}L))"
        return f"({current} - {days * DAY}L)", current, f"({current} + {days * DAY}L)"
    moved = f"({wall} - {spec.offset}L)"
    day = f"CAST(({moved} - pmod({moved}, {DAY}L)) DIV {DAY}L AS INT)"
    start = f"trunc(date_from_unix_date({day}), '{spec.unit}')"
    dates = (f"add_months({start}, {step * _MONTHS[spec.unit]})" if step else start for step in (-1, 0, 1))
    before, current, after = (f"(CAST(unix_date({date}) AS BIGINT) * {DAY}L + {spec.offset}L)" for date in dates)
    return before, current, after
