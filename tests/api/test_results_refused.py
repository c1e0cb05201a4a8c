"""What `having`, `select` and `rename` refuse, with the remedy, and what they make of columns."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.small_jobs import NoSession, small_job

import transom as tm
from transom.errors import JobFileError
from transom.jobs.building import check_job
from transom.jobs.jobfile import parse_job

SCHEMA = "zone string, fare double, at timestamp"
FARES = """
name = "fares"
group_by = ["zone"]
windows = ["1 minute"]
aggregates = ["count(*) as trips", "sum(fare) as total"]
sink = {parquet = "out/fares"}
"""
JOB = small_job(FARES, SCHEMA)


def fares(**updates: Any) -> Any:
    app = tm.App(cast("Any", NoSession()), checkpoint="ckpt")
    stream = app.stream(tm.sources.files("in/*.json", schema=SCHEMA), event_time="at")
    return stream.group_by("zone").window("1 minute", **updates).agg(trips=tm.count(), total=tm.sum("fare"))


def test_columns_follow_the_steps() -> None:
    query = fares().select("window_end", "zone", mean="total / trips").rename(until="window_end")
    assert query.columns == ("until", "zone", "mean")
    assert fares(early="1 second").rename(area="zone", since="window_start").columns[:3] == (
        "since",
        "window_end",
        "area",
    )


@pytest.mark.parametrize(
    ("define", "says", "remedy"),
    [
        (lambda: fares().select("zne"), "no column 'zne'", "Did you mean 'zone'"),
        (lambda: fares().select(), "no column is given", "select"),
        (lambda: fares().select("zone", zone="trips"), "two result columns 'zone'", "another name"),
        (lambda: fares().select(tm), "has no name", "name=column"),
        (lambda: fares().select(mean=3), "not a column", "SQL"),
        (lambda: fares().rename(x="tripz"), "no column 'tripz'", "Did you mean 'trips'"),
        (lambda: fares().rename(x="trips", y="trips"), "two names", "select"),
        (lambda: fares().rename(zone="trips"), "two result columns 'zone'", "another name"),
        (lambda: fares().having(""), "empty", "column"),
        (lambda: fares(early="1 second").having("trips > 1"), "would stay", "select the condition"),
        (
            lambda: fares(lateness="1 second").select("zone", "trips"),
            "not all among",
            "Keep window_start, window_end, zone",
        ),
        (lambda: fares(lateness="1 second").select(revision="trips", **BOUNDS), "'revision'", "another name"),
        (lambda: fares().within("1 s", on_overload="shed").rename(shed_rows="trips"), "'shed_rows'", "another name"),
        (lambda: fares().rename(shed_rows="trips").within("1 s", on_overload="shed"), "'shed_rows'", "another name"),
        (lambda: fares().select("zone", "window_start").results(), "end of the window", "Keep it in select"),
    ],
)
def test_what_makes_no_sense_is_refused(define: Any, says: str, remedy: str) -> None:
    with pytest.raises(tm.DefinitionError, match=says) as caught:
        define()
    assert remedy in caught.value.remedy


BOUNDS = {name: name for name in ("window_start", "window_end", "zone")}


def checked(more: str) -> Any:
    spec = parse_job(JOB + more, "job.toml")
    check_job(spec)
    return spec.queries[0]


def test_jobs_say_them_too() -> None:
    query = checked(
        'having = "trips > 1"\nresults = ["zone", "`window_end`", "round(total / trips, 2) as mean"]\n'
        'rename = {until = "window_end"}'
    )
    assert query.having == "trips > 1"
    assert query.results == (("zone", "zone"), ("window_end", "`window_end`"), ("mean", "round(total / trips, 2)"))
    assert query.rename == (("until", "window_end"),)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ('results = ["total / trips"]', "has no name.*as mean"),
        ("rename = {a = 1}", "not a table of names"),
        ('rename = {a = "tripz"}', "no column 'tripz'.*Did you mean 'trips'"),
        ('result = ["zone"]', "unknown key 'result'.*Did you mean 'results'"),
        ('havin = "trips > 1"', "Did you mean 'having'"),
        ('rows = true\nhaving = "a"', "rows = true"),
    ],
)
def test_wrong_jobs_are_refused(more: str, says: str) -> None:
    with pytest.raises(JobFileError) as caught:
        checked(more)
    import re

    assert re.search(says, f"{caught.value.message} {caught.value.remedy}"), caught.value


def test_steps_are_told_as_they_were_written() -> None:
    query = fares().having("trips > 1").select("zone", "window_end", mean="total / trips").rename(until="window_end")
    assert [str(step) for step in query.steps] == [
        "having trips > 1",
        "select zone, window_end, total / trips as mean",
        "rename window_end as until",
    ]
