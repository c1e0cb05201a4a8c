"""`transom explain`: what a job would do, without reading its data."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from transom.cli.loading import load
from transom.cli.quiet import start_spark

_NAMED = ("name", "query", "stream", "id")
"""Keys whose value names an entry of a list."""


def explain_job(job: Path, *, master: str, as_json: bool) -> None:
    """Print what a job would do.

    Raises:
        TransomError: The job cannot be loaded.
    """
    build = load(job)
    spark = start_spark(master, f"transom explain {job.name}")
    try:
        plan = build(spark).explain()
    finally:
        spark.stop()
    if as_json:
        print(json.dumps(plan, indent=2, default=str), file=sys.stdout)
    else:
        Console(highlight=False).print(tree(job.name, plan))


def tree(title: str, plan: Mapping[str, Any]) -> Tree:
    """Return nested tables and lists as a tree for people."""
    root = Tree(Text(title, style="bold cyan"))
    _grow(root, plan)
    return root


def _grow(branch: Tree, value: Any) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _add(branch, str(key).replace("_", " "), inner)
    else:
        for inner in value:
            if isinstance(inner, Mapping):
                name = next((str(inner[key]) for key in _NAMED if key in inner), "-")
                rest = {key: entry for key, entry in inner.items() if str(entry) != name}
                _grow(branch.add(Text(name, style="bold")), rest)
            elif isinstance(inner, (list, tuple)):
                branch.add(Text(", ".join(map(str, inner))))
            else:
                branch.add(Text(str(inner)))


def _add(branch: Tree, label: str, value: Any) -> None:
    nested = isinstance(value, Mapping) or (
        isinstance(value, (list, tuple)) and any(isinstance(one, (Mapping, list, tuple)) for one in value)
    )
    if nested and value:
        _grow(branch.add(Text(label, style="cyan")), value)
        return
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    branch.add(Text.assemble((f"{label}: ", "cyan"), text or "none"))
