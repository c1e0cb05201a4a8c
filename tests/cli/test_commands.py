from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from tests.small_jobs import small_job
from typer.testing import CliRunner

import transom as tm
from transom.cli.deadletters import read_dead_letters
from transom.cli.java import check_java, parse_java_version
from transom.cli.loading import load
from transom.cli.main import cli, print_error
from transom.errors import DefinitionError, JobFileError, SessionError

COMMANDS = ("run", "explain", "demo", "dead-letters", "compact", "checkpoint")


@pytest.fixture
def invoke(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    return lambda *arguments: CliRunner().invoke(cli, [str(argument) for argument in arguments])


def test_help_names_every_command(invoke):
    shown = invoke("--help")
    assert shown.exit_code == 0
    assert all(command in shown.output for command in COMMANDS)
    assert "transom demo" in shown.output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example(invoke, command):
    shown = invoke(command, "--help")
    assert shown.exit_code == 0
    assert f"Example: transom {command}" in shown.output


def test_wrong_usage_is_code_2(invoke, tmp_path):
    assert invoke("fly").exit_code == 2
    assert invoke("run").exit_code == 2
    shown = invoke("run", tmp_path / "job.toml", "--close-all")
    assert shown.exit_code == 2
    assert "--once" in shown.output


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('["10 seconds"]', '["10 sekunden"]', r"\[\[query\]\] 'clicks': .*10 sekunden"),
        ('["10 seconds"]', '[{sliding = "1 hour", every = "2 hours"}]', r"\[\[query\]\] 'clicks': .*2 hours"),
        ('["10 seconds"]', '[{calendar = "day", zone = "Mars"}]', "'clicks': .*Mars"),
        ('"count(*) as n"', '"total(*) as n"', "'clicks': .*total"),
        ('"count(*) as n"', '"count(*) as n", "sum(a) as n"', "two aggregates are named 'n'"),
        ('name = "clicks"', 'name = "clicks"\nlateness = "-1 second"', "'clicks': lateness"),
        ('watermark = "1 second"', 'watermark = "soon"', r"\[source\] 'source': .*soon"),
        ("[source]", '[settings]\ntrigger = "x"\n[source]', "trigger"),
        ("[source]", "[settings]\ntriger = 1\n[source]", "triger"),
    ],
)
def test_what_is_wrong_with_a_job_is_said_before_spark_starts(invoke, tmp_path, right, wrong, message):
    clicks = """
        name = "clicks"
        windows = ["10 seconds"]
        aggregates = ["count(*) as n"]
        sink = {parquet = "out"}
    """
    text = small_job(clicks, "a int, at timestamp", 'watermark = "1 second"')
    job = tmp_path / "job.toml"
    job.write_text(text)
    load(job)
    assert right in text
    job.write_text(text.replace(right, wrong))
    with pytest.raises(DefinitionError, match=message):
        load(job)


def test_errors_move_no_cursor(capsys):
    print_error(DefinitionError("no\x1b[2J way", "two\nlines\x07"))
    assert capsys.readouterr().err == "no\\x1b[2J way\ntwo\nlines\\x07\n"


def test_a_missing_job_is_one_sentence_and_a_remedy(invoke, tmp_path):
    shown = invoke("run", tmp_path / "none.toml")
    assert shown.exit_code == 1
    assert f"There is no job file {tmp_path / 'none.toml'}." in shown.stderr
    assert "Traceback" not in shown.output


def test_a_mistake_in_a_job_names_key_and_table(invoke, tmp_path):
    job = tmp_path / "job.toml"
    job.write_text('[source]\nfile = "x"\nevent_time = "t"\n')
    shown = invoke("explain", job)
    assert shown.exit_code == 1
    assert "[source]: unknown key 'file'" in shown.stderr
    assert "Did you mean 'files'?" in shown.stderr


def dead_letter(directory, reasons, records):
    directory.mkdir(parents=True)
    pq.write_table(pa.table({"reason": reasons, "record": records}), directory / "part-0.parquet")


def test_dead_letters(invoke, tmp_path):
    root = tmp_path / "dead-letters" / "trips"
    dead_letter(root / "cut=3", ["late", "late"], ['{"zone": "a"}', '{"zone": "b"}'])
    dead_letter(root / "cut=12", ["late", "null time"], ['{"zone": "c"}', '{"zone": null}'])
    (root / "cut=12" / "_SUCCESS").write_text("")
    (root / "cut=12" / ".part-1.parquet.tmp").write_text("half")
    (letters,) = read_dead_letters(tmp_path, limit=2)
    assert letters.counts == {"late": 3, "null time": 1}
    assert len(letters.samples["late"]) == 2
    assert letters.samples["null time"][0]["cut"] == 12

    shown = invoke("dead-letters", tmp_path)
    assert shown.exit_code == 0
    assert '{"zone": "a"}' in shown.output
    (line,) = invoke("dead-letters", tmp_path, "--json", "--limit", 1).output.splitlines()
    assert json.loads(line)["counts"] == {"late": 3, "null time": 1}
    assert str(root) in shown.output
    assert json.loads(line)["directory"] == str(root)


