"""Values of another type than a key takes: the error names the key, and shows what stands in the file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, date, datetime, time
from typing import Any

import pytest

from transom.errors import JobFileError
from transom.jobs import keys
from transom.jobs.building import check_job
from transom.jobs.jobfile import JobSpec, parse_job
from transom.jobs.kinds import ANY, SINKS, SOURCES, kinds

JOB = tomllib.loads("""
checkpoint = "ckpt"

[settings]
poll = "1 second"

[[source]]
name = "trips"
files = ["trips/*.json"]
schema = "zone string, fare double, at timestamp"
options = {mode = "x"}
max_files_per_cut = 3
event_time = "at"
watermark = "30 seconds"
idle_after = "1 minute"
from_source = false

[[source]]
name = "made"
generator = {at = "event_time"}
rows_per_second = 10
rows = 100
partitions = 2
event_time = "at"

[[source]]
name = "payments"
kafka = "localhost:1"
topics = ["payments"]
format = {json = "at timestamp"}
metadata = true
group = "g"
event_time = "at"

[[query]]
name = "fares"
source = "trips"
group_by = ["zone"]
windows = ["1 minute", {sliding = "1 hour", every = "1 minute"}]
aggregates = ["count(*) as n"]
within = "2 seconds"
quantile = 0.9
sinks = [
    {parquet = "out"},
    {sqlite = "x.db", table = "t"},
    {kafka = "localhost:1", topic = "t", key = ["zone"], shared = true, options = {a = "b"}},
    {console = 10},
]
""")


def built(job: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> JobSpec:
    monkeypatch.setattr(keys.tomllib, "loads", lambda text: job)
    spec = parse_job("")
    check_job(spec)
    return spec


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values that hold no others."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if inside is None:
        yield path
    else:
        for key, each in inside:
            yield from leaves(each, (*path, key))


@pytest.mark.parametrize("path", list(leaves(JOB)), ids=lambda path: ".".join(map(str, path)))
def test_a_date_where_there_is_something_else(path: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    job = deepcopy(JOB)
    built(deepcopy(JOB), monkeypatch)
    inside: Any = job
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = date(2026, 1, 2)
    with pytest.raises(JobFileError) as caught:
        built(job, monkeypatch)
    assert "2026-01-02" in str(caught.value)
    assert "datetime" not in str(caught.value)
    named = [key for key in path if isinstance(key, str)][-1]
    assert re.search(rf"\b{named.removesuffix('s')}s?\b", str(caught.value))
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00+00:00"),
    ],
)
def test_a_date_where_there_may_be_one(value: date, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = deepcopy(JOB)
    job["source"][1]["start"] = job["source"][2]["starting"] = value
    spec = built(job, monkeypatch)
    assert spec.sources[1].options["start"] == spec.sources[2].options["starting"] == text


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("max_files_per_cut", "3", "max_files_per_cut = '3' is not a whole number"),
        ("max_files_per_cut", True, "max_files_per_cut = True is not a whole number"),
        ("options", 7, "options = 7 is not a table"),
        ("files", ["x", 7], r"files = \['x', 7\] is not a list of texts"),
        ("from_source", "false", "from_source = 'false' is not true or false"),
        ("schema", time(7, 8), "schema = 07:08:00 is not a text"),
    ],
)
def test_other_types(key: str, value: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = deepcopy(JOB)
    job["source"][0][key] = value
    with pytest.raises(JobFileError, match=message):
        built(job, monkeypatch)


def test_what_toml_has_of_each_option_is_known() -> None:
    for group, own in (("sources", SOURCES), ("sinks", SINKS)):
        for name in own:
            kind = kinds(group)[name]  # type: ignore[index]
            assert all(kind.types_of(option) not in ((), ANY) for option in kind.options), name
