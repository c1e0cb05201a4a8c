"""The form of what is written for people; `make lint` runs it, too."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT


def test_prose_ends_at_120_columns():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"]
    long = []
    for page in pages:
        prose = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        lines = [line for line in prose.splitlines() if len(line) > 120 and not line.startswith("|")]
        long += [f"{page.relative_to(ROOT)}: {line}" for line in lines]
    assert long == []


def test_decisions_have_numbers_of_their_own():
    numbers = [int(page.name[:4]) for page in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))
