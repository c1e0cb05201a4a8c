"""What `fill` refuses, with the remedy, in Python and TOML; what `explain` says of it, and of queries for rows."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.small_jobs import NoSession, small_job

import transom as tm
from transom.engine.explain.explain import _query
from transom.engine.explain.picture import _consolidate
from transom.errors import JobFileError
from transom.jobs.building import check_job
from transom.jobs.jobfile import parse_job

SCHEMA = "sensor string, at timestamp"
SERIES = """
name = "series"
group_by = ["sensor"]
windows = ["1 minute"]
aggregates = ["count(*) as n"]
sink = {parquet = "out"}
"""
JOB = small_job(SERIES, SCHEMA)


def query_of(*windows: Any, **more: Any) -> Any:
    return query_in(tm.App(cast("Any", NoSession()), checkpoint="ckpt"), *windows, **more)


def query_in(app: tm.App, *windows: Any, **more: Any) -> Any:
    stream = app.stream(tm.sources.files("in/*.json", schema=SCHEMA), event_time="at")
    return stream.group_by("sensor").window(*(windows or ("1 minute",)), **more).agg(n=tm.count())


DAY = {"for_at_most": "1 day"}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: query_of().fill("prevoius", **DAY), "fill: 'prevoius' is unknown. Did you mean 'previous'?"),
        (
            lambda: query_of().fill("nothing"),
            """fill: 'nothing' is unknown. Write fill("zero"), or fill("previous", "1 day").""",
        ),
        (
            lambda: query_of().fill("previous"),
            'fill: "previous" lacks for_at_most, how long a key goes on after its last window with rows. '
            'Add for example for_at_most="1 day"; then keys are forgotten, until they have rows again.',
        ),
        (
            lambda: query_of().fill("previous", "30 seconds"),
            "fill: for_at_most is 30 seconds, but the next window ends 1 minute later, so that nothing would be filled "
            "in. Give a longer time.",
        ),
        (
            lambda: query_of(tm.cumulate("1 day", every="6 hours"), "1 hour").fill("previous", **DAY),
            'fill: "previous" goes with one kind of window; of these, none is clearly the one before: '
            "6 hours to 1 day from its beginning, 1 hour. Write a query for each of them; they share what they "
            "compute.",
        ),
        (
            lambda: query_of(early="1 second").fill("previous", **DAY),
            "fill: it does not go with early results or lateness, which emit what changed. "
            "Leave out fill, or early and lateness.",
        ),
    ],
)
def test_mistakes_are_named(make: Any, says: str) -> None:
    with pytest.raises(tm.DefinitionError) as caught:
        make()
    assert str(caught.value) == says


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (
            'for_at_most = "1 day"',
            "job.toml: [[query]] 'series': for_at_most is given without fill. "
            'Add fill = "previous", or fill = "zero".',
        ),
        (
            'fill = "previous"',
            """job.toml: [[query]] 'series': fill: "previous" lacks for_at_most, how long a key goes on after its """
            'last window with rows. Add for example for_at_most="1 day"; then keys are forgotten, until they have rows '
            "again.",
        ),
        (
            'fill = "previous"\nfor_at_most = 5',
            "job.toml: [[query]] 'series': for_at_most = 5 is not a text. Write for_at_most as a text.",
        ),
    ],
)
def test_mistakes_in_jobs_are_named(lines: str, says: str) -> None:
    with pytest.raises(JobFileError) as caught:
        check_job(parse_job(JOB + lines))
    assert str(caught.value) == says


def test_the_plan_says_what_is_filled_in() -> None:
    job = JOB + 'fill = "previous"\nfor_at_most = "1 day"'
    check_job(parse_job(job))
    app = tm.App(cast("Any", NoSession()), checkpoint="ckpt")
    query_in(app).fill("previous", for_at_most="1 day").to(tm.sinks.console(), "series")
    (built,) = app._definitions()[0].queries
    assert built.definition("x")["fill"] == "previous for at most 1 day"
    shown = "".join(part if isinstance(part, str) else part[0] for part in _consolidate(_query(built, "console"), ()))
    assert shown == "series: 1 minute; n = count(*) filled with previous for at most 1 day → console"


def test_rows_that_are_passed_on_have_no_windows_in_the_plan() -> None:
    """The window in which they are counted is a hundred years long, and nobody's."""
    app = tm.App(cast("Any", NoSession()), checkpoint="ckpt")
    stream = app.stream(tm.sources.files("in/*.json", schema=SCHEMA), event_time="at")
    stream.where("sensor <> ''").rows().to(tm.sinks.parquet("out"), "kept")
    app.join(stream, stream, on="sensor", between=(0, "1 hour")).window("1 day").agg(n=tm.count()).to(
        tm.sinks.console(), "joined"
    )
    shown = {
        query.name: "".join(part if isinstance(part, str) else part[0] for part in _consolidate(told, ()))
        for definition in app._definitions()
        for query in definition.queries
        for told in [_query(query, "sink")]
    }
    assert shown["kept"] == "kept: the rows themselves → sink"
    assert shown["join1.left"] == "join1.left: the rows themselves in windows of 1 minute → sink"
