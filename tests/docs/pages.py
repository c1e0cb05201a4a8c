"""Code blocks of Markdown pages, run in the order of the page, their output compared with what the page shows.

A block marked `python` runs, in one namespace per page and in a directory of its own. A block marked `output` right
behind it is what it prints. `toml` blocks are jobs, or pieces of one that the page says are pieces. Blocks of other
kinds (`sh`, `sql`, `text`), and those behind a comment `<!-- not run: why -->`, do not run.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^>]+ -->\n+)?"
    r"^```(?P<kind>\w+)[^\n]*\n(?P<code>.*?)^```$"
    r"(?:\n+^```output\n(?P<output>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """One code block."""

    kind: str
    code: str
    output: str | None
    """What the page says that it prints; None where it says nothing."""
    line: int
    """Of its first line of code."""
    runs: bool


def blocks_of(text: str) -> Iterator[Block]:
    """Yield the code blocks of a page."""
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("code")) + 1
        yield Block(found["kind"], found["code"], found["output"], line, found["skip"] is None)


def run_page(page: Path) -> None:
    """Run the Python blocks of a page.

    Raises:
        AssertionError: One prints something else than the page says; where it shows no output, it may print nothing.
    """
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks_of(page.read_text(encoding="utf-8")):
        if block.kind != "python" or not block.runs:
            continue
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        with redirect_stdout(io.StringIO()) as printed:
            exec(code, names)
        given, shown = printed.getvalue().rstrip(), (block.output or "").rstrip()
        assert given == shown, f"{page.name}, line {block.line} prints:\n{given}"