def test_dead_letters_that_are_no_text(invoke, tmp_path):
    record = pa.array([b"a\xff\x1b[2J"], pa.binary()).view(pa.string())
    time = pa.array([9_000_000_000_000_000_000], pa.timestamp("us", "UTC"))
    directory = tmp_path / "dead-letters" / "trips" / "cut=1"
    directory.mkdir(parents=True)
    pq.write_table(pa.table({"reason": ["corrupt"], "event_time": time, "record": record}), directory / "p.parquet")
    shown = invoke("dead-letters", tmp_path)
    assert shown.exit_code == 0
    assert "a\ufffd\\x1b[2J" in shown.output
    assert invoke("dead-letters", tmp_path, "--json").exit_code == 0


def test_no_dead_letters_of_a_stream(invoke, tmp_path):
    (tmp_path / "dead-letters" / "trips").mkdir(parents=True)
    assert len(invoke("dead-letters", tmp_path).output.splitlines()) == 1


def test_no_dead_letters(invoke, tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "checkpoint.json").write_text('{"format": 3}')
    assert "No dead letters" in invoke("dead-letters", tmp_path / "new").output
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "dead-letters").write_text("")
    for wrong in (tmp_path / "none", tmp_path, tmp_path / "file"):  # nobody is told that all is well there
        shown = invoke("dead-letters", wrong)
        assert (shown.exit_code, shown.stdout) == (1, "")
        assert "Traceback" not in shown.stderr


def test_damaged_dead_letters(invoke, tmp_path):
    directory = tmp_path / "dead-letters" / "trips" / "cut=1"
    directory.mkdir(parents=True)
    (directory / "part-0.parquet").write_text("damaged")
    shown = invoke("dead-letters", tmp_path)
    assert shown.exit_code == 1
    assert "cannot be read" in shown.stderr


def test_a_missing_checkpoint(invoke, tmp_path):
    shown = invoke("checkpoint", tmp_path)
    assert shown.exit_code == 1
    assert "no checkpoint" in shown.stderr


def test_nothing_to_compact(invoke, tmp_path):
    assert invoke("compact", tmp_path / "none").exit_code == 1


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def test_java_versions(text, version):
    assert parse_java_version(text) == version


def fake_java(home, body):
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(home)}


def test_java_that_will_not_do(tmp_path):
    with pytest.raises(SessionError, match=r"none on the PATH.*Install Java 17"):
        check_java({"PATH": str(tmp_path)})
    with pytest.raises(SessionError, match="JAVA_HOME is set, but"):
        check_java({"JAVA_HOME": str(tmp_path / "none")})
    old = fake_java(tmp_path / "old", "echo 'openjdk version \"11.0.2\"' >&2")
    with pytest.raises(SessionError, match=r"17 or newer; .* is version 11"):
        check_java(old)
    assert check_java(fake_java(tmp_path / "new", "echo 'openjdk version \"21.0.2\"' >&2")) == 21


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("job.py", "x = 1\n", "has no function build"),
        ("job.py", "def build():\n    pass\n", "takes 0 arguments"),
        ("job.py", "def build(spark, checkpoint):\n    pass\n", "--checkpoint DIR"),
        ("job.py", "\n1 / 0\n", "line 2, fails: ZeroDivisionError"),
        ("job.py", "def build(\n", "fails: SyntaxError"),
        ("job.yaml", "", "neither a .toml nor a .py"),
    ],
)
def test_jobs_that_cannot_be_loaded(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(JobFileError, match=message):
        load(path)


def test_a_python_job_with_its_own_checkpoint_refuses_another(tmp_path):
    path = tmp_path / "job.py"
    path.write_text("def build(spark):\n    pass\n")
    with pytest.raises(JobFileError, match=r"Define build\(spark, checkpoint\)"):
        load(path, tmp_path / "ckpt")


def test_versions_without_spark(invoke, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    shown = invoke("--version")
    assert shown.exit_code == 0
    transom, spark, java = shown.stdout.splitlines()
    assert transom == f"Transom {tm.__version__}"
    assert spark == f"Spark {pyspark.__version__}"
    assert java == "Java none that Spark can run on: Spark needs Java, and there is none on the PATH."
    fake_java(tmp_path, "echo 'openjdk version \"21.0.2\"' >&2")
    (tmp_path / "java").symlink_to(tmp_path / "bin" / "java")
    assert "Java 21" in invoke("--version").stdout
