"""What is published: an sdist, a wheel made of it, and the demonstration run from that in an empty environment."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command, **options):
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_package_installs_into_an_empty_environment_and_runs(tmp_path):
    copy = tmp_path / "copy"
    files = run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    for name in filter(None, files):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())
    build = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "setuptools>=77")
    run(python, "-c", build, cwd=copy)
    (sdist,) = tmp_path.glob("transom-*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert any(name.endswith("src/transom/py.typed") for name in archive.getnames())
    run(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, sdist)
    (wheel,) = tmp_path.glob("transom-*.whl")
    run(python, "-m", "pip", "install", "-q", f"{wheel}[demo]")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    transom = tmp_path / "venv" / "bin" / "transom"
    assert run(transom, "--version", cwd=tmp_path, env=clean).startswith("Transom ")
    shown = run(transom, "demo", "--rows", "5000", "--out", tmp_path / "out", cwd=tmp_path, env=clean)
    assert "Too late: transom dead-letters" in shown
    assert list((tmp_path / "out" / "results").glob("*/*.parquet"))
