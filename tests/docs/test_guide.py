"""What the documentation shows runs, and prints what it says."""

from __future__ import annotations

import inspect
import re
import runpy
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.docs.pages import ROOT, blocks_of, run_page
from tests.interpreting import CONF

import transom as tm
from transom.demo.flights import load_flights, to_events, write_events
from transom.jobs import jobfile, kinds, lookups, queries, rows, selections, windows
from transom.jobs.jobfile import parse_job
from transom.settings import Settings

GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))
PAGES = [ROOT / "README.md", *GUIDE, *sorted((ROOT / "docs" / "concepts").glob("*.md"))]
PUBLIC = (tm, tm.sources, tm.sinks, tm.tables)


def named(page: Path) -> str:
    return page.stem


@pytest.fixture(scope="module")
def interpreting(spark: SparkSession) -> Iterator[None]:
    """Let the session that pages get compile nothing: they ask each query once."""
    for name, value in CONF.items():
        spark.conf.set(name, value)
    yield
    for name in CONF:
        spark.conf.unset(name)


@pytest.mark.usefixtures("interpreting")
@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text()], ids=named)
def test_what_a_page_shows_runs(page: Path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if page.stem == "first-job":  # what `transom demo` leaves
        write_events(to_events(load_flights(), 5_000), tmp_path / "demo-out" / "input")
    run_page(page)


@pytest.mark.parametrize("page", [page for page in PAGES if "```toml" in page.read_text()], ids=named)
def test_jobs_in_toml_are_jobs(page: Path):
    for block in blocks_of(page.read_text()):
        if block.kind == "toml" and block.runs and "[[query]]" in block.code:
            assert parse_job(block.code, page.name).queries
        elif block.kind == "toml":
            tomllib.loads(block.code)


def test_every_key_of_a_job_is_explained():
    known = {*jobfile._JOB, *jobfile._COMMON, *queries.KEYS, *selections._INPUT}
    known |= {*lookups._TABLES, *(key for spec in rows._SPECS for key in spec.known)}
    for group, own in (("sources", kinds.SOURCES), ("sinks", kinds.SINKS)):
        known |= {key for name in own for key in (name, *kinds.kinds(group)[name].options)}
    known |= {key for keys in windows._WINDOWS.values() for key in keys}
    page = (ROOT / "docs/guide/toml.md").read_text()
    lines = re.findall(r"^\| `(\w+(?:`, `\w+)*)` \|", page, re.MULTILINE)
    explained = {key for line in lines for key in re.split(r"`, `", line)}
    assert explained == known


def test_every_setting_is_explained():
    page = (ROOT / "docs/guide/settings.md").read_text()
    explained = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert explained == {field.name for field in fields(Settings)}


def test_every_aggregate_has_an_example():
    page = (ROOT / "docs/guide/aggregates.md").read_text()
    code = "".join(block.code for block in blocks_of(page) if block.kind == "python")
    functions = {
        name for name in tm.__all__ if "aggregates.functions" in str(getattr(getattr(tm, name), "__module__", ""))
    }
    assert {name for name in functions if f"tm.{name}(" not in code} == set()


def referred() -> set[str]:
    """Return what the reference describes, as Python finds it."""
    pages = (ROOT / "docs/reference").glob("*.md")
    return {path for page in pages for path in re.findall(r"^::: ([\w.]+)$", page.read_text(), re.MULTILINE)}


def test_the_reference_has_every_public_name():
    objects = {id(found(path)) for path in referred()}
    public = {f"{module.__name__}.{name}": getattr(module, name) for module in PUBLIC for name in module.__all__}
    missing = [name for name, thing in public.items() if not inspect.ismodule(thing) and id(thing) not in objects]
    assert missing == []


def test_what_the_reference_describes_is_documented():
    for path in sorted(referred()):
        thing = found(path)
        assert thing.__doc__, path
        for name, member in vars(thing).items() if inspect.isclass(thing) else ():
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                assert member.__doc__, f"{path}.{name}"


def found(path: str) -> object:
    """Return what a dotted path names."""
    module, _, name = path.rpartition(".")
    return getattr(__import__(module, fromlist=[name]), name)


def test_the_figure_is_drawn_from_what_benchmarks_found(tmp_path, monkeypatch):
    drawn = runpy.run_path(str(ROOT / "docs/pictures/draw.py"))
    for name in ("catchup", "paced"):
        (tmp_path / f"{name}.json").write_bytes((ROOT / f"docs/pictures/{name}.json").read_bytes())
    monkeypatch.setitem(drawn["figure"].__globals__, "HERE", tmp_path)
    drawn["figure"]()
    assert (tmp_path / "figure.svg").read_text() == (ROOT / "docs/pictures/figure.svg").read_text()
