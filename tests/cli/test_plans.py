"""`transom profile` and `transom plan` without Spark: what they print, and what they refuse with a remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.planning.profiles import stream
from tests.small_jobs import small_job
from typer.testing import CliRunner

from transom.cli.main import cli
from transom.cli.plans import rates_of
from transom.cli.profiling import here
from transom.errors import DefinitionError
from transom.jobs.digest import job_digest
from transom.planning.profile import Equipment, Profile

CLICKS = """
name = "clicks"
windows = ["10 seconds"]
aggregates = ["count(*) as n"]
sink = {json = "out"}
"""
JOB = small_job(CLICKS, "a int, at timestamp")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path / "job.toml"


@pytest.fixture
def known(job: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    # Asking Java for its version takes long.
    monkeypatch.setattr("transom.cli.profiling.version_numbers", lambda: {"Spark": "4.3"})
    return Profile(job_digest(job), Equipment(4, versions=here()), {"s": stream(most_rows=10_000)})


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, job: Path, known: Profile) -> Callable[..., Any]:
    """Return what plans by a profile, which is another one's text if that is given."""
    monkeypatch.setenv("COLUMNS", "200")

    def invoke(*options: object, profile: Profile | str = known) -> Any:
        where = job.with_name("profile.json")
        where.write_text(profile if isinstance(profile, str) else profile.to_json())
        return CliRunner().invoke(cli, ["plan", str(job), "--profile", str(where), *map(str, options)])

    return invoke


def test_the_smallest_machine_is_printed_with_its_settings_and_phases(plan: Callable[..., Any]) -> None:
    shown = plan("--rate", 20_000, "--within", "5s", "--quantile", 0.9)
    assert shown.exit_code == 0, shown.output
    assert "0.9 of the results within 5 s: 1 core suffices." in shown.output
    dearer = "if all costs 10 % more than was measured"
    for part in ("Largest rate within the limit: s ", "What binds: ", "trigger", "consolidate", dearer):
        assert part in shown.output
    assert "With fewer" not in shown.output


def test_what_smaller_machines_do_is_printed_beside_it(plan: Callable[..., Any]) -> None:
    options = ("--rate", 400_000, "--within", "2s", "--quantile", 0.9)
    *smaller, suffices = json.loads(plan(*options, "--json").stdout)["largest_rates"]
    assert smaller
    shown = plan(*options).output
    assert f"{suffices['number']} cores suffice." in shown
    fewer = next(line for line in shown.splitlines() if line.startswith("With fewer: 1 core "))
    rates = [f"s {400_000 * each['factor']:,.0f} rows/s" if each["factor"] else "no rate" for each in smaller]
    assert [part.split(" ", 2)[2] for part in fewer.removeprefix("With fewer: ").removesuffix(".").split("; ")] == rates


def test_programs_get_the_same_as_json(plan: Callable[..., Any]) -> None:
    shown = plan("--rate", 20_000, "--within", "5s", "--json")
    found = json.loads(shown.stdout)
    assert found["kept"]
    assert (found["unit"], found["cores"]) == ("core", found["number"])
    assert set(found["tuning"]["streams"]) == {"s"}
    assert found["latencies"]["s"] < found["latencies_with_margin"]["s"] <= 5


def test_the_limit_is_the_one_of_the_queries_if_none_is_given(plan: Callable[..., Any]) -> None:
    assert json.loads(plan("--rate", 20_000, "--json", "--quantile", 0.5).stdout)["limits"] == {"s": 2.0}


def test_what_cannot_be_met_says_why_and_what_can_with_code_1(plan: Callable[..., Any]) -> None:
    shown = plan("--rate", 5_000_000, "--within", "2s")
    assert shown.exit_code == 1
    assert "cannot be met with 4 cores, because" in shown.output
    assert "the nearest that can is s " in shown.output
    found = plan("--rate", 5_000_000, "--within", "2s", "--json")
    assert found.exit_code == 1
    assert not json.loads(found.stdout)["kept"]


def test_a_limit_below_the_fixed_path_names_its_longest_phase(plan: Callable[..., Any]) -> None:
    shown = plan("--rate", 100, "--within", "50ms")
    assert shown.exit_code == 1
    assert "because the longest phase of s is" in shown.output
    assert "s at these rates" in shown.output


