"""The import rules of the package, read from the source: see docs/architecture.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src" / "transom"


def layers_of(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the layers that the architecture draws, lowest first: the block of text below the heading "Layers"."""
    block = text.split("## Layers", 1)[1].split("```")[1]
    lines = [line.split("  #")[0].split() for line in block.splitlines()[1:]]
    return tuple(tuple(name.removesuffix("/").removesuffix(".py") for name in line) for line in reversed(lines) if line)


LAYERS = layers_of((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
"""Lowest first. A folder imports itself and lower layers; never a neighbour in its own layer."""
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
PURE = {"windows", "windows/aggregates", "scheduling", "placement", "planning", "widearea", "native"}
USERS_OF_THE_PUBLIC_NAMES = {"jobs", "demo", "cli"}
"""They write jobs as a user does: `import transom as tm`."""

FORBIDDEN_IN_PURE = {
    "pyspark",
    "py4j",
    "threading",
    "socket",
    "subprocess",
    "time",
    "asyncio",
    "multiprocessing",
}
NOT_IMPORTED = {**dict.fromkeys(PURE, FORBIDDEN_IN_PURE), "model": FORBIDDEN_IN_PURE - {"time", "pyspark"}}
"""What pure packages do not import; `model` has the clock that others are given, and names types of Spark."""
CLOCKS = {
    *("time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter"),
    *(
        "time.perf_counter_ns",
        "time.sleep",
        "datetime.now",
        "datetime.utcnow",
        "datetime.today",
        "date.today",
    ),
}

FILES = sorted(SRC.rglob("*.py"))


def place_of(parts: Sequence[str]) -> str:
    """Return the folder or module of the layers that the parts of a module's name lie in; empty if there is none."""
    for length in range(len(parts), 0, -1):
        if (name := "/".join(parts[:length])) in RANK:
            return name
    return ""


def folder_of(path: Path) -> str:
    """Return the place of a file in the layers, empty for `transom/__init__.py`."""
    return place_of(path.relative_to(SRC).with_suffix("").parts)


def imports_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything imported, type-checking imports included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def clock_reads(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of everything that reads or waits on the system clock."""
    for line, name in imports_of(tree):
        if name in CLOCKS:
            yield line, name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            name = ".".join(ast.unparse(node).split(".")[-2:])
            if name in CLOCKS:
                yield node.lineno, name


def broken_rules(folder: str, tree: ast.AST) -> Iterator[str]:
    """Yield what a file of the folder may not do."""
    for line, name in imports_of(tree):
        root, _, rest = name.partition(".")
        if root in NOT_IMPORTED.get(folder, ()):
            yield f"line {line}: {folder} is pure and must not import {root}"
        if root != "transom" or not folder:
            continue
        target = place_of(rest.split("."))
        if not target:
            if folder not in USERS_OF_THE_PUBLIC_NAMES:
                yield f"line {line}: {folder} imports the public names; import the module that has them"
        elif target != folder and RANK[target] >= RANK[folder]:
            yield f"line {line}: {folder} imports {target}, which is not below it"
    if folder != "model":
        for line, name in clock_reads(tree):
            yield f"line {line}: {name} reads the system clock; take a Clock or the time as an argument"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_file_keeps_the_import_rules(path: Path) -> None:
    folder, code = folder_of(path), ast.parse(path.read_text(encoding="utf-8"))
    assert folder or len(code.body) == 1 or path.parent == SRC, "it has no place in the layers of docs/architecture.md"
    assert list(broken_rules(folder, code)) == []


def test_every_place_in_the_layers_is_there() -> None:
    assert [name for name in RANK if not (SRC / name).is_dir() and not (SRC / f"{name}.py").is_file()] == []


def test_only_model_time_reads_the_clock() -> None:
    readers = {path.name for path in (SRC / "model").glob("*.py") if list(clock_reads(ast.parse(path.read_text())))}
    assert readers == {"time.py"}


@pytest.mark.parametrize(
    ("folder", "code", "rule"),
    [
        ("windows", "from transom.scheduling.base import Policy", "not below"),
        ("windows", "import pyspark", "pure"),
        ("windows", "from pyspark.sql import functions", "pure"),
        ("model", "from transom.windows import panes", "not below"),
        ("sinks", "from transom.engine.loop.loop import Loop", "not below"),
        ("sinks", "from transom.sources.base import Cut", "not below"),
        ("engine/state", "from transom.engine.loop.loop import Loop", "not below"),
        ("engine/state", "from transom.engine.loop import loop", "not below"),
        ("engine/placed", "from transom.engine.partials.tables import digest", "not below"),
        ("windows/aggregates", "from transom.windows.keys import KeyIndex", "not below"),
        ("windows/aggregates", "import threading", "pure"),
        ("model", "import threading", "pure"),
        ("engine/loop", "import transom", "public names"),
        ("engine/loop", "import time\ntime.time()", "clock"),
        ("engine/loop", "from time import monotonic", "clock"),
        ("cli", "import datetime\ndatetime.datetime.now()", "clock"),
    ],
)
def test_the_rules_find_what_they_forbid(folder: str, code: str, rule: str) -> None:
    assert any(rule in broken for broken in broken_rules(folder, ast.parse(code)))


@pytest.mark.parametrize(
    ("folder", "code"),
    [
        ("engine/loop", "from transom.sinks.base import Sink\nimport time"),
        ("windows", "from transom.model.time import Micros\nimport numpy"),
        ("cli", "import transom as tm\nfrom transom.api.app import App"),
        ("", "from transom.cli import main"),
    ],
)
def test_the_rules_allow_what_they_should(folder: str, code: str) -> None:
    assert list(broken_rules(folder, ast.parse(code))) == []


def test_the_architecture_names_files_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", text)
    folders = {place.split("/")[0] for place in RANK}
    assert named
    assert [name for name in named if name.split("/")[0] in folders and not (SRC / name).is_file()] == []


def test_no_two_files_of_tests_have_one_name():
    """Pytest imports them by their names alone."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name not in ("conftest.py", "__init__.py")]
    assert sorted(names) == sorted(set(names))
