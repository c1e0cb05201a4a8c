"""Queries over early results in TOML."""

from __future__ import annotations

import pytest

from transom.errors import JobFileError
from transom.jobs.building import check_job
from transom.jobs.jobfile import parse_job

JOB = """
checkpoint = "ckpt"

[source]
generator = {zone = "'Soho'"}
rows_per_second = 10
event_time = "event_time"

[[query]]
name = "minutes"
windows = ["1 minute"]
early = "1 second"
aggregates = ["count(*) as trips"]

[[query]]
name = "hours"
from = {query = "minutes", early = true}
windows = ["1 hour"]
early = "1 second"
aggregates = ["sum(trips) as trips"]
sink = {console = 5}
"""


def test_from_is_a_name_or_a_table() -> None:
    hours = parse_job(JOB).queries[1]
    assert (hours.parent, hours.parent_early) == ("minutes", True)
    check_job(parse_job(JOB))
    for text in ('"minutes"', '{query = "minutes"}', '{query = "minutes", early = false}'):
        plain = parse_job(JOB.replace('{query = "minutes", early = true}', text)).queries[1]
        assert (plain.parent, plain.parent_early) == ("minutes", False)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("early = true", 'early = "1 second"', "'hours' from: early = '1 second' is not true or false"),
        ("early = true", "eraly = true", "'hours' from: unknown key 'eraly'.*early"),
        ('query = "minutes", ', "", "'hours' from: the key 'query' is missing"),
        ('query = "minutes", ', 'query = "minute", ', "'hours': from: there is no query 'minute' above"),
        ('{query = "minutes", early = true}', "5", "'hours': from = 5 is not"),
    ],
)
def test_mistakes(old: str, new: str, message: str) -> None:
    assert old in JOB
    with pytest.raises(JobFileError, match=message):
        parse_job(JOB.replace(old, new, 1))


def test_a_query_without_early_results_is_found_before_spark_starts() -> None:
    with pytest.raises(JobFileError, match=r"results\(early=True\): the query has no early results"):
        check_job(parse_job(JOB.replace('early = "1 second"\n', "", 1)))