def test_executors_have_the_cores_that_were_measured_or_are_given(plan: Callable[..., Any]) -> None:
    options = ("--rate", 200_000, "--within", "9s", "--json", "--quantile", 0.5, "--max-executors", 2)
    assert json.loads(plan(*options).stdout)["cores"] == 4
    found = json.loads(plan(*options, "--cores", 2).stdout)
    assert (found["unit"], found["number"], found["cores"]) == ("executor", 1, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--within", "2s"], "no rate of s is given"),
        (["--rate", "many"], "'many' is no number"),
        (["--rate", "0"], "the rate of s is 0"),
        (["--rate", "nan"], "the rate of s is nan"),
        (["--rate", "inf"], "the rate of s is inf"),
        (["--rate", "t=5"], "no stream 't'"),
        (["--rate", "5", "--within", "0s"], "the limit of s is 0"),
        (["--rate", "5", "--within", "soon"], "soon"),
        (["--rate", "5", "--quantile", "1"], "the quantile is 1"),
        (["--rate", "5", "--quantile", "nan"], "the quantile is nan"),
        (["--rate", "5", "--cores", "0"], "--cores is 0"),
        (["--rate", "5", "--max-executors", "0"], "--max-executors is 0"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(plan: Callable[..., Any], options: list[str], message: str) -> None:
    refused(plan(*options), message)


def refused(shown: Any, message: str) -> None:
    """Require a message and a remedy beneath."""
    assert shown.exit_code == 1
    assert message in shown.output
    assert len(shown.output.strip().splitlines()) >= 2, "no remedy"
    assert "Traceback" not in shown.output


def test_no_limit_anywhere_is_refused(plan: Callable[..., Any], known: Profile) -> None:
    without = replace(known, streams={"s": replace(known.streams["s"], limit=None)})
    refused(plan("--rate", 5, profile=without), "no query has a limit")


def test_a_profile_of_something_else_is_refused_with_the_differences(plan: Callable[..., Any], known: Profile) -> None:
    refused(plan("--rate", 5, profile=replace(known, job="other")), "was made of another job")
    there = {**known.equipment.versions, "machine": "m68k, 1 cores", "Spark": "1.0"}
    shown = plan("--rate", 5, profile=replace(known, equipment=Equipment(4, versions=there)))
    refused(shown, "machine m68k, 1 cores, here")
    assert "Spark 1.0, here" in shown.output


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("{", ""),
        ('"format": 1', '"format": 99'),
        ('"cores": 4', '"cores": 0'),
        ('"cores": 4', '"cores": "four"'),
        ('"after": null', '"after": "t"'),
        ('"after": null', '"after": "s"'),
        ('"limit": 2.0', '"limit": "soon"'),
        ('"groups": 1', '"groups": 0'),
        ('"closing": 1.0', '"closing": NaN'),
        ('"keys": [', '"keys": 3, "other": ['),
        ('"streams": {', '"streams": 3, "other": {'),
    ],
)
def test_a_damaged_profile_is_refused(plan: Callable[..., Any], known: Profile, right: str, wrong: str) -> None:
    text = known.to_json()
    assert right in text
    refused(plan("--rate", 5, profile=text.replace(right, wrong, 1)), "profile")


def test_missing_files_are_named(job: Path) -> None:
    options = ["--profile", str(job.with_name("none.json")), "--rate", "5"]
    refused(CliRunner().invoke(cli, ["plan", str(job), *options]), "none.json cannot be read")
    refused(CliRunner().invoke(cli, ["plan", str(job.with_name("no.toml")), *options]), "There is no job file")
    refused(CliRunner().invoke(cli, ["profile", str(job.with_name("no.toml"))]), "There is no job file")


def test_bad_options_of_a_profile_are_refused_before_spark_starts(job: Path) -> None:
    refused(CliRunner().invoke(cli, ["profile", str(job), "--for", "1s"]), "--for is 1s")
    out = job.with_name("nowhere") / "profile.json"
    refused(CliRunner().invoke(cli, ["profile", str(job), "--out", str(out)]), "no directory")


def test_the_digest_is_of_what_is_computed(job: Path) -> None:
    before = job_digest(job)
    several = JOB.replace('sink = {json = "out"}', 'sinks = [{json = "out"}, {csv = "out3"}]')
    for same in (JOB.replace('"ckpt"', '"other"'), JOB.replace('"out"', '"out2"'), "# words\n" + JOB, several):
        job.write_text(same)
        assert job_digest(job) == before
    lanes, tiers = (
        (('lane = "auto"', True), ('lane = "spark"', False)),
        (('tier = "driver"', True), ('tier = "cluster"', False)),
    )
    for setting, same in (('poll = "1 second"', True), *lanes, *tiers):
        job.write_text(f"{JOB}\n[settings]\n{setting}\n")
        assert (job_digest(job) == before) == same
    job.write_text(JOB.replace("10 seconds", "20 seconds"))
    assert job_digest(job) != before


def test_one_rate_is_for_all_sources_and_streams_of_results_follow() -> None:
    known = Profile("", Equipment(1), {"a": stream(), "b": stream(results=50.0, closing=2.0), "c": stream(after="b")})
    assert rates_of(known, ["100"]) == {"a": 100, "b": 100, "c": 25}
    assert rates_of(known, ["100", "b=7", "c=1_000"]) == {"a": 100, "b": 7, "c": 1000}
    with pytest.raises(DefinitionError, match="no rate of b"):
        rates_of(known, ["a=5"])
