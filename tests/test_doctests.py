"""The examples in docstrings do what they say, and no module does more than define when it is imported."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "src"
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "transom").rglob("*.py"))
}
EXAMPLES = [name for name, text in MODULES.items() if ">>> " in text]


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_importing_everything_starts_nothing():
    """No JVM, no thread."""
    program = "\n".join(
        [
            "import importlib, sys, threading",
            f"for name in {sorted(set(MODULES) - {'transom.__main__'})}: importlib.import_module(name)",
            "from pyspark import SparkContext",
            "assert SparkContext._gateway is None",
            "assert threading.enumerate() == [threading.main_thread()], threading.enumerate()",
        ]
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_what_only_some_need_is_imported_when_it_is_needed():
    """Each of these takes a tenth of a second or megabytes, or is an extra."""
    heavy = (
        "confluent_kafka",
        "cryptography",
        "deltalake",
        "networkx",
        "obstore",
        "pandas",
        "psycopg",
        "pyarrow.flight",
        "pyspark",
        "scipy",
    )
    program = (
        f"from transom import *; import sys; found = sorted(set({heavy}) & set(sys.modules)); assert not found, found"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_workers_import_little():
    """They make partials without Spark SQL; each would pay for what only jobs are written with, and for stores."""
    heavy = ("transom.public", "transom.api", "transom.checkpoint", "transom.windows.store", "transom.sources.filesets")
    program = (
        f"import transom.engine.execution.splits, sys; found = set({heavy}) & set(sys.modules); "
        "assert not found, found; import transom as tm; assert set(tm.__all__) <= set(dir(tm)); "
        "assert tm.App and tm.sinks.json and tm.__version__; assert not hasattr(tm, 'no_such_name'); "
        "assert set(tm.sources.__all__) <= set(dir(tm.sources)); assert tm.sources.files and tm.sources.kafka; "
        "assert not hasattr(tm.sources, 'no_such_name')"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
