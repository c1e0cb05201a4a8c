"""The example of docs/guide/sites.md: its files, run as the page says, give what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.docs.pages import ROOT

from transom.cli.main import cli
from transom.cli.sites import Together, builds_of
from transom.jobs import regionfile, sitefile
from transom.jobs.sitefile import load_site

PAGE = (ROOT / "docs" / "guide" / "sites.md").read_text(encoding="utf-8")
FILE = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)


def test_the_example_runs(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = dict(FILE.findall(PAGE))
    expected = json.loads(files.pop("out/fares"))
    for name, text in files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    (command,) = re.findall(r"^transom site (.*) --once --close-all$", PAGE, re.MULTILINE)
    builds = builds_of([load_site(Path(name)) for name in command.split()])
    final = Together({name: build(spark) for name, build in builds.items()}, lambda progress: None).run(True, True)
    assert [(query.name, query.windows) for query in final.queries] == [("fares", 1), ("all", 1)]
    (result,) = Path("out/fares").glob("part-*")
    assert json.loads(result.read_text()) == expected


def test_every_key_is_explained():
    known = {*regionfile._TOP, *regionfile._SITE, *regionfile._LINK, *sitefile._KEYS} - {"site", "link"}
    tables = PAGE.split("## [TOPOLOGY.toml]", 1)[1]
    named = set(re.findall(r"`(\w+)`", tables)) | {"sources"}
    assert known <= named, known - named
    assert {command.name or command.callback.__name__ for command in cli.registered_commands} >= {"site", "sites"}
