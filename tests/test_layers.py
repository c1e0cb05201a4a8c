"""The import rules of the package, read from the source: see docs/architecture.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parent.parent / "src" / "transom"

PURE = {"windows", "scheduling", "placement", "planning", "widearea"}
LAYERS = (
    {"errors"},
    {"failures"},
    {"model"},
    PURE,
    {"sources", "sinks", "checkpoint"},
    {"engine"},
    {"sites"},
    {"view"},
    {"gate", "collection"},
    {"config"},
    {"pipeline"},
    {"chaining"},
    {"app"},
    {"jobkeys"},
    {"jobwindows"},
    {"jobjoins"},
    {"jobfile"},
    {"dashboard"},
    {"demo"},
    {"cli"},
)
"""Lowest first. A package imports itself and lower layers; never a neighbour in its own layer."""
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
SHARED_DEFINITIONS = {"config"}
"""Values that may be imported from above although they live in the composition root."""
USERS_OF_THE_PUBLIC_NAMES = {"jobfile", "jobwindows", "demo", "cli"}
"""They write jobs as a user does: `import transom as tm`."""

TYPES_ONLY = {("model", "transom.windows.aggregates.base.Aggregate")}
"""Exceptions, under `if TYPE_CHECKING` only: a query is a value that holds aggregates."""

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


def package_of(path: Path) -> str:
    """Return the top-level package or module of a file, empty for `transom/__init__.py`."""
    first = path.relative_to(SRC).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


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


def type_only_lines(tree: ast.AST) -> set[int]:
    """Return the lines of the file that stand under `if TYPE_CHECKING`."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {
        inner.lineno for block in blocks for line in block.body for inner in ast.walk(line) if hasattr(inner, "lineno")
    }


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


def broken_rules(package: str, tree: ast.AST) -> Iterator[str]:
    """Yield what a file of the package may not do."""
    types = type_only_lines(tree)
    for line, name in imports_of(tree):
        if (package, name) in TYPES_ONLY and line in types:
            continue
        root, _, rest = name.partition(".")
        if package in PURE and root in FORBIDDEN_IN_PURE:
            yield f"line {line}: {package} is pure and must not import {root}"
        if root != "transom" or not package:
            continue
        target = rest.partition(".")[0]
        if target not in RANK:
            if package not in USERS_OF_THE_PUBLIC_NAMES:
                yield f"line {line}: {package} imports the public names; import the module that has them"
        elif target not in (package, *SHARED_DEFINITIONS) and RANK[target] >= RANK[package]:
            yield f"line {line}: {package} imports {target}, which is not below it"
    if package != "model":
        for line, name in clock_reads(tree):
            yield f"line {line}: {name} reads the system clock; take a Clock or the time as an argument"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_file_keeps_the_import_rules(path: Path) -> None:
    package = package_of(path)
    assert not package or package in RANK, f"{package} has no place in the layers: add it to LAYERS"
    assert list(broken_rules(package, ast.parse(path.read_text(encoding="utf-8")))) == []


def test_only_model_time_reads_the_clock() -> None:
    readers = {path.name for path in (SRC / "model").glob("*.py") if list(clock_reads(ast.parse(path.read_text())))}
    assert readers == {"time.py"}


@pytest.mark.parametrize(
    ("package", "code", "rule"),
    [
        ("windows", "from transom.scheduling.base import Policy", "not below"),
        ("windows", "import pyspark", "pure"),
        ("windows", "from pyspark.sql import functions", "pure"),
        ("model", "from transom.windows import panes", "not below"),
        ("sinks", "from transom.engine.loop import Loop", "not below"),
        ("sinks", "from transom.sources.base import Cut", "not below"),
        ("model", "from transom.windows.aggregates.base import Aggregate", "not below"),
        ("engine", "import transom", "public names"),
        ("engine", "import time\ntime.time()", "clock"),
        ("engine", "from time import monotonic", "clock"),
        ("cli", "import datetime\ndatetime.datetime.now()", "clock"),
    ],
)
def test_the_rules_find_what_they_forbid(package: str, code: str, rule: str) -> None:
    assert any(rule in broken for broken in broken_rules(package, ast.parse(code)))


@pytest.mark.parametrize(
    ("package", "code"),
    [
        ("engine", "from transom.sinks.base import Sink\nimport time"),
        ("windows", "from transom.model.time import Micros\nimport numpy"),
        ("cli", "import transom as tm\nfrom transom.app import App"),
        ("", "from transom.cli import main"),
    ],
)
def test_the_rules_allow_what_they_should(package: str, code: str) -> None:
    assert list(broken_rules(package, ast.parse(code))) == []


def test_the_architecture_names_files_that_exist() -> None:
    text = (SRC.parent.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", text)
    assert named
    assert [name for name in named if name.startswith(tuple(RANK)) and not (SRC / name).is_file()] == []
