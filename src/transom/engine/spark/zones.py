"""A check that Java, which makes panes of calendar windows, and Python, which closes them, know the same clocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from transom.errors import DefinitionError
from transom.model.calendar import DAY, HOUR, CalendarSpec
from transom.model.time import Micros, format_time
from transom.windows.calendars import calendar_start_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIRST_DAY, LAST_DAY = 0, 30_000
"""Days since 1970 between which the clocks are compared: to the year 2052. Earlier clocks are history, which the
databases agree upon; later ones follow today's rules."""

STEP: Micros = HOUR // 4
"""Time between two moments of such a day."""

_checked: set[CalendarSpec] = set()


def check_zones(session: SparkSession, calendars: Iterable[CalendarSpec]) -> None:
    """Compare the days of the calendars' time zones; a job of Spark for each zone, once in a process.

    Of those with windows of hours the hours of days on which clocks change are compared, too.

    Python reads the time zones of the system or of the package tzdata, Java brings its own. If one of them is older
    than a change of a country's clocks, rows would be counted in the wrong window without a sign.

    Raises:
        DefinitionError: A day or hour begins at different moments, or Java does not know the zone.
    """
    from pyspark.sql import functions as F

    used = {(calendar.zone, calendar.unit == "hour") for calendar in calendars}
    wanted = {CalendarSpec("day", zone) for zone, _ in used} | {
        CalendarSpec("hour", zone) for zone, hour in used if hour
    }
    for spec in sorted(wanted - _checked, key=str):
        if spec.unit == "day":
            times = session.range(FIRST_DAY, LAST_DAY, 1, 1).select((F.col("id") * DAY).alias("t"))
        else:
            days, steps = _changing(spec.zone), 26 * HOUR // STEP
            day = f"element_at(array({', '.join(f'{day}L' for day in days)}), CAST(id DIV {steps} AS INT) + 1)"
            moment = F.expr(f"{day} + id % {steps} * {STEP}L")
            times = session.range(0, len(days) * steps, 1, 1).select(moment.alias("t"))
        _compare(times, spec)
        _checked.add(spec)


def _changing(zone: str) -> list[Micros]:
    """Return the beginnings of the first day and of those on which clocks change."""
    edges = CalendarSpec("day", zone).edges_between(FIRST_DAY * DAY, LAST_DAY * DAY)
    changing: list[Micros] = edges[:-1][np.diff(edges) != DAY].tolist()
    return [int(edges[0]), *changing]


def _compare(times: DataFrame, spec: CalendarSpec) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    try:
        table = times.select("t", F.expr(calendar_start_sql(spec, "t")).alias("start")).toArrow()
    except PySparkException as error:
        raise DefinitionError(
            f"calendar window: Java cannot tell the time in the zone {spec.zone}: {error}.",
            "Update Java, or name another zone with the same clocks.",
        ) from error
    moments, java = (table.column(name).to_numpy() for name in ("t", "start"))
    different = np.flatnonzero(spec.windows(moments)[0] != java)
    if len(different):
        day = format_time(int(moments[different[0]]))[:10]
        raise DefinitionError(
            f"calendar window: Java and Python do not agree when {spec.unit}s begin in {spec.zone}, first on {day}.",
            "One of the two has old time zones: update Java, or the time zones of the system (or pip's tzdata).",
        )
