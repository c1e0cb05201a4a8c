"""Kinds of sources and sinks that packages bring; the example of the guide is one."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
from tests.small_jobs import small_job

import transom as tm
from transom.errors import JobFileError
from transom.jobs.building import build_job
from transom.jobs.jobfile import parse_job
from transom.jobs.kinds import kinds
from transom.testing import SinkCase, SinkSuite

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "package"
FARES = """
name = "fares"
group_by = ["zone"]
windows = ["1 minute"]
aggregates = ["count(*) as n"]
sink = {lines = "out/fares.txt", separator = ";"}
"""
JOB = small_job(FARES, "zone string, at timestamp")


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, points: str) -> None:
    """Make Python see a package with entry points, as if it were installed."""
    info = folder / "acme-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(folder))


@pytest.fixture
def package(tmp_path, monkeypatch):
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in some.items())
        for group, some in project["entry-points"].items()
    )
    install(tmp_path / "site", monkeypatch, points)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield
    sys.modules.pop("acme_lines", None)


class TestLines(SinkSuite):
    """The example passes, as its own tests say."""

    @pytest.fixture
    def case(self, package, tmp_path):
        from acme_lines import lines, read_lines

        return SinkCase(lambda: lines(tmp_path / "fares.txt"), lambda: read_lines(tmp_path / "fares.txt"))


def test_a_job_names_a_sink_of_a_package(package, spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/1.json").write_text('{"zone": "Soho", "at": "2026-03-01T12:00:00Z"}\n')
    app = build_job(parse_job(JOB), spark)
    assert isinstance(app, tm.App)
    app.run(once=True, close_all=True)
    from acme_lines import read_lines

    assert read_lines(Path("out/fares.txt"), ";") == [("Soho", 1)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("separator", "seperator", r"'fares' sink: unknown key 'seperator'\. Did you mean 'separator'"),
        ("{lines", "{line", r"unknown key 'line'\. Did you mean 'lines'"),
        ('"out/fares.txt", separator = ";"', '""', "lines is empty"),
        ("{lines", '{csv = "x", lines', "one kind with its argument"),
    ],
)
def test_mistakes_in_what_a_package_takes(package, old, new, message):
    with pytest.raises(JobFileError, match=message):
        parse_job(JOB.replace(old, new))


def test_a_package_cannot_take_the_name_of_ours_and_may_be_broken(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "[transom.sinks]\ncsv = nowhere:csv\nbroken = nowhere:sink\nvalue = sys:maxsize\n")
    assert kinds("sinks")["csv"].make is tm.sinks.csv
    with pytest.raises(JobFileError, match=r"broken: the package that brings it cannot be loaded \(nowhere:sink\)"):
        parse_job(JOB.replace("lines", "broken"))
    with pytest.raises(JobFileError, match="value: what its package brings is no function"):
        parse_job(JOB.replace("lines", "value"))


def test_a_source_of_a_package(tmp_path, monkeypatch):
    (tmp_path / "acme_rows.py").write_text("def rows(place, *, limit, often=1):\n    return (place, limit, often)\n")
    install(tmp_path, monkeypatch, "[transom.sources]\nacme = acme_rows:rows\n")
    job = JOB.replace('files = "in/*.json"\nschema = "zone string, at timestamp"', 'acme = "x"\nlimit = 3')
    job = job.replace("lines", "csv").replace(', separator = ";"', "")
    (source,) = parse_job(job).sources
    assert (source.kind, source.reads, source.options) == ("acme", "x", {"limit": 3})
    assert kinds("sources")["acme"].make(source.reads, **source.options) == ("x", 3, 1)
    (source,) = parse_job(job.replace("limit = 3", "limit = true")).sources
    assert source.options == {"limit": True}
    with pytest.raises(JobFileError, match="the key 'limit' is missing"):
        parse_job(job.replace("limit = 3", ""))
    with pytest.raises(JobFileError, match=r"the key 'schema' does not go with acme"):
        parse_job(job.replace("limit = 3", 'limit = 3\nschema = "a int"'))
    sys.modules.pop("acme_rows", None)
