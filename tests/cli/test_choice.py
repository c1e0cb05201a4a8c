from __future__ import annotations

import pytest
from typer.testing import CliRunner

from transom.cli.choice import SparkChoice
from transom.cli.main import cli


@pytest.mark.parametrize(
    "choice, submitted, settings",
    [
        (SparkChoice(), False, {"spark.master": "local[*]", "spark.driver.host": "127.0.0.1"}),
        (SparkChoice(), True, {}),
        (SparkChoice("spark://a:7077"), True, {"spark.master": "spark://a:7077"}),
        (
            SparkChoice("local[2]", {"spark.driver.host": "10.0.0.1", "spark.x": "1"}, "g:a:1"),
            False,
            {
                "spark.master": "local[2]",
                "spark.driver.host": "10.0.0.1",
                "spark.x": "1",
                "spark.jars.packages": "g:a:1",
            },
        ),
    ],
)
def test_what_a_session_begins_with(choice, submitted, settings):
    assert choice.settings(submitted=submitted) == settings


@pytest.mark.parametrize(
    "pair, says",
    [
        ("spark.master=local", "--master"),
        ("spark.jars.packages=g:a:1", "--packages"),
        ("memory=2g", "--conf memory is no setting"),
        ("topsecret", "--conf ... is no setting"),
    ],
)
def test_settings_that_are_none(tmp_path, monkeypatch, pair, says):
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(cli, ["run", str(tmp_path / "job.toml"), "--conf", pair])
    assert shown.exit_code == 2
    assert says in shown.stderr
    assert "topsecret" not in shown.stderr
