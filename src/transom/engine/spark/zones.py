"""A check that Java, which makes panes of calendar windows, and Python, which closes them, know the same clocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from transom.errors import DefinitionError
from transom.model.calendar import DAY, CalendarSpec
from transom.model.time import format_time
from transom.windows.calendars import calendar_start_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_DAY, LAST_DAY = 0, 30_000
"""Days since 1970 between which the clocks are compared: to the year 2052. Earlier clocks are history, which the
databases agree upon; later ones follow today's rules."""

_checked: set[str] = set()


def check_zones(session: SparkSession, calendars: Iterable[CalendarSpec]) -> None:
    """Compare the days of the calendars' time zones; a job of Spark for each zone, once in a process.

    Python reads the time zones of the system or of the package tzdata, Java brings its own. If one of them is older
    than a change of a country's clocks, rows would be counted in the wrong window without a sign.

    Raises:
        DefinitionError: A day begins at different moments, or Java does not know the zone.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    for zone in sorted({calendar.zone for calendar in calendars} - _checked):
        spec = CalendarSpec("day", zone)
        days = session.range(FIRST_DAY, LAST_DAY, 1, 1).select((F.col("id") * DAY).alias("t"))
        try:
            table = days.select("t", F.expr(calendar_start_sql(spec, "t")).alias("start")).toArrow()
        except PySparkException as error:
            raise DefinitionError(
                f"calendar window: Java cannot tell the time in the zone {zone}: {error}.",
                "Update Java, or name another zone with the same clocks.",
            ) from error
        times, java = (table.column(name).to_numpy() for name in ("t", "start"))
        different = np.flatnonzero(spec.windows(times)[0] != java)
        if len(different):
            day = format_time(int(times[different[0]]))[:10]
            raise DefinitionError(
                f"calendar window: Java and Python do not agree when days begin in {zone}, first on {day}.",
                "One of the two has old time zones: update Java, or the time zones of the system (or pip's tzdata).",
            )
        _checked.add(zone)
