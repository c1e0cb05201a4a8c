"""A sink that a package brings: results as lines of one text file, which is replaced as a whole with each cut."""

from __future__ import annotations

import json
import os
from pathlib import Path

from transom.errors import SinkError
from transom.sinks.base import WindowResults
from transom.sinks.owner import Claim, Owner


def lines(path: str | os.PathLike[str], separator: str = "|") -> LineSink:
    """Write zone and n of each result into a file."""
    return LineSink(Path(path), separator)


class LineSink:
    """See `lines`. The first line of the file says whose it is, and each other one which cut it comes from."""

    def __init__(self, path: Path, separator: str) -> None:
        self.path, self.separator = path, separator
        self.key = f"lines:{path.absolute()}"

    def describe(self) -> str:
        """Return what it is, in one line for people."""
        return f"lines of {self.path}"

    def open(self, query: str) -> None:
        """Make the directory."""
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def claim(self, claim: Claim) -> None:
        """Write the first line, or find out that somebody else did."""
        owner, rows = self._read()
        if claim.allowed(owner, bool(rows), f"the file {self.path}", "directory"):
            self._write(claim.owner, [])

    def recover(self, query: str, next_cut: int) -> None:
        """Leave out the lines of cuts that the checkpoint does not know."""
        owner, rows = self._read()
        assert owner is not None, "claim() comes first"
        self._write(owner, [row for row in rows if row[0] < next_cut])

    def write(self, results: WindowResults) -> None:
        """Replace the lines of the cut."""
        owner, rows = self._read()
        if owner is None:
            raise SinkError(f"{results.query}: the file {self.path} is gone.", "Restore it.")
        table = results.table
        zones, numbers = table["zone"].to_pylist(), table["n"].to_pylist()
        mine = [(results.cut, zone, n) for zone, n in zip(zones, numbers, strict=True)]
        self._write(owner, [row for row in rows if row[0] != results.cut] + mine)

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    def _read(self) -> tuple[Owner | None, list[tuple[int, str | None, int]]]:
        if not self.path.exists():
            return None, []
        first, *others = self.path.read_text().splitlines()
        cells = (line.split(self.separator, 2) for line in others)
        return Owner(**json.loads(first)), [(int(cut), json.loads(zone), int(n)) for cut, n, zone in cells]

    def _write(self, owner: Owner, rows: list[tuple[int, str | None, int]]) -> None:
        sep = self.separator
        text = [json.dumps(owner.__dict__), *(f"{cut}{sep}{n}{sep}{json.dumps(zone)}" for cut, zone, n in rows)]
        new = self.path.with_suffix(".new")
        new.write_text("\n".join(text) + "\n")
        os.replace(new, self.path)


def read_lines(path: Path, separator: str = "|") -> list[tuple[str | None, int]]:
    """Return zone and n of each line."""
    return [(zone, n) for _, zone, n in LineSink(path, separator)._read()[1]]
