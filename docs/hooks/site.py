"""Pages of the site that lie outside of docs/, and links to them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = {
    "benchmarks.md": "benchmarks/README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
"""The file that a page of the site is made of, relative to the top of the repository."""
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from elsewhere."""
    for page, path in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links to files of the repository at their pages; what is no page (an example, a folder) is only named.

    In the repository links hold where the file lies, so that they work there, too.
    """
    source = ROOT / ELSEWHERE.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    up = "../" * page.file.src_uri.count("/")

    def pointed(match: re.Match[str]) -> str:
        text, (target, mark, anchor) = match[1], match[2].partition("#")
        path = (source.parent / target).resolve()
        if not target or "://" in target or not path.exists():
            return match[0]  # of this page, of the world, or broken, which the strict build names
        found = _page_of(path)
        return text if found is None else f"[{text}]({up}{found}{mark}{anchor})"

    return LINK.sub(pointed, markdown)


def _page_of(path: Path) -> str | None:
    """Return the page of the site that a file is; None for what is no page."""
    for page, elsewhere in ELSEWHERE.items():
        if path == ROOT / elsewhere:
            return page
    inside = path.is_relative_to(ROOT / "docs") and path.is_file()
    return path.relative_to(ROOT / "docs").as_posix() if inside else None
